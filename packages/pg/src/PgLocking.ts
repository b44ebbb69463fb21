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
import { PgClient, type PgClientConfig } from "@effect/sql-pg/PgClient"
import type * as SqlClient from "@effect/sql/SqlClient"
import type { LockDriver } from "effect-locking/LockDriver"
import type * as LockError from "effect-locking/LockError"
import * as Locking from "effect-locking/Locking"
import type * as LockKey from "effect-locking/LockKey"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { hostname } from "node:os"
import type * as Pg from "pg"
import { clientOf } from "./internal/client.js"
import * as drivers from "./internal/driver.js"
import * as options from "./internal/options.js"
import * as transaction from "./internal/transaction.js"
import type { TransactionInvalid } from "./PgError.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~effect-locking/PgLocking"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = typeof TypeId

/**
 * Where the library opens its sessions: a URL, the fields of one, or an effect that makes a `pg` client which is not yet
 * connected. It has to lead to the primary, directly or through a pooler in session mode.
 *
 * @since 0.1.0
 * @category models
 */
export type Connection =
  | string
  | Redacted.Redacted
  | Pick<PgClientConfig, "url" | "host" | "port" | "database" | "username" | "password" | "ssl">
  | Effect.Effect<Pg.Client, unknown>

/**
 * Options of the driver.
 *
 * @since 0.1.0
 * @category models
 */
export interface DriverOptions {
  /** Default: as the `PgClient` in context connects. */
  readonly connection?: Connection | undefined
  /** Where the sequence of the fences lives; the same for all programs on a database. Default `"public"`. */
  readonly schema?: string | undefined
  /**
   * Where fences come from. `"sequence"` (default) is made at the first start, or by a DBA. `"clock"` needs no rights
   * and goes back when the server's clock is set back; it is refused where the sequence exists, and
   * a sequence while a clock is in use.
   */
  readonly fence?: "sequence" | "clock" | undefined
  /**
   * After so long without a word from this process the server gives its locks to others. A lease lasts no longer than
   * this without renewal. The same for all programs on a database: the quarantine after a restart is as long. 500 ms …
   * 1 hour, default 15 seconds.
   */
  readonly sessionTtl?: Duration.DurationInput | undefined
  /**
   * Whether the first grant after a restart of the server waits until no lease from before it can be believed in any
   * more, which takes at most `sessionTtl` and a tenth. Default `true`.
   */
  readonly restartQuarantine?: boolean | undefined
  /** The same after every loss of the session, for deployments that fail over. Default `false`. */
  readonly reconnectQuarantine?: boolean | undefined
}

/**
 * Options of the layer: those of the driver, and those of every `Locking` layer.
 *
 * @since 0.1.0
 * @category models
 */
export interface PgLockingOptions extends DriverOptions, LockingOptions {}

/**
 * What PostgreSQL can do beside ordinary locks.
 *
 * @since 0.1.0
 * @category models
 */
export interface PgLocking {
  readonly [TypeId]: TypeId
  readonly transactionLock: (
    key: LockKey.Input,
    options?: TransactionLockOptions
  ) => Effect.Effect<void, TransactionLockError, SqlClient.SqlClient>
}

/**
 * @since 0.1.0
 * @category tags
 */
export const PgLocking = Context.GenericTag<PgLocking>("@effect-locking/pg/PgLocking")

/**
 * @since 0.1.0
 * @category models
 */
