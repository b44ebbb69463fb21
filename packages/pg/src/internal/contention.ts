/**
 * One request at the session: tries, an interest at the server while it waits, and nothing afterwards.
 */
import {
  type Busy,
  callback,
  type Contention,
  DriverError,
  type Full,
  type Grant,
  type Holder,
  type LockMode,
  type LockRequest
} from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { hasWriter, type Interest, Owned } from "./books.js"
import type { Rows } from "./connection.js"
import * as fences from "./fences.js"
import type { Listener } from "./listener.js"
import { type LockIds, lockIds } from "./pure/lockId.js"
import { array, ask, type Lone, Row, type RowsJob, type StatementJob, type Tell } from "./queue.js"
import type { Session } from "./session.js"
import * as sql from "./sql.js"

const { Action, Code } = sql

type Answer = Grant | Busy | Full

type Resume = (answer: Effect.Effect<Answer, DriverError>) => void

export interface Environment {
  readonly session: Session
  readonly listener: Listener
  /** All of several keys, or none. */
  readonly group: Readonly<Record<LockMode, string>>
  readonly wallNow: () => number
  /** Who holds one of the locks, as far as the server knows; nothing when it was asked a moment ago. */
  readonly glance: (locks: ReadonlyArray<string>) => Effect.Effect<Holder | undefined, DriverError>
  /** No grant lasts longer without a beat of its session. */
  readonly longest: Duration.Duration
}

/** Asks for a row again after a releaser looked for interest at the same moment. */
const retryAfter = 2

/** Somebody of this process holds it; somebody else does. */
const busyHere: Busy = { _tag: "Busy" }
const busy: Busy = { _tag: "Busy" }

export const make = (environment: Environment, request: LockRequest): Contention =>
  new PgContention(environment, request)

class PgContention implements Contention {
  readonly ids: ReadonlyArray<LockIds>
  readonly locks: ReadonlyArray<string>
  private isWaiting = false
  private holder: Holder | undefined
  private hasWon = false

  constructor(readonly environment: Environment, readonly request: LockRequest) {
    this.ids = request.keys.map(lockIds)
    this.locks = this.ids.map(({ lock }) => lock)
  }

  attempt(
    { left, token }: { readonly token: string; readonly left: Duration.Duration }
  ): Effect.Effect<Answer, DriverError> {
    const { session } = this.environment
    return callback((resume) => {
      const until = session.now() + Duration.toMillis(left)
      // a new session knows nothing of those who wait
      const isKnown = !this.isWaiting || this.isRegistered
      if (session.isOpen() && isKnown) return this.ask(token, until, resume)
      const ready = isKnown
        ? session.opened
        : Effect.catchIf(register(session, this.ids), (error) => error === noRoom, () => Effect.void)
      resume(Effect.zipRight(ready, callback<Answer>((resume) => this.ask(token, until, resume))))
    })
  }

  private ask(token: string, until: number, resume: Resume): () => void {
    const attempt = this.ids.length === 1
      ? new SingleAttempt(this, token, until, resume)
      : new AttemptAtAll(this, token, until, resume)
    this.environment.session.queue.add(attempt)
    return () => {
      attempt.isWanted = false
    }
  }

  /** A first busy answer of who may wait says nothing yet: the next try is at once. */
  isCurious(answer: Answer): answer is Busy {
    return answer === busy && (!this.request.waiting || this.isWaiting)
  }

  /** With the name of the holder, where it can be had. */
  named(answer: Busy): Effect.Effect<Answer> {
    const known = () => this.holder === undefined ? answer : { ...answer, holder: this.holder }
    return Effect.match(this.environment.glance(this.locks), {
      onSuccess: (holder) => {
        // what it was told a moment ago is better than nothing
        this.holder = holder ?? this.holder
        return known()
      },
      onFailure: known
    })
  }

  get isRegistered(): boolean {
    const { interests } = this.environment.session.books
    return this.isWaiting && this.ids.every(({ lock }) => interests.get(lock)?.registered === true)
  }

  missingIntent({ lock }: LockIds): Interest | undefined {
    const interest = this.isWaiting ? this.environment.session.books.interests.get(lock) : undefined
    return interest !== undefined && this.request.mode === "exclusive" && !interest.hasIntent ? interest : undefined
  }

