/**
 * What a lease cannot do: stop a process that was frozen, lost its lease, and wakes up to write. The resource can, when
 * it remembers the highest fence. In SQL: UPDATE report SET text = $1, fence = $2 WHERE fence <= $2.
 */
import { Console, Effect } from "effect"
import { FencedRegister, Locking, MemoryStore } from "effect-locking"

export const program = Effect.gen(function*() {
  const store = yield* MemoryStore.make
  const one = yield* Locking.make(yield* MemoryStore.driver(store))
  const other = yield* Locking.make(yield* MemoryStore.driver(store))
  const report = yield* FencedRegister.make("empty")

  // a frozen process neither renews its lease nor hears that it is interrupted
  const frozen = one.useLock(
    "report",
    { ttl: "100 millis", autoRenew: false },
    (lease) =>
      Console.log("the first one holds the lock, and freezes").pipe(
        Effect.zipRight(Effect.sleep("300 millis")),
        Effect.zipRight(report.set(lease.fence, "old news")),
        Effect.uninterruptible
      )
  )

  const next = other.useLock("report", (lease) =>
    Effect.gen(function*() {
      yield* report.set(lease.fence, "news")
      yield* Console.log("its lease is over: the next one holds the lock, and writes")
    }))

  yield* Effect.all([
    frozen.pipe(
      Effect.catchTag("StaleFence", (error) => Console.log(`the first one wakes up and writes. ${error.message}`))
    ),
    Effect.delay(next, "50 millis")
  ], { concurrency: "unbounded" })
  yield* Console.log(`the report says: ${yield* report.get}`)
}).pipe(Effect.scoped)

if (process.argv[1] === import.meta.filename) Effect.runPromise(program)
