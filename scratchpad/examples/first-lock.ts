/** The first lock: whoever comes second waits, or says for how long at most. */
import { Console, Effect } from "effect"
import { Locking } from "effect-locking"

export const program = Effect.gen(function*() {
  let balance = 100

  const withdraw = (name: string, amount: number) =>
    Effect.gen(function*() {
      const before = balance
      yield* Effect.sleep("10 millis") // a query, a call to another service
      balance = before - amount
      yield* Console.log(`${name} takes ${amount}, ${balance} are left`)
    }).pipe(Locking.withLock("account/1"))

  yield* Effect.all([withdraw("Ada", 30), withdraw("Ben", 20)], { concurrency: "unbounded" })

  // however a section ends, the lock is given back: here it is interrupted
  yield* Effect.sleep("1 hour").pipe(Locking.withLock("account/1"), Effect.timeoutOption("10 millis"))
  yield* withdraw("Cleo", 10)

  // who will not wait any longer learns who is in the way
  const audit = Effect.sleep("500 millis").pipe(Locking.withLock("account/1"))
  const hasty = Effect.void.pipe(
    Locking.withLock("account/1", { waitTimeout: "50 millis" }),
    Effect.catchTag("WaitTimeout", (error) => Console.log(error.message))
  )
  yield* Effect.all([audit, Effect.delay(hasty, "20 millis")], { concurrency: "unbounded" })
}).pipe(Effect.provide(Locking.layerMemory))

if (process.argv[1] === import.meta.filename) Effect.runPromise(program)
