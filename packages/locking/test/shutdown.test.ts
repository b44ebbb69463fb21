import { assert, describe, it } from "@effect/vitest"
import {
  Cause,
  Chunk,
  type Clock,
  Deferred,
  Duration,
  Effect,
  Exit,
  Fiber,
  HashMap,
  Layer,
  Logger,
  LogLevel,
  Option,
  Scope,
  Stream,
  TestClock
} from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import { sizes } from "../src/internal/sizes.js"
import { runChild } from "./child.js"
import * as Faulty from "./faultyDriver.js"
import { late, refuse, slow, stubborn } from "./faultyDriver.js"
import { eventsOf } from "./kit.js"

const settled = TestClock.adjust(0)

const idle = { records: 0, grants: 0, leases: 0, waiters: 0, sections: 0, activities: 0, timers: 0 }

const exitOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return exit.value
  })

const isRunning = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => assert(Option.isNone(exit), "has ended"))

const errorOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) => Effect.flatMap(exitOf(fiber), Effect.flip)

const assertClosed = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(errorOf(fiber), (error) => assert.strictEqual((error as any)._tag, "LockingClosed"))

const assertInterrupted = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(errorOf(fiber), (error: any) => {
    assert.strictEqual(error._tag, "LeaseLost")
    assert.strictEqual(error.reason, "closed")
  })

/** A layer in a scope of its own, over a driver that outlives it or one that closes with it. */
const open = (driver: LockDriver, options?: LockingOptions) =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    const locking = yield* Effect.provideService(Locking.make(driver, options), Scope.Scope, scope)
    return { locking, close: Scope.close(scope, Exit.void) }
  })

const world = (options?: LockingOptions) =>
  Effect.gen(function*() {
    const store = yield* MemoryStore.make
    const driver = yield* Faulty.make(store)
    const { close, locking } = yield* open(driver, options)
    const other = yield* Locking.make(yield* MemoryStore.driver(store))
    yield* Faulty.atEnd(driver.heal)
    return { store, driver, locking, close, other, holders: (key: string) => other.inspect(key) }
  })

/** A section that goes on, and how it ended. */
const hold = (locking: Locking.Locking, key: string, options = {}) =>
  Effect.tap(Effect.fork(locking.withLock(Effect.never, key, options)), () => settled)

interface Line {
  readonly level: string
  readonly code: unknown
  readonly fields: ReadonlyArray<string>
}

/** Collects what is logged. */
const logging = () => {
  const lines: Array<Line> = []
  const logger = Logger.make(({ annotations, logLevel }) => {
    const fields = Object.fromEntries(HashMap.toEntries(annotations))
    lines.push({ level: logLevel.label, code: fields["code"], fields: Object.keys(fields).sort() })
  })
  return { lines, layer: Logger.replace(Logger.defaultLogger, logger) }
}

