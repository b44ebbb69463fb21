/**
 * Locks that live and die with the transaction in context. All tries go over the transaction's own connection; the layer
 * beside it announces the wait, as it does for those who wait for an ordinary lock.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import type { DriverError } from "effect-locking/LockDriver"
import * as LockError from "effect-locking/LockError"
import type { Locking } from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import { TransactionInvalid } from "../PgError.js"
import type { PgLocking } from "../PgLocking.js"
import type { Questions } from "./admin.js"
import type { Waiter } from "./books.js"
import { failure, promptly } from "./connection.js"
import { quarantined, register, withdraw } from "./contention.js"
import * as fences from "./fences.js"
import type { Listener } from "./listener.js"
import { type LockIds, lockIds } from "./pure/lockId.js"
import { serverMargin, type Session, type Settings } from "./session.js"
import * as statements from "./sql.js"

/** Of the layer that a lock is taken beside. */
export interface Beside {
  readonly session: Session
  readonly listener: Listener
  readonly glance: Questions["glance"]
  readonly settings: Pick<Settings, "sessionTtl" | "restartQuarantine" | "schema" | "fence">
  readonly scope: Scope.Scope
}

/** Pauses between tries, in milliseconds, each with up to a half taken off. */
const shortestPause = 5
const longestPause = 250

const defaultWait = Duration.seconds(5)

/** Fails unless there is a transaction in context. */
export const inTransaction: Effect.Effect<void, TransactionInvalid> = Effect.flatMap(
  Effect.serviceOption(SqlClient.TransactionConnection),
  (transaction) => Option.isNone(transaction) ? Effect.fail(new TransactionInvalid({ reason: "none" })) : Effect.void
)

export const make = (locking: Locking, beside: Beside): PgLocking["transactionLock"] => {
  const { backend } = locking
  const { session, settings } = beside
  const keptFor = settings.sessionTtl + serverMargin(settings.sessionTtl)
  const forgetful = statements.forgetfulFor(
    keptFor,
    settings.fence === "clock" ? undefined : { schema: settings.schema, name: fences.name }
  )
  // who is cut off may still believe in a lease that the server forgot when it restarted
  const upFor = settings.restartQuarantine ? keptFor : 0

  return (input, options) =>
    Effect.gen(function*() {
      const waitTimeout = yield* waitOf(locking, options?.waitTimeout)
      const key = yield* locking.resolveKey(input)
      yield* inTransaction
      const sql = yield* SqlClient.SqlClient
      const start = session.now()
      const deadline = start + Duration.toMillis(waitTimeout)
      const left = () => deadline - session.now()
      const keyHash = LockKey.shortHash(key)
      const ids = lockIds(key)
      const refused = ({ cause }: SqlError) => failure("no", "the statement failed", cause)
      const failed = (error: DriverError) =>
        new LockError.ProviderFailed({
          backend,
          keyHash,
          cause: error.cause ?? error,
          retryAfter: error.retryAfter
        })
      const run: Session["run"] = ({ text, values }) => Effect.mapError(sql.unsafe(text, values).values, refused)
      const ask = (text: string, values?: ReadonlyArray<unknown>) =>
        Effect.mapBoth(run({ text, values }), { onFailure: failed, onSuccess: ([row]) => row! })

      const attempt = (upFor = 0): Effect.Effect<string, LockError.ProviderFailed> =>
        Effect.map(ask(statements.lockTransaction, [ids.lock, upFor]), ([answer]) => answer)
      const sitOut = (quarantine: number) =>
        quarantine <= 0
          ? Effect.void
          : quarantine > left()
          ? failed(quarantined(quarantine))
          : Effect.sleep(Math.ceil(quarantine))
      let holder: LockError.HolderSummary | undefined
      const look = Effect.gen(function*() {
        const here = session.books.locks.get(ids.lock)?.owners[0]
        const seen = here === undefined
          ? yield* Effect.mapError(beside.glance([ids.lock], run), failed)
          : { mode: here.request.mode, since: here.since, session: here.request.holder.session }
        if (seen === undefined) return
        holder = { keyHash, mode: seen.mode, since: seen.since, session: seen.session, local: here !== undefined }
      })
      const late = Effect.suspend(() => {
        const fields = { backend, keyHash, waited: Duration.millis(session.now() - start), holder }
        return Effect.fail(
          Duration.isZero(waitTimeout)
            ? new LockError.LockBusy(fields)
            : new LockError.WaitTimeout({ ...fields, waitTimeout })
        )
      })

      yield* sitOut(session.quarantine())
      let answer = yield* attempt(upFor)
      if (answer === "isolation") return yield* new TransactionInvalid({ reason: "isolation" })
      if (answer === "early") {
        const [forgetfulFor] = yield* ask(forgetful)
        yield* sitOut(forgetfulFor)
        answer = yield* attempt()
      }
      if (answer === "locked") return
      yield* look
      if (left() <= 0) return yield* late
      yield* announced(beside, ids, (pause) =>
        Effect.gen(function*() {
          for (let most = shortestPause; (yield* attempt()) !== "locked"; most = Math.min(longestPause, most * 2)) {
            yield* look
            if (left() <= 0) return yield* late
            const random = yield* Random.next
            yield* pause(Math.min(left(), most * (0.5 + random / 2)))
          }
        }))
    })
}

