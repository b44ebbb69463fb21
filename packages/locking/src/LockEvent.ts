/**
 * What happens inside a layer, as values. Keys appear as short hashes only.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import type { LockMode } from "./LockDriver.js"
import type { LeaseLostReason } from "./LockError.js"

/**
 * One thing that happened, with the backend where it did and when, in wall-clock milliseconds.
 *
 * @since 0.1.0
 * @category models
 */
export type LockEvent = { readonly backend: string; /** Wall-clock milliseconds. */ readonly at: number } & Happening

/**
 * What happened. `keyHash` stands for the key, or for the first one of several; `fence` is that of the same key.
 *
 * @since 0.1.0
 * @category models
 */
export type Happening =
  /** A caller has to wait. */
  | { readonly _tag: "Waiting"; readonly keyHash: string; readonly mode: LockMode }
  | {
    readonly _tag: "Granted"
    readonly keyHash: string
    readonly mode: LockMode
    readonly fence: bigint
    readonly waited: Duration.Duration
  }
  | {
    readonly _tag: "Released"
    readonly keyHash: string
    readonly fence: bigint
    readonly held: Duration.Duration
  }
  | { readonly _tag: "Lost"; readonly keyHash: string; readonly fence: bigint; readonly reason: LeaseLostReason }
  /** A section went on after its lease had ended. `ended` is false while it still does. */
  | {
    readonly _tag: "Overrun"
    readonly keyHash: string
    readonly fence: bigint
    readonly overrun: Duration.Duration
    readonly ended: boolean
  }
  /** Renewals get no answer. At most one every ten seconds until they do. */
  | { readonly _tag: "RenewalFailed"; readonly grants: number }
  /** Renewals are answered again. */
  | { readonly _tag: "Recovered" }
  /** A release was not answered; it is repeated in the background until the lease has lapsed by itself. */
  | { readonly _tag: "ReleaseFailed"; readonly keyHash: string }
  | { readonly _tag: "LongHold"; readonly keyHash: string; readonly fence: bigint; readonly held: Duration.Duration }
  /** The wall clock moved against the monotonic one, seen within a second. Leases go on; every one is renewed at once. */
  | { readonly _tag: "ClockJumped"; readonly by: Duration.Duration }
  /** Closing could not give everything back. */
  | { readonly _tag: "CleanupFailed"; readonly failed: number }
  /** Closing ran out of time with sections or grants left. */
  | { readonly _tag: "CleanupTimeout"; readonly sections: number; readonly grants: number }
