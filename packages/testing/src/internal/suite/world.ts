/**
 * What the cases of the suite are written with: processes at one store, time that is virtual or real, and assertions
 * that tell what was expected of the driver.
 */
import type {
  Busy,
  Claim,
  Contention,
  DriverError,
  Full,
  Grant,
  LockDriver,
  LockMode,
  LossReason,
  OwnerToken,
  Permits
} from "effect-locking/LockDriver"
import type { LockError } from "effect-locking/LockError"
import * as Locking from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/TestClock"
import { assert } from "vitest"
import type { DriverUnderTest, Settings } from "../../LockDriverSuite.js"
import { inRealTime } from "../realTime.js"

export type Run = Effect.Effect<void, unknown, Scope.Scope>

/** What a case needs, by the names of the options and capabilities that say so. */
export type Need =
  | "shared mode"
  | "fair"
  | "permits"
  | "offers"
  | "push"
  | "expiry by the server"
  | "expiry by the session"
  | "an end of grants"
  | "leases without end"
  | "a shortest ttl"
  | "storeView.grants"
  | "storeView.interests"
  | "faults.dropConnections"
  | "faults.loseNextReply"
  | "faults.stall"
  | "faults.restart"

export interface Case {
  readonly name: string
  readonly needs: ReadonlyArray<Need>
  readonly run: (world: World) => Run
}

export interface Group {
  readonly name: string
  readonly cases: ReadonlyArray<Case>
}

export const test = (name: string, run: (world: World) => Run): Case => ({ name, needs: [], run })

export const testIf = (needs: ReadonlyArray<Need>) => (name: string, run: (world: World) => Run): Case => ({
  name,
  needs,
  run
})

/** Lets fibers run that can, without moving any clock. */
export const settle = Effect.forEach(Array.from({ length: 60 }), () => Effect.yieldNow(), { discard: true })

export interface RequestOptions {
  readonly mode?: LockMode
  /** Milliseconds; `Infinity` for no end. */
  readonly ttl?: number
  readonly waiting?: boolean
  readonly fair?: boolean
  readonly permits?: Permits
  readonly token?: OwnerToken
  readonly metadata?: Readonly<Record<string, string>>
  readonly session?: string
}

/** A contention with the token of its attempts. */
export interface Contender {
  readonly claim: Claim
  readonly contention: Contention
  readonly attempt: Effect.Effect<Grant | Busy | Full, DriverError>
}

/** A process that speaks to its driver directly. */
export interface Process {
  readonly driver: LockDriver
  readonly contend: (keys: ReadonlyArray<LockKey.ResolvedKey>, options?: RequestOptions) => Contender
  /** One attempt. What it is granted goes back when the test ends. */
  readonly attempt: (
    keys: ReadonlyArray<LockKey.ResolvedKey>,
    options?: RequestOptions
  ) => Effect.Effect<Grant | Busy | Full, DriverError, Scope.Scope>
  /** A grant now, or soon: where a key has just become free, an attempt may still be told busy. */
  readonly grant: (
    keys: ReadonlyArray<LockKey.ResolvedKey>,
    options?: RequestOptions
  ) => Effect.Effect<Grant, DriverError, Scope.Scope>
  readonly assertBusy: (
    keys: ReadonlyArray<LockKey.ResolvedKey>,
    why: string,
    options?: RequestOptions
  ) => Effect.Effect<Busy, DriverError, Scope.Scope>
  readonly renew: (...grants: ReadonlyArray<Grant>) => ReturnType<LockDriver["renew"]>
  readonly release: LockDriver["release"]
  readonly offer: NonNullable<LockDriver["offer"]>
  /** The reason for which the driver says that a grant is lost. */
  readonly loss: (token: OwnerToken) => Effect.Effect<LossReason>
}

/** A process with the engine over its driver. */
export interface Node {
  readonly locking: Locking.Locking
  readonly driver: LockDriver
  /** Calls of the engine that the driver has answered. */
  readonly answered: { attempt: number; arm: number; withdraw: number; renew: number; release: number; offer: number }
}

/** Waits as the engine does: attempt, arm, attempt. Answers what ends with the wake-up. */
export const waits = (contender: Contender) =>
  Effect.gen(function*() {
    const woken = yield* Deferred.make<void>()
    assert.strictEqual((yield* contender.attempt)._tag, "Busy")
    yield* contender.contention.arm(() => Deferred.unsafeDone(woken, Effect.void))
    assert.strictEqual((yield* contender.attempt)._tag, "Busy")
    yield* Effect.addFinalizer(() => Effect.ignore(contender.contention.withdraw))
    return Deferred.await(woken)
  })

