/**
 * Locks on Redis or Valkey.
 *
 * @since 0.1.0
 */
export * as RedisLocking from "./RedisLocking.js"
