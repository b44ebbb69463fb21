/**
 * The driver: one session for the grants, one connection for wake-ups, and what the engine asks of them.
 */
import type {
  Capabilities,
  Claim,
  DriverError,
  Grant,
  LockDriver,
  LossReason,
  Released,
  Renewal
} from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as admin from "./admin.js"
import { Owned } from "./books.js"
import { check } from "./check.js"
import * as contention from "./contention.js"
import * as fences from "./fences.js"
import { uniqueName } from "./identity.js"
import * as listeners from "./listener.js"
import { lockId, lockIds } from "./pure/lockId.js"
import { askIfOpen, nobody, type Row } from "./queue.js"
import * as sessions from "./session.js"
import * as sql from "./sql.js"
import type { Beside } from "./transaction.js"

const { Action, Code } = sql

/** PostgreSQL has room for a few thousand locks, which all sessions share: exhausted, the whole server stands still. */
const maxKeys = 500

const capabilities: Capabilities = {
  modes: ["exclusive", "shared"],
  fair: false,
  push: true,
  expiry: "session",
  remote: true,
  ttl: { default: Duration.seconds(15), min: Duration.millis(100), infinite: true },
  maxKeys
}

/** After so many milliseconds a holder listens to the questions of operators. */
const longHold = 500

export interface Settings extends Omit<sessions.Settings, "applicationName"> {
  /** What operators see beside the session. */
  readonly name: string
}

/** The driver, and what locks of transactions need of its session. */
export interface Opened {
  readonly driver: LockDriver
  readonly beside: Beside
}

export const make = (settings: Settings): Effect.Effect<Opened, never, Scope.Scope> =>
  Effect.gen(function*() {
    const losses = yield* Effect.acquireRelease(
      Queue.unbounded<{ readonly token: string; readonly reason: LossReason }>(),
      Queue.shutdown
    )
    const clock = yield* Effect.clock
    // eslint-disable-next-line no-restricted-syntax -- what people read is wall time; deadlines are monotonic
    const wallNow = () => clock.unsafeCurrentTimeMillis()
    const id = uniqueName().slice(0, 8)
    const session = yield* sessions.make(
      { ...settings, applicationName: admin.applicationName(id, settings.name) },
      (lost) => {
        for (const { token } of lost) losses.unsafeOffer({ token, reason: "session-ended" })
      }
    )
    const questions = yield* admin.make({
      id,
      session,
      listener: Effect.suspend(() => listener.opened),
      revoke: ({ request, token }) =>
        Effect.zipRight(
          Effect.sync(() => losses.unsafeOffer({ token, reason: "revoked" })),
          giveUp({ token, keys: request.keys })
        )
    })
    const listener: listeners.Listener = yield* listeners.make({
      client: settings.client,
      applicationName: admin.applicationName(`${id}/wake`, settings.name),
      channels: [sql.wakeChannel, sql.askChannel(id)],
      onNotification: (channel, payload) =>
        channel === sql.wakeChannel ? session.books.wake(payload) : questions.onMessage(payload),
      onBack: () => session.books.wakeAll()
    })
    // who holds for long can be asked of it
    const isLong = ({ since }: Owned) => since < wallNow() - longHold
    yield* Effect.suspend(() => session.books.owned.some(isLong) ? Effect.ignore(listener.opened) : Effect.void).pipe(
      Effect.schedule(Schedule.spaced(longHold)),
      Effect.forkScoped
    )
    const fence = fences.expression(settings)
    const environment: contention.Environment = {
      session,
      listener,
      group: { exclusive: sql.group(fence, false), shared: sql.group(fence, true) },
      wallNow,
      glance: questions.glance,
      longest: Duration.millis(settings.sessionTtl)
    }

    /** With the grant that it is about, the lock stays here where nobody waits for it. */
    const giveUp = <A extends Grant = never>(
      { keys, token }: Pick<Claim, "keys" | "token">,
      offered?: A
    ): Effect.Effect<Released | A, DriverError> =>
      // what the session held ended with it
      askIfOpen<Released | A>(session.queue, "gone", (answer, fail) => {
        const all = keys.map(lockIds)
        const isWantedBeside = () => all.some((ids) => session.books.isWantedBeside(ids))
        let owned: Owned | undefined
        let rows: ReadonlyArray<Row> = []
        return {
          _tag: "Rows",
          // an attempt of this token that is on its way has its answer first
          locks: all.map(({ lock }) => lock),
          rows: () => {
            owned = session.books.ownedBy(token, all)
            if (owned === undefined) answer("gone")
            else if (offered !== undefined && owned.fences[0] !== offered.fences[0]) {
              answer({ ...offered, fences: owned.fences })
            } else {
              rows = session.books.disown(owned, offered && !isWantedBeside() ? Action.offer : Action.unlock)
              if (rows.length === 0) answer("released")
            }
            return rows
          },
          settle: (codes) => {
            if (offered !== undefined && codes[0]! > Code.gone) {
              const { ids, request } = owned!
              session.books.own(new Owned(token, request, ids, codes, wallNow()))
              session.saw(codes[0]!)
              return () => answer({ ...offered, fences: codes })
            }
            return () => {
              // the server tells the others, not its own session
              for (const { ids } of rows) session.books.wake(ids.lock)
              const said = releasedOf(codes)
              answer(said === "released" && isWantedBeside() ? "woke" : said)
            }
          },
          fail
        }
      })

    const renew = (grants: ReadonlyArray<Grant>): Effect.Effect<ReadonlyArray<Renewal>, DriverError> =>
      askIfOpen<ReadonlyArray<Renewal>>(session.queue, grants.map(() => sessionEnded), (answer, fail) => {
        const all = grants.map(({ keys }) => keys.map(lockIds))
        const readers = grants.map(({ mode }, i) => mode === "shared" ? all[i]! : [])
        const answers = (codes: ReadonlyArray<bigint>) => {
          let at = 1
          return grants.map(({ token }, i): Renewal => {
            const contended = codes.slice(at, at += readers[i]!.length).includes(1n) ||
              readers[i]!.some((ids) => session.books.isWantedBeside(ids))
            const isOwned = session.books.ownedBy(token, all[i]!) !== undefined
            return isOwned ? { _tag: "Confirmed", contended } : sessionEnded
          })
        }
        return {
          _tag: "Rows",
          locks: [],
          rows: () => [
            beat,
            ...readers.flat().map((ids) => ({ action: Action.contended, ids }))
          ],
          settle: (codes) => {
            const value = answers(codes)
            return () => answer(value)
          },
          fail
        }
      })

    const driver: LockDriver = {
      name: "pg",
      capabilities,
      ready: Effect.zipRight(session.opened, sessions.awaitQuarantine(session)),
      exclusionId: lockId,
      contend: (request) => contention.make(environment, request),
      renew,
      release: (claim) => giveUp<never>(claim),
      offer: (grant) => giveUp(grant, grant),
      losses,
      inspect: questions.inspect,
      list: questions.list,
      forceRelease: questions.forceRelease,
      check: check(session, settings)
    }
    const beside: Beside = { session, listener, glance: questions.glance, settings, scope: yield* Effect.scope }
    return { driver, beside }
  })

const beat: Row = { action: Action.beat, ids: nobody }

const sessionEnded: Renewal = { _tag: "Lost", reason: "session-ended" }

const releasedOf = (codes: ReadonlyArray<bigint>): Released =>
  codes.includes(BigInt(Code.gone)) ? "gone" : codes.includes(BigInt(Code.woke)) ? "woke" : "released"