  won(token: string, codes: ReadonlyArray<bigint>): Answer {
    if (codes.length < this.ids.length || !codes.every((code) => code > 0n)) return busy
    const { environment: { session, wallNow }, ids, request } = this
    const owned = new Owned(token, request, ids, codes, wallNow())
    session.books.own(owned)
    for (const fence of codes) session.saw(fence)
    return this.grantOf(owned)
  }

  grantOf({ fences: first, request, token }: Owned): Grant {
    this.hasWon = true
    return new PgGrant(token, request, first, Duration.min(request.ttl, this.environment.longest))
  }

  arm(wake: () => void): Effect.Effect<void, DriverError> {
    const { listener, session } = this.environment
    return Effect.suspend(() => {
      this.isWaiting = true
      for (const ids of this.ids) {
        session.books.interestIn(ids).waiters.set(this, { mode: this.request.mode, wake })
      }
      return Effect.zipRight(listener.opened, register(session, this.ids))
    })
  }

  get withdraw(): Effect.Effect<void, DriverError> {
    const { session } = this.environment
    return Effect.suspend(() => {
      if (!this.isWaiting) return Effect.void
      this.isWaiting = false
      return withdraw(session, this.ids, this, this.hasWon)
    })
  }
}

/** What becomes of one try. */
abstract class Attempt {
  isWanted = true
  /** What it owns already. */
  protected owned: Owned | undefined = undefined

  constructor(
    protected readonly of: PgContention,
    protected readonly token: string,
    private readonly until: number,
    private readonly resume: Resume
  ) {}

  get locks(): ReadonlyArray<string> {
    return this.of.locks
  }

  fail(error: DriverError): void {
    this.resume(Effect.fail(error))
  }

  /** Whether it has ended without the server. */
  protected hasEnded(): boolean {
    if (!this.isWanted) return true
    const { environment: { session }, ids, isRegistered, request } = this.of
    const now = session.now()
    if (now >= this.until) {
      this.fail(new DriverError({ executed: "no", message: "there was no time left to ask PostgreSQL" }))
      return true
    }
    this.owned = session.books.ownedBy(this.token, ids)
    if (this.owned !== undefined) return false
    if (session.quarantine() > 0) {
      this.fail(quarantined(session.quarantine()))
      return true
    }
    if (!ids.every((one) => session.books.isOpenTo(one, request.mode))) {
      this.answer(busyHere)
      return true
    }
    // who waits was let in already
    if (isRegistered || ids.every((one) => session.books.shares(one))) return false
    const limit = session.fullAt(ids.length)
    if (limit === undefined) return false
    this.answer({ _tag: "Full", limit })
    return true
  }

  protected settled(codes: ReadonlyArray<bigint>): Tell {
    const answer = this.owned === undefined ? this.of.won(this.token, codes) : this.of.grantOf(this.owned)
    return () => this.answer(answer)
  }

  private answer(value: Answer): void {
    this.resume(this.of.isCurious(value) ? this.of.named(value) : Effect.succeed(value))
  }
}

/** A key by itself goes into a batch with others. */
class SingleAttempt extends Attempt implements RowsJob {
  readonly _tag = "Rows"
  private intent: Interest | undefined = undefined

  rows(): ReadonlyArray<Row> {
    if (this.hasEnded()) return []
    const { environment: { session: { books } }, ids: [ids], request } = this.of
    if (this.owned !== undefined) return [new Row(Action.beat, ids!)]
    const action = request.mode === "exclusive"
      ? Action.lock
      : books.shares(ids!)
      ? Action.joinShared
      : Action.lockShared
    this.intent = this.of.missingIntent(ids!)
    const row = new Row(action, ids!)
    return this.intent === undefined ? [row] : [row, new Row(Action.intent, ids!)]
  }

  settle([code, hasIntent]: ReadonlyArray<bigint>): Tell {
    if (this.intent !== undefined && hasIntent === BigInt(Code.done)) this.intent.hasIntent = true
    return this.settled([code!])
  }
}

/** Several keys in one statement, all or none. */
class AttemptAtAll extends Attempt implements StatementJob {
  readonly _tag = "Statement"

  statement(marker: string): Lone | undefined {
    if (this.hasEnded()) return undefined
    if (this.owned !== undefined) return { text: "select 1" }
    const { environment: { group, session }, ids, request: { mode } } = this.of
    const isShared = mode === "shared"
    return {
      name: `effect_locking_${mode}`,
      text: group[mode],
      touches: ids.map((one) => ({ action: isShared ? Action.lockShared : Action.lock, ids: one })),
      values: [
        marker,
        array(this.locks),
        ...(isShared
          ? [
            array(ids.map(({ intent }) => intent[0])),
            array(ids.map(({ intent }) => intent[1])),
            array(ids.map((one) => session.books.shares(one)))
          ]
          : [])
      ]
    }
  }

