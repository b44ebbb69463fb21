/**
 * Everything that can go wrong, one class per code. Each error has a stable `code`, the `backend` it comes from, a
 * `message` that tells what happened and a `fix` that tells what to do next. None holds a key, a tenant, a token or
 * metadata, not even in its cause: `keyHash` stands for the key, the same in every process.
 *
 * Codecs for the wire are in `effect-locking/LockErrorSchema`.
 *
 * @since 0.1.0
 */
import type * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import { hasProperty } from "effect/Predicate"
import { safeCause, toPlain } from "./internal/errors.js"
import { errorCodes, type ErrorTag, losses } from "./internal/pure/errorCodes.js"
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

// ---------------------------------------------------------------------------------------------------------------------
// models
// ---------------------------------------------------------------------------------------------------------------------

/**
 * One thing that is wrong with options or keys, and what would be right.
 *
 * @since 0.1.0
 * @category models
 */
export interface Issue {
  /** Where: `ttl`, `tenant`, `keys[3]`. */
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
  /** Since when, in wall-clock milliseconds. */
  readonly since?: number | undefined
  /** How long from now until its lease ends unless it is renewed. */
  readonly endsIn?: Duration.Duration | undefined
  /** What the process that holds it calls itself. */
  readonly session?: string | undefined
  /** Whether that is this process. */
  readonly local: boolean
}

/**
 * Why a lease was lost: its time ran out without renewal, or the store had dropped it (`expired`); its time ran out by
 * our own clock with renewals that the store did not answer (`unconfirmed`); the store names another owner (`taken`); somebody released it by force (`revoked`);
 * the session that held it ended (`session-ended`); it was held longer than `maxHold` (`max-hold`); the layer closed
 * or the section that it joined ended (`closed`).
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
  /** Stable, for logs, alerts and programs that cannot see the class. */
  readonly code: (typeof errorCodes)[Tag]["code"]
  /** What to do next. */
  readonly fix: string
  /** Plain data with all fields, message and fix, which `LockErrorSchema` reads back. */
  toJSON(): { readonly [field: string]: unknown }
}

type Constructor<Tag extends ErrorTag> = new<A extends { readonly backend: string }>(
  fields: { readonly [Field in keyof A]: A[Field] }
) => Common<Tag> & Readonly<A>

const decorate = <Tag extends ErrorTag>(tag: Tag, Base: { readonly prototype: object }): Constructor<Tag> => {
  Object.assign(Base.prototype, {
    [TypeId]: TypeId,
    code: errorCodes[tag].code,
    fix: errorCodes[tag].fix,
    toJSON(this: Common<Tag>) {
      return toPlain(this)
    }
  })
  return Base as Constructor<Tag>
}

const define = <Tag extends ErrorTag>(tag: Tag): Constructor<Tag> => decorate(tag, Data.TaggedError(tag))

const defineWithCause = <Tag extends ErrorTag>(tag: Tag): Constructor<Tag> =>
  decorate(
    tag,
    class extends Data.TaggedError(tag)<{ readonly cause?: unknown }> {
      constructor(fields: { readonly cause?: unknown }) {
        super(safeCause(fields) as any)
      }
    }
  )

// ---------------------------------------------------------------------------------------------------------------------
// texts
// ---------------------------------------------------------------------------------------------------------------------

const format = (duration: Duration.Duration): string =>
  Duration.format(Duration.millis(Math.ceil(Duration.toMillis(duration))))

// names come from elsewhere: nothing in them may forge a line of a log
const printable = (name: string): string => name.slice(0, 128).replace(/\p{C}/gu, "?")

const store = (error: { readonly backend: string }): string => `The store of "${printable(error.backend)}"`

const since = (millis: number | undefined): string =>
  millis === undefined || !(Math.abs(millis) <= 8.64e15) ? "" : ` since ${new Date(millis).toISOString()}`

const outlasts = (
  holder: HolderSummary | undefined
): holder is HolderSummary & { readonly endsIn: Duration.Duration } =>
  holder?.endsIn !== undefined && Duration.isFinite(holder.endsIn) && !Duration.isZero(holder.endsIn)

