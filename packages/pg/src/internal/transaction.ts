/**
 * Locks that live and die with the transaction in context.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import * as LockError from "effect-locking/LockError"
import type { Locking } from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import { TransactionInvalid } from "../PgError.js"
import type { PgLocking, TransactionLockError } from "../PgLocking.js"
import { failure } from "./connection.js"
import { lockId } from "./pure/lockId.js"
import { wakeChannel } from "./sql.js"

/** Pauses between tries, in milliseconds, each with up to a half taken off. */
const shortestPause = 5
const longestPause = 250

const defaultWait = Duration.seconds(5)

/** Fails unless there is a transaction in context. */
export const inTransaction: Effect.Effect<void, TransactionInvalid> = Effect.flatMap(
  Effect.serviceOption(SqlClient.TransactionConnection),
  (transaction) => Option.isNone(transaction) ? Effect.fail(new TransactionInvalid({ reason: "none" })) : Effect.void
)

export const make = (locking: Locking): PgLocking["transactionLock"] => (input, options) =>
  Effect.gen(function*() {
    const waitTimeout = yield* waitOf(locking, options?.waitTimeout)
    const key = yield* locking.resolveKey(input)
    yield* inTransaction
    const sql = yield* SqlClient.SqlClient
    const clock = yield* Effect.clock
    const now = () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
    const start = now()
    const deadline = start + Duration.toMillis(waitTimeout)
    const { backend } = locking
    const keyHash = LockKey.shortHash(key)
    const lock = lockId(key)
    const refused = (error: SqlError) =>
      new LockError.ProviderFailed({
        backend,
        keyHash,
        cause: failure("no", "the statement failed", error.cause).cause
      })
    const ask = <A>(statement: Effect.Effect<ReadonlyArray<A>, SqlError>) =>
      Effect.map(Effect.mapError(statement, refused), ([row]) => row!)

    const { isolation } = yield* ask(
      sql<{ readonly isolation: string }>`select current_setting('transaction_isolation') as isolation`
    )
    if (isolation !== "read committed") return yield* new TransactionInvalid({ reason: "isolation" })

    const attempt = (pause: number): Effect.Effect<void, TransactionLockError> =>
      Effect.gen(function*() {
        // the notice goes out with the commit, and never after a rollback, for which waiters have their poll
        const { locked } = yield* ask(
          sql<{ readonly locked: boolean }>`select case when pg_try_advisory_xact_lock(${lock}::int8)
          then length(pg_notify(${wakeChannel}, ${lock})::text) = 0 else false end as locked`
        )
        if (locked) return
        const left = deadline - now()
        if (left <= 0) {
          const waited = Duration.millis(now() - start)
          return yield* Duration.isZero(waitTimeout)
            ? new LockError.LockBusy({ backend, keyHash, waited, holder: undefined })
            : new LockError.WaitTimeout({ backend, keyHash, waited, waitTimeout, holder: undefined })
        }
        const random = yield* Random.next
        yield* Effect.sleep(Math.min(left, pause * (0.5 + random / 2)))
        yield* attempt(Math.min(longestPause, pause * 2))
      })

    yield* attempt(shortestPause)
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
