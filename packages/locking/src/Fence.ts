/**
 * Fences: the number that every lease carries, growing with each grant of its key. A resource that remembers the
 * highest fence it has seen, and refuses lower ones, is safe from a holder that was paused, lost its lease and woke up
 * to write.
 *
 * @since 0.1.0
 */
import type * as Brand from "effect/Brand"
import * as Effect from "effect/Effect"
import * as equivalence from "effect/Equivalence"
import * as Option from "effect/Option"
import * as order from "effect/Order"
import { StaleFence } from "./LockError.js"

/**
 * The number of an exclusive lease: a positive whole number within a signed 64-bit integer.
 *
 * @since 0.1.0
 * @category models
 */
export type Fence = bigint & Brand.Brand<"effect-locking/Fence">

/**
 * The number of a shared lease. Readers may hold their leases together, so it protects nothing: it serves diagnosis,
 * and what takes a `Fence` does not take it.
 *
 * @since 0.1.0
 * @category models
 */
export type SharedFence = bigint & Brand.Brand<"effect-locking/SharedFence">

const max = 2n ** 63n - 1n

const isValid = (value: bigint): boolean => typeof value === "bigint" && value > 0n && value <= max

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (value: bigint): Option.Option<Fence> =>
  isValid(value) ? Option.some(value as Fence) : Option.none()

/**
 * @since 0.1.0
 * @category constructors
 */
export const unsafeMake = (value: bigint): Fence => {
  if (isValid(value)) return value as Fence
  throw new RangeError("A fence is a positive whole number below 2^63")
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const unsafeMakeShared = (value: bigint): SharedFence => unsafeMake(value) as bigint as SharedFence

/**
 * @since 0.1.0
 * @category conversions
 */
export const fromString = (text: string): Option.Option<Fence> =>
  typeof text === "string" && /^[1-9]\d{0,18}$/.test(text) ? make(BigInt(text)) : Option.none()

/**
 * @since 0.1.0
 * @category conversions
 */
export const toString = (fence: Fence | SharedFence): string => fence.toString()

/**
 * @since 0.1.0
 * @category instances
 */
export const Order: order.Order<Fence> = order.bigint

/**
 * @since 0.1.0
 * @category instances
 */
export const Equivalence: equivalence.Equivalence<Fence> = equivalence.bigint

/**
 * @since 0.1.0
 * @category guards
 */
export const assert = (resourceFence: bigint, lockFence: Fence, backend = "fence"): Effect.Effect<void, StaleFence> =>
  lockFence >= resourceFence
    ? Effect.void
    : Effect.fail(new StaleFence({ backend, resource: resourceFence, lock: lockFence }))

/**
 * @since 0.1.0
 * @category http
 */
export const headerName = "lock-fence"

/**
 * @since 0.1.0
 * @category http
 */
export const toHeader = (fence: Fence): { readonly "lock-fence": string } => ({ [headerName]: toString(fence) })

/**
 * @since 0.1.0
 * @category http
 */
export const fromHeader = (value: string | null | undefined): Option.Option<Fence> =>
  value == null ? Option.none() : fromString(value)