const heldBy = (holder: HolderSummary | undefined): string => {
  if (holder === undefined) return "held by somebody else"
  const who = holder.local
    ? "this process"
    : holder.session === undefined
    ? "another process"
    : `session "${printable(holder.session)}"`
  const shared = holder.mode === "shared" ? " as a reader" : ""
  const fence = holder.fence === undefined ? "" : `, fence ${holder.fence}`
  const ends = outlasts(holder) ? `; the holder's lease ends in ${format(holder.endsIn)}` : ""
  return `held by ${who}${shared}${since(holder.since)}${fence}${ends}`
}

const listed = (issues: ReadonlyArray<Issue>): string => {
  const shown = issues.slice(0, 5).map((issue) => `${issue.path} ${issue.message}`).join("; ")
  return issues.length > 5 ? `${shown}; and ${issues.length - 5} more` : shown
}

const theLock = (keyHash: string | undefined): string => keyHash === undefined ? "the lock" : `lock ${keyHash}`

const because = (cause: unknown): string => cause instanceof Error && cause.message !== "" ? `: ${cause.message}` : ""

const count = (n: number, one: string, many: string): string => `${n} ${n === 1 ? one : many}`

// ---------------------------------------------------------------------------------------------------------------------
// errors
// ---------------------------------------------------------------------------------------------------------------------

/**
 * Options were refused. `issues` names all that is wrong with them, each with its path and what would be right; nothing
 * was asked of the store.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.void.pipe(
 *   Locking.withLock("report", { ttl: -1, waitTimeout: NaN }),
 *   Effect.catchTag("InvalidOptions", (error) => Effect.succeed(error.issues.map((issue) => issue.path)))
 * )
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // [ 'ttl', 'waitTimeout' ]
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidOptions extends define("InvalidOptions")<{
  readonly backend: string
  readonly issues: ReadonlyArray<Issue>
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `Invalid options: ${listed(this.issues)}`
  }
}

/**
 * A key, the tenant in context or a list of keys was refused. `issues` tells where (`key`, `tenant`, `keys[3]`) and what
 * would be right, never the key itself; nothing was asked of the store.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.void.pipe(
 *   Locking.withLock(""),
 *   Effect.catchTag("InvalidKey", (error) => Effect.succeed(error.message))
 * )
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // Invalid key: key must not be empty
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidKey extends define("InvalidKey")<{
  readonly backend: string
  readonly issues: ReadonlyArray<Issue>
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `Invalid key: ${listed(this.issues)}`
  }
}

/**
 * The one attempt of a call with `waitTimeout` zero found the lock held.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const cleanUp = Effect.succeed("clean").pipe(
 *   Locking.withLock("clean-up", { waitTimeout: 0, reentrant: "wait" }),
 *   Effect.catchTag("LockBusy", (busy) => Effect.succeed(`skipped, held by ${busy.holder?.session ?? "somebody"}`))
 * )
 * const program = Effect.all([cleanUp, Locking.withLock(cleanUp, "clean-up")])
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemoryWith({ session: "me" }))).then(console.log)
 * // [ 'clean', 'skipped, held by me' ]
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class LockBusy extends define("LockBusy")<{
  readonly backend: string
  readonly keyHash: string
  /** How long the attempt took. */
  readonly waited: Duration.Duration
  readonly holder?: HolderSummary | undefined
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `Lock ${this.keyHash} is busy: ${heldBy(this.holder)}`
  }
}

