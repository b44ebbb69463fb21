/** Workers take transfers from one list until it is empty, and apply them: without locks, or with. */
import { Clock, Duration, Effect, Random, Schedule, type Scope } from "effect"
import { type Fence, FencedRegister, type LockError } from "effect-locking"
import type { Node } from "./driver.js"
import type { Balances, Ledger, Transfer } from "./ledger.js"
import { count } from "./report.js"
import { Terminal } from "./terminal.js"
import type { Bar } from "./timeline.js"

export interface Worker {
  readonly name: string
  readonly node: Node
}

/** So many workers on each node: a1, a2, … b1, b2, … */
export const on = (nodes: ReadonlyArray<Node>, each: number): ReadonlyArray<Worker> =>
  nodes.flatMap((node) => Array.from({ length: each }, (_, i) => ({ name: `${node.name}${i + 1}`, node })))

/** What came of a ledger. */
export interface Outcome {
  readonly balances: Balances
  /** Milliseconds. */
  readonly took: number
  /** How long each transfer waited for its locks, in milliseconds. */
  readonly waits: ReadonlyArray<number>
  /** Writes that undid what others had written in between, and what that comes to. */
  readonly overwritten: number
  readonly overwrittenSum: number
  /** How many workers were at one account at once, at most. */
  readonly crowd: number
  /** Whether every grant of an account had a higher fence than the one before. */
  readonly fencesRise: boolean
  /** What happened at the account that is shown. */
  readonly bars: ReadonlyArray<Bar>
}

/** Milliseconds on a clock that is never set. */
export const now: Effect.Effect<number> = Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos) / 1e6)

/** Nobody waits as long as that, unless something is wrong. */
export const patience = "20 seconds"

/** The moment between reading and writing: a query, a call to another service. */
const moment = Effect.flatMap(Random.nextRange(1, 3), (ms) => Effect.sleep(ms))

/** Two balances are read, and written back a moment later. */
export const withoutLocks = (
  ledger: Ledger,
  workers: ReadonlyArray<Worker>,
  shown: string
): Effect.Effect<Outcome, never, Terminal> => {
  const balances = new Map(ledger.opening)
  const books = new Books(shown)
  const transfer = (worker: Worker, { amount, from, to }: Transfer) =>
    Effect.gen(function*() {
      const start = yield* now
      books.enter(from, to)
      const [payer, payee] = [balances.get(from)!, balances.get(to)!]
      yield* moment
      const lost = [balances.get(from)! - payer, balances.get(to)! - payee]
      balances.set(from, payer - amount)
      balances.set(to, payee + amount)
      books.leave(from, to)
      const overwrote = books.overwrite(lost)
      books.show({ worker, from, to, asked: start, start, end: yield* now, label: "", failed: overwrote })
    })
  return Effect.map(drain(ledger.transfers, workers, transfer), (took) => books.close(balances, took))
}

/** The same under the locks of both accounts, in whatever order the transfer names them. */
export const withLocks = (
  ledger: Ledger,
  workers: ReadonlyArray<Worker>,
  shown: string
): Effect.Effect<Outcome, LockError.WithLockError | LockError.StaleFence, Terminal> =>
  Effect.gen(function*() {
    const accounts = new Map<string, FencedRegister.FencedRegister<number>>()
    for (const [account, balance] of ledger.opening) accounts.set(account, yield* FencedRegister.make(balance))
    const books = new Books(shown)
    const transfer = (worker: Worker, { amount, from, to }: Transfer) =>
      Effect.flatMap(now, (asked) =>
        worker.node.locking.useLocks([from, to], { waitTimeout: patience }, (leases) =>
          Effect.gen(function*() {
            const start = yield* now
            books.enter(from, to)
            const fences = new Map(leases.map((lease) => [lease.key, lease.fence]))
            fences.forEach((fence, account) =>
              books.grant(account, fence)
            )
            const [payer, payee] = [accounts.get(from)!, accounts.get(to)!]
            const before = [yield* payer.get, yield* payee.get] as const
            yield* moment
            const lost = [(yield* payer.get) - before[0], (yield* payee.get) - before[1]]
            yield* payer.set(fences.get(from)!, before[0] - amount)
            yield* payee.set(fences.get(to)!, before[1] + amount)
            books.leave(from, to)
            const overwrote = books.overwrite(lost)
            const label = `${books.grants(shown)}`
            books.waits.push(start - asked)
            books.show({ worker, from, to, asked, start, end: yield* now, label, failed: overwrote })
          })))
    const took = yield* drain(ledger.transfers, workers, transfer)
    const balances = new Map<string, number>()
    for (const [account, register] of accounts) {
      balances.set(account, yield* register.get)
    }
    return books.close(balances, took)
  })

