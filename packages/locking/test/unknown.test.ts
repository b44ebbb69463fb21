import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Duration, Effect, Exit, Fiber, FiberId, Option, TestClock } from "effect"
import { DriverError } from "effect-locking/LockDriver"
import type * as LockError from "effect-locking/LockError"
import { sizes } from "../src/internal/sizes.js"
import * as Faulty from "./faultyDriver.js"
import { broken, die, late, refuse, slow, world } from "./faultyDriver.js"

const settled = TestClock.adjust(0)

const exitOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return exit.value
  })

const errorOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) => Effect.flatMap(exitOf(fiber), Effect.flip)

const isRunning = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => assert(Option.isNone(exit), "has ended"))

/** The body of a call that must not be granted. */
const never = Effect.dieMessage("the section ran")

/** What it asked for is held elsewhere, and it is told so. */
const answered: Faulty.Fault = (execute) => execute

describe("no answer", () => {
  describe("the last answer decides", () => {
    type Last = Exclude<LockError.AcquireError["_tag"], "InvalidOptions" | "InvalidKey">

    /** What the store does in turn; the last one goes on until the end of the wait. */
    const endings: Record<string, readonly [(driver: Faulty.FaultyDriver) => ReadonlyArray<Faulty.Fault>, Last]> = {
      "busy": [() => [answered], "WaitTimeout"],
      "refused": [() => [refuse], "ProviderFailed"],
      "silent": [(driver) => [driver.mute], "OutcomeUnknown"],
      "acted, and its answer lost": [(driver) => [driver.lost], "OutcomeUnknown"],
      "acted, and the connection broke": [() => [broken], "OutcomeUnknown"],
      "a driver that died": [() => [die], "OutcomeUnknown"],
      "refused, then busy": [() => [refuse, refuse, answered], "WaitTimeout"],
      "silent, then busy": [(driver) => [driver.mute, answered], "WaitTimeout"],
      "a driver that died, then busy": [() => [die, answered], "WaitTimeout"],
      "busy, then refused": [() => [answered, answered, refuse], "ProviderFailed"],
      "busy, then silent": [(driver) => [answered, answered, driver.mute], "OutcomeUnknown"],
      "refused, then silent": [(driver) => [refuse, driver.mute], "OutcomeUnknown"],
      // the first one may have been granted: that nothing was granted cannot be said
      "silent, then refused": [(driver) => [driver.mute, refuse], "OutcomeUnknown"],
      "silent, then busy, then refused": [(driver) => [driver.mute, answered, refuse], "ProviderFailed"]
    }

    for (const [name, [faults, expected]] of Object.entries(endings)) {
      it.scoped(`R1.7 ${name}: ${expected}`, () =>
        Effect.gen(function*() {
          const { driver, holders, locking, other } = yield* world({ backend: "orders" })
          const free = !name.includes("busy")
          if (!free) yield* other.acquire("k")
          const all = faults(driver)
          driver.next("attempt", ...all.slice(0, -1))
          driver.always("attempt", all[all.length - 1]!)
          const waiter = yield* Effect.fork(locking.withLock(never, "k"))
          yield* TestClock.adjust(4_999)
          yield* isRunning(waiter)
          // an attempt that is sent at the last moment has 50 ms to be answered
          yield* TestClock.adjust(51)
          const error = yield* errorOf(waiter)
          assert.strictEqual(error._tag, expected)
          assert.strictEqual(error.backend, "orders")
          driver.heal()
          yield* TestClock.adjust("5 seconds")
          assert.strictEqual((yield* holders("k")).length, free ? 0 : 1)
          assert.strictEqual(sizes(locking).activities, 0)
        }))
    }

    it.scoped("R1.7 a single attempt is bounded by attemptTimeout, and its answer decides", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world({ attemptTimeout: "300 millis" })
        const answers = [[refuse, "ProviderFailed"], [die, "OutcomeUnknown"], [broken, "OutcomeUnknown"]] as const
        for (const [fault, expected] of answers) {
          driver.next("attempt", fault, fault)
          assert.strictEqual((yield* Effect.flip(locking.withLock(never, "k", { waitTimeout: 0 })))._tag, expected)
          assert.strictEqual((yield* Effect.flip(Effect.scoped(locking.tryAcquire("k"))))._tag, expected)
        }
        driver.next("attempt", driver.mute, driver.mute)
        for (
          const attempt of [locking.withLock(never, "a", { waitTimeout: 0 }), locking.withLockIfAvailable(never, "b")]
        ) {
          const before = driver.count("attempt")
          const fiber = yield* Effect.fork(attempt)
          yield* TestClock.adjust("299 millis")
          yield* isRunning(fiber)
          yield* TestClock.adjust("1 millis")
          assert.strictEqual((yield* errorOf(fiber))._tag, "OutcomeUnknown")
          assert.strictEqual(driver.count("attempt"), before + 1)
        }
        yield* TestClock.adjust("1 second")
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("R1.7 R5 a refusal is retried, not before the store asked for, and told with its cause", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        const overloaded = new DriverError({
          executed: "no",
          message: "overloaded",
          cause: Object.assign(new Error("too many clients"), { code: "53300", parameters: ["k"] }),
          retryAfter: Duration.millis(1_500)
        })
        driver.always("attempt", () => Effect.fail(overloaded))
        const waiter = yield* Effect.fork(locking.withLock(never, "k"))
        yield* TestClock.adjust("5 seconds")
        const error = yield* errorOf(waiter)
        assert(error._tag === "ProviderFailed")
        assert.deepStrictEqual(error.retryAfter, Duration.millis(1_500))
        assert.include(error.message, "too many clients")
        assert.deepStrictEqual(driver.of("attempt").map((call) => call.at), [0, 1_500, 3_000, 4_500])
        // nothing was granted, hence nothing to clean up
        assert.strictEqual(driver.count("release"), 0)
      }))

    it.scoped("R1.7 B28 errors are retried with growing, jittered pauses, at most a second apart", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        driver.always("attempt", refuse)
        yield* Effect.fork(locking.withLock(never, "k", { waitTimeout: "1 minute" }))
        yield* TestClock.adjust("55 seconds")
        const times = driver.of("attempt").map((call) => call.at)
        const pauses = times.slice(1).map((at, i) => at - times[i]!)
        pauses.forEach((pause, i) => {
          const limit = Math.min(1_000, 50 * 2 ** Math.min(i, 10))
          assert.isAtLeast(pause, limit / 2)
          assert.isAtMost(pause, limit + 1)
        })
        assert.isAbove(new Set(pauses.map(Math.round)).size, pauses.length / 2)
      }))

    it.scoped("R1.7 a waiter behind a contender without an answer learns that, not that the key was taken", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        driver.always("attempt", refuse)
        yield* Effect.fork(locking.withLock(never, "k", { waitTimeout: "1 minute" }))
        const behind = yield* Effect.fork(locking.withLock(never, "k", { waitTimeout: "1 second" }))
        yield* TestClock.adjust("1 second")
        assert.strictEqual((yield* errorOf(behind))._tag, "ProviderFailed")
      }))
  })

  describe("lost replies", () => {
    it.scoped("R3.1 architecture 5: the same token finds its grant again, with the same fence", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world()
        driver.next("attempt", driver.lost, broken)
        const go = yield* Deferred.make<void>()
        const section = yield* Effect.fork(
          locking.useLock("k", (lease) => Effect.as(Deferred.await(go), lease.fence))
        )
        yield* TestClock.adjust("3 seconds")
        const attempts = driver.of("attempt")
        assert.strictEqual(attempts.length, 3)
        assert.strictEqual(new Set(attempts.flatMap((call) => call.tokens)).size, 1)
        const [holder, ...rest] = yield* holders("k")
        assert.deepStrictEqual(rest, [])
        yield* Deferred.succeed(go, undefined)
        yield* settled
        assert.strictEqual(yield* Fiber.join(section), holder?.fence)
        yield* TestClock.adjust("5 seconds")
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("every request has a token of its own", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        for (const key of ["a", "b", "a"]) yield* locking.withLock(Effect.void, key)
        assert.strictEqual(new Set(driver.of("attempt").flatMap((call) => call.tokens)).size, 3)
      }))

    it.scoped("B13 R5 given up: the store is cleaned by token, as soon as it can be reached again", () =>
      Effect.gen(function*() {
        const { driver, holders, locking, other } = yield* world()
        driver.always("attempt", driver.lost)
        driver.always("release", driver.mute)
        const waiter = yield* Effect.fork(locking.withLock(never, "k", { waitTimeout: "1 second" }))
        yield* TestClock.adjust("1 second")
        assert.strictEqual((yield* errorOf(waiter))._tag, "OutcomeUnknown")
        assert.strictEqual((yield* holders("k")).length, 1)
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual((yield* holders("k")).length, 1)
        driver.heal()
        // long before the ttl of 15 s
        yield* TestClock.adjust("2 seconds")
        assert.deepStrictEqual(yield* holders("k"), [])
        assert.strictEqual(yield* other.withLock(Effect.succeed("free"), "k"), "free")
        const token = driver.of("attempt")[0]!.tokens[0]
        for (const call of driver.of("release")) assert.deepStrictEqual(call.tokens, [token])
      }))

    for (const [how, fault] of [["silent", (d: Faulty.FaultyDriver) => d.mute], ["refused", () => refuse]] as const) {
      it.scoped(`R5 the clean-up (${how}) goes on until the ttl would have ended it anyway, and no longer`, () =>
        Effect.gen(function*() {
          const { driver, locking } = yield* world()
          driver.next("attempt", driver.lost)
          driver.always("release", fault(driver))
          const waiter = yield* Effect.fork(locking.withLock(never, "k", { waitTimeout: "1 second" }))
          yield* TestClock.adjust("1 second")
          yield* errorOf(waiter)
          yield* TestClock.adjust("12 seconds")
          const before = driver.count("release")
          assert.isAbove(before, 3)
          yield* TestClock.adjust("2 seconds")
          assert.isAbove(driver.count("release"), before)
          // 1 s + ttl, and one more call that was under way
          yield* TestClock.adjust("5 seconds")
          const after = driver.count("release")
          yield* TestClock.adjust("1 minute")
          assert.strictEqual(driver.count("release"), after)
          assert.deepStrictEqual(sizes(locking), {
            records: 0,
            grants: 0,
            leases: 0,
            waiters: 0,
            sections: 0,
            activities: 0,
            timers: 0
          })
        }))
    }

    it.scoped("B12 B13 interrupted while the attempt is on its way: what it took goes back at once", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world()
        driver.next("attempt", driver.lost)
        const fiber = yield* Effect.fork(locking.withLock(never, "k"))
        yield* settled
        assert.strictEqual((yield* holders("k")).length, 1)
        yield* Fiber.interrupt(fiber)
        yield* settled
        assert.deepStrictEqual(yield* holders("k"), [])
        // and once more when the attempt can act no longer
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual(driver.count("release"), 2)
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(driver.count("release"), 2)
      }))

    it.scoped("B13 an attempt that acts after it was given up is undone", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world()
        // the request arrives after 1.5 s, although nobody waits for its answer any more
        driver.next("attempt", Faulty.stubborn(slow("1500 millis")))
        const fiber = yield* Effect.fork(locking.withLock(never, "k"))
        yield* settled
        fiber.unsafeInterruptAsFork(FiberId.none)
        yield* TestClock.adjust("1 second")
        assert(Exit.isInterrupted(yield* exitOf(fiber)))
        assert.strictEqual(driver.count("release"), 1)
        yield* TestClock.adjust("500 millis")
        assert.strictEqual((yield* holders("k")).length, 1)
        yield* TestClock.adjust("600 millis")
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("B13 an attempt that acts after the release of what a later one was granted is undone", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world({ attemptTimeout: "300 millis" })
        // the connection breaks, and the request arrives nevertheless
        driver.next(
          "attempt",
          (execute) =>
            Effect.zipRight(Effect.forkDaemon(Effect.delay(execute, "200 millis")), Effect.fail(Faulty.silence))
        )
        const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k"))
        yield* TestClock.adjust("100 millis")
        assert(Exit.isSuccess(yield* exitOf(fiber)))
        assert.deepStrictEqual(yield* holders("k"), [])
        yield* TestClock.adjust("100 millis")
        assert.strictEqual((yield* holders("k")).length, 1)
        yield* TestClock.adjust("150 millis")
        assert.deepStrictEqual(yield* holders("k"), [])
      }))
  })

  describe("late answers", () => {
    it.scoped("R2.5 B42 a grant is believed from the start of the attempt, not from its answer", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ ttl: "2 seconds", attemptTimeout: "1 second" })
        driver.next("attempt", late("700 millis"))
        const remaining = yield* Effect.fork(locking.useLock("k", (lease) => lease.remaining))
        yield* TestClock.adjust("700 millis")
        assert.deepStrictEqual(yield* Fiber.join(remaining), Duration.millis(2_000 - 700 - 25))
      }))

    it.scoped("B42 after a long wait the whole ttl is there", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world({ ttl: "2 seconds", waitTimeout: "1 minute" })
        const lease = yield* other.acquire("k")
        const remaining = yield* Effect.fork(locking.useLock("k", (lease) => lease.remaining))
        yield* TestClock.adjust("5 seconds")
        yield* lease.release
        yield* settled
        assert.deepStrictEqual(yield* Fiber.join(remaining), Duration.millis(2_000 - 25))
      }))

    it.scoped("B42 architecture 4: one whose validity is used up is given back, and tried again with a fresh token", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world({ ttl: "1 second", attemptTimeout: "2 seconds" })
        driver.next("attempt", late("1100 millis"))
        const ran: Array<bigint> = []
        const go = yield* Deferred.make<void>()
        const fiber = yield* Effect.fork(locking.useLock("k", (lease) => {
          ran.push(lease.fence)
          return Deferred.await(go)
        }))
        yield* TestClock.adjust("1099 millis")
        assert.deepStrictEqual(ran, [])
        yield* TestClock.adjust("500 millis")
        const [first, second] = driver.of("attempt").map((call) => call.tokens[0]!)
        assert.notStrictEqual(first, second)
        assert.deepStrictEqual(driver.of("release")[0]!.tokens, [first])
        assert.deepStrictEqual((yield* holders("k")).map((holder) => holder.token), [second])
        assert.strictEqual(ran.length, 1)
        yield* Deferred.succeed(go, undefined)
        yield* settled
        assert(Exit.isSuccess(yield* exitOf(fiber)))
      }))

    it.scoped("B42 a store that is always too late grants nothing, and keeps nothing", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world({ ttl: "1 second", attemptTimeout: "2 seconds" })
        driver.always("attempt", late("1100 millis"))
        const fiber = yield* Effect.fork(locking.withLock(never, "k"))
        yield* TestClock.adjust("6 seconds")
        assert.strictEqual((yield* errorOf(fiber))._tag, "OutcomeUnknown")
        yield* TestClock.adjust("3 seconds")
        assert.deepStrictEqual(yield* holders("k"), [])
        assert.strictEqual(sizes(locking).records, 0)
      }))

    it.scoped("R1.7 a grant that comes in time for the wait limit counts, one that comes later is given back", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* world()
        driver.next("attempt", late("900 millis"))
        const inTime = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "a", { waitTimeout: "1 second" }))
        yield* TestClock.adjust("1 second")
        assert.strictEqual(yield* Fiber.join(inTime), "done")
        driver.next("attempt", late("1200 millis"))
        const tooLate = yield* Effect.fork(locking.withLock(never, "b", { waitTimeout: "1 second" }))
        yield* TestClock.adjust("1 second")
        assert.strictEqual((yield* errorOf(tooLate))._tag, "OutcomeUnknown")
        yield* TestClock.adjust("3 seconds")
        assert.deepStrictEqual(yield* holders("b"), [])
      }))

    it.scoped("architecture 2: a call that does not obey its interruption holds nobody up", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ attemptTimeout: "200 millis" })
        driver.always("attempt", Faulty.stubborn(driver.mute))
        driver.always("release", Faulty.stubborn(driver.mute))
        const waiter = yield* Effect.fork(locking.withLock(never, "k", { waitTimeout: "1 second" }))
        const single = yield* Effect.fork(locking.withLock(never, "l", { waitTimeout: 0 }))
        const interrupted = yield* Effect.fork(locking.withLock(never, "m"))
        yield* settled
        interrupted.unsafeInterruptAsFork(FiberId.none)
        yield* settled
        assert(Exit.isInterrupted(yield* exitOf(interrupted)))
        yield* TestClock.adjust("200 millis")
        assert.strictEqual((yield* errorOf(single))._tag, "OutcomeUnknown")
        yield* TestClock.adjust("850 millis")
        assert.strictEqual((yield* errorOf(waiter))._tag, "OutcomeUnknown")
      }))
  })

  describe("releases", () => {
    for (
      const [how, fault] of [
        ["unheard", (driver: Faulty.FaultyDriver) => driver.mute],
        ["done, and its answer lost", (driver: Faulty.FaultyDriver) => driver.lost],
        ["refused", () => refuse],
        ["cut off", () => broken],
        ["a driver that died", () => die]
      ] as const
    ) {
      it.scoped(`R1.11 B65 ${how}: the section's own result counts, after one attempt at most`, () =>
        Effect.gen(function*() {
          const { driver, holders, locking } = yield* world()
          driver.always("release", fault(driver))
          const success = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "a"))
          const failure = yield* Effect.fork(locking.withLock(Effect.fail("its own"), "b"))
          const defect = yield* Effect.fork(locking.withLock(Effect.die("its own"), "c"))
          yield* TestClock.adjust("2 seconds")
          assert.strictEqual(yield* Fiber.join(success), "done")
          const failed = yield* exitOf(failure)
          assert(Exit.isFailure(failed))
          assert.deepStrictEqual(failed.cause, Cause.fail("its own"))
          const died = yield* exitOf(defect)
          assert(Exit.isFailure(died))
          assert.deepStrictEqual(died.cause, Cause.die("its own"))
          driver.heal()
          yield* TestClock.adjust("3 seconds")
          for (const key of ["a", "b", "c"]) assert.deepStrictEqual(yield* holders(key), [])
          assert.strictEqual(sizes(locking).activities, 0)
        }))
    }

    it.scoped("R1.11 the next caller of the process waits until the key is free at the store, and then gets it", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ waitTimeout: "1 minute", maxHandovers: 0 })
        driver.next("release", driver.mute)
        yield* Effect.fork(locking.withLock(Effect.sleep("1 second"), "k"))
        yield* settled
        const next = yield* Effect.fork(locking.withLock(Effect.succeed("next"), "k"))
        yield* TestClock.adjust("1 second")
        yield* isRunning(next)
        yield* TestClock.adjust("3 seconds")
        assert.strictEqual(yield* Fiber.join(next), "next")
      }))

    it.scoped("R1.11 B65 after a loss nobody asks the store to end the scope", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        const fiber = yield* Effect.fork(Effect.exit(locking.withLock(Effect.never, "k")))
        yield* settled
        driver.always("release", driver.mute)
        yield* other.forceRelease("k")
        yield* settled
        assert(Exit.isSuccess(yield* exitOf(fiber)))
      }))
  })

  it.scoped("B44 the store is down, or up but mute: acquire ends with its wait limit", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      for (const fault of [refuse, driver.mute, Faulty.stubborn(driver.mute), broken]) {
        for (const op of ["attempt", "arm", "release"] as const) driver.always(op, fault)
        const waiter = yield* Effect.fork(locking.withLock(never, "k", { waitTimeout: "1 second" }))
        yield* TestClock.adjust(1_050)
        assert.include(["ProviderFailed", "OutcomeUnknown"], (yield* errorOf(waiter))._tag)
        driver.heal()
        yield* TestClock.adjust("20 seconds")
      }
    }))

  it.scoped("R10.3 an administrator's question is bounded, and typed as an attempt is", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      for (const op of ["inspect", "list", "forceRelease"] as const) {
        const ask: Effect.Effect<unknown, LockError.LockError> = op === "list" ? locking.list() : locking[op]("k")
        driver.next(op, refuse)
        assert.strictEqual((yield* Effect.flip(ask))._tag, "ProviderFailed")
        driver.next(op, broken)
        assert.strictEqual((yield* Effect.flip(ask))._tag, "OutcomeUnknown")
        driver.next(op, driver.mute)
        const fiber = yield* Effect.fork(ask)
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual((yield* errorOf(fiber))._tag, "OutcomeUnknown")
      }
    }))
})