/**
 * The lock was not granted within `waitTimeout`, and the last answer of the store was that it is held.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Duration } from "effect"
 * import { LockError } from "effect-locking"
 *
 * const error = new LockError.WaitTimeout({
 *   backend: "orders",
 *   keyHash: "3fa9c11d0b52",
 *   waited: Duration.seconds(5),
 *   waitTimeout: Duration.seconds(5),
 *   holder: { keyHash: "3fa9c11d0b52", mode: "exclusive", local: true, endsIn: Duration.seconds(9) }
 * })
 *
 * strictEqual(
 *   error.message,
 *   "Waited 5s for lock 3fa9c11d0b52: held by this process; the holder's lease ends in 9s"
 * )
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class WaitTimeout extends define("WaitTimeout")<{
  readonly backend: string
  readonly keyHash: string
  /** How long the caller waited. */
  readonly waited: Duration.Duration
  /** How long it was ready to wait. */
  readonly waitTimeout: Duration.Duration
  readonly holder?: HolderSummary | undefined
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `Waited ${format(this.waited)} for lock ${this.keyHash}: ${heldBy(this.holder)}`
  }
  /**
   * @since 0.1.0
   */
  override get fix(): string {
    const fix = errorCodes.WaitTimeout.fix
    if (!outlasts(this.holder)) return fix
    const enough = format(Duration.sum(this.waited, this.holder.endsIn))
    return `${fix} If the holder is gone, its lease lapses by itself: a wait of ${enough} would have outlasted it.`
  }
}

/**
 * As many callers wait at this backend as `maxWaiters` allows. The store was not asked.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const job = Effect.delay(Effect.succeed("done"), "10 millis").pipe(
 *   Locking.withLock("orders:42"),
 *   Effect.catchTag("QueueFull", () => Effect.succeed("try again later"))
 * )
 * const program = Effect.all([job, job], { concurrency: "unbounded" })
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemoryWith({ maxWaiters: 0 }))).then(console.log)
 * // [ 'done', 'try again later' ]
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class QueueFull extends define("QueueFull")<{
  readonly backend: string
  /** The limit that was reached. */
  readonly limit: number
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    const waiting = count(this.limit, "caller waits", "callers wait")
    return `${waiting} for locks, or for an answer about one, of "${
      printable(this.backend)
    }" already: \`maxWaiters\` is reached`
  }
}

/**
 * As many keys are held or waited for through this backend as `maxKeys` allows. The store was not asked.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.succeed("done").pipe(
 *   Locking.withLock("orders:43"),
 *   Effect.catchTag("KeyLimit", (error) => Effect.succeed(`${error.limit} key is in use, try again later`)),
 *   Locking.withLock("orders:42")
 * )
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemoryWith({ maxKeys: 1 }))).then(console.log)
 * // 1 key is in use, try again later
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class KeyLimit extends define("KeyLimit")<{
  readonly backend: string
  /** The limit that was reached. */
  readonly limit: number
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    const most = count(this.limit, "key", "keys")
    return `"${
      printable(this.backend)
    }" takes no further key: ${most} is the most that \`maxKeys\` or the store allows now`
  }
}

/**
 * The flow of code that asks for the lock holds it already: waiting would never end. Also a shared lease that asks to
 * become exclusive.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const save = (reentrant: boolean) => Effect.succeed("saved").pipe(Locking.withLock("orders:42", { reentrant }))
 *
 * const program = Effect.all([
 *   Effect.flip(Locking.withLock(save(false), "orders:42")).pipe(Effect.map((error) => error.code)),
 *   Locking.withLock(save(true), "orders:42")
 * ])
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // [ 'LOCK_REENTRY', 'saved' ]
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class LockReentry extends define("LockReentry")<{ readonly backend: string; readonly keyHash: string }> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `Lock ${this.keyHash} is held already by the flow of code that asks for it: waiting would never end`
  }
}

/**
 * The layer is closing or closed. Calls that were waiting fail with it, too.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.succeed("done").pipe(
 *   Locking.withLock("orders:42"),
 *   Effect.catchTag("LockingClosed", () => Effect.succeed("shutting down"))
 * )
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class LockingClosed extends define("LockingClosed")<{ readonly backend: string }> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `"${printable(this.backend)}" is closing or closed and grants no more locks`
  }
}

/**
 * The store refused, or could not be reached: nothing was granted. The cause is rebuilt from names, codes and messages,
 * since clients attach commands and rows to their errors.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { LockError } from "effect-locking"
 *
 * const error = new LockError.ProviderFailed({
 *   backend: "orders",
 *   keyHash: "3fa9c11d0b52",
 *   cause: Object.assign(new Error("connection refused"), { code: "ECONNREFUSED", command: { args: ["orders:42"] } })
 * })
 *
 * strictEqual(error.message, "The store of \"orders\" did not grant lock 3fa9c11d0b52: connection refused")
 * strictEqual("command" in (error.cause as Error), false)
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class ProviderFailed extends defineWithCause("ProviderFailed")<{
  readonly backend: string
  readonly keyHash?: string | undefined
  readonly cause?: unknown
  /** When the store asked to be tried again. */
  readonly retryAfter?: Duration.Duration | undefined
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `${store(this)} did not grant ${theLock(this.keyHash)}${because(this.cause)}`
  }
  /**
   * @since 0.1.0
   */
  override get fix(): string {
    const after = this.retryAfter === undefined ? "" : ` It asked to be tried again in ${format(this.retryAfter)}.`
    return `${errorCodes.ProviderFailed.fix}${after}`
  }
}

