import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"

/**
 * Ends with the effect or, when that takes too long, with the failure. One `Deferred` is completed by whoever comes
 * first, so an interrupt finds nothing half set up.
 */
export const within = <A, E>(effect: Effect.Effect<A, E>, millis: number, otherwise: () => E): Effect.Effect<A, E> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function*() {
      const first = yield* Deferred.make<A, E>()
      const asked = yield* Effect.forkDaemon(Effect.interruptible(Effect.intoDeferred(effect, first)))
      const late = Effect.flatMap(Effect.sleep(millis), () => Deferred.failSync(first, otherwise))
      const timer = yield* Effect.forkDaemon(Effect.interruptible(late))
      const stop = Effect.zipRight(Fiber.interruptFork(asked), Fiber.interruptFork(timer))
      return yield* Effect.ensuring(restore(Deferred.await(first)), stop)
    })
  )
