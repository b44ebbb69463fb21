/**
 * A value in memory that refuses stale writes: what a guarded resource looks like, for tests and examples.
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
 * A value that remembers the highest fence that wrote it. Writes with a lower one fail `StaleFence` and change nothing;
 * equal ones pass, so that one holder may write twice.
 *
 * @since 0.1.0
 * @category models
 */
export interface FencedRegister<A> {
  readonly [TypeId]: TypeId
  /** The value. Reading is not guarded. */
  readonly get: Effect.Effect<A>
  /** The highest fence that has written; none before the first write. */
  readonly fence: Effect.Effect<Option.Option<Fence.Fence>>
  /** Replaces the value. */
  readonly set: (fence: Fence.Fence, value: A) => Effect.Effect<void, StaleFence>
  /** Replaces the value by what `f` makes of it, and answers that. A defect of `f` changes nothing. */
  readonly update: (fence: Fence.Fence, f: (value: A) => A) => Effect.Effect<A, StaleFence>
}

/**
 * A register with a first value, which any fence may replace.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert"
 * import { Effect } from "effect"
 * import { Fence, FencedRegister } from "effect-locking"
 *
 * const program = Effect.gen(function*() {
 *   const balance = yield* FencedRegister.make(100)
 *   yield* balance.update(Fence.unsafeMake(2n), (value) => value - 30)
 *   // the holder before wakes up and writes what it computed long ago
 *   const error = yield* Effect.flip(balance.set(Fence.unsafeMake(1n), 50))
 *   return [error._tag, yield* balance.get]
 * })
 *
 * deepStrictEqual(Effect.runSync(program), ["StaleFence", 70])
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <A>(initial: A): Effect.Effect<FencedRegister<A>> =>
  Effect.sync(() => {
    let value = initial
    let seen: Fence.Fence | undefined = undefined
    // check and write are one synchronous step: no other writer comes between
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
