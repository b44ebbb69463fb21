/** A process of a benchmark: does its task when it is told to, and answers one value. */
import * as History from "@effect-locking/testing/History"
import * as Worker from "@effect-locking/testing/Worker"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Queue from "effect/Queue"
import * as bench from "./bench.js"

export type Task =
  & { readonly url: string }
  & (
    | { readonly what: "contend"; readonly callers: number; readonly keys: number; readonly seconds: number }
    | { readonly what: "alternate"; readonly turns: number }
  )

export interface Contended {
  readonly grants: number
  readonly statements: number
}

/** When a process asked to give the key up, and when the other had it; in microseconds. */
export interface Alternated {
  readonly granted: ReadonlyArray<number>
  readonly released: ReadonlyArray<number>
}

const task: Task = JSON.parse(process.argv[2]!)

/** So long that the other one waits again, in milliseconds. */
const hold = 15

const program = Effect.gen(function*() {
  const sent: bench.Sent = { statements: 0 }
  const inbox = yield* Worker.inbox
  const locking = yield* bench.locking(task.url, sent)
  const patient = { waitTimeout: Number.POSITIVE_INFINITY }
  yield* locking.withLock(Effect.void, "warm")
  Worker.emit("ready")
  yield* Queue.take(inbox)
  if (task.what === "contend") {
    const { callers, keys, seconds } = task
    let grants = 0
    const end = performance.now() + seconds * 1000
    const before = sent.statements
    const section = Effect.sync(() => grants++)
    yield* Effect.forEach(bench.range(callers), (caller) =>
      Effect.iterate(caller, {
        while: () => performance.now() < end,
        body: (turn) => Effect.as(locking.withLock(section, `k${turn % keys}`, patient), turn + 7)
      }), { concurrency: "unbounded", discard: true })
    Worker.emit({ grants, statements: sent.statements - before } satisfies Contended)
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
