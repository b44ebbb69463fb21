/**
 * The session that holds the grants: opened when it is needed, kept by its beats, ended by its silence. The server ends
 * it after `sessionTtl` without a statement, and with it everything that it held.
 */
import type { DriverError } from "effect-locking/LockDriver"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import type * as Pg from "pg"
import { Books, type Owned } from "./books.js"
import * as connections from "./connection.js"
import * as fences from "./fences.js"
import { uniqueName } from "./identity.js"
import { pooled, unlessUnfit } from "./probe.js"
import * as queues from "./queue.js"
import { repair } from "./repair.js"
import * as sql from "./sql.js"

export interface Settings extends fences.Source {
  /** Makes a client for a connection of our own. */
  readonly client: Effect.Effect<Pg.Client, DriverError>
  readonly applicationName: string
  /** In milliseconds. */
  readonly sessionTtl: number
  readonly restartQuarantine: boolean
  readonly reconnectQuarantine: boolean
}

export interface Facts {
  readonly serverVersion: number
  readonly pid: number
  /** How many keys one process may hold here. */
  readonly limit: number
}

export interface Session {
  readonly books: Books
  readonly queue: queues.Queue
  readonly now: () => number
  /** Ends when there is a session; opens one. */
  readonly opened: Effect.Effect<Facts, DriverError>
  readonly isOpen: () => boolean
  /** A statement of its own. */
  readonly run: (statement: connections.Statement) => Effect.Effect<connections.Rows, DriverError>
  /** For so many milliseconds nothing may be granted: the server may have forgotten what others believe to hold. */
  readonly quarantine: () => number
  /** The most keys that may be held now; `undefined`: there is room for so many entries. */
  readonly fullAt: (entries: number) => number | undefined
  /** Fences rise over a reconnection. */
  readonly saw: (fence: bigint) => void
}

/** How much later than we believe the server ends the session. */
export const serverMargin = (sessionTtl: number): number => Math.max(250, sessionTtl / 10)

/** How long it may take to open a session, in milliseconds. */
const openingLimit = 5000

/** How often all locks of the server are counted, and how often while there are too many. */
const countEvery = { calm: 30_000, alarmed: 5000 }

const oldestServer = 140_000

type State =
  | { readonly _tag: "Closed" }
  | {
    readonly _tag: "Opening"
    readonly since: number
    connection: connections.Connection | undefined
    readonly done: Deferred.Deferred<Facts, DriverError>
  }
  | {
    readonly _tag: "Open"
    readonly connection: connections.Connection
    readonly facts: Facts
    readonly slots: number
  }

const closed: State = { _tag: "Closed" }

