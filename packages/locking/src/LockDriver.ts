/**
 * The contract between the engine and a store. A driver knows *grants*: what a process owns at the store, by token.
 * It makes no leases, keeps no queues and reads no options of the caller; the engine does all that, so a driver is
 * small. The engine never trusts a reply's arrival time, never sends a wall-clock time, and repeats an attempt only
 * with the same token.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Queue from "effect/Queue"
import { Callback } from "./internal/callback.js"
import type { ResolvedKey } from "./LockKey.js"

/**
 * How a key is held: `exclusive` alone, `shared` together with other readers.
 *
 * @since 0.1.0
 * @category models
 */
export type LockMode = "exclusive" | "shared"

/**
 * What one process owns at the store is known by this unique string. It is made before the first attempt, kept
 * over the attempts of one wait, and never used again after it was released or abandoned.
 *
 * @since 0.1.0
 * @category models
 */
export type OwnerToken = string

/**
 * What a driver can do, and what it cannot.
 *
 * @since 0.1.0
 * @category models
 */
export interface Capabilities {
  /** The modes it can grant. */
  readonly modes: ReadonlyArray<LockMode>
  /** Whether it can keep arrival order across processes. */
  readonly fair: boolean
  /** Whether it can count permits. */
  readonly permits?: boolean | undefined
  /** Whether it wakes waiters itself; without it the engine polls. */
  readonly push: boolean
  /** Who ends a grant whose holder is gone: the store by its clock, the end of the session, or nobody. */
  readonly expiry: "server" | "session" | "none"
  /**
   * `true`: calls cross a network, so they may hang or answer late, and are bounded and joined from the side. `false`:
   * they end at once inside the process, and run uninterruptibly in the fiber of the caller.
   */
  readonly remote: boolean
  /** The ttl used where the caller names none, the shortest one accepted, and whether it may be infinite. */
  readonly ttl: { readonly default: Duration.Duration; readonly min: Duration.Duration; readonly infinite: boolean }
  /** Where one process may hold fewer than 10 000 keys: how many, which is then the option's default and its limit. */
  readonly maxKeys?: number | undefined
}

/**
 * Permits of a semaphore.
 *
 * @since 0.1.0
 * @category models
 */
export interface Permits {
  /** How many of them: at least one, at most `limit`. */
  readonly count: number
  /** How many may be out together with these. Each request is judged by its own limit, and nobody is evicted. */
  readonly limit: number
}

/**
 * One request for one or several keys. All of them are granted together or none is.
 *
 * @since 0.1.0
 * @category models
 */
export interface LockRequest {
  /** In canonical order, without duplicates, at least one. */
  readonly keys: ReadonlyArray<ResolvedKey>
  readonly mode: LockMode
  /** How long a grant lasts without renewal; may be infinite where the driver says so. */
  readonly ttl: Duration.Duration
  /** Whether arrival order across processes is asked for. */
  readonly fair: boolean
  /**
   * Permits of the semaphores that the keys name, where the driver can; `mode` is `shared` then. A semaphore has records
   * of its own, so it and a lock of one name do not meet.
   */
  readonly permits?: Permits | undefined
  /** `false`: a single attempt; no interest may be registered at the store. */
  readonly waiting: boolean
  /** What the store may keep with the grant for people to see. */
  readonly holder: { readonly session: string; readonly metadata: Readonly<Record<string, string>> }
}

/**
 * What names a grant at the store.
 *
 * @since 0.1.0
 * @category models
 */
export interface Claim {
  readonly token: OwnerToken
  readonly keys: ReadonlyArray<ResolvedKey>
  readonly mode: LockMode
  /** As the request had them. */
  readonly permits?: Permits | undefined
}

/**
 * A process owns these keys from now on. `fences[i]` is the first number of the block that belongs to `keys[i]`; the
 * block has `block` numbers, so that leases handed over inside the process have numbers of their own.
 *
 * @since 0.1.0
 * @category models
 */
export interface Grant extends Claim {
  readonly _tag: "Grant"
  readonly fences: ReadonlyArray<bigint>
  readonly block: number
  /** How long the grant lasts from this answer's attempt on; never longer than the ttl asked for. */
  readonly ttl: Duration.Duration
}

/**
 * Somebody else holds one of the keys.
 *
 * @since 0.1.0
 * @category models
 */
export interface Busy {
  readonly _tag: "Busy"
  /** What the store knows of one holder. */
  readonly holder?: Holder | undefined
  /** How long from now until that holder's grant ends unless it is renewed. */
  readonly endsIn?: Duration.Duration | undefined
}

