/**
 * Everything that can go wrong, one class per code. No error holds a key, a tenant, a token or metadata: `keyHash`
 * stands for the key, the same in every process.
 *
 * @since 0.1.0
 */
import type * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import { hasProperty } from "effect/Predicate"
import type * as Types from "effect/Types"
import { safeCause, toPlain } from "./internal/errors.js"
import type { ErrorTag } from "./internal/pure/errorCodes.js"
import { errorCodes, losses } from "./internal/pure/errorCodes.js"
import type { LockMode } from "./LockDriver.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: TypeId = "~effect-locking/LockError"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = "~effect-locking/LockError"

/**
 * One thing that is wrong with options or keys, and what would be right.
 *
 * @since 0.1.0
 * @category models
 */
export interface Issue {
  /** Where: `ttl`, `keys[3]`. */
  readonly path: string
  readonly message: string
}

/**
 * What is known of who holds a lock. Every field that is not known is missing.
 *
 * @since 0.1.0
 * @category models
 */
export interface HolderSummary {
  readonly keyHash: string
  readonly mode: LockMode
  readonly fence?: bigint | undefined
  /** Wall-clock milliseconds. */
  readonly since?: number | undefined
  /** How long until its lease ends unless it is renewed. */
  readonly endsIn?: Duration.Duration | undefined
  /** What the holding process calls itself. */
  readonly session?: string | undefined
  /** Whether this process holds it. */
  readonly local: boolean
}

/**
 * Why a lease was lost.
 *
 * @since 0.1.0
 * @category models
 */
export type LeaseLostReason = "expired" | "unconfirmed" | "taken" | "revoked" | "session-ended" | "max-hold" | "closed"

/**
 * What all errors have in common.
 *
 * @since 0.1.0
 * @category models
 */
export interface Common<Tag extends ErrorTag> extends Cause.YieldableError {
  readonly [TypeId]: TypeId
  readonly _tag: Tag
  /** Stable, for logs and for programs that cannot see the class. */
  readonly code: (typeof errorCodes)[Tag]["code"]
  /** What to do next. */
  readonly fix: string
  /** Plain data with every field, message and fix; `LockErrorSchema` reads it back. */
  toJSON(): { readonly [field: string]: unknown }
}

const define = <Tag extends ErrorTag>(tag: Tag): new<A extends Record<string, any>>(
  fields: Types.Equals<A, {}> extends true ? void : { readonly [P in keyof A]: A[P] }
) => Common<Tag> & Readonly<A> => {
  const Base = Data.TaggedError(tag)<any>
  Object.assign(Base.prototype, {
    [TypeId]: TypeId,
    code: errorCodes[tag].code,
    fix: errorCodes[tag].fix,
    toJSON(this: Common<Tag>) {
      return toPlain(this)
    }
  })
  return Base as any
}

const format = (duration: Duration.Duration): string =>
  Duration.format(Duration.millis(Math.ceil(Duration.toMillis(duration))))

// names come from elsewhere: nothing in them may forge a line of a log
const printable = (name: string): string => name.slice(0, 128).replace(/\p{C}/gu, "?")

const since = (millis: number | undefined): string =>
  millis === undefined || !(Math.abs(millis) <= 8.64e15) ? "" : ` since ${new Date(millis).toISOString()}`

const describeHolder = (holder: HolderSummary | undefined): string => {
  if (holder === undefined) return "somebody else holds it"
  const who = holder.local
    ? "this process"
    : holder.session === undefined
    ? "another process"
    : `session "${printable(holder.session)}"`
  const mode = holder.mode === "shared" ? ", shared" : ""
  const fence = holder.fence === undefined ? "" : ` with fence ${holder.fence}`
  const ends = holder.endsIn === undefined || !Duration.isFinite(holder.endsIn) || Duration.isZero(holder.endsIn)
    ? ""
    : `; the holder's lease ends in ${format(holder.endsIn)}`
  return `held by ${who}${mode}${fence}${since(holder.since)}${ends}`
}

const describeIssues = (issues: ReadonlyArray<Issue>): string => {
  const shown = issues.slice(0, 5).map((issue) => `${issue.path}: ${issue.message}`).join("; ")
  return issues.length > 5 ? `${shown}; and ${issues.length - 5} more` : shown
}

const lock = (keyHash: string | undefined): string => keyHash === undefined ? "a lock" : `lock ${keyHash}`

const reason = (cause: unknown): string => cause instanceof Error && cause.message !== "" ? `: ${cause.message}` : ""

/**
 * @since 0.1.0
 * @category errors
 */