export const make = (
  settings: Settings,
  onLost: (lost: ReadonlyArray<Owned>) => void
): Effect.Effect<Session, never, Scope.Scope> =>
  Effect.gen(function*() {
    const scope = yield* Effect.scope
    const clock = yield* Effect.clock
    const now = () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
    const keptFor = settings.sessionTtl + serverMargin(settings.sessionTtl)
    const batch = sql.batch(fences.expression(settings))
    const books = new Books()
    let state: State = closed
    let isProbed = false
    let lastFence = 0n
    let grantsFrom = 0
    let count: { readonly locks: number; readonly at: number } | undefined

    const queue = queues.make({
      now,
      batch,
      repair: (connection, marker, touched, done) => repair({ connection, batch, marker, books, touched, done }),
      onForeign: (error) => drop(error)
    })

    /** Whatever the session held is lost. Those who wait try again, on the next one. */
    const ended = (error: Error | undefined): void => {
      state = closed
      count = undefined
      if (settings.reconnectQuarantine) grantsFrom = Math.max(grantsFrom, now() + keptFor)
      onLost(books.forget())
      queue.detach(error)
      books.wakeAll()
    }

    const drop = (error: Error): void => {
      if (state._tag === "Closed") return
      state.connection?.destroy()
      if (state._tag === "Open") ended(error)
    }

    const open = (opening: Extract<State, { _tag: "Opening" }>): Effect.Effect<Facts, DriverError> =>
      Effect.gen(function*() {
        const connection = yield* connections.open(yield* settings.client, {
          onEnd: (error) => {
            if (state._tag === "Open" && state.connection === connection) ended(error)
          }
        })
        opening.connection = connection
        const [[serverVersion, pid, isStandby, slots, serverStart, serverNow, ends]] =
          (yield* connections.query(connection, { text: sql.facts })) as [
            [number, number, boolean, string, string, string, string]
          ]
        if (serverVersion < oldestServer) return yield* tooOld(serverVersion)
        if (isStandby) return yield* standby
        // before anything is set: what is set on a pooler's session is set for its other clients, too
        // each time, since the way there may be another one by now; where both see the same ends nothing is between them
        if (!isProbed || ends !== connection.ends()) yield* unlessUnfit(connection, pid, settings.client)
        isProbed = true
        const marker = uniqueName()
        const [claimed] = yield* connections.query(connection, { text: sql.claimSession, values: [marker, pid] })
        if (claimed![0] !== marker) return yield* pooled
        yield* connections.query(connection, {
          text: sql.sessionSettings({
            sessionTtl: Math.ceil(keptFor),
            applicationName: settings.applicationName,
            serverVersion
          })
        })
        const firstFence = yield* fences.prepare(connection, settings, serverNow, lastFence)
        // nothing was granted before the source of fences existed, so nothing can have been forgotten
        if (settings.restartQuarantine && firstFence < BigInt(serverStart)) {
          const forgetfulFor = keptFor - Number(BigInt(serverNow) - BigInt(serverStart)) / 1000
          grantsFrom = Math.max(grantsFrom, now() + forgetfulFor)
        }
        // it may have ended between its last answer and here
        if (connection.isOver()) return yield* connections.failure("no", "the session ended while it was opened")
        const facts: Facts = { serverVersion, pid, limit: Math.max(1, Math.floor(Number(slots) / 10)) }
        state = { _tag: "Open", connection, facts, slots: Number(slots) }
        queue.attach(connection, marker)
        return facts
      }).pipe(
        Effect.onExit((exit) =>
          Effect.sync(() => {
            if (exit._tag === "Success") return
            opening.connection?.destroy()
            if (state === opening) state = closed
          })
        )
      )

    const opened: Effect.Effect<Facts, DriverError> = Effect.suspend(() => {
      if (state._tag === "Open") return Effect.succeed(state.facts)
      if (state._tag === "Opening") return Deferred.await(state.done)
      const opening = {
        _tag: "Opening",
        since: now(),
        connection: undefined,
        done: Deferred.unsafeMake<Facts, DriverError>(FiberId.none)
      } as const
      state = opening
      // whoever asked first may leave; the others go on waiting for it
      return Effect.zipRight(
        Effect.forkIn(Effect.intoDeferred(open(opening), opening.done), scope),
        Deferred.await(opening.done)
      )
    })

    const tick = Effect.sync(() => {
      const at = now()
      if (state._tag === "Opening" && at > state.since + openingLimit) drop(new Error("the server did not answer"))
      if (state._tag !== "Open") return
      if (queue.sentAt !== undefined) {
        // nothing of what was held is still believed in
        if (at > queue.sentAt + settings.sessionTtl) drop(new Error("the server did not answer"))
        return
      }
      if (at > queue.answeredAt + settings.sessionTtl / 3) queue.add(beat)
      const isAlarmed = count !== undefined && count.locks > state.slots / 2
      if (count === undefined || at > count.at + (isAlarmed ? countEvery.alarmed : countEvery.calm)) queue.add(counting)
    })

    const beat: queues.Job = {
      _tag: "Rows",
      locks: [],
      rows: () => [{ action: sql.Action.beat, ids: queues.nobody }],
      settle: () => () => {},
      fail: () => {}
    }

    const counting: queues.Job = {
      _tag: "Statement",
      statement: () => ({ text: sql.lockCount }),
      settle: ([row]) => {
        count = { locks: row![0], at: now() }
        return () => {}
      },
      fail: () => {}
    }

    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        drop(new Error("the layer is closed"))
        state = closed
      })
    )
    const period = Math.min(1000, Math.max(20, settings.sessionTtl / 12))
    yield* Effect.forkScoped(Effect.schedule(tick, Schedule.spaced(period)))

    return {
      books,
      queue,
      now,
      opened,
      isOpen: () => state._tag === "Open",
      run: (statement) =>
        Effect.zipRight(
          opened,
          queues.ask<connections.Rows>(queue, (answer, fail) => ({
            _tag: "Statement",
            statement: () => statement,
            settle: (rows) => () => answer(rows),
            fail
          }))
        ),
      quarantine: () => Math.max(0, grantsFrom - now()),
      fullAt: (entries) => {
        if (state._tag !== "Open") return undefined
        const { limit } = state.facts
        const isCrowded = count !== undefined && count.locks > state.slots / 2
        return isCrowded || books.size + queue.asked + entries > limit ? Math.min(limit, books.size) : undefined
      },
      saw: (fence) => {
        if (fence > lastFence) lastFence = fence
      }
    }
  })

export const awaitQuarantine = (session: Session): Effect.Effect<void> =>
  Effect.suspend(() => {
    const left = Math.ceil(session.quarantine())
    return left === 0 ? Effect.void : Effect.zipRight(
      Effect.annotateLogs(
        Effect.logInfo(
          `PostgreSQL has restarted, and leases from before that may still be believed in: waiting ${left / 1000} s`
        ),
        "code",
        "PG_RESTARTED"
      ),
      Effect.sleep(left)
    )
  })

const standby = connections.unfit(
  "the server is a standby, whose advisory locks are apart from those of the primary",
  "Give the layer the URL of the primary, for example with `target_session_attrs=read-write`."
)

const tooOld = (version: number) =>
  connections.unfit(
    `PostgreSQL ${Math.floor(version / 10_000)} cannot end a silent session by itself`,
    "Use PostgreSQL 14 or later."
  )