type Pause = (millis: number) => Effect.Effect<void>

/**
 * While it waits, holders elsewhere and here learn of it, and new readers stand back. Afterwards nothing is left of it,
 * however it ended. Without a session there is nobody to announce it: then it is the pauses alone that lead to a try.
 */
const announced = <A, E>(
  { listener, scope, session }: Beside,
  ids: LockIds,
  use: (pause: Pause) => Effect.Effect<A, E>
): Effect.Effect<A, E> =>
  Effect.flatMap(Queue.sliding<void>(1), (wakes) => {
    const { books } = session
    const wake = () => void wakes.unsafeOffer(undefined)
    const waiter: Waiter = { mode: "exclusive", wake, isBeside: true }
    let isAnnouncing = false
    const announce = Effect.suspend(() => {
      const { hasIntent, registered } = books.interestIn(ids)
      if (isAnnouncing || (registered && hasIntent)) return Effect.void
      isAnnouncing = true
      return Effect.zipRight(listener.opened, register(session, [ids], true)).pipe(
        // only a try after it may rely on a wake-up
        Effect.zipRight(Effect.sync(() => registered || wake())),
        Effect.ensuring(Effect.sync(() => isAnnouncing = false)),
        Effect.ignore,
        // a layer that closes waits for neither
        Effect.interruptible,
        Effect.forkIn(scope)
      )
    })
    const pause: Pause = (millis) => Effect.zipRight(announce, promptly(Queue.take(wakes), wake, millis))
    return Effect.acquireUseRelease(
      Effect.sync(() => books.interestIn(ids).waiters.set(waiter, waiter)),
      () => use(pause),
      (_, exit) =>
        Effect.suspend(() => {
          const hasWon = Exit.isSuccess(exit)
          const rest = Effect.ignore(withdraw(session, [ids], waiter, hasWon))
          // readers here stood back for it, of which the server tells only those elsewhere
          const wakeReaders = Effect.sync(() => hasWon || books.wake(ids.lock))
          return Effect.forkIn(Effect.interruptible(Effect.zipRight(rest, wakeReaders)), scope)
        })
    )
  })

const waitOf = (
  locking: Locking,
  given: Duration.DurationInput | undefined
): Effect.Effect<Duration.Duration, LockError.InvalidOptions> => {
  if (given === undefined) return Effect.succeed(defaultWait)
  const isNumber = typeof given === "number"
  const parsed = isNumber && !(given >= 0) ? Option.none() : Duration.decodeUnknown(given)
  return Option.match(parsed, {
    onSome: Effect.succeed,
    onNone: () =>
      Effect.fail(
        new LockError.InvalidOptions({
          backend: locking.backend,
          issues: [{ path: "waitTimeout", message: "must be a duration of at least zero" }]
        })
      )
  })
}
