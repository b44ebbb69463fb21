/**
 * One process of the stress test: many callers who take one lock after the other until they are told to stop. Writes
 * what it held, and exits by itself once the last of them is served and the layer is closed.
 */
import * as History from "@effect-locking/testing/History"
import * as Worker from "@effect-locking/testing/Worker"
import { Effect, Layer, Logger, Queue } from "effect"
import { Locking } from "effect-locking"
import { Redis } from "ioredis"
import { RedisLocking } from "../../src/index.js"
import type { Report, Task, Turn } from "./stress.js"

const { keys, name, pollInterval, url, waiters }: Task = JSON.parse(process.argv[2]!)

// the driver duplicates it
const client = new Redis(url, { lazyConnect: true })

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
      // 7 has no factor in common with the number of keys: everybody comes to every key
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
  yield* Effect.forEach(Array.from({ length: waiters }, (_, i) => i), caller, {
    concurrency: "unbounded",
    discard: true
  })
  yield* write
  Worker.emit("served")
}).pipe(
  Effect.scoped,
  Effect.provide(Layer.provideMerge(
    // no lease ends, and nobody polls, before the test has judged
    RedisLocking.layer({ client, session: name, pollInterval, ttl: "1 minute", waitTimeout: "2 minutes" }),
    // the output is for the test
    Logger.replace(Logger.defaultLogger, Logger.withConsoleError(Logger.logfmtLogger))
  ))
)

Effect.runPromise(program).catch((error) => {
  process.stderr.write(`${error}\n`)
  process.exitCode = 1
})
