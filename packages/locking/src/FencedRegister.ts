/**
 * A value in memory that refuses stale writes: the check at the resource, for tests and examples.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Fence from "./Fence.js"
import { StaleFence } from "./LockError.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: TypeId = "~effect-locking/FencedRegister"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = "~effect-locking/FencedRegister"

/**
 * @since 0.1.0
 * @category models
 */
export interface FencedRegister<A> {
  readonly [TypeId]: TypeId
  /** The value. Reading is not guarded. */
  readonly get: Effect.Effect<A>
  /** The highest fence that has written; none before the first write. */
  readonly fence: Effect.Effect<Option.Option<Fence.Fence>>
  /** Writes, unless a later fence has written. */
  readonly set: (fence: Fence.Fence, value: A) => Effect.Effect<void, StaleFence>
  /** Writes what `f` makes of the value, and answers it, unless a later fence has written. */
  readonly update: (fence: Fence.Fence, f: (value: A) => A) => Effect.Effect<A, StaleFence>
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = <A>(initial: A): Effect.Effect<FencedRegister<A>> =>
  Effect.sync(() => {
    let value = initial
    let seen: Fence.Fence | undefined = undefined
    // one synchronous step, so that no other writer comes between the check and the write
    const update = (fence: Fence.Fence, f: (value: A) => A): Effect.Effect<A, StaleFence> =>
      Effect.suspend(() => {
        if (seen !== undefined && !(fence >= seen)) {
          return Effect.fail(new StaleFence({ backend: "register", resource: seen, lock: fence }))
        }
        value = f(value)
        seen = fence
        return Effect.succeed(value)
      })
    return {
      [TypeId]: TypeId,
      get: Effect.sync(() => value),
      fence: Effect.sync(() => Option.fromNullable(seen)),
      set: (fence, value) => Effect.asVoid(update(fence, () => value)),
      update
    }
  })