/**
 * The store did not answer: it may have granted the lock, and what it granted is being given back already. The section
 * did not run.
 *
 * @example
 * ```ts
 * import { Effect, Schedule } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.log("in the section").pipe(
 *   Locking.withLock("orders:42"),
 *   Effect.retry({
 *     while: (error) => error._tag === "OutcomeUnknown",
 *     schedule: Schedule.exponential("100 millis"),
 *     times: 3
 *   })
 * )
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class OutcomeUnknown extends defineWithCause("OutcomeUnknown")<{
  readonly backend: string
  readonly keyHash?: string | undefined
  readonly cause?: unknown
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `${store(this)} did not tell whether it granted ${theLock(this.keyHash)}${because(this.cause)}`
  }
}

/**
 * The lease ended while the section was running; the section was interrupted and its value, if it had one, is refused.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.sleep("1 hour").pipe(
 *   Locking.withLock("orders:42", { maxHold: "20 millis" }),
 *   Effect.catchTag("LeaseLost", (lost) => Effect.succeed(lost.reason))
 * )
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // max-hold
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class LeaseLost extends define("LeaseLost")<{
  readonly backend: string
  readonly keyHash: string
  /** The fence of the lease that was lost. */
  readonly fence: bigint
  readonly reason: LeaseLostReason
  /** How long the section went on after the lease had ended. */
  readonly overrun: Duration.Duration
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    const overrun = Duration.isZero(this.overrun) ? "" : `; the section went on for ${format(this.overrun)} after that`
    return `The lease of lock ${this.keyHash}, fence ${this.fence}, was lost: ${losses[this.reason].why}${overrun}`
  }
  /**
   * @since 0.1.0
   */
  override get fix(): string {
    return `${losses[this.reason].fix} ${errorCodes.LeaseLost.fix}`
  }
}

/**
 * A write was refused because the resource has seen a later holder of the lock.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect } from "effect"
 * import { Fence } from "effect-locking"
 *
 * const program = Fence.assert(15n, Fence.unsafeMake(12n)).pipe(Effect.flip)
 *
 * const error = Effect.runSync(program)
 * strictEqual(error.message, "Fence 12 is older than 15, which the resource has seen already")
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class StaleFence extends define("StaleFence")<{
  readonly backend: string
  /** The highest fence that the resource has seen. */
  readonly resource: bigint
  /** The fence of the write that was refused. */
  readonly lock: bigint
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `Fence ${this.lock} is older than ${this.resource}, which the resource has seen already`
  }
}

/**
 * The deployment does not keep what its driver relies on, such as a pooler between a session and its locks. The layer
 * does not start; nothing was granted.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { LockError } from "effect-locking"
 *
 * const error = new LockError.DriverInvalid({
 *   backend: "orders",
 *   problem: "a transaction pooler stands before the server",
 *   remedy: "Give the layer the direct URL."
 * })
 *
 * strictEqual(error.message, "The store of \"orders\" is not fit for locks: a transaction pooler stands before the server")
 * strictEqual(error.fix, "Give the layer the direct URL.")
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class DriverInvalid extends define("DriverInvalid")<{
  readonly backend: string
  readonly problem: string
  readonly remedy: string
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return `${store(this)} is not fit for locks: ${this.problem}`
  }
  /**
   * @since 0.1.0
   */
  override get fix(): string {
    return this.remedy
  }
}

