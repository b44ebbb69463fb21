import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Metric, Option, Random, TestClock } from "effect"
import type { Renewal } from "effect-locking/LockDriver"
import type { LeaseLost, LeaseLostReason } from "effect-locking/LockError"
import * as Locking from "effect-locking/Locking"
import * as TestLocking from "effect-locking/TestLocking"
import { sizes } from "../src/internal/sizes.js"
import type * as Faulty from "./faultyDriver.js"
import { broken, die, late, refuse, slow, stubborn, world } from "./faultyDriver.js"
import { settableClock } from "./kit.js"

const settled = TestClock.adjust(0)

const exitOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return exit.value
  })

const isRunning = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => assert(Option.isNone(exit), "has ended"))

const assertLost = <A, E extends { readonly _tag: string }>(
  fiber: Fiber.RuntimeFiber<A, E>,
  reason: LeaseLostReason
): Effect.Effect<LeaseLost> =>
  Effect.gen(function*() {
    const error: { readonly _tag: string } = yield* Effect.flip(Effect.flatten(exitOf(fiber))).pipe(Effect.orDie)
    assert.strictEqual(error._tag, "LeaseLost")
    assert.strictEqual((error as LeaseLost).reason, reason)
    return error as LeaseLost
  })

/** A section that goes on until it is told to end. */
const hold = (locking: Locking.Locking, key: string, options = {}) =>
  Effect.fork(locking.withLock(Effect.never, key, options))

const answer = (renewal: Renewal): Faulty.Fault => () => Effect.succeed([renewal] as any)

