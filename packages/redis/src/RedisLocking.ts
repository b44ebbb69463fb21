/**
 * Locks on Redis or Valkey.
 *
 * @since 0.1.0
 */
import type { LockDriver } from "effect-locking/LockDriver"
import type * as LockError from "effect-locking/LockError"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import type * as ioredis from "ioredis"
import * as single from "./internal/single.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface RedisOptions {
  /** Connected to one server, by Sentinel, or to a cluster. It is duplicated, and stays yours. */
  readonly client: ioredis.Redis | ioredis.Cluster
  /** For how long a fence is remembered after its lease has ended. Default 1 hour. */
  readonly retention?: Duration.DurationInput | undefined
}

export const driver = (options: RedisOptions): Effect.Effect<LockDriver, never, Scope.Scope> =>
  single.make(options.client, {
    retention: Duration.toMillis(options.retention ?? "1 hour"),
    patience: 2_000
  })

export const layer = (
  options: RedisOptions & LockingOptions
): Layer.Layer<Locking.Locking, LockError.StartError> => {
  const { client, retention, ...locking } = options
  return Locking.layer(driver({ client, retention }), locking)
}
