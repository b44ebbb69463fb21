/**
 * What the benchmarks share: a throw-away server, the plain client beside which everything is measured, and layers whose
 * statements are counted where they are sent.
 */
import { PgLocking } from "@effect-locking/pg"
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import * as Locking from "effect-locking/Locking"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import Pg from "pg"
import type { Sent } from "../remote.js"

export const server = PostgresServer.make()

/** A connection that counts. */
export const counting = (url: string, sent: Sent) =>
  Effect.sync(() => {
    const client = new Pg.Client(url)
    const query: (...args: ReadonlyArray<any>) => any = client.query.bind(client)
    client.query = (...args: ReadonlyArray<any>) => {
      sent.count++
      return query(...args)
    }
    return client
  })

export const driver = (url: string) => PgLocking.driver({ connection: url })

export const locking = (url: string, sent: Sent = { count: 0 }) =>
  Effect.flatMap(PgLocking.driver({ connection: counting(url, sent) }), (driver) =>
    // a client by itself makes no spans
    Locking.make(driver, { tracing: "off" }))

/** The client that programs use without the library. */
export const raw = (url: string): Effect.Effect<Pg.Client, unknown, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.tryPromise(async () => {
      const client = new Pg.Client(url)
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end())
  )