describe("renewal", () => {
  it.scoped("R1.9 a lease is kept for as long as its section runs", () =>
    Effect.gen(function*() {
      const { holders, locking } = yield* world()
      const fiber = yield* hold(locking, "k")
      for (let i = 0; i < 20; i++) {
        yield* TestClock.adjust("15 seconds")
        yield* isRunning(fiber)
        assert.strictEqual((yield* holders("k")).length, 1)
      }
    }))

  it.scoped("R6.2 all leases of a process are renewed by one call", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      for (let i = 0; i < 50; i++) yield* hold(locking, `key ${i}`)
      yield* TestClock.adjust("1 minute")
      const renewals = driver.of("renew")
      // one third of 15 s apart
      assert.strictEqual(renewals.length, 12)
      for (const renewal of renewals) assert.strictEqual(renewal.keys.length, 50)
    }))

  it.scoped("leases that were taken at other times come together as they are renewed", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const fibers: Array<Fiber.RuntimeFiber<never, unknown>> = []
      for (let i = 0; i < 20; i++) {
        fibers.push(yield* hold(locking, `key ${i}`))
        yield* TestClock.adjust("50 millis")
      }
      yield* TestClock.adjust("10 seconds")
      driver.calls.length = 0
      yield* TestClock.adjust("30 seconds")
      assert.isAtMost(driver.count("renew"), 6 + 1)
      for (const renewal of driver.of("renew")) assert.strictEqual(renewal.keys.length, 20)
      for (const fiber of fibers) yield* isRunning(fiber)
    }))

  it.scoped("leases of other lengths are each renewed in time", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const fibers = yield* Effect.forEach(
        [300, 1_000, 5_000, 15_000, 60_000],
        (ttl) => hold(locking, `${ttl}`, { ttl })
      )
      yield* TestClock.adjust("12 seconds")
      for (const fiber of fibers) yield* isRunning(fiber)
      // the long ones are not dragged along by the short ones
      assert.isAtMost(driver.of("renew").filter((call) => call.keys.includes("60000")).length, 1)
    }))

  it.scoped("R1.9 a grant that took more than a third of its ttl to arrive is renewed at once", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world({ ttl: "600 millis", attemptTimeout: "400 millis" })
      driver.always("attempt", late("250 millis"))
      const fiber = yield* hold(locking, "k")
      yield* TestClock.adjust("250 millis")
      yield* TestClock.adjust("2 seconds")
      yield* isRunning(fiber)
      assert.isAtLeast(driver.count("renew"), 9)
    }))

  it.scoped("R1.8 what has no end is not renewed", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const fiber = yield* hold(locking, "k", { ttl: Duration.infinity })
      yield* TestClock.adjust("1 day")
      yield* isRunning(fiber)
      assert.strictEqual(driver.count("renew"), 0)
    }))

  it.scoped("R1.9 off: the lease ends at its ttl, and the section is interrupted then", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const fiber = yield* hold(locking, "k", { autoRenew: false, ttl: "1 second" })
      const trusted = 1_000 - 15
      yield* TestClock.adjust(trusted - 1)
      yield* isRunning(fiber)
      yield* TestClock.adjust(1)
      yield* assertLost(fiber, "expired")
      assert.strictEqual(driver.count("renew"), 0)
    }))

  describe("one answer", () => {
    it.scoped("R2.5 confirmed: believed from the start of the renewal, not from its answer", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ ttl: "3 seconds", attemptTimeout: "900 millis" })
        driver.always("renew", late("800 millis"))
        const lease = yield* locking.acquire("k")
        yield* TestClock.adjust("1800 millis")
        // sent at 1 s
        assert.deepStrictEqual(yield* lease.remaining, Duration.millis(1_000 + 3_000 - 35 - 1_800))
      }))

    for (const fault of ["refused", "cut off", "a driver that died", "silent", "unknown"] as const) {
      it.scoped(`R2.5 ${fault}: nothing is extended, and the next try comes soon`, () =>
        Effect.gen(function*() {
          const { driver, locking } = yield* world({ ttl: "3 seconds", attemptTimeout: "100 millis" })
          const faults = {
            "refused": refuse,
            "cut off": broken,
            "a driver that died": die,
            "silent": driver.mute,
            "unknown": answer({ _tag: "Unknown" })
          }
          const lease = yield* locking.acquire("k")
          driver.next("renew", faults[fault])
          yield* TestClock.adjust("1200 millis")
          assert.deepStrictEqual(yield* lease.remaining, Duration.millis(3_000 - 35 - 1_200))
          yield* TestClock.adjust("500 millis")
          assert.isAtLeast(driver.count("renew"), 2)
          assert.isTrue(Duration.toMillis(yield* lease.remaining) > 2_000)
          yield* TestClock.adjust("30 seconds")
          assert.isTrue(yield* lease.isValid)
        }))
    }

    for (const reason of ["taken", "revoked", "expired", "session-ended"] as const) {
      it.scoped(`R2.4 lost, ${reason}: the section is interrupted at once, and nothing is renewed or given back`, () =>
        Effect.gen(function*() {
          const { driver, locking } = yield* world()
          const fiber = yield* hold(locking, "k")
          yield* settled
          driver.next("renew", answer({ _tag: "Lost", reason }))
          yield* TestClock.adjust("4999 millis")
          yield* isRunning(fiber)
          yield* TestClock.adjust("1 millis")
          yield* assertLost(fiber, reason)
          yield* TestClock.adjust("1 minute")
          assert.strictEqual(driver.count("renew"), 1)
          assert.strictEqual(driver.count("release"), 0)
        }))
    }

    it.scoped("R2.4 each lease of a batch has its own answer", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        const fibers = yield* Effect.forEach(["a", "b", "c"], (key) => hold(locking, key))
        yield* TestClock.adjust("1 second")
        // the store forgets one, and another process has it
        driver.next("renew", (execute) =>
          Effect.zipRight(
            Effect.orDie(Effect.zipRight(other.forceRelease("b"), Effect.scoped(other.acquire("b")))),
            execute
          ))
        yield* TestClock.adjust("10 seconds")
        yield* isRunning(fibers[0]!)
        yield* isRunning(fibers[2]!)
        assert(Exit.isFailure(yield* exitOf(fibers[1]!)))
        assert.deepStrictEqual(
          driver.of("renew").map((call) => call.keys.length),
          [3, 2]
        )
      }))
  })

  describe("many answers", () => {
    it.scoped("one failed attempt never ends the loop, however often it happens", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ ttl: "3 seconds", attemptTimeout: "200 millis" })
        const fiber = yield* hold(locking, "k")
        // two of three fail, by turns in each way
        const faults = [refuse, die, broken, driver.mute, slow("2 seconds"), answer({ _tag: "Unknown" })]
        let i = 0
        driver.always("renew", (execute, call) => {
          i++
          return i % 3 === 0 ? execute : faults[(i >> 1) % faults.length]!(execute, call)
        })
        for (let second = 0; second < 60; second++) {
          yield* TestClock.adjust("1 second")
          yield* isRunning(fiber)
        }
        assert.isAbove(i, 60)
      }))

    it.scoped("R2.4 R2.5 none that comes: the section ends at the deadline, not later, while a renewal hangs", () =>
      Effect.gen(function*() {
        for (const stuck of [(d: Faulty.FaultyDriver) => d.mute, (d: Faulty.FaultyDriver) => stubborn(d.mute)]) {
          const { driver, locking } = yield* world()
          driver.always("renew", stuck(driver))
          driver.always("release", driver.mute)
          const fiber = yield* hold(locking, "k")
          yield* TestClock.adjust(15_000 - 155 - 1)
          yield* isRunning(fiber)
          yield* TestClock.adjust(1)
          const error = yield* assertLost(fiber, "unconfirmed")
          assert.deepStrictEqual(error.overrun, Duration.zero)
          assert.isAtLeast(driver.count("renew"), 4)
        }
      }))

    it.scoped("R2.4 with an attemptTimeout longer than the ttl the deadline is the same", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ ttl: "1 second", attemptTimeout: "10 seconds" })
        driver.always("renew", driver.mute)
        const fiber = yield* hold(locking, "k")
        yield* TestClock.adjust(985)
        yield* assertLost(fiber, "unconfirmed")
        driver.heal()
        yield* TestClock.adjust("20 seconds")
        assert.strictEqual(sizes(locking).activities, 0)
      }))

    it.scoped("R2.3 a yes that comes after the deadline revives nothing", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ ttl: "1 second", attemptTimeout: "5 seconds" })
        driver.always("renew", late("900 millis"))
        const lease = yield* locking.acquire("k")
        yield* TestClock.adjust("985 millis")
        assert.isFalse(yield* lease.isValid)
        yield* TestClock.adjust("1 second")
        assert.isFalse(yield* lease.isValid)
        assert.deepStrictEqual(yield* lease.remaining, Duration.zero)
        const error = yield* Effect.flip(lease.renew)
        assert.strictEqual(error.reason, "unconfirmed")
      }))

    it.scoped("R2.4 what the store may still keep after unanswered renewals is given back", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world({ ttl: "1 second", attemptTimeout: "100 millis" })
        // the store extends, and nobody hears of it
        driver.always("renew", driver.lost)
        const fiber = yield* hold(locking, "k")
        yield* TestClock.adjust("985 millis")
        yield* assertLost(fiber, "unconfirmed")
        yield* settled
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("R6.6 a caller that gives its attempts little time costs nobody else a lease", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        driver.always("renew", late("20 millis"))
        const patient = yield* hold(locking, "a")
        yield* hold(locking, "b", { attemptTimeout: "5 millis" })
        yield* TestClock.adjust("1 minute")
        yield* isRunning(patient)
      }))

    it.scoped("R1.7 R6.6 a caller that gives its attempts much time costs nobody else a lease either", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        const quick = yield* hold(locking, "a")
        yield* hold(locking, "b", { attemptTimeout: "1 minute" })
        // one answer is lost
        driver.next("renew", driver.mute, driver.mute)
        yield* TestClock.adjust("1 minute")
        yield* isRunning(quick)
      }))
  })

  describe("B34", () => {
    it.scoped("B34 R2.3 a lease that lapsed while the process stood still is not taken back", () =>
      Effect.gen(function*() {
        const { driver, holders, locking, other } = yield* world({ ttl: "1 second" })
        const fiber = yield* hold(locking, "k")
        yield* settled
        // the request for a renewal is on its way for so long that others had the key and left it
        driver.always("renew", stubborn(slow("5 seconds")))
        yield* TestClock.adjust("985 millis")
        yield* assertLost(fiber, "unconfirmed")
        yield* TestClock.adjust("1 second")
        yield* other.withLock(Effect.void, "k")
        yield* TestClock.adjust("10 seconds")
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("B34 B09 lost at the store, and used by another in between: the next renewal tells, and the key stays free", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        const fiber = yield* hold(yield* Locking.Locking, "k")
        yield* TestClock.adjust("1 second")
        yield* TestLocking.loseLease("k", { reason: "expired" })
        yield* Effect.scoped(other.acquire("k"))
        assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
        // nobody has told the holder, who asks one third of 15 s after its grant
        yield* TestClock.adjust("3999 millis")
        yield* isRunning(fiber)
        assert.strictEqual((yield* TestLocking.calls({ node: "main" })).renew, 0)
        yield* TestClock.adjust("1 millis")
        yield* assertLost(fiber, "expired")
        assert.strictEqual((yield* TestLocking.calls({ node: "main" })).renew, 1)
        yield* TestClock.adjust("1 minute")
        assert.strictEqual((yield* TestLocking.calls({ node: "main" })).renew, 1, "not asked for again")
        assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
        assert.strictEqual((yield* TestLocking.calls({ node: "main" })).attempt, 1)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("B34 by hand: fails LeaseLost", () =>
      Effect.gen(function*() {
        const { driver, holders, locking, other } = yield* world()
        const lease = yield* locking.acquire("k")
        driver.next("renew", (execute) =>
          Effect.zipRight(
            Effect.orDie(Effect.zipRight(other.forceRelease("k"), Effect.scoped(other.acquire("k")))),
            execute
          ))
        const error = yield* Effect.flip(lease.renew)
        assert.strictEqual(error._tag, "LeaseLost")
        assert.deepStrictEqual(yield* holders("k"), [])
        assert.isFalse(yield* lease.isValid)
      }))
  })

  describe("B33", () => {
    it.scoped("B33 a section that ends while a renewal is on its way: that one ends first, then the release is sent", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world()
        const lost = Metric.tagged(
          Metric.tagged(Metric.counter("effect_locking_leases_lost_total", { incremental: true }), "backend", "faulty"),
          "reason",
          "expired"
        )
        const before = (yield* Metric.value(lost)).count
        driver.always("renew", late("200 millis"))
        const go = yield* Deferred.make<void>()
        const fiber = yield* Effect.fork(locking.withLock(Effect.as(Deferred.await(go), "done"), "k"))
        yield* TestClock.adjust("5100 millis")
        assert.strictEqual(driver.count("renew"), 1)
        yield* Deferred.succeed(go, undefined)
        yield* settled
        assert.strictEqual(driver.count("release"), 0)
        yield* TestClock.adjust("100 millis")
        assert.strictEqual(driver.count("release"), 1)
        assert.strictEqual(yield* Fiber.join(fiber), "done")
        assert.deepStrictEqual(yield* holders("k"), [])
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(driver.count("renew"), 1)
        assert.deepStrictEqual(yield* holders("k"), [])
        assert.strictEqual((yield* Metric.value(lost)).count, before)
      }))

    it.scoped("B33 a renewal that hangs delays the release by one attempt at most", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world()
        driver.always("renew", stubborn(driver.mute))
        const go = yield* Deferred.make<void>()
        const fiber = yield* Effect.fork(locking.withLock(Effect.as(Deferred.await(go), "done"), "k"))
        yield* TestClock.adjust("5 seconds")
        yield* Deferred.succeed(go, undefined)
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual(yield* Fiber.join(fiber), "done")
        yield* TestClock.adjust("100 millis")
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    // on the real clock: five hundred sections make thousands of moments
    it.scopedLive("B33 releases at random moments of a slow renewal: no loss, no renewal after it, nothing left", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({ ttl: "6 seconds", attemptTimeout: "2 seconds" })
        for (const op of ["attempt", "renew", "release"] as const) driver.always(op, late("500 millis"))
        const fibers = yield* Effect.forEach(
          Array.from({ length: 500 }, (_, i) => `key ${i}`),
          (key) =>
            Effect.flatMap(
              Random.nextIntBetween(0, 4_000),
              (length) => Effect.fork(locking.withLock(Effect.as(Effect.sleep(length), key), key))
            )
        )
        yield* Fiber.joinAll(fibers)
        assert.isAbove(driver.count("renew"), 0)
        yield* Effect.sleep("600 millis")
        assert.deepStrictEqual(yield* other.list(), [])
        const released = new Map<string, number>()
        for (const call of driver.calls) {
          for (const token of call.tokens) {
            if (call.op === "release") released.set(token, call.at)
            if (call.op === "renew") assert.isFalse(released.has(token), "renewed after its release")
          }
        }
        assert.strictEqual(released.size, 500)
        assert.strictEqual(sizes(locking).timers, 0)
      }))

    it.scoped("B33 R1.3 an early release, too", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        driver.always("renew", late("200 millis"))
        const lease = yield* locking.acquire("k")
        const lost = yield* Effect.fork(lease.lost)
        yield* TestClock.adjust("5100 millis")
        const release = yield* Effect.fork(lease.release)
        yield* TestClock.adjust("100 millis")
        assert.isTrue(yield* Fiber.join(release))
        assert(Exit.isInterrupted(yield* exitOf(lost)))
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(driver.count("renew"), 1)
      }))
  })

  describe("by hand", () => {
    it.scoped("R2.3 extends now, and goes with one that is under way", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        const lease = yield* locking.acquire("k")
        yield* TestClock.adjust("3 seconds")
        yield* lease.renew
        assert.deepStrictEqual(yield* lease.remaining, Duration.millis(15_000 - 155))
        assert.strictEqual(driver.count("renew"), 1)
        driver.always("renew", late("500 millis"))
        const [a, b] = [yield* Effect.fork(lease.renew), yield* Effect.fork(lease.renew)]
        yield* settled
        assert.strictEqual(driver.count("renew"), 2)
        yield* TestClock.adjust("2 seconds")
        assert(Exit.isSuccess(yield* exitOf(a)))
        assert(Exit.isSuccess(yield* exitOf(b)))
      }))

    it.scoped("R2.3 R1.9 a lease that is not renewed by itself", () =>
      Effect.gen(function*() {
        const { locking } = yield* world()
        const lease = yield* locking.acquire("k", { autoRenew: false, ttl: "1 second" })
        for (let i = 0; i < 5; i++) {
          yield* TestClock.adjust("900 millis")
          yield* lease.renew
        }
        assert.isTrue(yield* lease.isValid)
        yield* TestClock.adjust("985 millis")
        assert.isFalse(yield* lease.isValid)
        assert.strictEqual((yield* Effect.flip(lease.lost)).reason, "expired")
      }))

    it.scoped("R2.3 no answer: asks until there is one, or the lease is lost", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ attemptTimeout: "500 millis" })
        const lease = yield* locking.acquire("k", { autoRenew: false })
        driver.next("renew", refuse, die, driver.mute)
        const fiber = yield* Effect.fork(lease.renew)
        yield* TestClock.adjust("2 seconds")
        assert(Exit.isSuccess(yield* exitOf(fiber)))
        driver.always("renew", driver.mute)
        const hopeless = yield* Effect.fork(lease.renew)
        yield* TestClock.adjust("15 seconds")
        yield* assertLost(hopeless, "unconfirmed").pipe(Effect.catchAllCause(() => assertLost(hopeless, "expired")))
      }))

    it.scoped("R2.3 an interrupted one leaves nothing undone", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        const fiber = yield* hold(locking, "k")
        const lease = yield* locking.acquire("l")
        driver.next("renew", driver.mute)
        const renewing = yield* Effect.fork(lease.renew)
        yield* settled
        yield* Fiber.interrupt(renewing)
        yield* TestClock.adjust("1 minute")
        assert.isTrue(yield* lease.isValid)
        yield* isRunning(fiber)
      }))
  })

  it.scoped("R2.5 after a jump of the wall clock all leases are renewed by one call, and none ends", () =>
    Effect.gen(function*() {
      const { clock, jump } = yield* settableClock
      const { driver, locking } = yield* Effect.withClock(world({ ttl: "1 minute" }), clock)
      const fibers = [yield* hold(locking, "k"), yield* hold(locking, "l", { ttl: "1 hour" })]
      yield* TestClock.adjust("1500 millis")
      assert.strictEqual(driver.count("renew"), 0)
      jump(86_400_000)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(driver.of("renew").map(({ keys }) => keys), [["k", "l"]])
      yield* TestClock.adjust("1 minute")
      for (const fiber of fibers) yield* isRunning(fiber)
    }))
})
