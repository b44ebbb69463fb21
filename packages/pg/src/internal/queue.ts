/**
 * One statement at a time. What is asked while it is out goes together into the next one, in order: that beats
 * pipelining, and a heartbeat never waits for more than one statement.
 */
import { callback, type DriverError } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import { type Connection, failure, isAnswer, type Rows, type Statement } from "./connection.js"
import type { LockIds } from "./pure/lockId.js"
import { Action, type Batch, Code } from "./sql.js"

// eslint-disable-next-line no-restricted-globals -- no time passes; no fiber runs so late in a tick
const afterTick = setImmediate

/** What one key is asked for. */
export class Row {
  constructor(readonly action: Action, readonly ids: LockIds) {}
}

export const nobody: LockIds = { lock: "0", interest: [0, 0], intent: [0, 0] }

/** Tells who asked: what `settle` has put into the books is all that the next statement, which goes first, depends on. */
export type Tell = () => void

/** Rows of a batch. */
export interface RowsJob {
  readonly _tag: "Rows"
  /** The locks that it is about. */
  readonly locks: ReadonlyArray<string>
  /** Asked for once, at the moment of sending. None: it has its answer already. */
  rows(): ReadonlyArray<Row>
  settle(codes: ReadonlyArray<bigint>): Tell
  fail(error: DriverError): void
}

/** A statement of its own. */
export interface StatementJob {
  readonly _tag: "Statement"
  /** Asked for once, at the moment of sending. None: it has its answer already. */
  statement(marker: string): Lone | undefined
  settle(rows: Rows): Tell
  fail(error: DriverError): void
}

export type Lone = Statement & {
  /** Rows whose locks it takes, and may leave behind when it fails. It then answers codes. */
  readonly touches?: ReadonlyArray<Row> | undefined
}

export type Job = RowsJob | StatementJob

/**
 * So that no statement takes long. The request may still be sent in several pieces; where the last of them gets lost, the
 * server ends the session by `transaction_timeout`, or by keep-alive before 17.
 */
const mostRows = 60

const foreign = () => new Error("the session was given to somebody else: is there a pooler before the server?")

const denied = () => new Error("the session did not hold a lock that it was given: did somebody else unlock it there?")

/** Whether some row answers so. */
export const answers = (rows: Rows, code: number): boolean => {
  const text = String(code)
  return rows.some(([answer]) => answer === text)
}

/** Fewer jobs are not worth two statements. */
const fewestApart = 16

const acquires: ReadonlySet<Action> = new Set([
  Action.lock,
  Action.offer,
  Action.lockShared,
  Action.joinShared,
  Action.interest,
  Action.intent
])

const usesIntent: ReadonlySet<Action> = new Set([
  Action.lockShared,
  Action.joinShared,
  Action.intent,
  Action.withdrawIntent,
  Action.dropIntent,
  Action.contended
])

export interface Queue {
  readonly isOpen: boolean
  readonly add: (job: Job) => void
  /** From now on jobs go to this connection. Without one they fail at once. */
  readonly attach: (connection: Connection, marker: string) => void
  /** The connection is gone: what was sent fails with an unknown outcome, the rest provably not executed. */
  readonly detach: (error: unknown) => void
  /** When the statement that is out was sent; when the last one was answered. In milliseconds. */
  readonly sentAt: number | undefined
  readonly answeredAt: number
  /** How many entries the statement that is out may add to the lock table. */
  readonly asked: number
}

