/**
 * The connection on which wake-ups and questions arrive: opened with the first waiter, and opened again when it breaks.
 * What was missed meanwhile is made up for by waking everybody.
 */
import type { DriverError } from "effect-locking/LockDriver"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import type * as Pg from "pg"
import * as connections from "./connection.js"
import * as sql from "./sql.js"

export interface Listener {
  /** Ends when notifications arrive. */
  readonly opened: Effect.Effect<void, DriverError>
}

const backoff = Schedule.jittered(Schedule.union(Schedule.exponential("50 millis"), Schedule.spaced("1 second")))

export const make = (options: {
  readonly client: Effect.Effect<Pg.Client, DriverError>
  readonly applicationName: string
  readonly channels: ReadonlyArray<string>
  readonly onNotification: (channel: string, payload: string) => void
  /** Notifications arrive again, and some may have been missed. */
  readonly onBack: () => void
}): Effect.Effect<Listener, never, Scope.Scope> =>
  Effect.gen(function*() {
    const scope = yield* Effect.scope
    const losses = yield* Queue.unbounded<connections.Connection>()
    let current: connections.Connection | undefined
    let opening: Deferred.Deferred<void, DriverError> | undefined

    const open: Effect.Effect<void, DriverError> = Effect.gen(function*() {
      const connection = yield* connections.open(yield* options.client, {
        onEnd: () => {
          if (current === connection) losses.unsafeOffer(connection)
        },
        onNotification: options.onNotification
      })
      const channels = options.channels.map((channel) => `listen ${sql.quoteIdentifier(channel)}`)
      yield* Effect.onError(
        connections.promptly(
          connections.query(connection, {
            text: [sql.listenerSettings(options.applicationName), ...channels].join("; ")
          }),
          connection.destroy
        ),
        () => Effect.sync(connection.destroy)
      )
      // it may have ended between its answer and here
      if (connection.isOver()) return yield* connections.failure("no", "the connection for wake-ups ended")
      current = connection
    })

    const opened: Effect.Effect<void, DriverError> = Effect.suspend(() => {
      if (current !== undefined) return Effect.void
      if (opening !== undefined) return Deferred.await(opening)
      const done = Deferred.unsafeMake<void, DriverError>(FiberId.none)
      opening = done
      const first = Effect.ensuring(open, Effect.sync(() => opening = undefined))
      return Effect.zipRight(Effect.forkIn(Effect.intoDeferred(first, done), scope), Deferred.await(done))
    })

    yield* Effect.forkScoped(Effect.forever(Effect.gen(function*() {
      yield* Queue.take(losses)
      yield* Effect.annotateLogs(
        Effect.logWarning("The connection for wake-ups broke; it is opened again, and waiters poll meanwhile"),
        "code",
        "PG_LISTENER_LOST"
      )
      yield* Effect.retry(open, backoff)
      options.onBack()
    })))
    yield* Effect.addFinalizer(() => Effect.sync(() => current?.destroy()))
    return { opened }
  })
