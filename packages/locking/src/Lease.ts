/**
 * A lease is what a section holds: one key, for a time, under a number that grows with every grant.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { Fence, SharedFence } from "./Fence.js"
import * as internal from "./internal/lease.js"
import type { LockMode } from "./LockDriver.js"
import type { LeaseLost } from "./LockError.js"
import type * as LockKey from "./LockKey.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: TypeId = internal.TypeId

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = "~effect-locking/Lease"

/**
 * A named, time-bound right. It saves work; it cannot stop a frozen process that wakes up late. What protects the
 * data is its `fence`, checked where the data is (see `Fence`).
 *
 * @since 0.1.0
 * @category models
 */
export interface Lease<out Mode extends LockMode = LockMode> {
  readonly [TypeId]: TypeId
  /** The key as the caller wrote it. */
  readonly key: string
  readonly mode: Mode
  /** The name of the backend that granted it. */
  readonly backend: string
  /**
   * A writer's is larger than that of every earlier grant of this key, a reader's larger than that of every earlier
   * writer. A reader's number is for diagnosis; guards refuse it.
   */
  readonly fence: [Mode] extends ["exclusive"] ? Fence : [Mode] extends ["shared"] ? SharedFence : Fence | SharedFence
  /** How long the lease lasts from its last renewal; infinite on drivers that allow it. */
  readonly ttl: Duration.Duration
  /** Wall-clock milliseconds, for people; never used in arithmetic. */
  readonly acquiredAt: number
  /** How long the caller waited for it. */
  readonly waited: Duration.Duration
  /** A careful local estimate: `false` after expiry, release or loss, and whenever the store has not confirmed in time. */
  readonly isValid: Effect.Effect<boolean>
  /** How long it can still be believed: infinite for a lease without end, zero when it is not valid. */
  readonly remaining: Effect.Effect<Duration.Duration>
  /**
   * Extends it now, to its ttl from now, and asks again while the store does not answer. Never takes a lost lock back.
   */
  readonly renew: Effect.Effect<void, LeaseLost>
  /**
   * Gives it back early: `true` when this call gave it up, `false` when it was gone already. The rest of a section goes
   * on unguarded. Leases that were taken together are given back together.
   */
  readonly release: Effect.Effect<boolean>
  /** Fails when the lease is lost; interrupted when it is released, so that nobody hangs. */
  readonly lost: Effect.Effect<never, LeaseLost>
  /** Runs an effect that the loss of the lease interrupts. */
  readonly guard: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | LeaseLost, R>
  /** Makes it `Lease.current` for an effect, and known to the check for re-entry. */
  readonly provide: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

/**
 * The innermost lease under which this code runs; none outside of every section. One that was lost counts until its
 * section has ended, one that was released early does not. Under several keys it is the lease of the last one.
 *
 * @example
 * ```ts
 * import { Effect, Option } from "effect"
 * import { Lease, Locking } from "effect-locking"
 *
 * const program = Locking.withLock(Lease.current, "report")
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then((lease) => {
 *   console.log(Option.map(lease, (_) => _.key)) // { _id: 'Option', _tag: 'Some', value: 'report' }
 * })
 * ```
 *
 * @since 0.1.0
 * @category accessors
 */
export const current: Effect.Effect<Option.Option<Lease>> = internal.current

/**
 * For code that must run under a lock: the lease of `key` that this flow holds. Fails `LeaseLost` when it was lost. Not
 * to hold the lock at all is a mistake in the program, hence a defect.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Lease, Locking } from "effect-locking"
 *
 * const postInvoice = Effect.gen(function*() {
 *   const lease = yield* Lease.assertHeld("billing")
 *   return `posted under fence ${lease.fence > 0n}`
 * })
 *
 * const program = Locking.withLock(postInvoice, "billing")
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // posted under fence true
 * ```
 *
 * @since 0.1.0
 * @category accessors
 */
export const assertHeld = (key: LockKey.Input): Effect.Effect<Lease, LeaseLost> => internal.assertHeld(key)
