/**
 * Errors of what only PostgreSQL can do.
 *
 * @since 0.1.0
 */
export * as PgError from "./PgError.js"

/**
 * The check at the resource: a write under a lock is refused once a later holder has written. No lease can stop a process
 * that froze, woke up and writes; this does.
 *
 * @since 0.1.0
 */
export * as PgFence from "./PgFence.js"

/**
 * Locks on PostgreSQL: advisory locks on sessions of the library's own, which the server ends when they fall silent. No
 * extension, no superuser, no table; one connection for all locks of a process, a second one once somebody waits.
 *
 * What it does not promise: while a holder is cut off *and* the server forgets it early (its backend is terminated, the
 * server restarts or fails over), another process gets the lock before the holder's own clock ends its section. There
 * only a fence at the resource protects the data: `PgFence.guard`.
 *
 * @since 0.1.0
 */
export * as PgLocking from "./PgLocking.js"
