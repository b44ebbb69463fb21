import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Option, Random, TestClock } from "effect"
import { type LockDriver } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import * as MemoryStore from "effect-locking/MemoryStore"
import { sizes } from "../src/internal/sizes.js"
import * as Faulty from "./faultyDriver.js"
import { world } from "./faultyDriver.js"

/** Lets every fiber go as far as it can. */
const settled = TestClock.adjust(0)

const patient = { waitTimeout: "1 hour" } as const

const errorOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.flatMap(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return Effect.flip(exit.value)
  })

const valueOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.flatMap(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return exit.value
  })

const isRunning = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => assert(Option.isNone(exit), "has ended"))

/** The pauses between the attempts of a driver. */
const pauses = (driver: Faulty.FaultyDriver): ReadonlyArray<number> => {
  const times = driver.of("attempt").map((call) => call.at)
  return times.slice(1).map((at, i) => at - times[i]!)
}

/** Advances the clock step by step, as a poll rearms itself with each. */
const pass = (millis: number, step = 10) =>
  Effect.iterate(0, {
    while: (passed) => passed < millis,
    body: (passed) => Effect.as(TestClock.adjust(Math.min(step, millis - passed)), passed + step)
  })

describe("waiting", () => {
  describe("one contender", () => {
    it.scoped("R6.3 B28 however many wait, one of them talks to the store", () =>
      Effect.gen(function*() {
        const asked: Array<number> = []
        for (const waiters of [1, 100]) {
          const { driver, locking, other } = yield* world()
          yield* other.acquire("k")
          for (let i = 0; i < waiters; i++) yield* Effect.fork(locking.withLock(Effect.void, "k", patient))
          yield* settled
          const [ready, ...calls] = driver.calls
          assert.strictEqual(ready!.op, "ready")
          // busy, subscribe, and the try that may rely on it
          assert.deepStrictEqual(calls.map((call) => call.op), ["attempt", "arm", "attempt"])
          yield* TestClock.adjust("10 seconds")
          assert.strictEqual(driver.count("arm"), 1)
          assert.strictEqual(driver.count("attempt"), driver.calls.length - 2)
          assert.strictEqual(new Set(driver.of("attempt").flatMap((call) => call.tokens)).size, 1)
          asked.push(driver.count("attempt"))
        }
        // polls of 250 ms ± 25 %
        for (const attempts of asked) {
          assert.isAtLeast(attempts, 10_000 / 313)
          assert.isAtMost(attempts, 3 + 10_000 / 187)
        }
      }))

    it.scoped("B28 fifty waiters in five processes: few calls while the lock goes round, fewer while the store refuses", () =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const drivers: Array<Faulty.FaultyDriver> = []
        let entered = 0
        const section = Effect.zipRight(Effect.sync(() => entered++), Effect.sleep("1 second"))
        for (let i = 0; i < 5; i++) {
          const driver = yield* Faulty.make(store)
          drivers.push(driver)
          const locking = yield* Locking.make(driver)
          for (let j = 0; j < 10; j++) yield* Effect.fork(locking.withLock(section, "k", patient))
        }
        yield* TestClock.adjust("10 seconds")
        assert.isAtLeast(entered, 10)
        const calls = () => drivers.reduce((sum, driver) => sum + driver.calls.length, 0)
        // a poll in a quarter of a second for each process, and a handful of calls for each release
        assert.isAtMost(calls(), 5 * (10_000 / 187) + 11 * 5 * 3)
        for (const driver of drivers) for (const op of ["attempt", "arm"] as const) driver.always(op, Faulty.refuse)
        // whoever is inside comes to its end
        yield* TestClock.adjust("2 seconds")
        const before = calls()
        yield* TestClock.adjust("5 seconds")
        // about one in a second for each process, not in step
        assert.isAtMost(calls() - before, 5 * 10)
        for (const driver of drivers) driver.heal()
        const stood = entered
        yield* TestClock.adjust("3 seconds")
        assert.isAtLeast(entered, stood + 2)
        yield* Effect.forEach(drivers, (driver) => Faulty.atEnd(driver.heal))
      }))

    it.scoped("R6.3 one for each key, and one for both modes of a key", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        for (const key of ["a", "b"]) {
          yield* other.acquire(key)
          for (const mode of ["exclusive", "shared", "exclusive"] as const) {
            yield* Effect.fork(locking.withLock(Effect.void, key, { ...patient, mode }))
          }
        }
        yield* settled
        assert.deepStrictEqual(driver.of("attempt").map((call) => call.keys[0]), ["a", "a", "b", "b"])
        assert.strictEqual(driver.count("arm"), 2)
      }))

    it.scoped("R6.3 B28 a release wakes about one waiter per process", () =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const processes: Array<Faulty.FaultyDriver> = []
        const holder = yield* Locking.make(yield* MemoryStore.driver(store))
        const lease = yield* holder.acquire("k")
        for (let i = 0; i < 4; i++) {
          const driver = yield* Faulty.make(store)
          const locking = yield* Locking.make(driver)
          for (let j = 0; j < 25; j++) yield* Effect.fork(locking.withLock(Effect.never, "k", patient))
          processes.push(driver)
        }
        yield* settled
        const before = processes.map((driver) => driver.count("attempt"))
        yield* lease.release
        yield* settled
        processes.forEach((driver, i) => assert.isAtMost(driver.count("attempt") - before[i]!, 1))
        assert.strictEqual((yield* holder.inspect("k")).length, 1)
      }))

    it.scoped("R6.3 R1.13 when the contender is interrupted, the next one takes its place, with a token of its own", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        const lease = yield* other.acquire("k")
        const log: Array<number> = []
        const waiters: Array<Fiber.RuntimeFiber<void, unknown>> = []
        for (let i = 0; i < 4; i++) {
          waiters.push(yield* Effect.fork(locking.withLock(Effect.sync(() => void log.push(i)), "k", patient)))
        }
        yield* settled
        yield* Fiber.interrupt(waiters[0]!)
        yield* settled
        yield* lease.release
        yield* settled
        assert.deepStrictEqual(log, [1, 2, 3])
        const tokens = driver.of("attempt").map((call) => call.tokens[0]!)
        assert.strictEqual(new Set(tokens).size, 2)
        assert.strictEqual(tokens[0], tokens[1])
        assert.notStrictEqual(tokens[1], tokens[2])
        assert.strictEqual(driver.count("withdraw"), driver.count("arm"))
      }))

    it.scoped("R6.3 R1.13 when the contender's time is over, the next one takes its place at once", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world()
        const lease = yield* other.acquire("k")
        const first = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "1 second" }))
        const second = yield* Effect.fork(locking.withLock(Effect.succeed("second"), "k", patient))
        yield* TestClock.adjust("1 second")
        assert.strictEqual((yield* errorOf(first))._tag, "WaitTimeout")
        yield* lease.release
        yield* settled
        assert.strictEqual(yield* valueOf(second), "second")
      }))

    it.scoped("R1.5 R6.3 for several keys, one attempt asks for all of them", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        const lease = yield* other.acquire("b")
        const waiter = yield* Effect.fork(locking.withLocks(Effect.succeed("done"), ["c", "a", "b"], patient))
        yield* settled
        assert.deepStrictEqual(driver.of("attempt").map((call) => call.keys), [["a", "b", "c"], ["a", "b", "c"]])
        // nothing is held while it waits
        assert.deepStrictEqual((yield* other.list()).map((held) => held.key), ["b"])
        yield* lease.release
        yield* settled
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R1.5 R1.6 a reader of several keys and a writer of the same keys elsewhere never block each other", () =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const [near, far] = [yield* Faulty.make(store), yield* Faulty.make(store)]
        const [one, two] = [yield* Locking.make(far), yield* Locking.make(near)]
        // the writer comes between the reader's attempts, if it makes more than one
        far.always("attempt", Faulty.slow(20))
        near.always("attempt", Faulty.slow(15))
        const reader = yield* Effect.fork(one.withLocks(Effect.succeed("read"), ["x", "y"], { mode: "shared" }))
        yield* TestClock.adjust(20)
        const writer = yield* Effect.fork(two.withLocks(Effect.succeed("wrote"), ["x", "y"]))
        yield* TestClock.adjust("1 second")
        assert.strictEqual(yield* valueOf(reader), "read")
        assert.strictEqual(yield* valueOf(writer), "wrote")
      }))
  })

  describe("wake-ups", () => {
    it.scoped("R6.2 a release elsewhere is heard of at once", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world({ pollInterval: "1 minute" })
        const lease = yield* other.acquire("k")
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* settled
        yield* lease.release
        yield* settled
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("B21 a release between the refusal and the subscription is not missed", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({ pollInterval: "1 minute" })
        const lease = yield* other.acquire("k")
        const subscribing = yield* Deferred.make<void>()
        const subscribe = yield* Deferred.make<void>()
        driver.next("arm", (execute) =>
          Effect.zipRight(
            Deferred.succeed(subscribing, undefined),
            Effect.zipRight(Deferred.await(subscribe), execute)
          ))
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* Deferred.await(subscribing)
        yield* lease.release
        yield* Deferred.succeed(subscribe, undefined)
        yield* settled
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 a wake-up that comes while an attempt is on its way leads to one more", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({ pollInterval: "1 minute" })
        const lease = yield* other.acquire("k")
        const asking = yield* Deferred.make<void>()
        const answer = yield* Deferred.make<void>()
        // the store refuses, the lock is released, and only then the refusal arrives
        driver.next(
          "attempt",
          (execute) => execute,
          (execute) =>
            Effect.tap(execute, () => Effect.zipRight(Deferred.succeed(asking, undefined), Deferred.await(answer)))
        )
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* Deferred.await(asking)
        yield* lease.release
        yield* Deferred.succeed(answer, undefined)
        yield* settled
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 B28 wake-ups do not cut the attempt that is on its way, however many come", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({ pollInterval: "1 minute" })
        const lease = yield* other.acquire("k")
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* settled
        driver.always("attempt", Faulty.slow(20))
        const before = driver.count("attempt")
        yield* lease.release
        // others come and go, each with a wake-up
        for (let i = 0; i < 5; i++) {
          yield* other.withLockIfAvailable(Effect.void, "k")
          yield* TestClock.adjust(10)
        }
        assert.strictEqual(yield* valueOf(waiter), "done")
        assert.strictEqual(driver.count("attempt"), before + 1)
        // and nothing has to be given back twice
        assert.strictEqual(driver.count("release"), 1)
      }))

    it.scoped("R6.2 B22 a lost wake-up costs a poll of 250 ms ± 25 %", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        const lease = yield* other.acquire("k")
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* settled
        driver.deaf = true
        yield* lease.release
        yield* TestClock.adjust(187)
        yield* isRunning(waiter)
        yield* TestClock.adjust(126)
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 R6.6 polls are jittered by a quarter, each on its own", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({ pollInterval: "1 second" })
        yield* other.acquire("k")
        yield* Effect.fork(locking.withLock(Effect.void, "k", patient))
        yield* settled
        yield* TestClock.adjust("100 seconds")
        const [subscribed, ...polls] = pauses(driver)
        assert.strictEqual(subscribed, 0)
        assert.isAbove(polls.length, 80)
        for (const poll of polls) {
          assert.isAtLeast(poll, 750)
          // the timer is no finer than a millisecond
          assert.isAtMost(poll, 1251)
        }
        assert.isBelow(Math.min(...polls), 850)
        assert.isAbove(Math.max(...polls), 1150)
      }))

    it.scoped("R6.2 two processes do not poll in step", () =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const holder = yield* Locking.make(yield* MemoryStore.driver(store))
        yield* holder.acquire("k")
        const drivers = [yield* Faulty.make(store), yield* Faulty.make(store)]
        for (const driver of drivers) {
          const locking = yield* Locking.make(driver)
          yield* Effect.fork(locking.withLock(Effect.void, "k", patient))
        }
        yield* TestClock.adjust("5 seconds")
        assert.notDeepEqual(pauses(drivers[0]!), pauses(drivers[1]!))
      }))

    it.scoped("R6.2 a waiter comes back when the holder's lease ends, if nobody releases it", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world({ pollInterval: "1 minute" })
        // a holder that is gone
        yield* other.acquire("k", { ttl: "10 seconds", autoRenew: false })
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* TestClock.adjust("10 seconds")
        yield* isRunning(waiter)
        yield* TestClock.adjust(2)
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 a holder that renews is not taken for one that ends", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({ pollInterval: "1 minute" })
        yield* Effect.fork(other.withLock(Effect.sleep("30 seconds"), "k", { ttl: "3 seconds" }))
        yield* settled
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* TestClock.adjust("29 seconds")
        yield* isRunning(waiter)
        // it asks at each end that it was told of, not more often
        assert.isAtMost(driver.count("attempt"), 2 + 29 / 2)
        yield* TestClock.adjust("1 second")
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 in memory there is nothing to poll for", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({}, { remote: false })
        const lease = yield* other.acquire("k")
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* TestClock.adjust("10 minutes")
        assert.strictEqual(driver.count("attempt"), 2)
        yield* lease.release
        yield* settled
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 R6.6 a driver without push is asked again after 50 ms, then less often, at last each second", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({}, { push: false })
        const lease = yield* other.acquire("k")
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        driver.deaf = true
        yield* settled
        yield* TestClock.adjust("20 seconds")
        const asked = pauses(driver).filter((pause) => pause > 0)
        let expected = 50
        for (const pause of asked) {
          assert.isAtLeast(pause, expected * 0.75)
          assert.isAtMost(pause, expected * 1.25 + 1)
          expected = Math.min(1000, expected * 2)
        }
        assert.isAtLeast(asked.length, 15)
        yield* lease.release
        yield* TestClock.adjust(1251)
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 B22 when the subscription fails, it is tried again, and polls bridge the gap", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        const lease = yield* other.acquire("k")
        driver.next("arm", Faulty.refuse, Faulty.die, Faulty.broken)
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* settled
        assert.strictEqual(driver.count("arm"), 1)
        yield* TestClock.adjust("1 second")
        // the fourth one worked, and then there is no more to do
        assert.strictEqual(driver.count("arm"), 4)
        yield* lease.release
        yield* settled
        assert.strictEqual(yield* valueOf(waiter), "done")
        assert.strictEqual(driver.count("withdraw"), 1)
      }))

    it.scoped("R6.2 a subscription that hangs does not hold up the waiter for longer than an attempt may", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world({ attemptTimeout: "300 millis" })
        const lease = yield* other.acquire("k")
        driver.always("arm", driver.mute)
        const waiter = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k", patient))
        yield* settled
        yield* lease.release
        yield* TestClock.adjust(300 + 63)
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R6.2 interest is withdrawn once, by whatever end, and only where it was declared", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        yield* locking.withLock(Effect.void, "free")
        assert.strictEqual(driver.count("arm") + driver.count("withdraw"), 0)
        const ends: Record<string, Effect.Effect<unknown, unknown>> = {
          "a grant": Effect.gen(function*() {
            const waiter = yield* Effect.fork(locking.withLock(Effect.void, "k"))
            yield* settled
            yield* other.forceRelease("k")
            yield* settled
            yield* valueOf(waiter)
          }),
          "an interrupt": Effect.gen(function*() {
            const waiter = yield* Effect.fork(locking.withLock(Effect.void, "k"))
            yield* settled
            yield* Fiber.interrupt(waiter)
          }),
          "a time-out": Effect.gen(function*() {
            const waiter = yield* Effect.fork(Effect.exit(locking.withLock(Effect.void, "k", { waitTimeout: 10 })))
            yield* TestClock.adjust(10)
            assert(Exit.isFailure(yield* valueOf(waiter)))
          })
        }
        for (const [name, end] of Object.entries(ends)) {
          driver.calls.length = 0
          yield* Effect.scoped(Effect.zipRight(other.acquire("k"), end))
          yield* settled
          assert.strictEqual(driver.count("arm"), 1, name)
          assert.strictEqual(driver.count("withdraw"), 1, name)
          assert.isAbove(
            driver.calls.findIndex((call) => call.op === "withdraw"),
            driver.calls.findLastIndex((call) => call.op === "attempt" || call.op === "arm"),
            `${name}: withdrawn last`
          )
        }
      }))
  })

  describe("limits of time", () => {
    it.scoped("R1.7 B45 zero: exactly one attempt, no interest, then LockBusy", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        yield* locking.withLock(Effect.void, "k", { waitTimeout: 0 })
        yield* other.acquire("k")
        driver.calls.length = 0
        const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
        assert(error._tag === "LockBusy")
        assert.isFalse(error.holder?.local)
        assert.deepStrictEqual(driver.calls.map((call) => call.op), ["attempt"])
        assert.isFalse(driver.calls[0]!.request!.waiting)
        assert(Option.isNone(yield* locking.tryAcquire("k")))
        assert.deepStrictEqual(driver.calls.map((call) => call.op), ["attempt", "attempt"])
      }))

    it.scoped("B45 a very short limit still tries", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        const fiber = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "free", { waitTimeout: 1 }))
        driver.always("attempt", Faulty.late(20))
        const slow = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "slow", { waitTimeout: 1 }))
        yield* TestClock.adjust(20)
        assert.strictEqual(yield* valueOf(fiber), "done")
        // a store that needs 20 ms gets the chance to answer
        assert.strictEqual(yield* valueOf(slow), "done")
        driver.heal()
        yield* other.acquire("k")
        const busy = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: 1 }))
        yield* TestClock.adjust(1)
        assert.strictEqual((yield* errorOf(busy))._tag, "WaitTimeout")
      }))

    it.scoped("B45 one deadline for queue, attempts and pauses", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* world()
        yield* other.acquire("k")
        driver.always("attempt", Faulty.late(700))
        const waiters = yield* Effect.forEach(
          [1, 2, 3, 4],
          () => Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "1 second" }))
        )
        yield* TestClock.adjust(1_000)
        // those behind the contender wait for nothing on the wire
        for (const waiter of waiters.slice(1)) assert.strictEqual((yield* errorOf(waiter))._tag, "WaitTimeout")
        yield* TestClock.adjust(50)
        yield* Effect.flatMap(errorOf(waiters[0]!), (error) =>
          Effect.sync(() => assert.include(["WaitTimeout", "OutcomeUnknown"], error._tag)))
        yield* TestClock.adjust("10 seconds")
      }))

    it.scoped("R1.7 infinity: waits for as long as it takes", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world()
        const lease = yield* other.acquire("k")
        const waiter = yield* Effect.fork(
          locking.withLock(Effect.succeed("done"), "k", { waitTimeout: Duration.infinity })
        )
        yield* TestClock.adjust("3 minutes")
        yield* isRunning(waiter)
        yield* lease.release
        yield* settled
        assert.strictEqual(yield* valueOf(waiter), "done")
      }))

    it.scoped("R1.7 R5 the error of a wait tells how long it was, who holds the key and until when", () =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const locking = yield* Locking.make(yield* Faulty.make(store))
        const other = yield* Locking.make(yield* MemoryStore.driver(store), { session: "web-2" })
        yield* TestClock.adjust("1 minute")
        const lease = yield* other.acquire("k", { ttl: "9 seconds", autoRenew: false })
        const waiter = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "2 seconds" }))
        yield* TestClock.adjust("2 seconds")
        const error = yield* errorOf(waiter)
        assert(error._tag === "WaitTimeout")
        assert.deepStrictEqual(error.waited, Duration.seconds(2))
        assert.deepStrictEqual(error.waitTimeout, Duration.seconds(2))
        const holder = error.holder!
        assert.strictEqual(holder.session, "web-2")
        assert.strictEqual(holder.fence, lease.fence)
        assert.strictEqual(holder.since, 60_000)
        assert.isFalse(holder.local)
        // what the store said last: a poll ago at most
        assert.approximately(Duration.toMillis(holder.endsIn!), 7_000, 320)
      }))

    it.scoped("R5 a local holder is told apart", () =>
      Effect.gen(function*() {
        const { locking } = yield* world()
        const lease = yield* locking.acquire("k")
        const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
        assert(error._tag === "LockBusy")
        assert.isTrue(error.holder?.local)
        assert.strictEqual(error.holder?.fence, lease.fence)
      }))
  })

  describe("together", () => {
    it.live("R6.3 R1.13 several processes with many fibers: one inside at a time, and all come to their turn", () =>
      Effect.scoped(Effect.gen(function*() {
        const store = yield* MemoryStore.make
        let inside = 0
        let entered = 0
        let last = 0n
        const body = (lease: { readonly fence: bigint }) =>
          Effect.gen(function*() {
            assert.strictEqual(++inside, 1)
            assert.isTrue(lease.fence > last, "fences rise")
            last = lease.fence
            yield* Effect.yieldNow()
            if (yield* Random.nextBoolean) yield* Effect.sleep(1)
            inside--
            entered++
          })
        const fibers: Array<Fiber.RuntimeFiber<void, unknown>> = []
        const all: Array<Locking.Locking> = []
        for (let i = 0; i < 3; i++) {
          const driver: LockDriver = yield* Faulty.make(store)
          const locking = yield* Locking.make(driver)
          all.push(locking)
          for (let j = 0; j < 20; j++) {
            fibers.push(yield* Effect.fork(Effect.repeatN(locking.useLock("k", patient, body), 4)))
          }
        }
        yield* Fiber.joinAll(fibers)
        assert.strictEqual(entered, 3 * 20 * 5)
        for (const locking of all) assert.strictEqual(sizes(locking).records, 0)
      })))
  })

  it.scoped("R6.2 the poll of a waiter whose clock moves in small steps is the same", () =>
    Effect.gen(function*() {
      const { driver, locking, other } = yield* world()
      yield* other.acquire("k")
      yield* Effect.fork(locking.withLock(Effect.void, "k", patient))
      yield* pass(1_000, 50)
      assert.isAtLeast(driver.count("attempt"), 2 + 2)
      assert.isAtMost(driver.count("attempt"), 2 + 5)
    }))
})
