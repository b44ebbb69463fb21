/**
 * The errors on the wire: for each class and each union of `LockError` a schema between its instances and plain data
 * that survives JSON. Fences are decimal strings, durations are milliseconds, causes are names, codes and messages; code,
 * message and fix go along for readers that know nothing of these classes. `JSON.stringify` of an error gives the same
 * form.
 *
 * Import it from `effect-locking/LockErrorSchema`: the index leaves it out, so that only those who need `Schema` load it.
 *
 * @since 0.1.0
 */
import * as Arbitrary from "effect/Arbitrary"
import * as Duration from "effect/Duration"
import * as Schema from "effect/Schema"
import { fromPlainCause, plainCause, plainMillis } from "./internal/errors.js"
import { errorCodes, type ErrorTag } from "./internal/pure/errorCodes.js"
import * as Errors from "./LockError.js"

/**
 * What every encoded error has beside the fields of its class. Only `_tag` is needed to decode.
 *
 * @since 0.1.0
 * @category models
 */
export interface Envelope<Tag extends ErrorTag> {
  readonly _tag: Tag
  readonly code?: (typeof errorCodes)[Tag]["code"] | undefined
  readonly message?: string | undefined
  readonly fix?: string | undefined
}

/**
 * The schema of one class.
 *
 * @since 0.1.0
 * @category models
 */
export interface ErrorSchema<Tag extends ErrorTag, Self, Fields extends Schema.Struct.Fields>
  extends Schema.Schema<Self, Envelope<Tag> & Schema.Struct.Encoded<Fields>>
{}

// ---------------------------------------------------------------------------------------------------------------------
// fields
// ---------------------------------------------------------------------------------------------------------------------

const Millis = Schema.transform(
  Schema.Union(Schema.Finite.pipe(Schema.nonNegative()), Schema.Literal("Infinity")),
  // of those that anybody waits for: milliseconds carry no more digits than they have
  Schema.DurationFromSelf.annotations({
    arbitrary: () => (fc) => fc.oneof(fc.constant(Duration.infinity), fc.nat().map(Duration.millis))
  }),
  {
    strict: true,
    decode: (millis) => millis === "Infinity" ? Duration.infinity : Duration.millis(millis),
    encode: plainMillis
  }
)

const Cause = Schema.transform(
  Schema.Struct({
    name: Schema.String,
    message: Schema.String,
    code: Schema.optional(Schema.Union(Schema.String, Schema.Number)),
    cause: Schema.optional(Schema.Unknown)
  }),
  Schema.instanceOf(Error, { arbitrary: () => (fc) => fc.string().map((message) => new Error(message)) }),
  { strict: true, decode: (plain) => fromPlainCause(plain), encode: plainCause }
)

/**
 * What is known of a holder.
 *
 * @since 0.1.0
 * @category schemas
 */
export const HolderSummary = Schema.Struct({
  keyHash: Schema.String,
  mode: Schema.Literal("exclusive", "shared"),
  fence: Schema.optional(Schema.BigInt),
  since: Schema.optional(Schema.Finite),
  endsIn: Schema.optional(Millis),
  session: Schema.optional(Schema.String),
  local: Schema.Boolean
})

