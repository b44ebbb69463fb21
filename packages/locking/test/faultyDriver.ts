/**
 * A store in memory behind a driver that counts its calls and fails them as it is told: one process that reaches the
 * store over a network.
 */
import { Clock, Duration, Effect, type Scope, type TestClock } from "effect"
import {
  type Capabilities,
  type Claim,
  type Contention,
  DriverError,
  type Grant,
  type LockDriver,
  type LockRequest
} from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import type * as TestLocking from "effect-locking/TestLocking"

export type Operation = TestLocking.Operation | "ready"

export interface Call {
  readonly op: Operation
  /** Monotonic milliseconds. */
  readonly at: number
  readonly keys: ReadonlyArray<string>
  readonly tokens: ReadonlyArray<string>
  readonly left: number | undefined
  readonly request: LockRequest | undefined
  /** When the store executed it. */
  executedAt: number | undefined
}

export type Fault = <A>(execute: Effect.Effect<A, DriverError>, call: Call) => Effect.Effect<A, DriverError>

export const refusal = new DriverError({ executed: "no", message: "refused" })
export const silence = new DriverError({ executed: "unknown", message: "no answer" })

/** The store did nothing, and says so. */
export const refuse: Fault = () => Effect.fail(refusal)
/** The store acted, but the connection broke. */
export const broken: Fault = (execute) => Effect.zipRight(execute, Effect.fail(silence))
export const die: Fault = () => Effect.die(new Error("a fault of the driver"))
export const slow = (delay: Duration.DurationInput): Fault => (execute) => Effect.delay(execute, delay)
/** The store acts at once, its answer takes its time. */
export const late = (delay: Duration.DurationInput): Fault => (execute) =>
  Effect.tap(execute, () => Effect.sleep(delay))
/** The driver cannot be interrupted. */
export const stubborn = (fault: Fault): Fault => (execute, call) => Effect.uninterruptible(fault(execute, call))

export interface FaultyDriver extends LockDriver {
  readonly calls: Array<Call>
  readonly count: (op: Operation) => number
  readonly of: (op: Operation) => ReadonlyArray<Call>
  /** The next calls of a kind, one fault for each. */
  readonly next: (op: Operation, ...faults: ReadonlyArray<Fault>) => void
  /** Every call of a kind that `next` says nothing of. */
  readonly always: (op: Operation, fault: Fault) => void
  /** The request is never seen by the store, and never answered. */
  readonly mute: Fault
  /** The store acts, and nobody hears of it. */
  readonly lost: Fault
  /** Wake-ups do not arrive. */
  deaf: boolean
  /** Whether it can release and grant again in one step. */
  offers: boolean
  /** Ends all faults; calls without an answer fail. */
  readonly heal: () => void
}

const operations: ReadonlyArray<Operation> = [
  "ready",
  "attempt",
  "arm",
  "withdraw",
  "renew",
  "release",
  "offer",
  "inspect",
  "list",
  "forceRelease"
]