export class InvalidOptions extends define("InvalidOptions")<{
  readonly backend: string
  readonly issues: ReadonlyArray<Issue>
}> {
  override get message(): string {
    return `Invalid options. ${describeIssues(this.issues)}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class InvalidKey extends define("InvalidKey")<{
  readonly backend: string
  readonly issues: ReadonlyArray<Issue>
}> {
  override get message(): string {
    return `Invalid key. ${describeIssues(this.issues)}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class LockBusy extends define("LockBusy")<{
  readonly backend: string
  readonly keyHash: string
  readonly waited: Duration.Duration
  readonly holder?: HolderSummary | undefined
}> {
  override get message(): string {
    return `Lock ${this.keyHash} is busy: ${describeHolder(this.holder)}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class WaitTimeout extends define("WaitTimeout")<{
  readonly backend: string
  readonly keyHash: string
  readonly waited: Duration.Duration
  readonly waitTimeout: Duration.Duration
  readonly holder?: HolderSummary | undefined
}> {
  override get message(): string {
    return `Waited ${format(this.waited)} for lock ${this.keyHash}: ${describeHolder(this.holder)}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class QueueFull extends define("QueueFull")<{ readonly backend: string; readonly limit: number }> {
  override get message(): string {
    return `${this.limit} callers wait for locks of backend "${
      printable(this.backend)
    }" already, as many as \`maxWaiters\` allows`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class KeyLimit extends define("KeyLimit")<{ readonly backend: string; readonly limit: number }> {
  override get message(): string {
    return `${this.limit} keys of backend "${printable(this.backend)}" are held already, as many as \`maxKeys\` allows`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class LockReentry extends define("LockReentry")<{ readonly backend: string; readonly keyHash: string }> {
  override get message(): string {
    return `Lock ${this.keyHash} is held already by the section that asks for it: waiting would never end`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class LockingClosed extends define("LockingClosed")<{ readonly backend: string }> {
  override get message(): string {
    return `Backend "${printable(this.backend)}" is closing or closed: it grants no more locks`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class ProviderFailed extends define("ProviderFailed")<{
  readonly backend: string
  readonly keyHash?: string | undefined
  readonly cause?: unknown
  readonly retryAfter?: Duration.Duration | undefined
}> {
  constructor(fields: {
    readonly backend: string
    readonly keyHash?: string | undefined
    readonly cause?: unknown
    readonly retryAfter?: Duration.Duration | undefined
  }) {
    super(safeCause(fields))
  }
  override get message(): string {
    return `The store of backend "${printable(this.backend)}" did not grant ${lock(this.keyHash)}${reason(this.cause)}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class OutcomeUnknown extends define("OutcomeUnknown")<{
  readonly backend: string
  readonly keyHash?: string | undefined
  readonly cause?: unknown
}> {
  constructor(fields: {
    readonly backend: string
    readonly keyHash?: string | undefined
    readonly cause?: unknown
  }) {
    super(safeCause(fields))
  }
  override get message(): string {
    return `The store of backend "${printable(this.backend)}" did not tell whether it granted ${lock(this.keyHash)}${
      reason(this.cause)
    }`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class LeaseLost extends define("LeaseLost")<{
  readonly backend: string
  readonly keyHash: string
  readonly fence: bigint
  readonly reason: LeaseLostReason
  readonly overrun: Duration.Duration
}> {
  override get message(): string {
    const overrun = Duration.isZero(this.overrun) ? "" : `; the section went on for ${format(this.overrun)} after that`
    return `The lease of lock ${this.keyHash} with fence ${this.fence} was lost: ${losses[this.reason].why}${overrun}`
  }
  override get fix(): string {
    return `${errorCodes.LeaseLost.fix} ${losses[this.reason].fix}`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class StaleFence extends define("StaleFence")<{
  readonly backend: string
  readonly resource: bigint
  readonly lock: bigint
}> {
  override get message(): string {
    return `Fence ${this.lock} is older than ${this.resource}, which the resource has seen already`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class CleanupFailed extends define("CleanupFailed")<{
  readonly backend: string
  readonly failed: number
  readonly cause?: unknown
}> {
  constructor(fields: { readonly backend: string; readonly failed: number; readonly cause?: unknown }) {
    super(safeCause(fields))
  }
  override get message(): string {
    return `Backend "${printable(this.backend)}" closed without giving back ${this.failed} of its locks${
      reason(this.cause)
    }`
  }
}

/**
 * @since 0.1.0
 * @category errors
 */
export class CleanupTimeout extends define("CleanupTimeout")<{
  readonly backend: string
  readonly sections: number
  readonly grants: number
}> {
  override get message(): string {
    return `Backend "${
      printable(this.backend)
    }" did not close within \`shutdownTimeout\`: ${this.sections} sections were running, ${this.grants} locks not given back`
  }
}

/**
 * @since 0.1.0
 * @category models
 */
export type LockError =
  | InvalidOptions
  | InvalidKey
  | LockBusy
  | WaitTimeout
  | QueueFull
  | KeyLimit
  | LockReentry
  | LockingClosed
  | ProviderFailed
  | OutcomeUnknown
  | LeaseLost
  | StaleFence
  | CleanupFailed
  | CleanupTimeout

/**
 * What asking for a lock can fail with.
 *
 * @since 0.1.0
 * @category models
 */
export type AcquireError =
  | InvalidOptions
  | InvalidKey
  | LockBusy
  | WaitTimeout
  | QueueFull
  | KeyLimit
  | LockReentry
  | LockingClosed
  | ProviderFailed
  | OutcomeUnknown

/**
 * What one attempt that never waits can fail with; a lock that is held is no error there.
 *
 * @since 0.1.0
 * @category models
 */
export type TryAcquireError = Exclude<AcquireError, LockBusy | WaitTimeout>

/**
 * What running a section under a lock can fail with, beside the section's own errors.
 *
 * @since 0.1.0
 * @category models
 */
export type WithLockError = AcquireError | LeaseLost

/**
 * What running a section under a lock that must be free can fail with, beside the section's own errors.
 *
 * @since 0.1.0
 * @category models
 */
export type TryLockError = TryAcquireError | LeaseLost

/**
 * @since 0.1.0
 * @category guards
 */
export const isLockError = (u: unknown): u is LockError => hasProperty(u, TypeId)

/**
 * Whether nothing ran and the same call may succeed later without any change.
 *
 * @since 0.1.0
 * @category guards
 */
export const isTransient = (error: LockError): boolean => errorCodes[error._tag].transient
