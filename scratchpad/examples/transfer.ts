/** Two accounts, two locks: `withLocks` takes all or none, so opposite orders cannot deadlock. */
import { Console, Effect } from "effect"
import { Locking } from "effect-locking"

export const program = Effect.gen(function*() {
  const accounts = { alice: 100, bob: 100 }

  const transfer = (from: keyof typeof accounts, to: keyof typeof accounts, amount: number) =>
    Effect.gen(function*() {
      const before = { ...accounts }
      yield* Effect.sleep("10 millis")
      accounts[from] = before[from] - amount
      accounts[to] = before[to] + amount
      yield* Console.log(`${amount} from ${from} to ${to}`)
    }).pipe(Locking.withLocks([from, to]))

  yield* Effect.all([transfer("alice", "bob", 30), transfer("bob", "alice", 50)], { concurrency: "unbounded" })
  yield* Console.log(`alice has ${accounts.alice}, bob has ${accounts.bob}`)
}).pipe(Effect.provide(Locking.layerMemory))

if (process.argv[1] === import.meta.filename) Effect.runPromise(program)
