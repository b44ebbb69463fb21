/** A process of a benchmark: does its task when it is told to, and answers one value. */
import * as History from "@effect-locking/testing/History"
import * as Worker from "@effect-locking/testing/Worker"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Queue from "effect/Queue"
import * as pg from "./pg/bench.js"
import * as redis from "./redis/bench.js"
import { range, type Sent } from "./remote.js"

export type Task =
  & { readonly driver: "pg" | "redis"; readonly url: string }
  & (
    | {
      readonly what: "contend"
      readonly callers: number
      readonly keys: number
      readonly seconds: number
      /** How long a section takes, in milliseconds. */
      readonly hold: number
    }
    | { readonly what: "alternate"; readonly turns: number }
  )

export interface Contended {
  readonly grants: number
  /** Those of the time that counts, after everything was compiled. */
  readonly counted: number
  /** What was sent to the store. */
  readonly sent: number
  /** Callers who never got it. */
  readonly unserved: number
  /** In milliseconds. */
  readonly longestWait: number
}

/** When a process asked to give the key up, and when the other had it; in microseconds. */
export interface Alternated {
  readonly granted: ReadonlyArray<number>
  readonly released: ReadonlyArray<number>
}

const task: Task = JSON.parse(process.argv[2]!)

/** In milliseconds. */
const warmup = 1500

/** So long that the other one waits again, in milliseconds. */
const hold = 15

const program = Effect.gen(function*() {
  const sent: Sent = { count: 0 }
  const inbox = yield* Worker.inbox
  const locking = yield* { pg, redis }[task.driver].locking(task.url, sent)
  const patient = { waitTimeout: Number.POSITIVE_INFINITY }
  yield* locking.withLock(Effect.void, "warm")
  Worker.emit("ready")
  yield* Queue.take(inbox)
  if (task.what === "contend") {
    const { callers, keys, seconds } = task
    let grants = 0
    let counted = 0
    let longestWait = 0
    const served = new Set<number>()
    const start = performance.now() + warmup
    const end = start + seconds * 1000
    const before = sent.count
    const turn = (caller: number, key: number) =>
      Effect.suspend(() => {
        const asked = performance.now()
        const entered = Effect.sync(() => {
          grants++
          served.add(caller)
          if (performance.now() >= start) counted++
          if (asked >= start) longestWait = Math.max(longestWait, performance.now() - asked)
        })
        const section = task.hold === 0 ? entered : Effect.zipRight(entered, Effect.sleep(task.hold))
        return locking.withLock(section, `k${key % keys}`, patient)
      })
    yield* Effect.forEach(range(callers), (caller) =>
      Effect.iterate(caller, {
        while: () => performance.now() < end,
        body: (key) => Effect.as(turn(caller, key), key + 7)
      }), { concurrency: "unbounded", discard: true })
    Worker.emit(
      { grants, counted, sent: sent.count - before, unserved: callers - served.size, longestWait } satisfies Contended
    )
  } else {
    const granted: Array<number> = []
    const released: Array<number> = []
    const turn = locking.useLock("k", patient, () => {
      granted.push(History.now())
      return Effect.zipRight(Effect.sleep(hold), Effect.sync(() => released.push(History.now())))
    })
    yield* Effect.repeatN(turn, task.turns - 1)
    Worker.emit({ granted, released } satisfies Alternated)
  }
}).pipe(
  Effect.scoped,
  // what is written to the output is for the benchmark
  Effect.provide(Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.logfmtLogger)))
)

Effect.runPromise(program).catch((error) => {
  process.stderr.write(`${error}\n`)
  process.exitCode = 1
})