/**
 * The store has no room for another key of this process: `limit` are held already.
 *
 * @since 0.1.0
 * @category models
 */
export interface Full {
  readonly _tag: "Full"
  readonly limit: number
}

/**
 * What a store knows of a holder. Every field that it does not know is missing.
 *
 * @since 0.1.0
 * @category models
 */
export interface Holder {
  readonly mode: LockMode
  readonly fence?: bigint | undefined
  readonly token?: OwnerToken | undefined
  /** Wall-clock milliseconds of the store. */
  readonly since?: number | undefined
  /** Wall-clock milliseconds of the store; missing for a grant without end. */
  readonly until?: number | undefined
  readonly session?: string | undefined
  readonly metadata?: Readonly<Record<string, string>> | undefined
  /** What the store tells of its session or connection beside that: role, host, process id. */
  readonly details?: Readonly<Record<string, string>> | undefined
}

/**
 * A held key with its holders, for `list`. Where the store keeps only a hash, and the holder does not tell, that is all
 * there is: then namespace, scope, tenant and key are missing.
 *
 * @since 0.1.0
 * @category models
 */
export interface HeldKey {
  readonly namespace?: string | undefined
  readonly scope?: "none" | "tenant" | "platform" | undefined
  readonly tenant?: string | undefined
  readonly key?: string | undefined
  /** What names the key at the store, or a short hash of it. */
  readonly hash: string
  readonly holders: ReadonlyArray<Holder>
}

/**
 * Who lost a key to an administrator.
 *
 * @since 0.1.0
 * @category models
 */
export interface Deposed {
  readonly holders: ReadonlyArray<Holder>
  /** What those holders lost beside it, where only all of a session's leases can be ended. */
  readonly others: ReadonlyArray<HeldKey>
}

/**
 * Something about the deployment that an operator should know. `error`: locks are not safe, or cannot work. `warning`:
 * there are faults under which they are not. `info`: a fact.
 *
 * @since 0.1.0
 * @category models
 */
export interface Finding {
  readonly severity: "error" | "warning" | "info"
  /** Stable, upper case: `POOLER`, `SERVER_VERSION`. */
  readonly code: string
  readonly message: string
  /** What to do about it. */
  readonly fix: string
}

/**
 * A driver call failed. `executed` tells what is known of its effect: `"no"` when the store provably did nothing,
 * `"unknown"` when it may have acted. `message` and `cause` must not contain keys, tenants, tokens or metadata.
 * `retryAfter`: the engine asks again no earlier than that. `fix`: the deployment is unfit for this driver, and this is
 * what to change; a layer that starts then fails `DriverInvalid`.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect } from "effect"
 * import { LockDriver } from "effect-locking"
 *
 * const ping = Effect.fail(new Error("connect ECONNREFUSED"))
 *
 * // no connection was made, so nothing can have been granted
 * const ready = Effect.mapError(
 *   ping,
 *   (cause) => new LockDriver.DriverError({ executed: "no", message: "cannot connect", cause })
 * )
 *
 * strictEqual(Effect.runSync(Effect.flip(ready)).executed, "no")
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class DriverError extends Data.TaggedError("DriverError")<{
  readonly executed: "no" | "unknown"
  readonly message: string
  readonly cause?: unknown
  readonly retryAfter?: Duration.Duration | undefined
  readonly fix?: string | undefined
}> {}

/**
 * Answer of a renewal for one grant. `contended` says that somebody waits for one of its keys elsewhere.
 *
 * @since 0.1.0
 * @category models
 */
export type Renewal =
  | { readonly _tag: "Confirmed"; readonly contended: boolean }
  | { readonly _tag: "Lost"; readonly reason: LossReason }
  | { readonly _tag: "Unknown" }

/**
 * Why the store no longer counts a grant as ours.
 *
 * @since 0.1.0
 * @category models
 */
export type LossReason = "taken" | "revoked" | "expired" | "session-ended"

/**
 * Answer of a release: `released`, nobody waits elsewhere; `woke`, somebody was woken; `lapsed`, it was ours but its
 * time was over; `gone`, it was not ours (any more).
 *
 * @since 0.1.0
 * @category models
 */
export type Released = "released" | "woke" | "lapsed" | "gone"

/**
 * An open contention for one request.
 *
 * @since 0.1.0
 * @category models
 */
