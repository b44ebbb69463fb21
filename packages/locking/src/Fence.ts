/**
 * Fences: the number that every lease carries, higher with each grant of its key. A lease alone cannot stop a holder
 * that was paused, lost the lease and wakes up to write. A resource can: it remembers the highest fence that it has
 * seen and refuses a lower one.
 *
 * @since 0.1.0
 */
import type * as Brand from "effect/Brand"
import * as Effect from "effect/Effect"
import type * as equivalence from "effect/Equivalence"
import * as Option from "effect/Option"
import type * as order from "effect/Order"
import { StaleFence } from "./LockError.js"

/**
 * The number of an exclusive lease: a positive whole number that fits a signed 64-bit integer. It does not change while
 * the lease is held.
 *
 * @since 0.1.0
 * @category models
 */
export type Fence = bigint & Brand.Brand<"effect-locking/Fence">

/**
 * The number of a shared lease. Readers hold theirs at the same time, so it orders nothing: it is for diagnosis, and
 * what takes a `Fence` does not take it.
 *
 * @since 0.1.0
 * @category models
 */
export type SharedFence = bigint & Brand.Brand<"effect-locking/SharedFence">

const max = 2n ** 63n - 1n

/**
 * Whether a value has the form of a fence: a `bigint` from 1 to 2^63 - 1.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Fence } from "effect-locking"
 *
 * strictEqual(Fence.isFence(12n), true)
 * strictEqual(Fence.isFence(0n), false)
 * strictEqual(Fence.isFence(12), false)
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const isFence = (u: unknown): u is Fence => typeof u === "bigint" && u > 0n && u <= max

/**
 * A fence from a number that a store or another process gave; none when it is not from 1 to 2^63 - 1.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Option } from "effect"
 * import { Fence } from "effect-locking"
 *
 * strictEqual(Option.isSome(Fence.make(12n)), true)
 * strictEqual(Option.isNone(Fence.make(-1n)), true)
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: (value: bigint) => Option.Option<Fence> = Option.liftPredicate(isFence)

/**
 * A fence from a number that is known to be one. Throws a `RangeError` when it is not from 1 to 2^63 - 1.
 *
 * @example
 * ```ts
 * import { strictEqual, throws } from "node:assert"
 * import { Fence } from "effect-locking"
 *
 * strictEqual(Fence.unsafeMake(12n), 12n)
 * throws(() => Fence.unsafeMake(0n), RangeError)
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const unsafeMake = (value: bigint): Fence => {
  if (isFence(value)) return value
  throw new RangeError("A fence is a bigint from 1 to 2^63 - 1")
}

/**
 * The number of a shared lease. Throws a `RangeError` when it is not from 1 to 2^63 - 1.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Fence } from "effect-locking"
 *
 * strictEqual(Fence.toString(Fence.unsafeMakeShared(12n)), "12")
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const unsafeMakeShared = (value: bigint): SharedFence => unsafeMake(value) as bigint as SharedFence

/**
 * Reads the form of the wire: decimal digits, without sign, spaces or leading zeros. None for everything else.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert"
 * import { Option } from "effect"
 * import { Fence } from "effect-locking"
 *
 * deepStrictEqual(Fence.fromString("12"), Option.some(12n))
 * deepStrictEqual(Fence.fromString("012"), Option.none())
 * deepStrictEqual(Fence.fromString("9223372036854775808"), Option.none())
 * ```
 *
 * @since 0.1.0
 * @category conversions
 */
export const fromString = (text: string): Option.Option<Fence> =>
  typeof text === "string" && /^[1-9]\d{0,18}$/.test(text) ? make(BigInt(text)) : Option.none()

/**
 * The form of the wire: decimal digits. A number of JSON cannot hold every fence, a string can.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Fence } from "effect-locking"
 *
 * strictEqual(Fence.toString(Fence.unsafeMake(9007199254740993n)), "9007199254740993")
 * ```
 *
 * @since 0.1.0
 * @category conversions
 */
export const toString = (fence: Fence | SharedFence): string => fence.toString()

/**
 * Later grants of one key compare as greater. Fences of different keys do not compare.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Fence } from "effect-locking"
 *
 * strictEqual(Fence.Order(Fence.unsafeMake(12n), Fence.unsafeMake(15n)), -1)
 * ```
 *
 * @since 0.1.0
 * @category instances
 */
export const Order: order.Order<Fence> = (self, that) => self < that ? -1 : self > that ? 1 : 0

/**
 * Equal fences of one key belong to one holder.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Fence } from "effect-locking"
 *
 * strictEqual(Fence.Equivalence(Fence.unsafeMake(12n), Fence.unsafeMake(12n)), true)
 * ```
 *
 * @since 0.1.0
 * @category instances
 */
export const Equivalence: equivalence.Equivalence<Fence> = (self, that) => self === that

/**
 * The check at a resource: fails `StaleFence` when the holder's fence is older than the highest one that the resource
 * has seen (zero when it has seen none). An equal one passes, so that one holder may write twice.
 *
 * Reading the resource's fence, this check and the write have to be one atomic step, or a write that is on its way can
 * overtake them: use it inside a transaction, or let the store compare.
 *
 * @param resourceFence - the highest fence that the resource has seen
 * @param lockFence - the fence of the lease that wants to write
 * @param backend - what the error names as the place of the check, `"fence"` by default
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Either } from "effect"
 * import { Fence } from "effect-locking"
 *
 * const mine = Fence.unsafeMake(12n)
 * const check = (seen: bigint) => Effect.runSync(Effect.either(Fence.assert(seen, mine)))
 *
 * strictEqual(Either.isRight(check(11n)), true)
 * strictEqual(Either.isRight(check(12n)), true)
 * strictEqual(Either.isLeft(check(13n)), true)
 * ```
 *
 * @since 0.1.0
 * @category checks
 */
export const assert = (resourceFence: bigint, lockFence: Fence, backend = "fence"): Effect.Effect<void, StaleFence> =>
  // in this direction whatever is no number is refused, too
  lockFence >= resourceFence
    ? Effect.void
    : Effect.fail(new StaleFence({ backend, resource: resourceFence, lock: lockFence }))

/**
 * The HTTP header that carries a fence: `lock-fence`.
 *
 * @since 0.1.0
 * @category http
 */
export const headerName = "lock-fence"

/**
 * A fence as headers of a request.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Fence } from "effect-locking"
 *
 * const save = (fence: Fence.Fence, body: string) =>
 *   Effect.tryPromise(() =>
 *     fetch("https://files.example.com/report", { method: "PUT", headers: { ...Fence.toHeader(fence) }, body })
 *   )
 * ```
 *
 * @since 0.1.0
 * @category http
 */
export const toHeader = (fence: Fence): { readonly [headerName]: string } => ({ [headerName]: toString(fence) })

/**
 * Reads the value of the header. None when it is missing, malformed or sent more than once.
 *
 * @example
 * ```ts
 * import { deepStrictEqual } from "node:assert"
 * import { Option } from "effect"
 * import { Fence } from "effect-locking"
 *
 * const headers = new Headers({ "Lock-Fence": "12" })
 *
 * deepStrictEqual(Fence.fromHeader(headers.get(Fence.headerName)), Option.some(12n))
 * deepStrictEqual(Fence.fromHeader(undefined), Option.none())
 * ```
 *
 * @since 0.1.0
 * @category http
 */
export const fromHeader = (value: string | null | undefined): Option.Option<Fence> =>
  typeof value === "string" ? fromString(value) : Option.none()
