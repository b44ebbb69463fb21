/**
 * Several processes with many callers each, who contend for a few keys; and what came of it.
 */
import * as History from "@effect-locking/testing/History"
import type { RedisServer } from "@effect-locking/testing/RedisServer"
import * as Worker from "@effect-locking/testing/Worker"
import { Array, Duration, Effect, Fiber, Random, Schedule } from "effect"
import * as kit from "../kit.js"

/** What a process is told. */
export interface Task {
  readonly url: string
  readonly name: string
  readonly waiters: number
  readonly keys: number
  /** In milliseconds; so long that a wake-up which is lost is seen by what does not happen. */
  readonly pollInterval: number
}

/** A caller had a key. Times in microseconds of the host's monotonic clock. */
export type Turn = readonly [key: string, fence: string, asked: number, from: number, until: number]

export interface Load extends Pick<Task, "waiters" | "keys" | "pollInterval"> {
  readonly processes: number
  readonly seconds: number
}

/** What a process writes, ten times a second if it gets to run. */
export interface Report {
  readonly at: number
  readonly turns: ReadonlyArray<Turn>
}

export interface Story {
  readonly process: string
  readonly turns: ReadonlyArray<Turn>
  /** When it wrote. */
  readonly signs: ReadonlyArray<number>
}

export interface Outcome {
  readonly all: ReadonlyArray<Story>
  /** When all were told to go, and to stop; in microseconds. */
  readonly start: number
  readonly stop: number
  /** When the last of those who waited at the end had been served. */
  readonly end: number
  /** What the server was told by the processes in all. */
  readonly commands: number
  /** The most connections at the server at once. */
  readonly connections: number
  /** Connections that were killed. */
  readonly killed: number
  /** Holders and waiters at the server once the processes are gone. */
  readonly left: number
}

const isReport = (value: unknown): value is Report => typeof value === "object" && value !== null && "turns" in value

/** The driver's connections, by their numbers at the server. */
const connections = (server: RedisServer) =>
  Effect.map(
    server.command("CLIENT", "LIST"),
    (text: string) => [...text.matchAll(/^id=(\d+).* name=effect-locking-/gm)].map(([, id]) => id!)
  )

/** Kills one connection after the other, whosever it is, for ever. */
const chaos = (server: RedisServer, onKill: () => void) =>
  Effect.gen(function*() {
    const ids = yield* connections(server)
    const id = ids[yield* Random.nextIntBetween(0, ids.length)]
    if (id !== undefined && (yield* server.command("CLIENT", "KILL", "ID", id)) === 1) onKill()
  }).pipe(Effect.zipRight(Effect.sleep(250)), Effect.forever)

export const run = (server: RedisServer, load: Load, options: { readonly isChaotic: boolean }) =>
  Effect.gen(function*() {
    const names = Array.makeBy(load.processes, (i) => `stress-${i}`)
    const workers = yield* Effect.forEach(names, (name) => {
      const { keys, pollInterval, waiters } = load
      const task: Task = { url: server.url(), name, waiters, keys, pollInterval }
      return Worker.spawn(new URL("./worker.ts", import.meta.url), {
        args: [JSON.stringify(task)],
        watchdog: Duration.seconds(load.seconds + 120)
      })
    })
    const each = <A, E>(step: (worker: Worker.Worker) => Effect.Effect<A, E>) =>
      Effect.forEach(workers, step, { concurrency: "unbounded" })
    yield* each(({ take }) => take)

    let [most, killed] = [0, 0]
    const count = Effect.map(connections(server), (ids) => most = Math.max(most, ids.length))
    const watch = yield* Effect.forkScoped(
      options.isChaotic ? chaos(server, () => killed++) : Effect.repeat(count, Schedule.spaced(300))
    )

    const before = yield* kit.commands(server)
    const start = History.now()
    yield* each(({ send }) => send("go"))
    yield* Effect.sleep(Duration.seconds(load.seconds))
    const stop = History.now()
    yield* each(({ send }) => send("stop"))
    yield* each(({ takeUntil }) => takeUntil((value) => value === "served"))
    const end = History.now()
    const commands = (yield* kit.commands(server)) - before
    yield* Fiber.interrupt(watch)
    yield* each(({ ended }) => ended)
    const all = yield* Effect.forEach(workers, ({ written }, i) =>
      Effect.map(written, (values): Story => {
        const reports = values.filter(isReport)
        return {
          process: names[i]!,
          turns: reports.flatMap(({ turns }) => turns),
          signs: reports.map(({ at }) => at)
        }
      }))
    const records: ReadonlyArray<string> = yield* server.command("KEYS", "*")
    const fields = yield* Effect.forEach(records, (record) => server.command("HKEYS", record))
    const left = fields.flat().filter((field: string) => /^[hmw]/.test(field)).length
    return { all, start, stop, end, commands, connections: most, killed, left } satisfies Outcome
  })

/** From when a key was free and wanted until somebody had it: the longest that took, in microseconds. */
export const longestStall = ({ all }: Outcome): number => {
  const byKey = Array.groupBy(all.flatMap(({ turns }) => turns), ([key]) => key)
  let longest = 0
  for (const turns of Object.values(byKey)) {
    let freeAt = 0
    for (const [, , asked, from, until] of turns.toSorted((a, b) => a[3] - b[3])) {
      longest = Math.max(longest, from - Math.max(freeAt, asked))
      freeAt = until
    }
  }
  return longest
}

const second = 1_000_000

/**
 * What each process had of its fair share in a second: one entry for each, the least first. Not counted are the first
 * second, in which they warm up, and those in which the machine did not let one of them run.
 */
export const shares = ({ all, start, stop }: Outcome): ReadonlyArray<number> => {
  const found: Array<number> = []
  for (let from = start + second; from + second <= stop; from += second) {
    const isIn = (time: number) => time >= from && time < from + second
    if (!all.every(({ signs }) => signs.filter(isIn).length >= 5)) continue
    const counts = all.map(({ turns }) => turns.filter((turn) => isIn(turn[3])).length)
    const fair = counts.reduce((sum, count) => sum + count, 0) / all.length
    for (const count of counts) found.push(count / fair)
  }
  return found.toSorted((a, b) => a - b)
}

/** As the judge of histories wants it. */
export const windows = ({ all }: Outcome): ReadonlyArray<History.Window> =>
  all.flatMap(({ process, turns }) =>
    turns.map(([key, fence, , from, until]) => ({
      _tag: "window",
      process,
      key,
      mode: "exclusive",
      fence: BigInt(fence),
      from,
      until
    }))
  )
