/**
 * Locks on Redis or Valkey: one server, Sentinel, a cluster, or a quorum of independent servers.
 *
 * A lock is one hash, taken and given up by scripts. The server's clock ends it; waiters are woken by publish/subscribe.
 * What a server forgets (a crash without persistence, a fail-over, eviction) nobody holds any more: there the fence is
 * the promise, see `RedisFence`.
 *
 * @since 0.1.0
 */
import type { LockDriver } from "effect-locking/LockDriver"
import * as LockError from "effect-locking/LockError"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type * as ioredis from "ioredis"
import * as configured from "./internal/configured.js"
import * as options from "./internal/options.js"
import * as quorum from "./internal/quorum.js"
import * as single from "./internal/single.js"

/**
 * A client of ioredis 5 or 6, connected or not: to one server, by Sentinel, or to a cluster. It is duplicated, with
 * options of the driver's own, and stays yours: nothing is sent on it and it is not closed.
 *
 * @since 0.1.0
 * @category models
 */
export type Client = ioredis.Redis | ioredis.Cluster

/**
 * @since 0.1.0
 * @category models
 */
export interface CommonOptions {
  /**
   * For how long the server remembers the fence of a key after its lease has ended. It guards against a server's clock
   * that is set back by less than this; it costs about 110 bytes per key used in that time. 0 … 1 year, default 1 hour.
   */
  readonly retention?: Duration.DurationInput | undefined
  /**
   * In fair mode: how long a waiter that has died or frozen keeps its place, and so the longest that it can hold up
   * those behind it. 1 second … 1 minute, default 1.5 seconds.
   */
  readonly fairPatience?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface DriverOptions extends CommonOptions {
  readonly client: Client
}

/**
 * @since 0.1.0
 * @category models
 */
export interface QuorumOptions extends CommonOptions {
  /** An odd number, three or more, of servers that know nothing of each other and do not fail together. */
  readonly clients: ReadonlyArray<Client>
  /**
   * The longest ttl that any program uses on these servers. A server that was started more recently may have forgotten
   * a lease, and takes no part until then. 100 ms … 1 year, default 1 minute.
   */
  readonly longestTtl?: Duration.DurationInput | undefined
}

/**
 * The options of the driver and of the layer.
 *
 * @since 0.1.0
 * @category models
 */
export interface RedisLockingOptions extends DriverOptions, LockingOptions {}

/**
 * @since 0.1.0
 * @category models
 */
export interface RedisQuorumOptions extends QuorumOptions, LockingOptions {}

/**
 * Where a layer from configuration connects: a URL (`redis://user:password@host:6379/0`, `rediss://…` for TLS), sentinels
 * with the name of the master, or some nodes of a cluster. Addresses are `host:port`, IPv6 in brackets.
 *
 * @since 0.1.0
 * @category models
 */
export type Connection =
  | string
  | Redacted.Redacted
  | (Login & { readonly sentinels: ReadonlyArray<string>; readonly master: string })
  | (Login & { readonly nodes: ReadonlyArray<string> })

/**
 * @since 0.1.0
 * @category models
 */
export interface Login {
  readonly username?: string | undefined
  readonly password?: string | Redacted.Redacted | undefined
  readonly tls?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface RedisConfig extends CommonOptions, LockingOptions {
  readonly connection: Connection
}

/**
 * The driver by itself, for `Locking.make` and for several backends in one program. Its connections live as long as the
 * scope: one for scripts, one that listens.
 *
 * @example
 * ```ts
 * import { RedisLocking } from "@effect-locking/redis"
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 * import { Redis } from "ioredis"
 *
 * const program = Effect.scoped(Effect.gen(function*() {
 *   const driver = yield* RedisLocking.driver({ client: new Redis() })
 *   const orders = yield* Locking.make(driver, { backend: "orders" })
 *   return yield* orders.withLock(Effect.succeed("shipped"), "order:42")
 * }))
 * ```
 *
 * @since 0.1.0
 * @category drivers
 */
export const driver = (given: DriverOptions): Effect.Effect<LockDriver, LockError.InvalidOptions, Scope.Scope> =>
  Effect.suspend(() => {
    const parsed = options.parse(given)
    return parsed instanceof LockError.InvalidOptions ? Effect.fail(parsed) : single.make(given.client, parsed)
  })

/**
 * The driver of a quorum by itself.
 *
 * @example
 * ```ts
 * import { RedisLocking } from "@effect-locking/redis"
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 * import { Redis } from "ioredis"
 *
 * const program = Effect.scoped(Effect.gen(function*() {
 *   const clients = ["a", "b", "c"].map((host) => new Redis({ host }))
 *   const locking = yield* Locking.make(yield* RedisLocking.driverQuorum({ clients }))
 *   return yield* locking.withLock(Effect.succeed("done"), "report")
 * }))
 * ```
 *
 * @since 0.1.0
 * @category drivers
 */
export const driverQuorum = (given: QuorumOptions): Effect.Effect<LockDriver, LockError.InvalidOptions, Scope.Scope> =>
  Effect.suspend(() => {
    const parsed = options.parse(given, given.clients.length)
    return parsed instanceof LockError.InvalidOptions ? Effect.fail(parsed) : quorum.make(given.clients, parsed)
  })

/**
 * `Locking` over one server, Sentinel or a cluster.
 *
 * Fails `InvalidOptions` with every issue and its path, and `ProviderFailed` when the server cannot be reached or
 * refuses (`start: "lazy"` leaves that to the first calls).
 *
 * @example
 * ```ts
 * import { RedisLocking } from "@effect-locking/redis"
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 * import { Redis } from "ioredis"
 *
 * const program = Effect.log("nobody else does this now").pipe(
 *   Locking.withLock("billing/close", { waitTimeout: "30 seconds" }),
 *   Effect.provide(RedisLocking.layer({ client: new Redis({ lazyConnect: true }), namespace: "billing" }))
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (given: RedisLockingOptions): Layer.Layer<Locking.Locking, LockError.StartError> => {
  const [own, common] = options.split<DriverOptions>(given)
  return Locking.layer(driver(own), common)
}

/**
 * The same with a connection and options from configuration, without a client of yours.
 *
 * @example
 * ```ts
 * import { RedisLocking } from "@effect-locking/redis"
 * import { Config } from "effect"
 *
 * const one = RedisLocking.layerConfig({ connection: Config.redacted("REDIS_URL") })
 *
 * const sentinel = RedisLocking.layerConfig({
 *   connection: Config.all({
 *     sentinels: Config.array(Config.string(), "SENTINELS"),
 *     master: Config.string("MASTER"),
 *     password: Config.redacted("REDIS_PASSWORD")
 *   }),
 *   namespace: Config.succeed("billing")
 * })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  config: Config.Config.Wrap<RedisConfig>
): Layer.Layer<Locking.Locking, LockError.StartError | ConfigError> =>
  Layer.scoped(
    Locking.Locking,
    Effect.flatMap(Config.unwrap(config), (given) => {
      const [{ connection, ...own }, common] = options.split<CommonOptions & { readonly connection: Connection }>(given)
      return Effect.flatMap(
        Effect.flatMap(configured.client(connection), (client) => driver({ ...own, client })),
        (opened) => Locking.make(opened, common)
      )
    })
  )

/**
 * `Locking` over an odd number of independent servers, of which a majority grants: any minority of them may be down,
 * slow, restarted or lost without a second holder. It costs two to four times as much as one server.
 *
 * Fails as `layer` does, where a majority cannot be reached.
 *
 * @example
 * ```ts
 * import { RedisLocking } from "@effect-locking/redis"
 * import { Redis } from "ioredis"
 *
 * const Locks = RedisLocking.layerQuorum({
 *   clients: ["redis-a", "redis-b", "redis-c"].map((host) => new Redis({ host, lazyConnect: true })),
 *   longestTtl: "30 seconds"
 * })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerQuorum = (given: RedisQuorumOptions): Layer.Layer<Locking.Locking, LockError.StartError> => {
  const [own, common] = options.split<QuorumOptions>(given)
  return Locking.layer(driverQuorum(own), common)
}
