/** The demo on a PostgreSQL server. */
import { PgFence, PgLocking } from "@effect-locking/pg"
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { SqlClient } from "@effect/sql"
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Redacted } from "effect"
import { Locking } from "effect-locking"
import { type Backend, type Bank, type Change, Unavailable } from "./bank.js"

const tables = [
  "drop table if exists accounts, undone, writes, effect_locking_fences",
  "create table accounts (account text primary key, balance int8 not null)",
  // what a write undid; who wrote, in the order of the commits at one account
  "create table undone (cents int8 not null)",
  "create table writes (id bigserial primary key, account text not null, fence int8 not null)",
  PgFence.tableSql()
]

const bank = (sql: PgClient.PgClient): Bank => {
  const write = ({ account, balance, fence, read }: Change) =>
    Effect.gen(function*() {
      if (fence !== undefined) {
        yield* PgFence.guard(account, fence)
        yield* sql`insert into writes (account, fence) values (${account}, ${String(fence)})`
      }
      return yield* sql`
        with found as (select balance from accounts where account = ${account} for update),
          written as (update accounts set balance = ${balance} where account = ${account})
        insert into undone select balance - ${read} from found where balance <> ${read} returning cents`
    }).pipe(Effect.map((undone) => undone.length > 0))
  return {
    open: (balances) =>
      Effect.gen(function*() {
        for (const table of tables) yield* sql.unsafe(table)
        yield* sql`insert into accounts ${
          sql.insert(Array.from(balances, ([account, balance]) => ({ account, balance })))
        }`
      }).pipe(Effect.orDie),
    read: (account) =>
      Effect.map(
        Effect.orDie(sql<{ readonly balance: string }>`select balance from accounts where account = ${account}`),
        ([row]) => Number(row!.balance)
      ),
    write: (changes) =>
      // always in the same order, so that without locks they lose money and not themselves
      Effect.forEach([...changes].sort((a, b) => a.account < b.account ? -1 : 1), write).pipe(
        Effect.map((undid) => undid.includes(true)),
        sql.withTransaction,
        Effect.provideService(PgClient.PgClient, sql),
        Effect.provideService(SqlClient.SqlClient, sql),
        Effect.catchAll((error) => error._tag === "StaleFence" ? Effect.fail(error) : Effect.die(error))
      ),
    verdict: Effect.gen(function*() {
      const accounts = yield* sql<
        { readonly account: string; readonly balance: string }
      >`select account, balance from accounts`
      const [undone] = yield* sql<
        { readonly count: string; readonly sum: string }
      >`select count(*) as count, coalesce(sum(cents), 0) as sum from undone`
      const [order] = yield* sql<{ readonly wrong: string }>`
        select count(*) filter (where fence <= before) as wrong
        from (select fence, lag(fence) over (partition by account order by id) as before from writes) as w`
      return {
        balances: new Map(accounts.map(({ account, balance }) => [account, Number(balance)])),
        overwritten: Number(undone!.count),
        overwrittenSum: Number(undone!.sum),
        fencesRise: order!.wrong === "0"
      }
    }).pipe(Effect.orDie)
  }
}

export const backend: Backend = {
  name: "pg",
  server: "PostgreSQL",
  fences: "PgFence.guard",
  start: PostgresServer.make().pipe(
    Effect.map((server) => server.url()),
    Effect.mapError(({ message }) =>
      new Unavailable({
        message:
          `The demo needs a PostgreSQL server, which npm brings for Linux, macOS and Windows on x64 and arm64.\n` +
          `${message}\nThe demo in memory needs nothing: pnpm demo`
      })
    )
  ),
  bank: (url) =>
    Effect.map(
      Effect.orDie(Layer.build(PgClient.layer({ url: Redacted.make(url) }))),
      (context) => bank(Context.get(context, PgClient.PgClient))
    ),
  locking: (url, { session, ttl }) =>
    Effect.map(
      Layer.build(PgLocking.layer({ connection: url, session, sessionTtl: ttl })),
      (context) => Context.get(context, Locking.Locking)
    )
}
