/** The third act: a worker freezes for longer than its lease lasts. */
import { Deferred, Effect, Random } from "effect"
import { type Fence, FencedRegister, type Lease, type LockError } from "effect-locking"
import type { Driver, Node } from "./driver.js"
import type { Terminal } from "./terminal.js"
import { now, patience, withProgress } from "./workers.js"

export const ttl = 500
export const deposit = 1000

const duration = 1300

/** A node's turn at the till. Times are milliseconds from the start of the act. */
export interface Turn {
  readonly node: string
  readonly fence: Fence.Fence
  readonly asked: number
  readonly began: number
  ended: number
  /** Its write did not count. */
  refused: LockError.StaleFence | undefined
}

export interface Freeze {
  readonly turn: Turn
  readonly at: number
  readonly lease: Lease.Lease
  /** Whether it was still believed when another node got the lock. */
  overlapped: boolean
  /** When its lease was lost, by its own clock. */
  leaseEndedAt: number
  wokeAt: number
  /** What it wrote, and over what. */
  wanted: number
  found: number
  /** Whether its section went on after that. */
  wentOn: boolean
}

export interface Story {
  readonly turns: ReadonlyArray<Turn>
  readonly freeze: Freeze
  /** What the caller of the frozen section was told. */
  readonly loss: LockError.LeaseLost | undefined
  readonly balance: number
}

type Body = (lease: Lease.Lease<"exclusive">, turn: Turn) => Effect.Effect<void>

export const play = (driver: Driver): Effect.Effect<Story, LockError.LockError, Terminal> =>
  Effect.gen(function*() {
    const [first, ...others] = yield* driver.nodes(3, { ttl })
    const till = yield* FencedRegister.make(0)
    const turns: Array<Turn> = []
    const freezes: Array<Freeze> = []
    const over = yield* Deferred.make<void>()
    const start = yield* now
    const clock = Effect.map(now, (time) => time - start)
    const pause = (from: number, to: number) => Effect.flatMap(Random.nextRange(from, to), (ms) => Effect.sleep(ms))

    const takeTurn = (node: Node, body: Body) =>
      Effect.flatMap(clock, (asked) =>
        node.locking.useLock("till", { waitTimeout: patience }, (lease) =>
          Effect.gen(function*() {
            const began = yield* clock
            const turn: Turn = { node: node.name, fence: lease.fence, asked, began, ended: began, refused: undefined }
            turns.push(turn)
            for (const freeze of freezes) {
              if (yield* freeze.lease.isValid) {
                freeze.overlapped = true
              }
            }
            const end = Effect.map(clock, (at) =>
              turn.ended = at)
            yield* Effect.ensuring(body(lease, turn), end)
          })))

    const write = (turn: Turn, balance: number) =>
      till.set(turn.fence, balance).pipe(Effect.catchAll((error) =>
        Effect.sync(() => turn.refused = error)
      ))

    const pay: Body = (_, turn) =>
      Effect.gen(function*() {
        const balance = yield* till.get
        yield* pause(150, 190)
        yield* write(turn, balance + deposit)
      })

    // on a machine that is very busy the others may need longer than the freeze
    const isTooLate = ({ at, turn }: Freeze) => {
      const others = () => turns.some(({ began, ended, fence }) => fence > turn.fence && ended > began)
      return Effect.map(clock, (time) => others() || time > at + 10 * duration)
    }

    const freezeAndPay: Body = (lease, turn) =>
      Effect.gen(function*() {
        const balance = yield* till.get
        yield* Effect.sleep(100)
        const freeze: Freeze = {
          turn,
          at: yield* clock,
          lease,
          overlapped: false,
          leaseEndedAt: Infinity,
          wokeAt: Infinity,
          wanted: balance + deposit,
          found: balance,
          wentOn: false
        }
        freezes.push(freeze)
        const note = Effect.map(clock, (at) => freeze.leaseEndedAt = at)
        yield* Effect.forkDaemon(Effect.catchAll(lease.lost, () => note))
        // what a process was doing when it froze goes on before any interruption can reach it
        yield* Effect.uninterruptible(Effect.gen(function*() {
          yield* first!.freeze(duration)
          yield* Effect.repeat(Effect.sleep(10), { until: () => isTooLate(freeze) })
          freeze.wokeAt = yield* clock
          freeze.found = yield* till.get
          yield* write(turn, freeze.wanted)
        }))
        freeze.wentOn = true
      })

    const payInTurn = (node: Node) =>
      takeTurn(node, pay).pipe(
        // on a machine that is very busy anybody may be late
        Effect.catchTag("LeaseLost", () => Effect.void),
        Effect.zipRight(pause(30, 90))
      )

    const unlucky = Effect.gen(function*() {
      yield* payInTurn(first!)
      const loss = yield* takeTurn(first!, freezeAndPay).pipe(
        Effect.as(undefined),
        Effect.catchTag("LeaseLost", (error) => Effect.succeed(error))
      )
      yield* payInTurn(first!)
      yield* Deferred.succeed(over, void 0)
      return loss
    })

    const lucky = (node: Node) => Effect.repeat(payInTurn(node), { until: () => Deferred.isDone(over) })

    const [loss] = yield* withProgress(
      Effect.all([unlucky, Effect.forEach(others, lucky, { concurrency: "unbounded" })], { concurrency: "unbounded" }),
      () => `  ${turns.length} turns`
    )
    return { turns, freeze: freezes[0]!, loss, balance: yield* till.get }
  }).pipe(Effect.scoped)
