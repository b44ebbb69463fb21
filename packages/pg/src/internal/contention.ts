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
import * as fences from "./fences.js"
import type { Listener } from "./listener.js"
import { type LockIds, lockIds } from "./pure/lockId.js"
import { array, ask, type Job, Row, RowsJob } from "./queue.js"
import type { Session } from "./session.js"
import * as sql from "./sql.js"

const { Action, Code } = sql

type Answer = Grant | Busy | Full

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
  private readonly ids: ReadonlyArray<LockIds>
  private readonly locks: ReadonlyArray<string>
  private isWaiting = false
  private holder: Holder | undefined
  private hasWon = false

  constructor(private readonly environment: Environment, private readonly request: LockRequest) {
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
      if (session.isOpen() && isKnown) return this.ask(token, until)(resume)
      const ready = isKnown
        ? session.opened
        : Effect.catchIf(register(session, this.ids), (error) => error === noRoom, () => Effect.void)
      resume(Effect.zipRight(ready, callback(this.ask(token, until))))
    })
  }

  private ask(token: string, until: number) {
    const { session } = this.environment
    return (resume: (answer: Effect.Effect<Answer, DriverError>) => void) => {
      let isWanted = true
      const answer = (value: Answer) => resume(this.isCurious(value) ? this.named(value) : Effect.succeed(value))
      const fail = (error: DriverError) => resume(Effect.fail(error))
      /** What can be told without the server. */
      const settled = (): boolean => {
        if (!isWanted) return true
        const now = session.now()
        if (now >= until) {
          fail(new DriverError({ executed: "no", message: "there was no time left to ask PostgreSQL" }))
        } else if (session.books.owned.get(token) !== undefined) return false
        else if (session.quarantine() > 0) fail(quarantined(session.quarantine()))
        else if (!this.ids.every((ids) => session.books.isOpenTo(ids, this.request.mode))) answer(busyHere)
        else {
          // who waits was let in already
          if (this.isRegistered || this.ids.every((ids) => session.books.shares(ids))) return false
          const full = session.fullAt(this.ids.length)
          if (full === undefined) return false
          answer({ _tag: "Full", limit: full })
        }
        return true
      }
      session.queue.add(
        this.ids.length === 1
          ? this.single(token, settled, answer, fail)
          : this.several(token, settled, answer, fail)
      )
      return () => {
        isWanted = false
      }
    }
  }

  /** A first busy answer of who may wait says nothing yet: the next try is at once. */
  private isCurious(answer: Answer): answer is Busy {
    return answer === busy && (!this.request.waiting || this.isWaiting)
  }

  /** With the name of the holder, where it can be had. */
  private named(answer: Busy): Effect.Effect<Answer> {
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

  /** A key by itself goes into a batch with others. */
  private single(
    token: string,
    settled: () => boolean,
    answer: (value: Answer) => void,
    fail: (error: DriverError) => void
  ): Job {
    const { books } = this.environment.session
    const ids = this.ids[0]!
    let again: Owned | undefined
    let intent: Interest | undefined
    return new RowsJob(
      this.locks,
      () => {
        if (settled()) return []
        again = books.owned.get(token)
        if (again !== undefined) return [new Row(Action.beat, ids)]
        const action = this.request.mode === "exclusive"
          ? Action.lock
          : books.shares(ids)
          ? Action.joinShared
          : Action.lockShared
        intent = this.missingIntent(ids)
        return intent === undefined ? [new Row(action, ids)] : [new Row(action, ids), new Row(Action.intent, ids)]
      },
      ([code, hasIntent]) => {
        if (intent !== undefined && hasIntent === BigInt(Code.done)) intent.hasIntent = true
        answer(again === undefined ? this.won(token, [code!]) : this.grantOf(again))
      },
      fail
    )
  }

  /** Several keys in one statement, all or none. */
  private several(
    token: string,
    settled: () => boolean,
    answer: (value: Answer) => void,
    fail: (error: DriverError) => void
  ): Job {
    const { environment: { group, session }, ids, request: { mode } } = this
    const shared = mode === "shared"
    let again: Owned | undefined
    return {
      _tag: "Statement",
      statement: (marker) => {
        if (settled()) return undefined
        again = session.books.owned.get(token)
        if (again !== undefined) return { text: "select 1" }
        return {
          name: `effect_locking_${mode}`,
          text: group[mode],
          touches: ids.map((ids) => ({ action: shared ? Action.lockShared : Action.lock, ids })),
          values: [
            marker,
            array(this.locks),
            ...(shared
              ? [
                array(ids.map(({ intent }) => intent[0])),
                array(ids.map(({ intent }) => intent[1])),
                array(ids.map((ids) => session.books.shares(ids)))
              ]
              : [])
          ]
        }
      },
      settle: (rows) =>
        answer(again === undefined ? this.won(token, rows.map(([code]) => BigInt(code))) : this.grantOf(again)),
      fail
    }
  }

  private get isRegistered(): boolean {
    const { interests } = this.environment.session.books
    return this.isWaiting && this.ids.every(({ lock }) => interests.get(lock)?.registered === true)
  }

  private missingIntent({ lock }: LockIds): Interest | undefined {
    const interest = this.isWaiting ? this.environment.session.books.interests.get(lock) : undefined
    return interest !== undefined && this.request.mode === "exclusive" && !interest.hasIntent ? interest : undefined
  }

  private won(token: string, codes: ReadonlyArray<bigint>): Answer {
    if (codes.length < this.ids.length || !codes.every((code) => code > 0n)) return busy
    const { environment: { session, wallNow }, ids, request } = this
    const owned = new Owned(token, request, ids, codes, wallNow())
    session.books.own(owned)
    for (const fence of codes) session.saw(fence)
    return this.grantOf(owned)
  }

  private grantOf({ fences: first, request, token }: Owned): Grant {
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
      for (const { lock } of this.ids) session.books.interests.get(lock)?.waiters.delete(this)
      return session.isOpen() ? withdraw(session, this.ids, this.hasWon) : Effect.sync(() => forget(session, this.ids))
    })
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

/** Tells the server who waits here, unless it knows. */
export const register = (session: Session, all: ReadonlyArray<LockIds>): Effect.Effect<void, DriverError> => {
  const missing = () => all.flatMap(({ lock }) => session.books.interests.get(lock) ?? []).filter((_) => !_.registered)
  const once = ask<void>(session.queue, (answer, fail) => {
    let asked: ReadonlyArray<{ readonly interest: Interest; readonly isIntent: boolean }> = []
    return {
      _tag: "Rows",
      locks: all.map(({ lock }) => lock),
      rows: () => {
        asked = missing().flatMap((interest) => [
          { interest, isIntent: false },
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
        answer()
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

const withdraw = (session: Session, all: ReadonlyArray<LockIds>, hasWon: boolean) =>
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
    settle: () => answer(),
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

const quarantined = (left: number): DriverError =>
  new DriverError({
    executed: "no",
    message: "the server has restarted, and leases from before that may still be believed in",
    retryAfter: Duration.millis(Math.ceil(left))
  })
