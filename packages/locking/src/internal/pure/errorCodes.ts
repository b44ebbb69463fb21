/**
 * The one table of what can go wrong: the stable code of each error, whether the same call may succeed later without
 * any change, and what to do next.
 */

/** Why a lease was lost. */
export type LossText = "expired" | "unconfirmed" | "taken" | "revoked" | "session-ended" | "max-hold" | "closed"

export const errorCodes = {
  InvalidOptions: {
    code: "INVALID_OPTIONS",
    transient: false,
    fix: "Correct the options named in `issues`; nothing was asked of the store."
  },
  InvalidKey: {
    code: "INVALID_KEY",
    transient: false,
    fix:
      "Correct what `issues` names: keys, tenants and namespaces are non-empty, well-formed strings without U+0000 " +
      "and within `maxKeyBytes`; hash a longer key before you lock it."
  },
  LockBusy: {
    code: "LOCK_BUSY",
    transient: true,
    fix: "Wait for it with a `waitTimeout` above zero, or skip the work with `withLockIfAvailable`."
  },
  WaitTimeout: {
    code: "WAIT_TIMEOUT",
    transient: true,
    fix: "Raise `waitTimeout`, hold the lock for less time, or split the key so that fewer callers share it."
  },
  QueueFull: {
    code: "QUEUE_FULL",
    transient: true,
    fix: "Shed load or try again later; raise `maxWaiters` only when this many callers may really wait at once."
  },
  KeyLimit: {
    code: "KEY_LIMIT",
    transient: true,
    fix: "Try again when other leases have ended; raise `maxKeys` when this many keys may really be held at once."
  },
  LockReentry: {
    code: "LOCK_REENTRY",
    transient: false,
    fix:
      "Pass `reentrant: true` to join the lease that is held, or `reentrant: \"wait\"` from a daemon that outlives the " +
      "section. A shared lease cannot become exclusive: end it first."
  },
  LockingClosed: {
    code: "CLOSED",
    transient: false,
    fix: "Stop the work that needs locks before the layer closes, or give it a layer that lives longer."
  },
  ProviderFailed: {
    code: "PROVIDER_FAILED",
    transient: true,
    fix: "Nothing was granted. See `cause`; try again once the store can be reached and accepts the request."
  },
  OutcomeUnknown: {
    code: "OUTCOME_UNKNOWN",
    transient: true,
    fix:
      "Whatever the store may have granted is being given back in the background. Check the connection to the store, " +
      "then try again."
  },
  LeaseLost: {
    code: "LEASE_LOST",
    transient: false,
    fix: "Treat the section's effects as unprotected: check them by their fence before you repeat the work."
  },
  StaleFence: {
    code: "STALE_FENCE",
    transient: false,
    fix: "Stop: a newer holder has written already. Acquire the lock again and repeat the work from the beginning."
  },
  DriverInvalid: {
    code: "DRIVER_INVALID",
    transient: false,
    fix: "Change the deployment as `message` says, or use the driver that fits it."
  },
  CleanupFailed: {
    code: "CLEANUP_FAILED",
    transient: false,
    fix: "See `cause`; what could not be given back lapses with its ttl, or ends with its session."
  },
  CleanupTimeout: {
    code: "CLEANUP_TIMEOUT",
    transient: false,
    fix: "Let sections react to interruption, or raise `shutdownTimeout`; what was left lapses with its ttl, or ends " +
      "with its session."
  }
} as const

/** The tags of all errors. */
export type ErrorTag = keyof typeof errorCodes

/** What `LeaseLost` says about each reason, and what helps against it. */
export const losses: { readonly [Reason in LossText]: { readonly why: string; readonly fix: string } } = {
  expired: {
    why: "its time ran out",
    fix: "Leave `autoRenew` on, and choose a `ttl` longer than the pauses of the process and of the store."
  },
  unconfirmed: {
    why: "the store did not confirm its renewal in time",
    fix: "Check the connection to the store; a longer `ttl` rides out longer interruptions."
  },
  taken: {
    why: "the store names another owner",
    fix: "A process that pauses for longer than its `ttl` loses its lock: raise the `ttl` or find the pause."
  },
  revoked: {
    why: "it was revoked",
    fix: "Somebody released it by force: ask them before you take it again."
  },
  "session-ended": {
    why: "the session that held it has ended",
    fix: "Check the connection to the store, and that no pooler stands between."
  },
  "max-hold": {
    why: "it was held for longer than `maxHold`",
    fix: "Do less under the lock, or raise `maxHold`."
  },
  closed: {
    why: "the layer that held it was closed, or the section that it joined has ended",
    fix: "Stop the work that needs locks before the layer closes, and before the section that it joined ends."
  }
}