export const make = (
  store: MemoryStore.MemoryStore,
  capabilities?: Partial<Capabilities>
): Effect.Effect<FaultyDriver, never, Scope.Scope> =>
  Effect.gen(function*() {
    const inner = yield* MemoryStore.driver(store)
    const clock = yield* Effect.clock
    const now = () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
    const calls: Array<Call> = []
    const queued = new Map<Operation, Array<Fault>>(operations.map((op) => [op, []]))
    const standing = new Map<Operation, Fault>()
    const parked = new Set<() => void>()

    const hang: Effect.Effect<never, DriverError> = Effect.async((resume) => {
      const leave = () => {
        parked.delete(leave)
        resume(Effect.fail(silence))
      }
      parked.add(leave)
      return Effect.sync(() => parked.delete(leave))
    })

    const through = <A>(
      op: Operation,
      execute: Effect.Effect<A, DriverError>,
      about: {
        readonly claims?: ReadonlyArray<Pick<Claim, "keys" | "token">>
        readonly left?: Duration.Duration
        readonly request?: LockRequest
      } = {}
    ): Effect.Effect<A, DriverError> =>
      Effect.suspend(() => {
        const call: Call = {
          op,
          at: now(),
          keys: (about.claims ?? []).flatMap(({ keys }) => keys.map((key) => key.key)),
          tokens: (about.claims ?? []).map(({ token }) => token),
          left: about.left === undefined ? undefined : Duration.toMillis(about.left),
          request: about.request,
          executedAt: undefined
        }
        calls.push(call)
        const fault = queued.get(op)!.shift() ?? standing.get(op)
        const acting = Effect.suspend(() => {
          call.executedAt = now()
          return execute
        })
        return fault === undefined ? acting : fault(acting, call)
      })

    const driver: FaultyDriver = {
      ...inner,
      name: "faulty",
      capabilities: {
        modes: ["exclusive", "shared"],
        fair: false,
        push: true,
        expiry: "server",
        remote: true,
        ttl: { default: Duration.seconds(15), min: Duration.millis(1), infinite: true },
        ...capabilities
      },
      ready: through("ready", inner.ready),
      contend: (request): Contention => {
        const contention = inner.contend(request)
        return {
          attempt: ({ left, token }) =>
            through("attempt", contention.attempt({ left, token }), {
              claims: [{ keys: request.keys, token }],
              left,
              request
            }),
          arm: (wake) =>
            through(
              "arm",
              contention.arm(() => {
                if (!driver.deaf) wake()
              }),
              { request }
            ),
          withdraw: through("withdraw", contention.withdraw, { request })
        }
      },
      renew: (grants) => through("renew", inner.renew(grants), { claims: grants }),
      release: (claim) => through("release", inner.release(claim), { claims: [claim] }),
      get offer() {
        return driver.offers
          ? (grant: Grant) => through("offer", inner.offer!(grant), { claims: [grant] })
          : undefined
      },
      inspect: (key) => through("inspect", inner.inspect(key)),
      list: (namespace) => through("list", inner.list(namespace)),
      forceRelease: (key, options) => through("forceRelease", inner.forceRelease(key, options)),
      calls,
      count: (op) => calls.filter((call) => call.op === op).length,
      of: (op) => calls.filter((call) => call.op === op),
      next: (op, ...faults) => {
        for (const fault of faults) queued.get(op)!.push(fault)
      },
      always: (op, fault) => void standing.set(op, fault),
      mute: () => hang,
      lost: (execute) => Effect.zipRight(execute, hang),
      deaf: false,
      offers: false,
      heal: () => {
        standing.clear()
        for (const op of operations) queued.set(op, [])
        driver.deaf = false
        for (const leave of [...parked]) leave()
      }
    }
    return driver
  })

/**
 * A test may fail with calls and clean-ups under way, and the close of its layers waits for them: ends the faults, and
 * lets time pass.
 */
export const atEnd = (heal: () => void): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(Effect.clock, (clock) =>
    Effect.addFinalizer(() =>
      Effect.suspend(() => {
        heal()
        const time = clock as Partial<TestClock.TestClock>
        return time.adjust === undefined ? Effect.void : Effect.forkDaemon(Effect.repeatN(time.adjust("1 second"), 20))
      })
    ))

/** One process, and another one beside it that nothing ails. */
export const world = (options?: LockingOptions, capabilities?: Partial<Capabilities>) =>
  Effect.gen(function*() {
    const store = yield* MemoryStore.make
    const driver = yield* make(store, capabilities)
    const locking = yield* Locking.make(driver, options)
    const other = yield* Locking.make(yield* MemoryStore.driver(store))
    yield* atEnd(driver.heal)
    /** Who holds a key, as the store sees it. */
    const holders = (key: string) => other.inspect(key)
    return { store, driver, locking, other, holders }
  })

/** Monotonic milliseconds. */
export const now = Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos) / 1e6)