/** Everybody at once, until nothing is left. Answers how many milliseconds it took. */
const drain = <E>(
  transfers: ReadonlyArray<Transfer>,
  workers: ReadonlyArray<Worker>,
  apply: (worker: Worker, transfer: Transfer) => Effect.Effect<void, E>
): Effect.Effect<number, E, Terminal> =>
  Effect.gen(function*() {
    let next = 0
    let done = 0
    const work = (worker: Worker) =>
      Effect.whileLoop({
        while: () => next < transfers.length,
        body: () => apply(worker, transfers[next++]!),
        step: () => done++
      })
    const all = Effect.forEach(workers, work, { concurrency: "unbounded", discard: true })
    const [took] = yield* Effect.timed(
      withProgress(all, () => `  ${count(done)} of ${count(transfers.length)} transfers`)
    )
    return Duration.toMillis(took)
  })

/** Shows how far it is, once it has taken longer than people like to wait. */
export const withProgress = <A, E, R>(
  self: Effect.Effect<A, E, R>,
  text: () => string
): Effect.Effect<A, E, Exclude<R, Scope.Scope> | Terminal> =>
  Effect.flatMap(Terminal, (screen) => {
    const show = Effect.suspend(() => screen.status(text()))
    return Effect.forkScoped(Effect.delay(Effect.repeat(show, Schedule.spaced(100)), 500)).pipe(
      Effect.zipRight(self),
      Effect.scoped,
      Effect.ensuring(screen.status(""))
    )
  })

interface Visit {
  readonly worker: Worker
  readonly from: string
  readonly to: string
  readonly asked: number
  readonly start: number
  readonly end: number
  readonly label: string
  readonly failed: boolean
}

/** Takes down what happens at the accounts. */
class Books {
  readonly waits: Array<number> = []
  private readonly bars: Array<Bar> = []
  private readonly crowds = new Map<string, number>()
  private readonly fences = new Map<string, Fence.Fence>()
  private readonly counts = new Map<string, number>()
  private overwritten = 0
  private overwrittenSum = 0
  private crowd = 0
  private fencesRise = true

  constructor(private readonly shown: string) {}

  enter(...accounts: ReadonlyArray<string>): void {
    for (const account of accounts) {
      const crowd = (this.crowds.get(account) ?? 0) + 1
      this.crowds.set(account, crowd)
      this.crowd = Math.max(this.crowd, crowd)
    }
  }

  leave(...accounts: ReadonlyArray<string>): void {
    for (const account of accounts) this.crowds.set(account, this.crowds.get(account)! - 1)
  }

  grant(account: string, fence: Fence.Fence): void {
    const before = this.fences.get(account)
    if (before !== undefined && fence <= before) this.fencesRise = false
    this.fences.set(account, fence)
    this.counts.set(account, this.grants(account) + 1)
  }

  grants(account: string): number {
    return this.counts.get(account) ?? 0
  }

  overwrite(lost: ReadonlyArray<number>): boolean {
    const changes = lost.filter((change) => change !== 0)
    this.overwritten += changes.length
    this.overwrittenSum += changes.reduce((a, b) => a + b, 0)
    return changes.length > 0
  }

  show({ asked, end, failed, from, label, start, to, worker }: Visit): void {
    if (from !== this.shown && to !== this.shown) return
    const phases = [
      { kind: "wait", from: asked, until: start } as const,
      { kind: "hold", from: start, until: end } as const
    ]
    this.bars.push({ lane: worker.name, label, phases: asked < start ? phases : phases.slice(1), failed })
  }

  close(balances: Balances, took: number): Outcome {
    const { bars, crowd, fencesRise, overwritten, overwrittenSum, waits } = this
    return { balances, took, waits, overwritten, overwrittenSum, crowd, fencesRise, bars }
  }
}