  settle(rows: Rows): Tell {
    return this.settled(rows.map(([code]) => BigInt(code)))
  }
}

class PgGrant implements Grant {
  readonly _tag = "Grant"
  readonly keys: Grant["keys"]
  readonly mode: LockMode
  readonly block = fences.block

  constructor(
    readonly token: string,
    request: LockRequest,
    readonly fences: ReadonlyArray<bigint>,
    readonly ttl: Duration.Duration
  ) {
    this.keys = request.keys
    this.mode = request.mode
  }
}

/** Tells the server who waits here, unless it knows; `wantsIntent`: asks again for an intent that another writer had. */
export const register = (
  session: Session,
  all: ReadonlyArray<LockIds>,
  wantsIntent = false
): Effect.Effect<void, DriverError> => {
  const interests = () => all.flatMap(({ lock }) => session.books.interests.get(lock) ?? [])
  const missing = () => interests().filter((_) => !_.registered)
  const once = ask<void>(session.queue, (answer, fail) => {
    let asked: ReadonlyArray<{ readonly interest: Interest; readonly isIntent: boolean }> = []
    return {
      _tag: "Rows",
      locks: all.map(({ lock }) => lock),
      rows: () => {
        asked = (wantsIntent ? interests() : missing()).flatMap((interest) => [
          ...(interest.registered ? [] : [{ interest, isIntent: false }]),
          ...(hasWriter(interest) && !interest.hasIntent ? [{ interest, isIntent: true }] : [])
        ])
        if (asked.length === 0) answer()
        else if (session.fullAt(asked.length) !== undefined) {
          asked = []
          fail(noRoom)
        }
        return asked.map(({ interest: { ids }, isIntent }) => ({
          action: isIntent ? Action.intent : Action.interest,
          ids
        }))
      },
      settle: (codes) => {
        asked.forEach(({ interest, isIntent }, i) => {
          if (codes[i] !== BigInt(Code.done)) return
          if (isIntent) interest.hasIntent = true
          else interest.registered = true
        })
        return answer
      },
      fail
    }
  })
  return Effect.zipRight(
    session.opened,
    Effect.flatMap(
      once,
      () => missing().length === 0 ? Effect.void : Effect.zipRight(Effect.sleep(retryAfter), register(session, all))
    )
  )
}

/** A waiter has gone: nothing is left at the server that was there for it alone. */
export const withdraw = (
  session: Session,
  all: ReadonlyArray<LockIds>,
  waiter: object,
  hasWon: boolean
): Effect.Effect<void, DriverError> => {
  for (const { lock } of all) session.books.interests.get(lock)?.waiters.delete(waiter)
  return session.isOpen() ? unregister(session, all, hasWon) : Effect.sync(() => forget(session, all))
}

const unregister = (session: Session, all: ReadonlyArray<LockIds>, hasWon: boolean) =>
  ask<void>(session.queue, (answer, fail) => ({
    _tag: "Rows",
    locks: all.map(({ lock }) => lock),
    rows: () => {
      const rows: Array<Row> = []
      for (const ids of all) {
        const interest = session.books.interests.get(ids.lock)
        if (interest === undefined) continue
        if (interest.waiters.size === 0) {
          session.books.interests.delete(ids.lock)
          if (interest.registered) rows.push({ action: Action.withdrawInterest, ids })
        }
        if (interest.hasIntent && !hasWriter(interest)) {
          interest.hasIntent = false
          rows.push({ action: hasWon ? Action.dropIntent : Action.withdrawIntent, ids })
        }
      }
      if (rows.length === 0) answer()
      return rows
    },
    settle: () => answer,
    fail
  }))

/** Who finds no room among those who wait polls. */
const noRoom = new DriverError({ executed: "no", message: "there is no room left in the server's lock table" })

/** The session ended, and the interest with it. */
const forget = (session: Session, all: ReadonlyArray<LockIds>): void => {
  for (const { lock } of all) {
    if (session.books.interests.get(lock)?.waiters.size === 0) session.books.interests.delete(lock)
  }
}

export const quarantined = (left: number): DriverError =>
  new DriverError({
    executed: "no",
    message: "the server has restarted, and leases from before that may still be believed in",
    retryAfter: Duration.millis(Math.ceil(left))
  })
