/**
 * A pooler in transaction mode gives one session of the server to several clients, which then share its locks. A probe
 * that asks once proves nothing, so two connections are asked in turn, one of them inside a transaction.
 */
import type { DriverError } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import type * as Pg from "pg"
import * as connections from "./connection.js"

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

/** Fails when the connection does not keep its session. */
export const unlessPooled = (
  connection: connections.Connection,
  pid: number,
  client: Effect.Effect<Pg.Client, DriverError>
): Effect.Effect<void, DriverError> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(
      // where no second connection is to be had, the marker in each statement still tells
      Effect.option(
        restore(Effect.flatMap(client, (second) => connections.open(second, { onEnd: () => {} }, patience)))
      ),
      (second) =>
        second._tag === "None" ? Effect.void : Effect.ensuring(
          restore(connections.promptly(
            Effect.catchIf(
              probe(connection, pid, second.value, rounds),
              (error) => error !== pooled,
              () => Effect.void
            ),
            second.value.destroy,
            patience
          )),
          // the server must not count it beside the connection for wake-ups
          second.value.close(patience)
        )
    )
  )

const probe = (
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
    yield* probe(connection, pid, second, left - 1)
  })
