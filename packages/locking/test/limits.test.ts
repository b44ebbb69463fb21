import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Option, type Scope, TestClock } from "effect"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import { sizes } from "../src/internal/sizes.js"
import { world } from "./faultyDriver.js"

/** In one process: calls do not cross a network. */
const here = { remote: false, ttl: { default: Duration.infinity, min: Duration.millis(1), infinite: true } } as const

const local = (options?: LockingOptions) => world(options, here)

/** Lets every fiber go as far as it can. */
const settled = TestClock.adjust(0)

/** A waiter that has come to its place. */
const waits = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.tap(
    Effect.fork(effect),
    (fiber) => Effect.zipRight(settled, Effect.map(fiber.poll, (exit) => assert(Option.isNone(exit), "does not wait")))
  )

const idle = { records: 0, grants: 0, leases: 0, waiters: 0, sections: 0, activities: 0 }

const assertIdle = (locking: Locking.Locking) => {
  const { timers: _, ...rest } = sizes(locking)
  assert.deepStrictEqual(rest, idle)
}

describe("limits", () => {
  for (const [name, capabilities] of [["memory", here], ["remote", {}]] as const) {
    describe(name, () => {
      it.scoped("R6.1 a free key can be taken at once even with maxWaiters 0", () =>
        Effect.gen(function*() {
          const { locking } = yield* world({ maxWaiters: 0 }, capabilities)
          assert.strictEqual(yield* locking.withLock(Effect.succeed("done"), "k"), "done")
          yield* locking.acquire("a")
          assert.strictEqual(yield* locking.withLock(Effect.succeed("done"), "k"), "done")
          assert(Option.isSome(yield* locking.tryAcquire("b")))
        }))

      it.scoped("R6.1 QueueFull: a key held here is not waited for with maxWaiters 0, and the store is not asked", () =>
        Effect.gen(function*() {
          const { driver, locking } = yield* world({ maxWaiters: 0, backend: "orders" }, capabilities)
          yield* locking.acquire("k")
          const before = driver.calls.length
          const error = yield* Effect.flip(locking.withLock(Effect.void, "k"))
          assert(error._tag === "QueueFull", error._tag)
          assert.strictEqual(error.code, "QUEUE_FULL")
          assert.strictEqual(error.limit, 0)
          assert.strictEqual(error.backend, "orders")
          assert.strictEqual(driver.calls.length, before)
        }))

      it.scoped("R6.1 QueueFull: a key held elsewhere is not waited for with maxWaiters 0", () =>
        Effect.gen(function*() {
          const { locking, other } = yield* world({ maxWaiters: 0 }, capabilities)
          yield* other.acquire("k")
          const waiting = yield* Effect.fork(Effect.flip(locking.withLock(Effect.void, "k")))
          yield* settled
          const exit = yield* waiting.poll
          assert(Option.isSome(exit), "waits")
          assert.strictEqual((yield* exit.value)._tag, "QueueFull")
          yield* settled
          assertIdle(locking)
        }))

      it.scoped("R6.1 QueueFull: the waiters of all keys count together, and a place that was left is free again", () =>
        Effect.gen(function*() {
          const { driver, locking } = yield* world({ maxWaiters: 3 }, capabilities)
          for (const key of ["a", "b", "c", "d"]) yield* locking.acquire(key)
          const first = yield* waits(locking.withLock(Effect.void, "a"))
          yield* waits(locking.withLock(Effect.void, "a"))
          yield* waits(locking.withLock(Effect.void, "b", { waitTimeout: "1 second" }))
          const before = driver.calls.length
          for (const key of ["a", "c", "d"]) {
            assert.strictEqual((yield* Effect.flip(locking.withLock(Effect.void, key)))._tag, "QueueFull")
          }
          assert.strictEqual(driver.calls.length, before)
          // an interrupted one leaves its place
          yield* Fiber.interrupt(first)
          yield* waits(locking.withLock(Effect.void, "c"))
          assert.strictEqual((yield* Effect.flip(locking.withLock(Effect.void, "d")))._tag, "QueueFull")
          // and so does one whose time is over
          yield* TestClock.adjust("1 second")
          yield* waits(locking.withLock(Effect.void, "d"))
          assert.strictEqual((yield* Effect.flip(locking.withLock(Effect.void, "d")))._tag, "QueueFull")
        }))

      it.scoped("R1.4 R6.1 what does not wait needs no place: None and LockBusy, not QueueFull", () =>
        Effect.gen(function*() {
          const { driver, locking } = yield* world({ maxWaiters: 1 }, capabilities)
          yield* locking.acquire("k")
          yield* waits(locking.withLock(Effect.void, "k"))
          const before = driver.calls.length
          assert(Option.isNone(yield* locking.withLockIfAvailable(Effect.void, "k")))
          assert(Option.isNone(yield* locking.tryAcquire("k")))
          const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
          assert.strictEqual(error._tag, "LockBusy")
          assert.strictEqual(driver.calls.length, before)
        }))

      it.scoped("R6.1 KeyLimit: before the store is asked, and only while the keys are held", () =>
        Effect.gen(function*() {
          const { driver, locking } = yield* world({ maxKeys: 2, backend: "orders" }, capabilities)
          const a = yield* locking.acquire("a")
          yield* locking.acquire("b")
          const before = driver.calls.length
          const error = yield* Effect.flip(locking.acquire("c"))
          assert(error._tag === "KeyLimit", error._tag)
          assert.strictEqual(error.code, "KEY_LIMIT")
          assert.strictEqual(error.limit, 2)
          assert.strictEqual(error.backend, "orders")
          // one that does not wait is told as well: the key may be free
          assert.strictEqual((yield* Effect.flip(locking.tryAcquire("c")))._tag, "KeyLimit")
          assert.strictEqual((yield* Effect.flip(locking.withLocks(Effect.void, ["c", "d"])))._tag, "KeyLimit")
          assert.strictEqual(driver.calls.length, before)
          // who waits for a key that is held makes no new key
          yield* waits(locking.withLock(Effect.void, "b"))
          assert.isTrue(yield* a.release)
          yield* locking.withLock(Effect.void, "c")
          yield* locking.acquire("d")
          assert.strictEqual((yield* Effect.flip(locking.acquire("e")))._tag, "KeyLimit")
        }))

      it.scoped("R1.5 R6.1 KeyLimit: of several keys all are taken or none", () =>
        Effect.gen(function*() {
          const { locking } = yield* world({ maxKeys: 2 }, capabilities)
          for (const mode of ["exclusive", "shared"] as const) {
            const error = yield* Effect.flip(locking.withLocks(Effect.void, ["a", "b", "c"], { mode }))
            assert.strictEqual(error._tag, "KeyLimit")
            yield* settled
            assertIdle(locking)
          }
          assert.strictEqual(yield* locking.withLocks(Effect.succeed("done"), ["a", "b"]), "done")
        }))
    })
  }

  it.scoped("R6.6 R6.1 maxWaiters: every acquire in progress counts at a remote store, and one more may ask it", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world({ maxWaiters: 2 }, { remote: true })
      driver.always("attempt", driver.mute)
      const started = []
      for (const key of ["a", "b", "c"]) started.push(yield* waits(locking.withLock(Effect.succeed(key), key)))
      assert.strictEqual(driver.count("attempt"), 3)
      for (const attempt of [locking.withLock(Effect.void, "d"), locking.withLockIfAvailable(Effect.void, "e")]) {
        assert.strictEqual((yield* Effect.flip(attempt))._tag, "QueueFull")
      }
      assert.strictEqual(driver.count("attempt"), 3, "the store is not asked")
      // one that leaves makes room for another one
      yield* Fiber.interrupt(started.pop()!)
      started.push(yield* waits(locking.withLock(Effect.succeed("f"), "f")))
      assert.strictEqual(driver.count("attempt"), 4)
      assert.strictEqual((yield* Effect.flip(locking.withLock(Effect.void, "d")))._tag, "QueueFull")
      driver.heal()
      yield* TestClock.adjust("3 seconds")
      for (const fiber of started) assert.isDefined(yield* Fiber.join(fiber))
      yield* locking.withLock(Effect.void, "d")
    }))

  describe("records", () => {
    const boom = new Error("boom")

    /** Everything that a call can come to. */
    const lives: Record<string, (locking: Locking.Locking) => Effect.Effect<unknown, unknown, Scope.Scope>> = {
      "success": (locking) => locking.withLock(Effect.void, "k"),
      "failure": (locking) => locking.withLock(Effect.fail(boom), "k"),
      "defect": (locking) => locking.withLock(Effect.die(boom), "k"),
      "a reader": (locking) => locking.withLock(Effect.void, "k", { mode: "shared" }),
      "several keys": (locking) => locking.withLocks(Effect.void, ["a", "b", "c"]),
      "several keys of a reader": (locking) => locking.withLocks(Effect.void, ["a", "b", "c"], { mode: "shared" }),
      "an attempt": (locking) => locking.withLockIfAvailable(Effect.void, "k"),
      "a scope": (locking) => Effect.scoped(locking.acquire("k")),
      "an early release": (locking) => locking.useLock("k", (lease) => lease.release),
      "a refused key": (locking) => locking.withLock(Effect.void, ""),
      "refused options": (locking) => locking.withLock(Effect.void, "k", { ttl: -1 }),
      "a re-entry": (locking) => locking.withLock(locking.withLock(Effect.void, "k"), "k"),
      "a joined lease": (locking) => locking.withLock(locking.withLock(Effect.void, "k", { reentrant: true }), "k"),
      "an interrupted section": (locking) =>
        Effect.gen(function*() {
          const inside = yield* Deferred.make<void>()
          const fiber = yield* Effect.fork(
            locking.withLock(Effect.zipRight(Deferred.succeed(inside, undefined), Effect.never), "k")
          )
          yield* Deferred.await(inside)
          yield* Fiber.interrupt(fiber)
        }),
      "a time-out": (locking) =>
        locking.withLock(
          Effect.gen(function*() {
            const waiter = yield* waits(
              locking.withLock(Effect.void, "k", { waitTimeout: "1 second", reentrant: "wait" })
            )
            yield* TestClock.adjust("1 second")
            assert.strictEqual((yield* Effect.flip(Fiber.join(waiter)))._tag, "WaitTimeout")
          }),
          "k"
        ),
      "an interrupted wait": (locking) =>
        locking.withLock(
          Effect.gen(function*() {
            const waiter = yield* waits(locking.withLock(Effect.void, "k", { reentrant: "wait" }))
            yield* Fiber.interrupt(waiter)
          }),
          "k"
        ),
      "an interrupted wait for several keys": (locking) =>
        locking.withLock(
          Effect.gen(function*() {
            const waiter = yield* waits(locking.withLocks(Effect.void, ["a", "k", "z"], { reentrant: "wait" }))
            yield* Fiber.interrupt(waiter)
          }),
          "k"
        ),
      "a lease that ended": (locking) =>
        Effect.gen(function*() {
          const fiber = yield* Effect.fork(locking.withLock(Effect.never, "k", { ttl: "1 second", autoRenew: false }))
          yield* TestClock.adjust("2 seconds")
          yield* Effect.exit(Fiber.join(fiber))
        }),
      "a lease that was taken away": (locking) =>
        Effect.exit(locking.withLock(Effect.zipRight(locking.forceRelease("k"), Effect.never), "k")),
      "a hold that was too long": (locking) =>
        Effect.gen(function*() {
          const fiber = yield* Effect.fork(locking.withLock(Effect.never, "k", { maxHold: "1 second" }))
          yield* TestClock.adjust("1 second")
          yield* Effect.exit(Fiber.join(fiber))
        })
    }

    for (const [name, life] of Object.entries(lives)) {
      it.scoped(`R6.5 nothing remains: ${name}`, () =>
        Effect.gen(function*() {
          for (const { driver, locking, other } of [yield* local(), yield* world()]) {
            yield* Effect.exit(Effect.scoped(life(locking)))
            yield* settled
            assert.deepStrictEqual(sizes(locking), { ...idle, timers: 0 })
            assert.deepStrictEqual(yield* other.list(), [])
            // and every interest that was registered was withdrawn
            assert.strictEqual(driver.count("withdraw"), driver.count("arm"))
          }
        }))
    }

    it.scoped("R6.5 a record stays while somebody holds its key or waits for it", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* local()
        const lease = yield* locking.acquire("k")
        assert.strictEqual(sizes(locking).records, 1)
        const queued = yield* waits(locking.withLock(Effect.never, "k"))
        yield* lease.release
        yield* settled
        assert.strictEqual(sizes(locking).records, 1)
        yield* Fiber.interrupt(queued)
        assert.strictEqual(sizes(locking).records, 0)
        yield* other.acquire("k")
        const contender = yield* waits(locking.withLock(Effect.void, "k"))
        assert.strictEqual(sizes(locking).records, 1)
        yield* Fiber.interrupt(contender)
        assertIdle(locking)
      }))
  })

  describe("defaults", () => {
    it.scoped("R6.6 waitTimeout: 5 seconds", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world()
        yield* other.acquire("k")
        const waiter = yield* Effect.fork(Effect.exit(locking.withLock(Effect.void, "k")))
        yield* TestClock.adjust(4_999)
        assert(Option.isNone(yield* waiter.poll))
        yield* TestClock.adjust(1)
        const exit = yield* waiter.poll
        assert(Option.isSome(exit))
        const error = yield* Effect.flip(yield* exit.value)
        assert(error._tag === "WaitTimeout")
        assert.deepStrictEqual(error.waitTimeout, Duration.seconds(5))
        assert.deepStrictEqual(error.waited, Duration.seconds(5))
      }))

    it.scoped("R6.6 ttl: 15 seconds on remote drivers, none in memory", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world()
        assert.deepStrictEqual((yield* locking.acquire("a")).ttl, Duration.seconds(15))
        assert.deepStrictEqual((yield* other.acquire("b")).ttl, Duration.infinity)
      }))

    it.scoped("R6.6 maxWaiters: 4 096", () =>
      Effect.gen(function*() {
        const { locking } = yield* local()
        yield* locking.acquire("k")
        for (let i = 0; i < 4_096; i++) yield* Effect.fork(locking.withLock(Effect.void, "k"))
        yield* settled
        assert.strictEqual(sizes(locking).waiters, 4_096)
        const error = yield* Effect.flip(locking.withLock(Effect.void, "k"))
        assert(error._tag === "QueueFull")
        assert.strictEqual(error.limit, 4_096)
      }))

    it.scoped("R6.6 maxKeys: 10 000", () =>
      Effect.gen(function*() {
        const { locking } = yield* local()
        for (let i = 0; i < 10_000; i++) yield* locking.acquire(`key ${i}`)
        const error = yield* Effect.flip(locking.acquire("one more"))
        assert(error._tag === "KeyLimit")
        assert.strictEqual(error.limit, 10_000)
      }))

    it.scoped("R6.6 maxKeyBytes: 1 024 bytes of UTF-8", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* local()
        assert.strictEqual(yield* locking.withLock(Effect.succeed("done"), "é".repeat(512)), "done")
        const before = driver.calls.length
        const error = yield* Effect.flip(locking.withLock(Effect.void, "é".repeat(512) + "x"))
        assert.strictEqual(error._tag, "InvalidKey")
        assert.strictEqual(driver.calls.length, before)
      }))

    it.scoped("R6.6 attemptTimeout: a third of the ttl, at most 2 seconds", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        yield* locking.withLock(Effect.void, "k")
        yield* locking.withLock(Effect.void, "k", { ttl: "3 seconds" })
        yield* locking.withLock(Effect.void, "k", { attemptTimeout: "700 millis" })
        // never more than the caller waits
        yield* locking.withLock(Effect.void, "k", { waitTimeout: "600 millis" })
        assert.deepStrictEqual(driver.of("attempt").map(({ left }) => left), [2_000, 1_000, 700, 600])
      }))

    it.scoped("R6.6 namespace: effect-locking; two namespaces are strangers", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* local()
        const apart = yield* Locking.make(driver, { namespace: "apart" })
        yield* locking.acquire("k")
        assert(Option.isSome(yield* apart.tryAcquire("k")))
        assert(Option.isNone(yield* other.tryAcquire("k")))
        assert.deepStrictEqual((yield* locking.list()).map(({ namespace }) => namespace), ["effect-locking"])
        assert.deepStrictEqual((yield* apart.list()).map(({ namespace }) => namespace), ["apart"])
      }))

    it.scoped("R5 options out of range are refused when the layer is built, all at once", () =>
      Effect.gen(function*() {
        const exit = yield* Effect.exit(local({ maxWaiters: -1, maxKeys: 0, pollInterval: 9, maxHandovers: 1_001 }))
        assert(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "InvalidOptions")
        assert.deepStrictEqual(
          exit.cause.error.issues.map((issue) => issue.path).sort(),
          ["maxHandovers", "maxKeys", "maxWaiters", "pollInterval"]
        )
      }))
  })
})
