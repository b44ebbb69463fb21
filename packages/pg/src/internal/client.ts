/**
 * How connections of our own are made: as the program's client makes its own, or from what `connection` says.
 */
import type { PgClientConfig } from "@effect/sql-pg/PgClient"
import type { DriverError } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import Pg from "pg"
import type { Connection } from "../PgLocking.js"
import { failure } from "./connection.js"

/** A connection that is not made within this time is given up, in milliseconds. */
const connectTimeout = 5000

const common: Pg.ClientConfig = {
  keepAlive: true,
  // Node then asks once a second and gives up after ten
  keepAliveInitialDelayMillis: 1000,
  connectionTimeoutMillis: connectTimeout
}

export const clientOf = (connection: Connection | PgClientConfig): Effect.Effect<Pg.Client, DriverError> =>
  Effect.isEffect(connection)
    ? Effect.mapError(connection, (error) => failure("no", "`connection` made no client", error))
    : Effect.try({
      try: () => new Pg.Client({ ...common, ...configOf(connection) }),
      catch: (error) => failure("no", "`connection` is not valid", error)
    })

const configOf = (connection: Exclude<Connection, Effect.Effect<any, any>> | PgClientConfig): Pg.ClientConfig => {
  if (typeof connection === "string") return { connectionString: connection }
  if (Redacted.isRedacted(connection)) return { connectionString: Redacted.value(connection) }
  const { database, host, password, port, ssl, stream, url, username } = connection as PgClientConfig
  const given: Record<string, unknown> = {
    connectionString: url && Redacted.value(url),
    host,
    port,
    database,
    user: username,
    password: password && Redacted.value(password),
    ssl,
    stream
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}
