/**
 * A lock under stress: processes with many callers each, who take one key after the other through the whole library, and
 * the verdict on what came of it. Judged are exclusion and fences, whether a wake-up was lost, whether somebody was stuck,
 * and the share of each process in each second.
 *
 * A worker polls so seldom that a lost wake-up is seen by what does not happen: give its layer a long `pollInterval`.
 *
 * @since 0.1.0
 */
import * as Locking from "effect-locking/Locking"
import * as Arr from "effect/Array"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as History from "./History.js"
import type { KitError } from "./KitError.js"
import * as OverlapOracle from "./OverlapOracle.js"
import * as Worker from "./Worker.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Load {
  /** What a worker needs to find the store. */
  readonly store: string
  /** Default 4. */
  readonly processes?: number | undefined
  /** Callers of each process. Default 200. */
  readonly callers?: number | undefined
  /** Default 20. */
  readonly keys?: number | undefined
  /** For how long they go on. Default 4 seconds, of which the first one is to warm up. */
  readonly duration?: Duration.DurationInput | undefined
}

/**
 * What one process is told.
 *
 * @since 0.1.0
 * @category models
 */
export interface Task {
  readonly store: string
  readonly name: string
  readonly callers: number
  readonly keys: number
}

/**
 * What came of it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Verdict {
  /** How often somebody had a key. */
  readonly turns: number
  /** How often the store granted one: turns with fences one after the other were passed on within a grant. */
  readonly grants: number
  /** Two holders at once; a fence that did not rise, or that two turns had. */
  readonly violations: ReadonlyArray<OverlapOracle.Violation>
  /** From when a key was free and wanted until somebody had it: the longest that took. */
  readonly longestStall: Duration.Duration
  /** From the end of the run until the last of those who waited had been served. */
  readonly drained: Duration.Duration
  /**
   * What each process had of its fair share in a second: one entry for each, the least first. Where the machine has not
   * let one of them run for half of it, the next second is added.
   */
  readonly shares: ReadonlyArray<number>
}

/** A caller had a key. Times in microseconds of the host's monotonic clock. */
type Turn = readonly [key: string, fence: string, asked: number, from: number, until: number]

/** What a process writes, ten times a second if it gets to run. */
interface Report {
  readonly at: number
  readonly turns: ReadonlyArray<Turn>
}

interface Story {
  readonly process: string
  readonly turns: ReadonlyArray<Turn>
  /** When it wrote. */
  readonly signs: ReadonlyArray<number>
}

const isReport = (value: unknown): value is Report => typeof value === "object" && value !== null && "turns" in value

/**
 * The main program of a worker: its callers take one lock after the other until they are told to stop. It exits by itself
 * once the last of them is served and the layer is closed, so what the layer leaves behind can be looked for then.
 *
 * @example
 * ```ts
 * import { Stress } from "@effect-locking/testing"
 * import { Effect } from "effect"
 * import { Locking, MemoryStore } from "effect-locking"
 *
 * // in stress/worker.ts: Stress.work(layerOf)
 * const layerOf = (task: Stress.Task) =>
 *   Locking.layer(Effect.flatMap(MemoryStore.make, MemoryStore.driver), {
 *     session: task.name,
 *     pollInterval: "1 minute",
 *     waitTimeout: "2 minutes"
 *   })
 * ```
 *
 * @since 0.1.0
 * @category workers
 */
export const work = <E>(layerOf: (task: Task) => Layer.Layer<Locking.Locking, E>): void => {
  const task: Task = JSON.parse(process.argv[2]!)
  const { callers, keys } = task
  const program = Effect.gen(function*() {
    const inbox = yield* Worker.inbox
    let isOver = false
    let unwritten: Array<Turn> = []

    const turn = (key: string) =>
      Effect.suspend(() => {
        const asked = History.now()
        return Locking.useLock(key, (lease) =>
          Effect.gen(function*() {
            const from = History.now()
            // what others could run in, if they were let
            yield* Effect.yieldNow()
            unwritten.push([key, lease.fence.toString(), asked, from, History.now()])
          }))
      })
    const caller = (seat: number) =>
      Effect.iterate(seat, {
        while: () => !isOver,
        // 7 has no factor in common with most numbers of keys: everybody comes to every key
        body: (at) => Effect.as(turn(`k${at % keys}`), at + 7)
      })
    const write = Effect.sync(() => {
      Worker.emit({ at: History.now(), turns: unwritten } satisfies Report)
      unwritten = []
    })

    Worker.emit("ready")
    yield* Queue.take(inbox)
    yield* Effect.forkScoped(Effect.forever(Effect.delay(write, 100)))
    yield* Effect.forkScoped(Effect.zipRight(Queue.take(inbox), Effect.sync(() => isOver = true)))
    yield* Effect.forEach(Arr.makeBy(callers, (i) => i), caller, {
      concurrency: "unbounded",
      discard: true
    })
    yield* write
    Worker.emit("served")
  }).pipe(
    Effect.scoped,
    Effect.provide(Layer.provideMerge(
      layerOf(task),
      // the output is for the test
      Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.logfmtLogger))
    ))
  )
  Effect.runPromise(program).catch((error) => {
    process.stderr.write(`${error}\n`)
    process.exitCode = 1
  })
}

