/**
 * What the tests of the engine share: layers over one memory store, sections that say where they are and wait to be
 * told to go on, and the check that nothing is left behind.
 */
import { assert } from "@effect/vitest"
import { Clock, Deferred, Effect, type Exit, type Fiber, HashMap, Logger, Metric, Option, Scope, Stream } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import type { LockEvent } from "effect-locking/LockEvent"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import { sizes } from "../src/internal/sizes.js"

/** A process at a store. */
export const node = (store: MemoryStore.MemoryStore, options?: LockingOptions) =>
  Effect.flatMap(MemoryStore.driver(store), (driver) => Locking.make(driver, options))

/** A process at a store of its own. */
export const alone = (options?: LockingOptions) => Effect.flatMap(MemoryStore.make, (store) => node(store, options))

/** A section that says that it has begun, and ends when it is told to. */
export interface Section {
  readonly begun: Deferred.Deferred<void>
  readonly end: Deferred.Deferred<void>
  readonly run: Effect.Effect<void>
}

export const section: Effect.Effect<Section> = Effect.gen(function*() {
  const begun = yield* Deferred.make<void>()
  const end = yield* Deferred.make<void>()
  return { begun, end, run: Effect.zipRight(Deferred.succeed(begun, undefined), Deferred.await(end)) }
})

/** Lets every fiber run that can, without moving any clock. */
export const settle = Effect.forEach(Array.from({ length: 100 }), () => Effect.yieldNow(), { discard: true })

/** How a fiber ended, which it must have by now. */
export const ended = <A, E>(fiber: Fiber.RuntimeFiber<A, E>): Effect.Effect<Exit.Exit<A, E>> =>
  Effect.map(Effect.zipRight(settle, fiber.poll), (exit) => {
    assert(Option.isSome(exit), "the fiber still runs")
    return exit.value
  })

export const isRunning = <A, E>(fiber: Fiber.RuntimeFiber<A, E>): Effect.Effect<void> =>
  Effect.map(Effect.zipRight(settle, fiber.poll), (exit) => assert(Option.isNone(exit), "the fiber has ended"))

/** The error of a fiber, which must have failed by now. */
export const failureOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>): Effect.Effect<E, A> =>
  Effect.flatMap(ended(fiber), (exit) => Effect.flip(exit))

const nothing = { records: 0, grants: 0, leases: 0, waiters: 0, sections: 0, activities: 0, timers: 0 }

/** Nothing is held, waited for or in progress, here and at the store. */
export const assertIdle = (locking: Locking.Locking): Effect.Effect<void> =>
  Effect.gen(function*() {
    assert.deepStrictEqual(sizes(locking), nothing)
    assert.deepStrictEqual(yield* Effect.orDie(locking.list()), [])
  })

/** The lock is free at this very moment. */
export const assertFree = (locking: Locking.Locking, key: string): Effect.Effect<void> =>
  Effect.map(
    Effect.orDie(locking.withLockIfAvailable(Effect.void, key)),
    (entered) => assert(Option.isSome(entered), "somebody holds the lock")
  )

/** A scope that the test closes when it likes. */
export const inScope = <A, E, R>(effect: Effect.Effect<A, E, R | Scope.Scope>) =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    const value = yield* Effect.provideService(effect, Scope.Scope, scope)
    return { value, close: (exit: Exit.Exit<unknown, unknown>) => Scope.close(scope, exit) }
  })

/** How often a driver was asked, and what for. */
export interface Calls {
  attempt: number
  arm: number
  withdraw: number
  renew: number
  release: number
}

/** A driver that counts what it is asked. */
export const counting = (driver: LockDriver): { readonly driver: LockDriver; readonly calls: Calls } => {
  const calls: Calls = { attempt: 0, arm: 0, withdraw: 0, renew: 0, release: 0 }
  const count = <A>(name: keyof Calls, result: A): A => {
    calls[name]++
    return result
  }
  return {
    calls,
    driver: {
      ...driver,
      contend: (request) => {
        const contention = driver.contend(request)
        return {
          attempt: (attempt) => count("attempt", contention.attempt(attempt)),
          arm: (wake) => count("arm", contention.arm(wake)),
          withdraw: Effect.suspend(() => count("withdraw", contention.withdraw))
        }
      },
      renew: (grants) => count("renew", driver.renew(grants)),
      release: (claim) => count("release", driver.release(claim))
    }
  }
}

export interface LogEntry {
  readonly level: string
  readonly message: unknown
  readonly annotations: { readonly [name: string]: unknown }
}

/** Remembers what is logged in an effect, and by the layers that are made in it. */
export const capturingLogs = <A, E, R>(
  use: (entries: ReadonlyArray<LogEntry>) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const entries: Array<LogEntry> = []
    const logger = Logger.make<unknown, void>(({ annotations, logLevel, message }) => {
      entries.push({ level: logLevel.label, message, annotations: Object.fromEntries(HashMap.toEntries(annotations)) })
    })
    return Effect.provide(use(entries), Logger.replace(Logger.defaultLogger, logger))
  })

/** Entries with a code. */
export const withCode = (entries: ReadonlyArray<LogEntry>, code: string): ReadonlyArray<LogEntry> =>
  entries.filter((entry) => entry.annotations["code"] === code)

/** The value of a counter or gauge of a backend. */
export const metric = (backend: string, name: string, tag?: string): Effect.Effect<number> =>
  Effect.map(Metric.snapshot, (pairs) => {
    const found = pairs.filter(({ metricKey }) =>
      metricKey.name === `effect_locking_${name}` &&
      metricKey.tags.some((label) => label.key === "backend" && label.value === backend) &&
      (tag === undefined || metricKey.tags.some((label) => label.value === tag))
    )
    assert.lengthOf(found, 1, `${name} of ${backend}`)
    const state = found[0]!.metricState as unknown as { readonly count?: number; readonly value?: number }
    return state.count ?? state.value!
  })

/** The clock of the test, on which the wall clock can be set. Like a real one it can be asked, and not moved. */
export const settableClock: Effect.Effect<{ readonly clock: Clock.Clock; readonly jump: (by: number) => void }> = Effect
  .map(Effect.clock, (base) => {
    let ahead = 0
    const clock: Clock.Clock = {
      [Clock.ClockTypeId]: Clock.ClockTypeId,
      sleep: (duration) => base.sleep(duration),
      unsafeCurrentTimeMillis: () => base.unsafeCurrentTimeMillis() + ahead,
      currentTimeMillis: Effect.map(base.currentTimeMillis, (millis) => millis + ahead),
      unsafeCurrentTimeNanos: () => base.unsafeCurrentTimeNanos(),
      currentTimeNanos: base.currentTimeNanos
    }
    return {
      clock,
      jump: (by) => {
        ahead += by
      }
    }
  })

/** The events of one kind from now on. */
export const eventsOf = <Tag extends LockEvent["_tag"]>(locking: Locking.Locking, tag: Tag) =>
  Effect.gen(function*() {
    const seen: Array<Extract<LockEvent, { readonly _tag: Tag }>> = []
    const stream = yield* locking.events
    yield* Effect.forkScoped(
      Stream.runForEach(stream, (event) =>
        Effect.sync(() => {
          if (event._tag === tag) seen.push(event as typeof seen[number])
        }))
    )
    yield* settle
    return seen
  })