describe("shutdown", () => {
  it.scoped("R7.1 nobody enters any more: every call fails LockingClosed, without asking the store", () =>
    Effect.gen(function*() {
      const { close, driver, locking } = yield* world({ backend: "orders" })
      const lease = yield* locking.acquire("held")
      yield* close
      driver.calls.length = 0
      const calls: Record<string, Effect.Effect<unknown, unknown, Scope.Scope>> = {
        withLock: locking.withLock(Effect.void, "k"),
        "withLock, shared": locking.withLock(Effect.void, "k", { mode: "shared" }),
        "withLock, once": locking.withLock(Effect.void, "k", { waitTimeout: 0 }),
        useLock: locking.useLock("k", () => Effect.void),
        withLocks: locking.withLocks(Effect.void, ["a", "b"]),
        "withLocks, shared": locking.withLocks(Effect.void, ["a", "b"], { mode: "shared" }),
        withLockIfAvailable: locking.withLockIfAvailable(Effect.void, "k"),
        acquire: locking.acquire("k"),
        tryAcquire: locking.tryAcquire("k"),
        inspect: locking.inspect("k"),
        list: locking.list(),
        forceRelease: locking.forceRelease("k"),
        "a joined lease": lease.provide(locking.withLock(Effect.void, "held", { reentrant: true }))
      }
      for (const [name, call] of Object.entries(calls)) {
        const error: any = yield* Effect.flip(call)
        assert.strictEqual(error._tag, "LockingClosed", name)
        assert.strictEqual(error.backend, "orders")
        assert.strictEqual(error.code, "CLOSED")
      }
      assert.deepStrictEqual(driver.calls, [])
    }))

  it.scoped("R7.1 waiters fail LockingClosed at once: in the queue, at the store, for several keys, as readers", () =>
    Effect.gen(function*() {
      const { close, driver, holders, locking, other } = yield* world()
      yield* hold(locking, "here")
      yield* other.acquire("there")
      const patient = { waitTimeout: Duration.infinity }
      const waiters: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
      for (const key of ["here", "there"]) {
        for (const mode of ["exclusive", "shared", "exclusive"] as const) {
          waiters.push(yield* Effect.fork(locking.withLock(Effect.void, key, { ...patient, mode })))
        }
        waiters.push(yield* Effect.fork(locking.withLocks(Effect.void, ["a", key, "z"], patient)))
        waiters.push(yield* Effect.fork(Effect.scoped(locking.acquire(key, patient))))
      }
      yield* settled
      for (const waiter of waiters) yield* isRunning(waiter)
      const closing = yield* Effect.fork(close)
      yield* settled
      yield* exitOf(closing)
      for (const waiter of waiters) yield* assertClosed(waiter)
      assert.deepStrictEqual(sizes(locking), idle)
      assert.strictEqual((yield* holders("there")).length, 1)
      assert.strictEqual(driver.count("withdraw"), driver.count("arm"))
    }))

  for (const op of ["attempt", "arm"] as const) {
    it.scoped(`R7.1 a waiter whose ${op} is on its way is told at once, too`, () =>
      Effect.gen(function*() {
        const { close, driver, holders, locking, other } = yield* world()
        if (op === "arm") yield* other.acquire("k")
        driver.always(op, driver.mute)
        const waiter = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "1 minute" }))
        yield* settled
        const closing = yield* Effect.fork(close)
        yield* settled
        yield* assertClosed(waiter)
        yield* TestClock.adjust("5 seconds")
        yield* exitOf(closing)
        assert.strictEqual((yield* holders("k")).length, op === "arm" ? 1 : 0)
      }))
  }

  it.scoped("R7.1 B08 sections are interrupted and awaited, finalizers included; only then the lock is released", () =>
    Effect.gen(function*() {
      const { close, holders, locking } = yield* world()
      const log: Array<string> = []
      const section = Effect.never.pipe(
        Effect.onInterrupt(() =>
          Effect.gen(function*() {
            log.push("interrupted")
            yield* Effect.sleep("1 second")
            log.push(`finalized, held by ${(yield* Effect.orDie(holders("k"))).length}`)
          })
        )
      )
      const fiber = yield* Effect.fork(Effect.ensuring(
        locking.withLock(section, "k"),
        Effect.sync(() => log.push("released"))
      ))
      yield* settled
      const closing = yield* Effect.fork(Effect.tap(close, () => Effect.sync(() => log.push("closed"))))
      yield* TestClock.adjust("999 millis")
      assert.deepStrictEqual(log, ["interrupted"])
      yield* isRunning(closing)
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(log.slice(0, 2), ["interrupted", "finalized, held by 1"])
      assert.sameMembers(log.slice(2), ["released", "closed"])
      yield* assertInterrupted(fiber)
      assert.deepStrictEqual(yield* holders("k"), [])
    }))

  it.scoped("R7.1 finalizers that take longer than the ttl are still under the lock", () =>
    Effect.gen(function*() {
      const { close, holders, locking } = yield* world({ ttl: "3 seconds", shutdownTimeout: "1 minute" })
      let held: ReadonlyArray<unknown> | undefined
      const section = Effect.onInterrupt(Effect.never, () =>
        Effect.zipRight(
          Effect.sleep("10 seconds"),
          Effect.map(Effect.orDie(holders("k")), (holders) => {
            held = holders
          })
        ))
      yield* Effect.fork(locking.withLock(section, "k"))
      yield* settled
      const closing = yield* Effect.fork(close)
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(held?.length, 1)
      yield* settled
      yield* exitOf(closing)
      assert.deepStrictEqual(yield* holders("k"), [])
    }))

  it.scoped("R7.1 R1.11 a section that fails or succeeds while it is told to end", () =>
    Effect.gen(function*() {
      const { close, locking } = yield* world()
      const succeeds = yield* Effect.fork(locking.withLock(Effect.uninterruptible(Effect.sleep("1 second")), "a"))
      const fails = yield* Effect.fork(
        locking.withLock(Effect.onInterrupt(Effect.never, () => Effect.dieMessage("its own")), "b")
      )
      yield* settled
      const closing = yield* Effect.fork(close)
      yield* TestClock.adjust("1 second")
      yield* exitOf(closing)
      // a value that was made after the end is refused
      yield* assertInterrupted(succeeds)
      const exit = yield* exitOf(fails)
      assert(Exit.isFailure(exit))
      // its own failure first, the loss behind it
      assert.strictEqual(Chunk.size(Cause.defects(exit.cause)), 1)
      assert.deepStrictEqual([...Cause.failures(exit.cause)].map((error: any) => error._tag), ["LeaseLost"])
    }))

  it.scoped("R7.1 the close waits for the releases that it causes, and for those under way", () =>
    Effect.gen(function*() {
      const { close, driver, holders, locking } = yield* world()
      const go = yield* Deferred.make<void>()
      const ending = yield* Effect.fork(locking.withLock(Deferred.await(go), "ending"))
      const section = yield* hold(locking, "section")
      yield* locking.acquire("lease")
      driver.always("release", slow("100 millis"))
      yield* Deferred.succeed(go, undefined)
      yield* settled
      const closing = yield* Effect.fork(close)
      yield* TestClock.adjust("99 millis")
      yield* isRunning(closing)
      yield* TestClock.adjust("1 millis")
      yield* exitOf(closing)
      for (const key of ["ending", "section", "lease"]) assert.deepStrictEqual(yield* holders(key), [], key)
      yield* Fiber.join(ending)
      yield* assertInterrupted(section)
      assert.strictEqual(driver.count("release"), 3)
    }))

  it.scoped("R7.1 the driver is closed after the last release", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const other = yield* Locking.make(yield* MemoryStore.driver(store))
      const calls: Array<string> = []
      const driver = Effect.gen(function*() {
        yield* Effect.addFinalizer(() => Effect.sync(() => calls.push("closed")))
        const driver = yield* Faulty.make(store)
        driver.always("release", (execute) =>
          Effect.tap(Effect.delay(execute, "100 millis"), () => Effect.sync(() => calls.push("released"))))
        return driver
      })
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(Locking.layer(driver), scope)
      yield* Effect.fork(Effect.provide(Locking.withLock(Effect.never, "k"), context))
      yield* settled
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("100 millis")
      yield* exitOf(closing)
      assert.deepStrictEqual(calls, ["released", "closed"])
      assert.deepStrictEqual(yield* other.inspect("k"), [])
    }))

  describe("leases in a scope", () => {
    it.scoped("R7.1 R1.3 are given back although their scope is open; it says so, and closes later without a word", () =>
      Effect.gen(function*() {
        const { close, driver, holders, locking } = yield* world()
        const scope = yield* Scope.make()
        const lease = yield* Effect.provideService(locking.acquire("k"), Scope.Scope, scope)
        const lost = yield* Effect.fork(lease.lost)
        yield* settled
        yield* close
        assert.deepStrictEqual(yield* holders("k"), [])
        assert.isFalse(yield* lease.isValid)
        assert.deepStrictEqual(yield* lease.remaining, Duration.zero)
        assert.strictEqual((yield* Effect.flip(Fiber.join(lost))).reason, "closed")
        assert.strictEqual((yield* Effect.flip(lease.renew)).reason, "closed")
        assert.isFalse(yield* lease.release)
        const before = driver.calls.length
        yield* Scope.close(scope, Exit.void)
        assert.strictEqual(driver.calls.length, before)
      }))

    it.scoped("R7.1 what runs under their guard is interrupted and awaited before they are given back", () =>
      Effect.gen(function*() {
        const { close, holders, locking } = yield* world()
        const lease = yield* locking.acquire("k")
        let heldBy = 0
        const guarded = yield* Effect.fork(lease.guard(
          Effect.onInterrupt(Effect.never, () =>
            Effect.zipRight(
              Effect.sleep("1 second"),
              Effect.map(Effect.orDie(holders("k")), (holders) => {
                heldBy = holders.length
              })
            ))
        ))
        yield* settled
        const closing = yield* Effect.fork(close)
        yield* TestClock.adjust("999 millis")
        yield* isRunning(closing)
        yield* TestClock.adjust("1 millis")
        yield* exitOf(closing)
        yield* assertInterrupted(guarded)
        assert.strictEqual(heldBy, 1)
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("R7.1 with a scope that closes at the same time, each is given back once", () =>
      Effect.gen(function*() {
        const { close, driver, holders, locking } = yield* world()
        driver.always("release", slow("100 millis"))
        const scope = yield* Scope.make()
        yield* Effect.provideService(locking.acquire("k"), Scope.Scope, scope)
        const closings = [yield* Effect.fork(close), yield* Effect.fork(Scope.close(scope, Exit.void))]
        yield* TestClock.adjust("100 millis")
        for (const closing of closings) yield* exitOf(closing)
        assert.strictEqual(driver.count("release"), 1)
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("R7.1 in one scope with the layer: whichever was opened first", () =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const other = yield* Locking.make(yield* MemoryStore.driver(store))
        const scope = yield* Scope.make()
        const inside = Effect.gen(function*() {
          // a program whose finalizer runs after the layer's
          yield* Effect.addFinalizer(() => Effect.sync(() => void 0))
          const locking = yield* Locking.make(yield* MemoryStore.driver(store))
          yield* locking.acquire("k")
          yield* Effect.forkScoped(locking.withLock(Effect.never, "l"))
        })
        yield* Effect.provideService(inside, Scope.Scope, scope)
        yield* settled
        assert.strictEqual((yield* other.list()).length, 2)
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(yield* other.list(), [])
      }))
  })

  describe("what does not end", () => {
    it.scoped("R7.1 R5 a section that ignores interruption: the close ends in time and says so", () => {
      const { layer, lines } = logging()
      return Effect.gen(function*() {
        const { close, holders, locking } = yield* world({ shutdownTimeout: "2 seconds" })
        const go = yield* Deferred.make<void>()
        const fiber = yield* Effect.fork(locking.withLock(Effect.uninterruptible(Deferred.await(go)), "k"))
        const obedient = yield* hold(locking, "l")
        const closing = yield* Effect.fork(close)
        yield* TestClock.adjust("1999 millis")
        yield* isRunning(closing)
        yield* assertInterrupted(obedient)
        yield* TestClock.adjust("1 millis")
        yield* exitOf(closing)
        const failures = lines.filter((line) => line.level === "ERROR")
        assert.deepStrictEqual(failures, [{ level: "ERROR", code: "CLEANUP_TIMEOUT", fields: ["backend", "code"] }])
        // left to its ttl: not renewed any more
        assert.strictEqual((yield* holders("k")).length, 1)
        yield* TestClock.adjust("15 seconds")
        assert.deepStrictEqual(yield* holders("k"), [])
        // and when it ends at last, its value is refused
        yield* Deferred.succeed(go, undefined)
        yield* settled
        const error: any = yield* errorOf(fiber)
        assert.strictEqual(error.reason, "closed")
        // the lock was kept under it until the close ran out of time
        assert.deepStrictEqual(error.overrun, Duration.seconds(15))
      }).pipe(Effect.provide(layer))
    })

    const stores: Record<string, (driver: Faulty.FaultyDriver) => Faulty.Fault> = {
      "mute": (driver) => driver.mute,
      "mute, and its calls cannot be interrupted": (driver) => stubborn(driver.mute),
      "deaf to releases": () => refuse,
      "slow": () => late("1 minute")
    }
    for (const [name, fault] of Object.entries(stores)) {
      it.scoped(`R7.1 B29 a store that is ${name}: everything ends within shutdownTimeout`, () => {
        const { layer, lines } = logging()
        return Effect.gen(function*() {
          const { close, driver, locking, other } = yield* world({ shutdownTimeout: "3 seconds" })
          const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
          fibers.push(yield* hold(locking, "a"))
          fibers.push(yield* hold(locking, "r", { mode: "shared" }))
          yield* locking.acquire("b")
          yield* other.acquire("c")
          const waiters = [
            yield* Effect.fork(locking.withLock(Effect.void, "a", { waitTimeout: "1 hour" })),
            yield* Effect.fork(locking.withLock(Effect.void, "c", { waitTimeout: "1 hour" }))
          ]
          yield* settled
          for (const op of ["attempt", "arm", "withdraw", "renew", "release"] as const) driver.always(op, fault(driver))
          waiters.push(yield* Effect.fork(locking.withLock(Effect.void, "d", { waitTimeout: "1 hour" })))
          yield* TestClock.adjust("6 seconds")
          const closing = yield* Effect.fork(close)
          yield* TestClock.adjust("3 seconds")
          yield* exitOf(closing)
          for (const fiber of fibers) yield* assertInterrupted(fiber)
          for (const waiter of waiters) yield* assertClosed(waiter)
          assert.deepStrictEqual(
            lines.filter((line) => line.level === "ERROR").map((line) => line.code),
            ["CLEANUP_TIMEOUT"]
          )
          // nothing goes on behind its back
          yield* TestClock.adjust("1 minute")
          const before = driver.calls.length
          yield* TestClock.adjust("10 minutes")
          assert.strictEqual(driver.calls.length, before)
          assert.strictEqual(sizes(locking).timers, 0)
        }).pipe(Effect.provide(layer))
      })
    }

    it.scoped("R5 R10.6 what the store refused until it lapsed: CLEANUP_FAILED, an error in the log and an event", () => {
      const { layer, lines } = logging()
      return Effect.gen(function*() {
        const { close, driver, locking } = yield* world({ backend: "orders", ttl: "1 second" })
        const failed = yield* eventsOf(locking, "CleanupFailed")
        yield* hold(locking, "a")
        yield* hold(locking, "b")
        driver.always("release", refuse)
        const closing = yield* Effect.fork(close)
        yield* TestClock.adjust("4 seconds")
        yield* exitOf(closing)
        assert.deepStrictEqual(failed.map((event) => event.failed), [2])
        assert.deepStrictEqual(lines.filter((line) => line.level === "ERROR"), [
          { level: "ERROR", code: "CLEANUP_FAILED", fields: ["backend", "code"] }
        ])
      }).pipe(Effect.provide(layer))
    })

    it.scoped("R10.6 nothing is said of what was refused at first, and of what lapsed before the close", () => {
      const { layer, lines } = logging()
      return Effect.gen(function*() {
        const { close, driver, locking } = yield* world({ ttl: "1 second" })
        driver.always("release", refuse)
        yield* locking.withLock(Effect.void, "before")
        yield* TestClock.adjust("10 seconds")
        yield* hold(locking, "k")
        const closing = yield* Effect.fork(close)
        yield* TestClock.adjust("100 millis")
        driver.heal()
        yield* TestClock.adjust("1 second")
        yield* exitOf(closing)
        assert.lengthOf(lines.filter((line) => line.code === "RELEASE_FAILED"), 1)
        assert.deepStrictEqual(lines.filter((line) => line.level === "ERROR"), [])
      }).pipe(Effect.provide(layer))
    })

    it.scoped("R10.6 a close that dies: LOCK_CLOSE_FAILED in the log, and the events end", () => {
      const { layer, lines } = logging()
      return Effect.gen(function*() {
        const base = yield* Effect.clock
        let isBroken = false
        const clock: Clock.Clock = Object.assign(Object.create(base), {
          unsafeCurrentTimeNanos: () => {
            if (isBroken) throw new Error("the clock broke")
            return base.unsafeCurrentTimeNanos()
          }
        })
        const { close, locking } = yield* Effect.withClock(world(), clock)
        const listening = yield* Effect.fork(Stream.runDrain(yield* locking.events))
        yield* settled
        isBroken = true
        yield* close
        isBroken = false
        yield* settled
        assert(Exit.isSuccess(yield* exitOf(listening)))
        assert.deepStrictEqual(lines.filter((line) => line.level === "ERROR"), [
          { level: "ERROR", code: "LOCK_CLOSE_FAILED", fields: ["backend", "code"] }
        ])
      }).pipe(Effect.provide(layer))
    })

    it.scoped("R7.1 a section that ends after the close of a layer whose store is mute", () =>
      Effect.gen(function*() {
        const { close, driver, locking } = yield* world({ shutdownTimeout: "1 second" })
        const go = yield* Deferred.make<void>()
        const fiber = yield* Effect.fork(locking.withLock(Effect.uninterruptible(Deferred.await(go)), "k"))
        yield* settled
        for (const op of ["renew", "release"] as const) driver.always(op, driver.mute)
        const closing = yield* Effect.fork(close)
        yield* TestClock.adjust("1 second")
        yield* exitOf(closing)
        yield* Deferred.succeed(go, undefined)
        yield* TestClock.adjust("2 seconds")
        yield* assertInterrupted(fiber)
        yield* TestClock.adjust("1 minute")
        const before = driver.calls.length
        yield* TestClock.adjust("10 minutes")
        assert.strictEqual(driver.calls.length, before)
      }))

    it.scoped("R7.1 a section that closes its own layer is waited for no longer than others", () =>
      Effect.gen(function*() {
        const { close, holders, locking } = yield* world()
        const other = yield* hold(locking, "l")
        const fiber = yield* Effect.fork(locking.withLock(close, "k"))
        yield* settled
        yield* assertInterrupted(other)
        yield* TestClock.adjust("4999 millis")
        yield* isRunning(fiber)
        yield* TestClock.adjust("1 millis")
        yield* assertInterrupted(fiber)
        // left to its ttl
        yield* TestClock.adjust("15 seconds")
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("R7.1 R6.6 shutdownTimeout zero waits for nothing", () =>
      Effect.gen(function*() {
        const { close, driver, locking } = yield* world({ shutdownTimeout: 0 })
        const fiber = yield* hold(locking, "k")
        driver.always("release", driver.mute)
        driver.always("attempt", driver.mute)
        const waiter = yield* Effect.fork(locking.withLock(Effect.void, "l"))
        yield* settled
        const closing = yield* Effect.fork(close)
        yield* settled
        yield* exitOf(closing)
        yield* assertClosed(waiter)
        yield* TestClock.adjust("2 seconds")
        yield* assertInterrupted(fiber)
      }))

    it.scoped("R6.6 shutdownTimeout: 5 seconds", () =>
      Effect.gen(function*() {
        const { close, locking } = yield* world()
        yield* Effect.fork(locking.withLock(Effect.uninterruptible(Effect.sleep("10 seconds")), "k"))
        yield* settled
        const closing = yield* Effect.fork(close)
        yield* TestClock.adjust("4999 millis")
        yield* isRunning(closing)
        yield* TestClock.adjust("1 millis")
        yield* exitOf(closing)
      }))
  })

  it.scoped("R7.1 architecture 4: an answer that comes while the layer closes is given back", () =>
    Effect.gen(function*() {
      const { close, driver, holders, locking } = yield* world()
      driver.always("attempt", stubborn(slow("500 millis")))
      const fiber = yield* Effect.fork(locking.withLock(Effect.dieMessage("the section ran"), "k"))
      yield* settled
      const closing = yield* Effect.fork(close)
      yield* TestClock.adjust("500 millis")
      yield* assertClosed(fiber)
      yield* TestClock.adjust("2 seconds")
      yield* exitOf(closing)
      assert.deepStrictEqual(yield* holders("k"), [])
    }))

  it.scoped("R7.1 a layer that closes in a calm world says nothing above debug, and leaves nothing", () => {
    const { layer, lines } = logging()
    return Effect.gen(function*() {
      const { close, locking, other } = yield* world()
      yield* hold(locking, "a")
      yield* locking.acquire("b")
      yield* Effect.fork(locking.withLock(Effect.void, "a"))
      yield* settled
      yield* close
      yield* settled
      assert.deepStrictEqual(sizes(locking), idle)
      assert.deepStrictEqual(yield* other.list(), [])
      assert.deepStrictEqual(lines.filter((line) => line.level !== "DEBUG"), [])
    }).pipe(Effect.provide(layer))
  })

  it.live("R7.1 H7 closed at any step of any call: all calls end typed, and the store is empty", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const other = yield* Effect.scoped(Effect.map(MemoryStore.driver(store), (driver) => driver))
      const yields: Faulty.Fault = (execute) =>
        Effect.zipRight(Effect.yieldNow(), Effect.zipLeft(execute, Effect.yieldNow()))
      for (const remote of [false, true]) {
        for (let steps = 0; steps <= 40; steps++) {
          yield* Effect.scoped(Effect.gen(function*() {
            const driver = yield* Faulty.make(store, { remote })
            if (remote) {
              for (const op of ["attempt", "arm", "withdraw", "release"] as const) driver.always(op, yields)
            }
            const { close, locking } = yield* open(driver)
            const calls: ReadonlyArray<Effect.Effect<unknown, unknown, Scope.Scope>> = [
              locking.withLock(Effect.yieldNow(), "k"),
              locking.withLock(Effect.never, "k"),
              locking.withLock(Effect.never, "k"),
              locking.withLocks(Effect.never, ["j", "k"]),
              locking.withLock(Effect.never, "r", { mode: "shared" }),
              locking.withLock(Effect.never, "r", { mode: "shared" }),
              locking.withLockIfAvailable(Effect.never, "t"),
              Effect.zipRight(locking.acquire("l"), Effect.never),
              Effect.scoped(Effect.flatMap(locking.acquire("m"), (lease) => lease.guard(Effect.never))),
              Effect.flatMap(locking.acquire("n"), (lease) => lease.release)
            ]
            const fibers = yield* Effect.forEach(calls, (call) => Effect.fork(call))
            for (let i = 0; i < steps; i++) yield* Effect.yieldNow()
            yield* close
            assert.deepStrictEqual(yield* other.list("effect-locking"), [], `${remote ? "remote" : "memory"}, ${steps}`)
            assert.deepStrictEqual({ ...sizes(locking), timers: 0 }, idle)
            for (const [i, fiber] of fibers.entries()) {
              // this one holds a lease in a scope of its own, and does not ask for it any more
              if (i === 7) continue
              const exit = yield* Fiber.await(fiber)
              if (Exit.isSuccess(exit)) continue
              for (const error of Cause.failures(exit.cause)) {
                assert.include(["LockingClosed", "LeaseLost"], (error as any)._tag)
              }
              assert.isTrue(Chunk.isEmpty(Cause.defects(exit.cause)), String(exit.cause))
            }
            yield* Fiber.interruptAll(fibers)
          }))
        }
      }
      // how long the sections take to end depends on the machine
    }).pipe(Effect.provide(Logger.minimumLogLevel(LogLevel.None))))

  describe("a process", () => {
    for (const scene of ["memory", "sections", "mute", "stubborn", "unanswered"] as const) {
      it.live(`R7.1 B29 exits by itself: ${scene}`, () =>
        Effect.gen(function*() {
          const { code, lingered, output, signal } = yield* runChild("exits.ts", [scene])
          assert.include(output.split("\n"), "done", output)
          assert.strictEqual(signal, null)
          assert.strictEqual(code, 0)
          // an answer that nobody will give is waited for no longer than an attempt may take
          assert.isBelow(lingered, 8_000, output)
        }))
    }
  })
})
