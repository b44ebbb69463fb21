/**
 * Errors of what only Redis can do.
 *
 * @since 0.1.0
 */
export * as RedisError from "./RedisError.js"

/**
 * The check at the resource, where the data is in Redis: a write under a lock is refused once a later holder has written.
 * No lease can stop a process that froze, woke up and writes; this does.
 *
 * Beside what is written a key keeps the highest fence that was seen. Both change in one script, so nobody comes between
 * the check and the write. The fence may come from any backend, as long as it is always the same one.
 *
 * @since 0.1.0
 */
export * as RedisFence from "./RedisFence.js"

/**
 * Locks on Redis or Valkey: one server, Sentinel, a cluster, or a quorum of independent servers.
 *
 * A lock is one hash, taken and given up by scripts. The server's clock ends it; waiters are woken by publish/subscribe.
 * What a server forgets (a crash without persistence, a fail-over, eviction) nobody holds any more: there the fence is
 * the promise, see `RedisFence`.
 *
 * @since 0.1.0
 */
export * as RedisLocking from "./RedisLocking.js"