export interface World {
  readonly options: Settings
  readonly store: DriverUnderTest
  /** Of this test alone. */
  readonly namespace: string
  /** Milliseconds: a ttl short enough to wait for its end, and one that no test outlives. */
  readonly ttl: number
  readonly longTtl: number
  /** Milliseconds within which something has to happen that takes no time by itself. */
  readonly soon: number
  readonly now: Effect.Effect<number>
  readonly pass: (millis: number) => Effect.Effect<void>
  /** The effect has to end within so many milliseconds, `soon` unless told. */
  readonly within: <A, E, R>(what: string, effect: Effect.Effect<A, E, R>, millis?: number) => Effect.Effect<A, E, R>
  /** It has to be seen within so many milliseconds. */
  readonly until: <E, R>(what: string, see: Effect.Effect<boolean, E, R>, millis?: number) => Effect.Effect<void, E, R>
  /** Keys of this test, in canonical order. */
  readonly keys: (...names: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<LockKey.ResolvedKey>>
  readonly keysOf: (
    names: ReadonlyArray<LockKey.Input>,
    options: { readonly namespace?: string; readonly tenant?: string }
  ) => Effect.Effect<ReadonlyArray<LockKey.ResolvedKey>, LockError>
  readonly open: Effect.Effect<LockDriver, unknown, Scope.Scope>
  readonly process: Effect.Effect<Process, unknown, Scope.Scope>
  readonly node: (options?: LockingOptions) => Effect.Effect<Node, unknown, Scope.Scope>
}

let worlds = 0
const run = Math.floor(performance.timeOrigin + performance.now()).toString(36)

let tokens = 0
export const newToken = (): OwnerToken => `${run}-${process.pid}-token-${++tokens}`

export const isGrant = (answer: Grant | Busy | Full): answer is Grant => answer._tag === "Grant"

const virtual: Pick<World, "pass" | "within" | "until"> = {
  pass: (millis) => TestClock.adjust(millis),
  within: (what, effect, millis = 0) =>
    Effect.gen(function*() {
      const fiber = yield* Effect.fork(effect)
      const step = Math.max(millis / 50, 1)
      for (let passed = 0;; passed += step) {
        yield* settle
        const exit = yield* fiber.poll
        if (Option.isSome(exit)) return yield* exit.value
        if (passed > millis) break
        yield* TestClock.adjust(step)
      }
      yield* Effect.forkDaemon(Fiber.interrupt(fiber))
      return assert.fail(`${what}: not within ${millis} ms`)
    }),
  until: (what, see, millis = 0) =>
    Effect.gen(function*() {
      const step = Math.max(millis / 200, 1)
      for (let passed = 0; passed <= millis; passed += step) {
        if (yield* see) return
        yield* settle
        if (yield* see) return
        yield* TestClock.adjust(step)
      }
      assert.fail(`${what}: not within ${millis} ms`)
    })
}

const real: Pick<World, "pass" | "within" | "until"> = {
  pass: (millis) => Effect.sleep(millis),
  within: (what, effect, millis = 0) =>
    Effect.timeoutTo(Effect.disconnect(effect), {
      duration: millis,
      onSuccess: (value) => Effect.succeed(value),
      onTimeout: () => Effect.die(new Error(`${what}: not within ${millis} ms`))
    }).pipe(Effect.flatten),
  until: (what, see, millis = 0) =>
    Effect.gen(function*() {
      const deadline = performance.now() + millis
      while (!(yield* see)) {
        if (performance.now() > deadline) assert.fail(`${what}: not within ${millis} ms`)
        yield* Effect.sleep(5)
      }
    })
}

const resolvers = new Map<string, Locking.Locking>()

/** The engine alone knows how keys are written: one over a store in memory, that nothing has to close. */
const resolverOf = (namespace: string): Effect.Effect<Locking.Locking, LockError> =>
  Effect.gen(function*() {
    const known = resolvers.get(namespace)
    if (known !== undefined) return known
    const driver = Effect.flatMap(MemoryStore.make, MemoryStore.driver)
    const locking = yield* Scope.extend(
      Effect.flatMap(driver, (opened) => Locking.make(opened, { namespace })),
      yield* Scope.make()
    )
    resolvers.set(namespace, locking)
    return locking
  })

/** As a request names them: in canonical order, without duplicates. */
const resolve = (
  names: ReadonlyArray<LockKey.Input>,
  options: { readonly namespace: string; readonly tenant?: string | undefined }
): Effect.Effect<ReadonlyArray<LockKey.ResolvedKey>, LockError> =>
  inRealTime(Effect.gen(function*() {
    const resolver = yield* resolverOf(options.namespace)
    const asked = Effect.forEach(names, resolver.resolveKey)
    const keys = yield* options.tenant === undefined ? asked : LockKey.withTenant(asked, options.tenant)
    const once = new Map(keys.map((key) => [key.id, key]))
    return [...once.values()].sort((a, b) => Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)))
  }))

