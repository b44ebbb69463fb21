/**
 * Whether locks mean anything here. A pooler in transaction mode gives one session of the server to several clients,
 * which then share its locks, and some stores answer every request for a lock with yes. To ask one connection proves
 * nothing, so two are asked.
 */
import type { DriverError } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import type * as Pg from "pg"
import * as connections from "./connection.js"
import { uniqueNumber } from "./identity.js"

const rounds = 3

/** Long enough for the second connection, and so short that the first one is not given up for it. */
const patience = 1500

/** What a pooler says to a transaction when it gives sessions by the statement. */
const protocolViolation = "08P01"

const pidOf = (connection: connections.Connection): Effect.Effect<number, DriverError> =>
  Effect.map(connections.query(connection, { text: "select pg_backend_pid()" }), ([row]) => row![0])

export const pooled = connections.unfit(
  "a pooler in transaction mode stands before the server, and gives one session to several clients",
  "Give the layer a direct URL by `connection`, or one through a pooler in session mode."
)

export const alwaysYes = connections.unfit(
  "two sessions were given one lock: `pg_try_advisory_lock` does not exclude here",
  "Use PostgreSQL itself, and no function of that name in the `search_path` of the role or database."
)

/** Fails when the connection does not keep its session, or when its locks exclude nobody. */
export const unlessUnfit = (
  connection: connections.Connection,
  pid: number,
  client: Effect.Effect<Pg.Client, DriverError>
): Effect.Effect<void, DriverError> =>
  withSecond(client, (second) =>
    Effect.zipRight(
      unlessPooled(connection, pid, second, rounds),
      unlessAlwaysYes((statement) => connections.query(connection, statement), second)
    ))

/** Fails when the session is given a lock that another one holds. */
export const unlessUseless = (
  ask: Ask,
  client: Effect.Effect<Pg.Client, DriverError>
): Effect.Effect<void, DriverError> => withSecond(client, (second) => unlessAlwaysYes(ask, second))

type Ask = (statement: connections.Statement) => Effect.Effect<connections.Rows, DriverError>

/** Where no second connection is to be had nothing fails: the marker in each statement still tells. */
const withSecond = (
  client: Effect.Effect<Pg.Client, DriverError>,
  use: (second: connections.Connection) => Effect.Effect<void, DriverError>
): Effect.Effect<void, DriverError> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(
      Effect.option(
        restore(Effect.flatMap(client, (second) => connections.open(second, { onEnd: () => {} }, patience)))
      ),
      (second) =>
        second._tag === "None" ? Effect.void : Effect.ensuring(
          restore(connections.promptly(
            Effect.catchIf(use(second.value), (error) => error.fix === undefined, () => Effect.void),
            second.value.destroy,
            patience
          )),
          // the server must not count it beside the connection for wake-ups
          second.value.close(patience)
        )
    )
  )

const unlessPooled = (
  connection: connections.Connection,
  pid: number,
  second: connections.Connection,
  left: number
): Effect.Effect<void, DriverError> =>
  Effect.gen(function*() {
    if (left === 0) return
    yield* Effect.mapError(
      connections.query(second, { text: "begin" }),
      (error) => connections.codeOf(error) === protocolViolation ? pooled : error
    )
    // its session is kept for it now: ours must be another, and still the same
    if ((yield* pidOf(second)) === pid || (yield* pidOf(connection)) !== pid) return yield* pooled
    yield* connections.query(second, { text: "rollback" })
    yield* unlessPooled(connection, pid, second, left - 1)
  })

const unlessAlwaysYes = (ask: Ask, second: connections.Connection): Effect.Effect<void, DriverError> =>
  Effect.gen(function*() {
    const values = [uniqueNumber()]
    const [taken] = yield* connections.query(second, { text: "select pg_try_advisory_lock($1)", values })
    if (taken![0] !== true) return
    // in one statement, so that nothing stays on our session
    const [row] = yield* ask({
      text: "select case when pg_try_advisory_lock($1) then pg_advisory_unlock($1) end is not null",
      values
    })
    if (row![0] === true) return yield* alwaysYes
  })
