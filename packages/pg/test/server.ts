/**
 * Servers and processes of the tests.
 */
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Redacted } from "effect"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as PgLocking from "../src/PgLocking.js"

export class Server extends Context.Tag("Server")<Server, PostgresServer.PostgresServer>() {}

export const versions = [18, 15] as const

export const layerServer = (version: PostgresServer.Version, settings?: Readonly<Record<string, string>>) =>
  Layer.scoped(Server, PostgresServer.make({ version, ...(settings && { settings }) }))

/** A database of its own on the server: what one test leaves behind no other sees. */
export const database = Effect.gen(function*() {
  const server = yield* Server
  const name = `d${databases++}`
  yield* server.createDatabase(name)
  return {
    name,
    url: (options: PostgresServer.ConnectOptions = {}) => server.url({ database: name, ...options }),
    query: <Row = Record<string, any>>(text: string, parameters?: ReadonlyArray<unknown>) =>
      server.query<Row>(text, parameters, { database: name })
  }
})

let databases = 0

/** One process: a layer of its own. */
export const node = (
  url: string,
  { driver, ...options }: LockingOptions & { readonly driver?: PgLocking.DriverOptions } = {}
) => Effect.flatMap(PgLocking.driver({ ...driver, connection: url }), (opened) => Locking.make(opened, options))

/** A program's own client. */
export const sql = (url: string) => PgClient.layer({ url: Redacted.make(url), maxConnections: 4 })

/** Functions that shadow those of the server for who has the schema `fake` first in its path, and exclude nobody. */
export const alwaysYes = <A, E>(query: (text: string) => Effect.Effect<A, E>) =>
  query(`create schema if not exists fake;
    create function fake.pg_try_advisory_lock(int8) returns bool language sql as 'select true';
    create function fake.pg_advisory_unlock(int8) returns bool language sql as 'select true'`)