/**
 * Starts the workers, lets them go, and judges. Ends when all of them have exited. What torments them, or counts at the
 * store, runs beside it.
 *
 * @example
 * ```ts
 * import { Stress } from "@effect-locking/testing"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const verdict = yield* Stress.run(new URL("./worker.ts", import.meta.url), { store: "redis://localhost" })
 *   return verdict.violations.length === 0 && verdict.shares.every((share) => share >= 0.2)
 * })
 * ```
 *
 * @since 0.1.0
 * @category running
 */
export const run = (worker: URL | string, load: Load): Effect.Effect<Verdict, KitError, Scope.Scope> =>
  Effect.gen(function*() {
    const { callers = 200, keys = 20, processes = 4, store } = load
    const duration = Duration.decode(load.duration ?? "4 seconds")
    const names = Arr.makeBy(processes, (i) => `stress-${i}`)
    const workers = yield* Effect.forEach(names, (name) =>
      Worker.spawn(worker, {
        args: [JSON.stringify({ store, name, callers, keys } satisfies Task)],
        watchdog: Duration.sum(duration, "2 minutes")
      }))
    const each = <A, E>(step: (worker: Worker.Worker) => Effect.Effect<A, E>) =>
      Effect.forEach(workers, step, { concurrency: "unbounded" })
    yield* each(({ take }) => take)
    const start = History.now()
    yield* each(({ send }) => send("go"))
    yield* Effect.sleep(duration)
    const stop = History.now()
    yield* each(({ send }) => send("stop"))
    yield* each(({ takeUntil }) => takeUntil((value) => value === "served"))
    const end = History.now()
    yield* each(({ ended }) => ended)
    const stories = yield* Effect.forEach(workers, ({ written }, i) =>
      Effect.map(written, (values): Story => {
        const reports = values.filter(isReport)
        return {
          process: names[i]!,
          turns: reports.flatMap(({ turns }) => turns),
          signs: reports.map(({ at }) => at)
        }
      }))
    const windows = windowsOf(stories)
    return {
      turns: windows.length,
      grants: grants(windows),
      violations: [...OverlapOracle.judge(windows).violations, ...sharedFences(windows)],
      longestStall: Duration.micros(BigInt(longestStall(stories))),
      drained: Duration.micros(BigInt(end - stop)),
      shares: shares(stories, start, stop)
    }
  })

const longestStall = (stories: ReadonlyArray<Story>): number => {
  let longest = 0
  for (const turns of Object.values(Arr.groupBy(stories.flatMap(({ turns }) => turns), ([key]) => key))) {
    let freeAt = 0
    for (const [, , asked, from, until] of turns.toSorted((a, b) => a[3] - b[3])) {
      longest = Math.max(longest, from - Math.max(freeAt, asked))
      freeAt = until
    }
  }
  return longest
}

const second = 1_000_000

/** Not in the first second, in which they warm up. A process that gets to run writes ten times a second. */
const shares = (stories: ReadonlyArray<Story>, start: number, stop: number): ReadonlyArray<number> => {
  const found: Array<number> = []
  let from = start + second
  for (let to = from + second; to <= stop; to += second) {
    const isIn = (time: number) => time >= from && time < to
    const ran = stories.map(({ signs }) => signs.filter(isIn).length)
    if (Math.min(...ran) < Math.max(5, Math.max(...ran) / 2)) continue
    const counts = stories.map(({ turns }) => turns.filter((turn) => isIn(turn[3])).length)
    const fair = counts.reduce((sum, count) => sum + count, 0) / stories.length
    for (const count of counts) found.push(count / fair)
    from = to
  }
  return found.toSorted((a, b) => a - b)
}

/** As the judge of histories wants it. */
const windowsOf = (stories: ReadonlyArray<Story>): ReadonlyArray<History.Window> =>
  stories.flatMap(({ process, turns }) =>
    turns.map(([key, fence, , from, until]): History.Window => ({
      _tag: "window",
      process,
      key,
      mode: "exclusive",
      fence: BigInt(fence),
      from,
      until
    }))
  )

const grants = (windows: ReadonlyArray<History.Window>): number => {
  const fences = new Set(windows.map(({ fence, key }) => `${key} ${fence}`))
  return windows.filter(({ fence, key }) => !fences.has(`${key} ${fence - 1n}`)).length
}

/** To the judge, windows of one fence are one window. */
const sharedFences = (windows: ReadonlyArray<History.Window>): ReadonlyArray<OverlapOracle.Violation> =>
  Object.values(Arr.groupBy(windows, ({ fence, key }) => `${key} ${fence}`)).flatMap((same) => {
    const [{ fence, key }] = same
    return same.length === 1
      ? []
      : [{ what: "fence", of: key, message: `${same.length} turns had the fence ${fence}` } as const]
  })