export interface Contention {
  /**
   * One attempt. Idempotent by token: a repeated one that finds its own grant extends it to the ttl from now, and answers
   * it with the same fences. The engine counts the ttl of the answer from the start of the attempt that it answers.
   * `left` is how long the caller will wait for the answer; a store that can must not grant after that.
   */
  readonly attempt: (attempt: {
    readonly token: OwnerToken
    readonly left: Duration.Duration
  }) => Effect.Effect<Grant | Busy | Full, DriverError>
  /**
   * Arms the wake-up: once this effect has ended, a release of one of the keys calls `wake`, until `withdraw`. A store
   * that knows the order of those who wait may wake the one whose turn it is, and another when that one withdraws; else
   * it wakes all of them. Calling it too often is harmless, a lost call costs a poll. `wake` is synchronous and may be called from anywhere.
   * A driver that lost its channel arms again by itself and calls `wake` once it has.
   */
  readonly arm: (wake: () => void) => Effect.Effect<void, DriverError>
  /**
   * Withdraws interest, ticket and intent from the store. Called once, last, and only when `arm` was called, or an
   * attempt was made of a request that waits and asks for order.
   */
  readonly withdraw: Effect.Effect<void, DriverError>
}

/**
 * A store that can grant locks.
 *
 * @since 0.1.0
 * @category models
 */
export interface LockDriver {
  /** Short name, for logs and errors: `memory`, `pg`, `redis`. */
  readonly name: string
  readonly capabilities: Capabilities
  /** Ends when the store can grant; fails when it cannot be reached or must not be used. */
  readonly ready: Effect.Effect<void, DriverError>
  /** Under which name one process excludes itself, where that is not the encoded key (for example a 64-bit hash). */
  readonly exclusionId?: ((key: ResolvedKey) => string) | undefined
  /** Opens a contention. Neither waits nor asks the store, so it is a plain function. */
  readonly contend: (request: LockRequest) => Contention
  /** Extends grants whose token still matches, by their ttl from now. Never takes a lost one back. Same order. */
  readonly renew: (grants: ReadonlyArray<Grant>) => Effect.Effect<ReadonlyArray<Renewal>, DriverError>
  /** Gives up whatever the token owns or may own. Safe to repeat, safe for an attempt that was never answered. */
  readonly release: (claim: Claim) => Effect.Effect<Released, DriverError>
  /**
   * Offers the key of an exclusive grant to those who wait for it elsewhere. Where somebody does, the same as `release`;
   * where nobody does, the grant goes on: with a new block of fences, and by its ttl from now. A call that comes twice
   * finds that the fences are not those of `grant` any more, and only answers them. A driver that does both in one step
   * saves who waits here a way to the store; without this the engine releases and asks again.
   */
  readonly offer?: ((grant: Grant) => Effect.Effect<Grant | Released, DriverError>) | undefined
  /** Grants that the driver itself knows to be lost: its session ended, an administrator revoked them. */
  readonly losses: Queue.Dequeue<{ readonly token: OwnerToken; readonly reason: LossReason }>
  readonly inspect: (key: ResolvedKey) => Effect.Effect<ReadonlyArray<Holder>, DriverError>
  /** Every held key of the namespace, and those of which the store cannot tell. */
  readonly list: (namespace: string) => Effect.Effect<ReadonlyArray<HeldKey>, DriverError>
  /**
   * Deposes the holders of a key, who learn `revoked`, and answers who they were. `hard`: also those who can only be
   * deposed together with all else that they hold.
   */
  readonly forceRelease: (
    key: ResolvedKey,
    options: { readonly hard: boolean }
  ) => Effect.Effect<Deposed, DriverError>
  /** What an operator should know of the deployment. */
  readonly check?: Effect.Effect<ReadonlyArray<Finding>, DriverError> | undefined
}

/**
 * A call by callback, as `Effect.async` makes one, for the common calls of a driver whose store is remote: the engine,
 * which makes each of those beside the caller, then needs no fiber for it.
 * `register` begins the call and answers how to abandon it, if it can be; `resume` takes the answer, or an effect that goes on asking.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { LockDriver } from "effect-locking"
 *
 * interface Client {
 *   readonly del: (key: string, onAnswer: (error: Error | null, deleted: number) => void) => void
 * }
 *
 * const release = (client: Client, key: string) =>
 *   LockDriver.callback<LockDriver.Released>((resume) => {
 *     client.del(key, (cause, deleted) =>
 *       resume(
 *         cause === null
 *           ? Effect.succeed(deleted === 1 ? "released" : "gone")
 *           : Effect.fail(new LockDriver.DriverError({ executed: "unknown", message: "DEL failed", cause }))
 *       ))
 *   })
 * ```
 *
 * @since 0.1.0
 * @category calls
 */
export const callback = <A>(
  register: (resume: (next: Effect.Effect<A, DriverError>) => void) => (() => void) | void
): Effect.Effect<A, DriverError> => new Callback(register)