export const make = (options: {
  readonly now: () => number
  readonly batch: Batch
  /** A batch failed and may have left locks behind: ends once nothing is held but what is in the books. */
  readonly repair: (
    connection: Connection,
    marker: string,
    touched: ReadonlyArray<Row>,
    done: (isRepaired: boolean) => void
  ) => void
  /** What the session holds is not what the books say: it has to end. */
  readonly onForeign: (error: Error) => void
}): Queue => {
  const jobs: Array<Job> = []
  let connection: Connection | undefined
  let marker = ""
  let sent: ReadonlyArray<Job> | undefined
  let isGathering = false

  const send = (
    current: Connection,
    statement: Statement,
    all: ReadonlyArray<Job>,
    touched: ReadonlyArray<Row> | undefined,
    settle: (rows: Rows) => Tell
  ) => {
    sent = all
    queue.sentAt = options.now()
    current.send(statement, (rows) => {
      if (connection !== current) return
      if (!(rows instanceof Error)) {
        done()
        const tell = touched === undefined ? settle(rows) : trusted(rows, all, settle)
        // those who were answered together ask again together, at the end of the tick
        isGathering = all.length > 1 && jobs.length < all.length / 2
        if (isGathering) afterTick(gathered)
        else pump()
        return tell()
      }
      // the end of the connection follows, with the same consequences
      if (!isAnswer(rows)) return
      options.repair(current, marker, touched ?? [], (isRepaired) => {
        if (connection !== current) return
        if (!isRepaired) return options.onForeign(foreign())
        done()
        for (const job of all) job.fail(failure("no", "PostgreSQL refused a statement", rows))
        pump()
      })
    })
  }

  /** On any doubt of what the session holds it has to end. */
  const trusted = (rows: Rows, all: ReadonlyArray<Job>, settle: (rows: Rows) => Tell): Tell => {
    if (answers(rows, Code.notOurs)) {
      const error = foreign()
      options.onForeign(error)
      return () => {
        for (const job of all) job.fail(failure("no", "the session with PostgreSQL ended", error))
      }
    }
    const tell = settle(rows)
    if (answers(rows, Code.gone)) options.onForeign(denied())
    return tell
  }

  const gathered = () => {
    isGathering = false
    // half of many, so that from now on the server works on one half while we work on the other
    pump(jobs.length < fewestApart ? mostRows : Math.min(mostRows, Math.ceil(jobs.length / 2)))
  }

  const done = () => {
    sent = undefined
    queue.asked = 0
    queue.sentAt = undefined
    queue.answeredAt = options.now()
  }

  const pump = (most = mostRows): void => {
    while (connection !== undefined && sent === undefined && !isGathering && jobs.length > 0) {
      const current = connection
      const first = jobs[0]!
      if (first._tag === "Statement") {
        jobs.shift()
        const lone = first.statement(marker)
        if (lone === undefined) continue
        const { touches, ...statement } = lone
        queue.asked = touches?.length ?? 0
        send(current, statement, [first], touches, (answer) => first.settle(answer))
        continue
      }
      const batch: Array<RowsJob> = []
      const sizes: Array<number> = []
      const rows: Array<Row> = []
      const taken = new Set<string>()
      while (rows.length < most && jobs[0]?._tag === "Rows") {
        const job = jobs[0]
        // what the books say of a lock is not known while it is being asked for
        if (job.locks.some((lock) => taken.has(lock))) break
        jobs.shift()
        const added = job.rows()
        if (added.length === 0) continue
        for (const row of added) {
          rows.push(row)
          if (!acquires.has(row.action)) continue
          taken.add(row.ids.lock)
          queue.asked++
        }
        batch.push(job)
        sizes.push(added.length)
      }
      if (rows.length === 0) continue
      send(current, toStatement(options.batch, marker, rows), batch, rows, (answered) => {
        const codes = answered.map(([code]) => BigInt(code as string))
        let at = 0
        const tells = batch.map((job, i) => job.settle(codes.slice(at, at += sizes[i]!)))
        return () => {
          for (const tell of tells) tell()
        }
      })
    }
  }

  const queue = {
    get isOpen() {
      return connection !== undefined
    },
    add: (job: Job) => {
      if (connection === undefined) return job.fail(noSession())
      jobs.push(job)
      pump()
    },
    attach: (next: Connection, owner: string) => {
      connection = next
      marker = owner
      queue.answeredAt = options.now()
    },
    detach: (error: unknown) => {
      const unanswered = sent ?? []
      const waiting = jobs.splice(0)
      connection = undefined
      done()
      for (const job of unanswered) job.fail(failure("unknown", "the session with PostgreSQL ended", error))
      for (const job of waiting) job.fail(noSession(error))
    },
    sentAt: undefined as number | undefined,
    answeredAt: 0,
    asked: 0
  }
  return queue
}

type MakeJob<A> = (answer: (value: A) => void, fail: (error: DriverError) => void) => Job

/** A job as an effect, which an interruption leaves to its own. */
export const ask = <A>(queue: Queue, job: MakeJob<A>): Effect.Effect<A, DriverError> =>
  callback((resume) => put(queue, job, resume))

/** The same; without a session the answer is known. */
export const askIfOpen = <A>(queue: Queue, otherwise: A, job: MakeJob<A>): Effect.Effect<A, DriverError> =>
  callback((resume) => {
    if (queue.isOpen) put(queue, job, resume)
    else resume(Effect.succeed(otherwise))
  })

const put = <A>(
  queue: Queue,
  job: MakeJob<A>,
  resume: (answer: Effect.Effect<A, DriverError>) => void
): void => queue.add(job((value) => resume(Effect.succeed(value)), (error) => resume(Effect.fail(error))))

const noSession = (error?: unknown) => failure("no", "there is no session with PostgreSQL", error)

/** Of values that need no quotes. */
export const array = (values: ReadonlyArray<string | number | boolean>): string => `{${values.join(",")}}`

export const toStatement = (batch: Batch, marker: string, rows: ReadonlyArray<Row>): Statement => {
  if (rows.length === 1) {
    const { action, ids: { interest, lock } } = rows[0]!
    if (action === Action.lock) return { name: "effect_locking_lock", text: batch.lock, values: [marker, lock] }
    if (action === Action.unlock || action === Action.offer) {
      const which = action === Action.offer ? "offer" : "unlock"
      return { name: `effect_locking_${which}`, text: batch[which], values: [marker, lock, ...interest.map(String)] }
    }
  }
  // what an action does not use need not be known
  const interests = rows.map(({ action, ids }) => action === Action.lock ? nobody.interest : ids.interest)
  const intents = rows.map(({ action, ids }) => usesIntent.has(action) ? ids.intent : nobody.intent)
  return {
    name: "effect_locking_batch",
    text: batch.many,
    values: [
      marker,
      array(rows.map(({ action }) => action)),
      array(rows.map(({ ids }) => ids.lock)),
      array(interests.map(([high]) => high)),
      array(interests.map(([, low]) => low)),
      array(intents.map(([high]) => high)),
      array(intents.map(([, low]) => low))
    ]
  }
}