export interface TransactionLockOptions {
  /** At most how long to wait for the lock. Default 5 seconds; zero: one attempt; may be infinite. */
  readonly waitTimeout?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category errors
 */
export type TransactionLockError =
  | LockError.InvalidOptions
  | LockError.InvalidKey
  | LockError.LockBusy
  | LockError.WaitTimeout
  | LockError.ProviderFailed
  | TransactionInvalid

type Wants<Options> = Options extends { readonly connection: Connection } ? never : PgClient

/**
 * The driver by itself, for `Locking.make` and `Locking.layer`. Closing the scope ends its connections.
 *
 * @example
 * ```ts
 * import { PgLocking } from "@effect-locking/pg"
 * import { Context } from "effect"
 * import { Locking } from "effect-locking"
 *
 * // a second backend of a program, under a tag of its own
 * class Billing extends Context.Tag("Billing")<Billing, Locking.Locking>() {}
 *
 * const driver = PgLocking.driver({ connection: "postgres://localhost/billing" })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const driver = <const Options extends DriverOptions = {}>(
  given?: Options
): Effect.Effect<LockDriver, LockError.InvalidOptions, Scope.Scope | Wants<Options>> =>
  Effect.map(open(given ?? {}, defaultName()), ({ driver }) => driver) as Effect.Effect<
    LockDriver,
    LockError.InvalidOptions,
    Scope.Scope | Wants<Options>
  >

const open = (
  given: DriverOptions,
  name: string
): Effect.Effect<drivers.Opened, LockError.InvalidOptions, Scope.Scope | PgClient> =>
  Effect.gen(function*() {
    const parsed = options.parse(given)
    if ("_tag" in parsed) return yield* parsed
    const connection = given.connection ?? (yield* PgClient).config
    return yield* drivers.make({ ...parsed, name, client: clientOf(connection) })
  })

const defaultName = (): string => `${hostname()}:${process.pid}`

/**
 * The layer: `Locking` over PostgreSQL, and `PgLocking` for locks of transactions. It needs a `PgClient` unless
 * `connection` says where to connect, and never takes a connection of its pool.
 *
 * Fails `InvalidOptions` with every issue and its path, `ProviderFailed` when the server cannot be reached, and
 * `DriverInvalid` with the remedy where locks would not be safe: behind a pooler in transaction mode, on a standby, where
 * advisory locks exclude nobody, or where fences would come from two sources.
 *
 * @example
 * ```ts
 * import { PgLocking } from "@effect-locking/pg"
 * import { PgClient } from "@effect/sql-pg"
 * import { Effect, Layer, Redacted } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const Sql = PgClient.layer({ url: Redacted.make("postgres://localhost/shop") })
 * const Locks = PgLocking.layer({ namespace: "shop" })
 *
 * const program = Effect.log("closing the month").pipe(
 *   Locking.withLock("billing/close", { waitTimeout: "30 seconds" }),
 *   Effect.provide(Layer.provideMerge(Locks, Sql))
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = <const Options extends PgLockingOptions = {}>(
  given?: Options
): Layer.Layer<Locking.Locking | PgLocking, LockError.StartError, Wants<Options>> =>
  Layer.scopedContext(make(given ?? {})) as Layer.Layer<
    Locking.Locking | PgLocking,
    LockError.StartError,
    Wants<Options>
  >

/**
 * The same with options from configuration.
 *
 * @example
 * ```ts
 * import { PgLocking } from "@effect-locking/pg"
 * import { Config } from "effect"
 *
 * const Locks = PgLocking.layerConfig({
 *   connection: Config.redacted("DATABASE_URL"),
 *   namespace: Config.succeed("shop")
 * })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = <const Options extends PgLockingOptions>(
  config: Config.Config.Wrap<Options>
): Layer.Layer<Locking.Locking | PgLocking, LockError.StartError | ConfigError, Wants<Options>> =>
  Layer.scopedContext(Effect.flatMap(Config.unwrap(config), make)) as Layer.Layer<
    Locking.Locking | PgLocking,
    LockError.StartError | ConfigError,
    Wants<Options>
  >

const make = (
  given: PgLockingOptions
): Effect.Effect<Context.Context<Locking.Locking | PgLocking>, LockError.StartError, Scope.Scope | PgClient> =>
  Effect.gen(function*() {
    const [own, common] = options.split(given)
    const session = common.session ?? defaultName()
    const { beside, locking } = yield* Effect.annotateLogs(
      Effect.gen(function*() {
        const { beside, driver } = yield* open(own, session)
        return { beside, locking: yield* Locking.make(driver, { ...common, session }) }
      }),
      // what the driver itself logs, too
      "backend",
      common.backend ?? "pg"
    )
    const service: PgLocking = { [TypeId]: TypeId, transactionLock: transaction.make(locking, beside) }
    return Context.make(Locking.Locking, locking).pipe(Context.add(PgLocking, service))
  })

/**
 * Takes a lock that the transaction in context holds until it commits or rolls back: lock, data and commit have one
 * fate, with no lease to lose. It excludes ordinary locks of the same key, and wakes those who wait for them when it
 * ends. To be the first statement of the transaction, so that what follows reads what earlier holders wrote. Taken in a
 * nested transaction that fails, it goes with the rollback to its savepoint.
 *
 * Tries until `waitTimeout`, and never waits inside the server. Fails `TransactionInvalid` outside of a transaction and
 * under an isolation above READ COMMITTED, whose snapshot may be older than the lock; `WaitTimeout`, or `LockBusy` after
 * one attempt; `ProviderFailed` when a statement fails, or with `retryAfter` when the server has restarted and leases
 * from before that are believed in for longer than this call may wait.
 *
 * @example
 * ```ts
 * import { PgLocking } from "@effect-locking/pg"
 * import { PgClient } from "@effect/sql-pg"
 * import { Effect } from "effect"
 *
 * const withdraw = (account: string, amount: number) =>
 *   Effect.gen(function*() {
 *     const sql = yield* PgClient.PgClient
 *     yield* sql.withTransaction(Effect.gen(function*() {
 *       yield* PgLocking.transactionLock(`account/${account}`)
 *       yield* sql`update accounts set balance = balance - ${amount} where id = ${account}`
 *     }))
 *   })
 * ```
 *
 * @since 0.1.0
 * @category transactions
 */
export const transactionLock = (
  key: LockKey.Input,
  given?: TransactionLockOptions
): Effect.Effect<void, TransactionLockError, PgLocking | SqlClient.SqlClient> =>
  Effect.flatMap(PgLocking, (service) => service.transactionLock(key, given))