/**
 * Closing could not give everything back: the store refused, or did not answer, until it had lapsed. Layers log it,
 * since finalizers cannot fail.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { LockError } from "effect-locking"
 *
 * const error = new LockError.CleanupFailed({ backend: "orders", failed: 2, cause: new Error("connection reset") })
 *
 * strictEqual(error.message, "\"orders\" closed and 2 locks were not given back: connection reset")
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class CleanupFailed extends defineWithCause("CleanupFailed")<{
  readonly backend: string
  /** How many grants were not given back. */
  readonly failed: number
  readonly cause?: unknown
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    const left = count(this.failed, "lock was", "locks were")
    return `"${printable(this.backend)}" closed and ${left} not given back${because(this.cause)}`
  }
}

/**
 * Closing the layer took longer than `shutdownTimeout`. Layers log it, since finalizers cannot fail.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { LockError } from "effect-locking"
 *
 * const error = new LockError.CleanupTimeout({ backend: "orders", sections: 1, grants: 3 })
 *
 * strictEqual(
 *   error.message,
 *   "\"orders\" did not close within `shutdownTimeout`: 1 section was running, 3 locks were not given back"
 * )
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class CleanupTimeout extends define("CleanupTimeout")<{
  readonly backend: string
  /** How many sections had not ended. */
  readonly sections: number
  /** How many grants were not given back. */
  readonly grants: number
}> {
  /**
   * @since 0.1.0
   */
  override get message(): string {
    const running = count(this.sections, "section was", "sections were")
    const left = count(this.grants, "lock was", "locks were")
    return `"${
      printable(this.backend)
    }" did not close within \`shutdownTimeout\`: ${running} running, ${left} not given back`
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// unions
// ---------------------------------------------------------------------------------------------------------------------

/**
 * All of them.
 *
 * @since 0.1.0
 * @category unions
 */
export type LockError =
  | AcquireError
  | LeaseLost
  | StaleFence
  | DriverInvalid
  | CleanupFailed
  | CleanupTimeout

/**
 * What building a layer can fail with.
 *
 * @since 0.1.0
 * @category unions
 */
export type StartError = InvalidOptions | ProviderFailed | DriverInvalid

/**
 * What asking for a lock can fail with.
 *
 * @since 0.1.0
 * @category unions
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
 * What an attempt that never waits can fail with. That the lock is held is an answer there, not an error.
 *
 * @since 0.1.0
 * @category unions
 */
export type TryAcquireError = Exclude<AcquireError, LockBusy | WaitTimeout>

/**
 * What running a section under a lock can fail with, beside the section's own errors.
 *
 * @since 0.1.0
 * @category unions
 */
export type WithLockError = AcquireError | LeaseLost

/**
 * What running a section can fail with, beside its own errors, where it is skipped when the lock is held.
 *
 * @since 0.1.0
 * @category unions
 */
export type TryLockError = TryAcquireError | LeaseLost

// ---------------------------------------------------------------------------------------------------------------------
// guards
// ---------------------------------------------------------------------------------------------------------------------

/**
 * Whether a value is one of these errors.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { LockError } from "effect-locking"
 *
 * strictEqual(LockError.isLockError(new LockError.LockingClosed({ backend: "orders" })), true)
 * strictEqual(LockError.isLockError(new Error("other")), false)
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const isLockError = (u: unknown): u is LockError => hasProperty(u, TypeId)

/**
 * Whether the section did not run and the same call may succeed later, so that a retry is both safe and sensible.
 *
 * @example
 * ```ts
 * import { Effect, Schedule } from "effect"
 * import { LockError, Locking } from "effect-locking"
 *
 * const program = Effect.log("in the section").pipe(
 *   Locking.withLock("orders:42"),
 *   Effect.retry({ while: LockError.isTransient, schedule: Schedule.exponential("100 millis"), times: 3 })
 * )
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const isTransient = (error: LockError): boolean => errorCodes[error._tag].transient
