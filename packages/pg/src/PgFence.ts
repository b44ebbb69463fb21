/**
 * The check at the resource: a write under a lock is refused once a later holder has written. No lease can stop a process
 * that froze, woke up and writes; this does.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import type { Fence } from "effect-locking/Fence"
import type { Lease } from "effect-locking/Lease"
import { StaleFence } from "effect-locking/LockError"
import * as Effect from "effect/Effect"
import { quoteIdentifier } from "./internal/sql.js"
import { inTransaction } from "./internal/transaction.js"
import type { TransactionInvalid } from "./PgError.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface GuardOptions {
  /** The schema of the table `effect_locking_fences`. Default `"public"`. */
  readonly schema?: string | undefined
}

const table = (options: GuardOptions | undefined): string =>
  `${quoteIdentifier(options?.schema ?? "public")}.effect_locking_fences`

/**
 * The table in which the guard keeps the highest fence that each resource has seen, as SQL for a migration. One row per
 * resource, for ever: name resources, not events.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { PgFence } from "@effect-locking/pg"
 *
 * strictEqual(
 *   PgFence.tableSql(),
 *   "create table if not exists \"public\".effect_locking_fences (resource text primary key, fence int8 not null)"
 * )
 * ```
 *
 * @since 0.1.0
 * @category setup
 */
export const tableSql = (options?: GuardOptions): string =>
  `create table if not exists ${table(options)} (resource text primary key, fence int8 not null)`

/**
 * Makes the table if it does not exist.
 *
 * @example
 * ```ts
 * import { PgFence } from "@effect-locking/pg"
 * import { PgClient } from "@effect/sql-pg"
 * import { Effect, Redacted } from "effect"
 *
 * const migration = Effect.provide(
 *   PgFence.createTable(),
 *   PgClient.layer({ url: Redacted.make("postgres://localhost/shop") })
 * )
 * ```
 *
 * @since 0.1.0
 * @category setup
 */
export const createTable = (options?: GuardOptions): Effect.Effect<void, SqlError, SqlClient.SqlClient> =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql.unsafe(tableSql(options))))

/**
 * Lets the transaction in context go on only if no later holder has written to the resource: to be its first statement.
 * Until the transaction ends, no other writer of this resource passes its own guard. Equal fences pass, so that one
 * holder may write twice. Only an exclusive lease can be a guard.
 *
 * Fails `StaleFence`, which rolls the transaction back; `TransactionInvalid` outside of a transaction; `SqlError` when
 * the statement fails, for example because the table does not exist.
 *
 * @example
 * ```ts
 * import { PgFence } from "@effect-locking/pg"
 * import { PgClient } from "@effect/sql-pg"
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const closeMonth = Locking.useLock("billing/close", (lease) =>
 *   Effect.gen(function*() {
 *     const sql = yield* PgClient.PgClient
 *     yield* sql.withTransaction(Effect.gen(function*() {
 *       yield* PgFence.guard("ledger", lease)
 *       yield* sql`update ledger set closed = true`
 *     }))
 *   }))
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const guard = (
  resource: string,
  lease: Lease<"exclusive"> | Fence,
  options?: GuardOptions
): Effect.Effect<void, StaleFence | TransactionInvalid | SqlError, SqlClient.SqlClient> =>
  Effect.gen(function*() {
    yield* inTransaction
    const sql = yield* SqlClient.SqlClient
    const fence: bigint = typeof lease === "bigint" ? lease : lease.fence
    const fences = sql.literal(table(options))
    const passed = yield* sql`insert into ${fences} as f (resource, fence) values (${resource}, ${String(fence)}::int8)
      on conflict (resource) do update set fence = excluded.fence where f.fence <= excluded.fence returning 1 as passed`
    if (passed.length > 0) return
    const [row] = yield* sql<
      { readonly fence: string }
    >`select fence::text as fence from ${fences} where resource = ${resource}`
    return yield* new StaleFence({ backend: "pg", resource: BigInt(row?.fence ?? fence), lock: fence })
  })