/**
 * One thing that is wrong with options or keys.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Issue = Schema.Struct({ path: Schema.String, message: Schema.String })

/**
 * Why a lease was lost.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LeaseLostReason = Schema.Literal(
  "expired",
  "unconfirmed",
  "taken",
  "revoked",
  "session-ended",
  "max-hold",
  "closed"
)

const backend = Schema.String
const keyHash = Schema.String
const count = Schema.NonNegativeInt

// ---------------------------------------------------------------------------------------------------------------------
// classes
// ---------------------------------------------------------------------------------------------------------------------

const codec = <Tag extends ErrorTag, Self extends Errors.Common<Tag>, Fields extends Schema.Struct.Fields>(
  tag: Tag,
  Class: new(fields: Schema.Struct.Type<Fields>) => Self,
  fields: Fields
): ErrorSchema<Tag, Self, Fields> => {
  const values = Schema.typeSchema(Schema.Struct(fields)) as Schema.Schema<any>
  const wire = Schema.Struct({
    _tag: Schema.Literal(tag),
    code: Schema.optional(Schema.Literal(errorCodes[tag].code)),
    message: Schema.optional(Schema.String),
    fix: Schema.optional(Schema.String),
    ...fields
  })
  const instance = Schema.instanceOf(Class, {
    identifier: tag,
    arbitrary: () => (fc) => Arbitrary.makeLazy(values)(fc).map((fields) => new Class(fields))
  })
  return Schema.transform(wire as any as Schema.Schema<any>, instance as Schema.Schema<any>, {
    strict: true,
    decode: ({ _tag, code: _code, fix: _fix, message: _message, ...fields }) => new Class(fields),
    encode: (error: any) => {
      const plain: Record<string, unknown> = { _tag: tag, code: error.code, message: error.message, fix: error.fix }
      for (const field of Object.keys(fields)) {
        if (error[field] !== undefined) plain[field] = error[field]
      }
      return plain
    }
  }) as any
}

/**
 * `LockError.InvalidOptions` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const InvalidOptions = codec("InvalidOptions", Errors.InvalidOptions, { backend, issues: Schema.Array(Issue) })

/**
 * `LockError.InvalidKey` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const InvalidKey = codec("InvalidKey", Errors.InvalidKey, { backend, issues: Schema.Array(Issue) })

/**
 * `LockError.LockBusy` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LockBusy = codec("LockBusy", Errors.LockBusy, {
  backend,
  keyHash,
  waited: Millis,
  holder: Schema.optional(HolderSummary)
})

/**
 * `LockError.WaitTimeout` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const WaitTimeout = codec("WaitTimeout", Errors.WaitTimeout, {
  backend,
  keyHash,
  waited: Millis,
  waitTimeout: Millis,
  holder: Schema.optional(HolderSummary)
})

/**
 * `LockError.QueueFull` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const QueueFull = codec("QueueFull", Errors.QueueFull, { backend, limit: count })

/**
 * `LockError.KeyLimit` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const KeyLimit = codec("KeyLimit", Errors.KeyLimit, { backend, limit: count })

/**
 * `LockError.LockReentry` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LockReentry = codec("LockReentry", Errors.LockReentry, { backend, keyHash })

/**
 * `LockError.LockingClosed` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LockingClosed = codec("LockingClosed", Errors.LockingClosed, { backend })

/**
 * `LockError.ProviderFailed` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const ProviderFailed = codec("ProviderFailed", Errors.ProviderFailed, {
  backend,
  keyHash: Schema.optional(keyHash),
  cause: Schema.optional(Cause),
  retryAfter: Schema.optional(Millis)
})

/**
 * `LockError.OutcomeUnknown` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const OutcomeUnknown = codec("OutcomeUnknown", Errors.OutcomeUnknown, {
  backend,
  keyHash: Schema.optional(keyHash),
  cause: Schema.optional(Cause)
})

/**
 * `LockError.LeaseLost` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LeaseLost = codec("LeaseLost", Errors.LeaseLost, {
  backend,
  keyHash,
  fence: Schema.BigInt,
  reason: LeaseLostReason,
  overrun: Millis
})

/**
 * `LockError.StaleFence` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const StaleFence = codec("StaleFence", Errors.StaleFence, {
  backend,
  resource: Schema.BigInt,
  lock: Schema.BigInt
})

/**
 * `LockError.DriverInvalid` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const DriverInvalid = codec("DriverInvalid", Errors.DriverInvalid, {
  backend,
  problem: Schema.String,
  remedy: Schema.String
})

/**
 * `LockError.CleanupFailed` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const CleanupFailed = codec("CleanupFailed", Errors.CleanupFailed, {
  backend,
  failed: count,
  cause: Schema.optional(Cause)
})

/**
 * `LockError.CleanupTimeout` on the wire.
 *
 * @since 0.1.0
 * @category schemas
 */
export const CleanupTimeout = codec("CleanupTimeout", Errors.CleanupTimeout, {
  backend,
  sections: count,
  grants: count
})

// ---------------------------------------------------------------------------------------------------------------------
// unions
// ---------------------------------------------------------------------------------------------------------------------

/**
 * What an attempt that never waits can fail with.
 *
 * @since 0.1.0
 * @category unions
 */
export const TryAcquireError = Schema.Union(
  InvalidOptions,
  InvalidKey,
  QueueFull,
  KeyLimit,
  LockReentry,
  LockingClosed,
  ProviderFailed,
  OutcomeUnknown
)

/**
 * What asking for a lock can fail with.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Schema } from "effect"
 * import { LockError } from "effect-locking"
 * import * as LockErrorSchema from "effect-locking/LockErrorSchema"
 *
 * const error = new LockError.QueueFull({ backend: "orders", limit: 4096 })
 *
 * const body = JSON.stringify(Schema.encodeSync(LockErrorSchema.AcquireError)(error))
 * const back = Schema.decodeUnknownSync(LockErrorSchema.AcquireError)(JSON.parse(body))
 *
 * strictEqual(back instanceof LockError.QueueFull, true)
 * ```
 *
 * @since 0.1.0
 * @category unions
 */
export const AcquireError = Schema.Union(...TryAcquireError.members, LockBusy, WaitTimeout)

/**
 * What running a section under a lock can fail with, beside the section's own errors.
 *
 * @since 0.1.0
 * @category unions
 */
export const WithLockError = Schema.Union(...AcquireError.members, LeaseLost)

/**
 * What running a section can fail with, beside its own errors, where it is skipped when the lock is held.
 *
 * @since 0.1.0
 * @category unions
 */
export const TryLockError = Schema.Union(...TryAcquireError.members, LeaseLost)

/**
 * All of them.
 *
 * @since 0.1.0
 * @category unions
 */
export const LockError = Schema.Union(
  ...WithLockError.members,
  StaleFence,
  DriverInvalid,
  CleanupFailed,
  CleanupTimeout
)
