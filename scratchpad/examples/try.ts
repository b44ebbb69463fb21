/** Work that is worth doing once: whoever finds the lock taken goes on without it. */
import { Console, Effect, Option } from "effect"
import { Locking } from "effect-locking"

export const program = Effect.gen(function*() {
  let price = 10
  let fetched = 0

  const refresh = Effect.gen(function*() {
    yield* Effect.sleep("20 millis") // slow and expensive
    fetched++
    return ++price
  })

  const request = (n: number) =>
    Effect.gen(function*() {
      const fresh = yield* refresh.pipe(Locking.withLockIfAvailable("price"))
      yield* Console.log(Option.match(fresh, {
        onNone: () => `request ${n}: ${price} from the cache, somebody else is fetching it anew`,
        onSome: (price) => `request ${n}: ${price}, fetched anew`
      }))
    })

  yield* Effect.all([request(1), request(2), request(3)], { concurrency: "unbounded" })
  yield* Console.log(`fetched ${fetched} time`)
}).pipe(Effect.provide(Locking.layerMemory))

if (process.argv[1] === import.meta.filename) Effect.runPromise(program)