export const makeWorld = (options: Settings, store: DriverUnderTest): World => {
  const namespace = `suite-${run}-${++worlds}`
  const ttl = options.ttl
  const soon = options.time === "virtual" ? 5_000 : 4_000 * options.slack
  const longTtl = 60_000
  const { pass, until, within } = options.time === "virtual" ? virtual : real
  const bounded: Pick<World, "within" | "until"> = {
    within: (what, effect, millis = soon) => within(what, effect, millis),
    until: (what, see, millis = soon) => until(what, see, millis)
  }
  const world: World = {
    options,
    store,
    namespace,
    ttl,
    longTtl,
    soon,
    now: Effect.map(Clock.currentTimeNanos, (nanos) => Number(nanos) / 1e6),
    pass,
    ...bounded,
    keys: (...names) => Effect.orDie(resolve(names, { namespace })),
    keysOf: (names, { namespace: other = namespace, tenant }) => resolve(names, { namespace: other, tenant }),
    open: store.open,
    process: Effect.suspend(() => Effect.map(store.open, (driver) => makeProcess(world, driver))),
    node: (engineOptions) =>
      Effect.gen(function*() {
        const { answered, driver } = counting(yield* store.open)
        const closing: Closing = { clock: undefined }
        yield* Effect.addFinalizer(() => closing.clock === undefined ? Effect.void : Fiber.interrupt(closing.clock))
        const locking = yield* Locking.make(driver, { namespace, ...engineOptions })
        if (options.time === "virtual") yield* timePasses(closing)
        return { locking, driver, answered }
      })
  }
  return world
}

interface Closing {
  clock: Fiber.RuntimeFiber<unknown> | undefined
}

/** Closing an engine may have to wait for something, and nobody moves the clock any more. */
const timePasses = (closing: Closing): Effect.Effect<void, never, Scope.Scope> =>
  Effect.addFinalizer(() =>
    Effect.map(
      // a finalizer is uninterruptible, and so is what it forks
      Effect.forkDaemon(Effect.interruptible(Effect.forever(TestClock.adjust("1 second")))),
      (fiber) => {
        closing.clock = fiber
      }
    )
  )

const makeProcess = (world: World, driver: LockDriver): Process => {
  const contend: Process["contend"] = (keys, options = {}) => {
    const {
      fair = false,
      metadata = {},
      mode = "exclusive",
      permits,
      session = "suite",
      ttl = world.longTtl,
      waiting = true
    } = options
    const token = options.token ?? newToken()
    const contention = driver.contend({
      keys,
      mode,
      ttl: Duration.millis(ttl),
      fair,
      permits,
      waiting,
      holder: { session, metadata }
    })
    return {
      claim: { token, keys, mode, permits },
      contention,
      attempt: Effect.suspend(() => contention.attempt({ token, left: Duration.millis(world.soon) }))
    }
  }
  const attempt: Process["attempt"] = (keys, options) => {
    const { attempt, claim } = contend(keys, { waiting: false, ...options })
    return Effect.zipRight(Effect.addFinalizer(() => Effect.ignore(driver.release(claim))), attempt)
  }
  const lost = new Map<OwnerToken, LossReason>()
  const drain = Effect.map(Queue.takeAll(driver.losses), (all) => {
    for (const { reason, token } of all) lost.set(token, reason)
  })
  return {
    driver,
    contend,
    attempt,
    grant: (keys, options) =>
      Effect.gen(function*() {
        const token = options?.token ?? newToken()
        let granted: Grant | undefined
        yield* world.until(
          "a free key is granted",
          Effect.map(attempt(keys, { ...options, token }), (answer) => {
            if (isGrant(answer)) granted = answer
            return granted !== undefined
          })
        )
        return granted!
      }),
    assertBusy: (keys, why, options) =>
      Effect.map(attempt(keys, options), (answer) => {
        if (answer._tag !== "Busy") assert.fail(`expected Busy, got ${answer._tag}: ${why}`)
        return answer
      }),
    renew: (...grants) => driver.renew(grants),
    release: (claim) => driver.release(claim),
    offer: (grant) => driver.offer!(grant),
    loss: (token) =>
      Effect.map(
        world.until("the driver tells of the loss", Effect.map(drain, () => lost.has(token))),
        () => lost.get(token)!
      )
  }
}

/** Every member by name: a driver may be an instance of a class. */
const counting = (driver: LockDriver): Pick<Node, "driver" | "answered"> => {
  const answered: Node["answered"] = { attempt: 0, arm: 0, withdraw: 0, renew: 0, release: 0, offer: 0 }
  const counted = <A, E>(name: keyof Node["answered"], call: () => Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.tap(Effect.suspend(call), () => {
      answered[name]++
    })
  return {
    answered,
    driver: {
      name: driver.name,
      capabilities: driver.capabilities,
      ready: driver.ready,
      exclusionId: driver.exclusionId === undefined ? undefined : (key) => driver.exclusionId!(key),
      contend: (request) => {
        const contention = driver.contend(request)
        return {
          attempt: (attempt) => counted("attempt", () => contention.attempt(attempt)),
          arm: (wake) => counted("arm", () => contention.arm(wake)),
          withdraw: counted("withdraw", () => contention.withdraw)
        }
      },
      renew: (grants) => counted("renew", () => driver.renew(grants)),
      release: (claim) => counted("release", () => driver.release(claim)),
      offer: driver.offer && ((grant) => counted("offer", () => driver.offer!(grant))),
      losses: driver.losses,
      inspect: (key) => driver.inspect(key),
      list: (namespace) => driver.list(namespace),
      forceRelease: (key, options) => driver.forceRelease(key, options),
      check: driver.check
    }
  }
}
