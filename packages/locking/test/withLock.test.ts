import { assert, describe, it } from "@effect/vitest"
import { assertNone, assertSome } from "@effect/vitest/utils"
import {
  Cause,
  Context,
  Deferred,
  Duration,
  Effect,
  Exit,
  Fiber,
  FiberId,
  FiberRef,
  Option,
  Scope,
  TestClock
} from "effect"
import type * as Fence from "effect-locking/Fence"
import type { LockDriver } from "effect-locking/LockDriver"
import { DriverError } from "effect-locking/LockDriver"
import * as LockError from "effect-locking/LockError"
import * as Locking from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as TestLocking from "effect-locking/TestLocking"
import {
  alone,
  assertFree,
  assertIdle,
  capturingLogs,
  counting,
  ended,
  failureOf,
  isRunning,
  metric,
  node,
  section,
  settle,
  withCode
} from "./kit.js"

const twoNodes = Effect.gen(function*() {
  const store = yield* MemoryStore.make
  return { one: yield* node(store), two: yield* node(store) }
})

/** A layer over a driver that was changed. */
const over = (change: (driver: LockDriver) => LockDriver, options?: Parameters<typeof Locking.make>[1]) =>
  Effect.gen(function*() {
    const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
    return yield* Locking.make(change(driver), options)
  })

describe("withLock", () => {
  it.effect("R1.1 both forms run the effect under the lock and answer its value", () =>
    Effect.gen(function*() {
      const busyInside = Effect.map(Locking.inspect("k"), (holders) => holders.length)
      assert.strictEqual(yield* Locking.withLock(busyInside, "k"), 1)
      assert.strictEqual(yield* Locking.withLock(busyInside, "k", { ttl: "1 minute" }), 1)
      assert.strictEqual(yield* busyInside.pipe(Locking.withLock("k")), 1)
      assert.strictEqual(yield* busyInside.pipe(Locking.withLock("k", { ttl: "1 minute" })), 1)
      assert.strictEqual(yield* Locking.withLock(busyInside, LockKey.make("k")), 1)
      assert.strictEqual(yield* busyInside, 0)
    }).pipe(Effect.provide(Locking.layerMemory)))

  it.scoped("R1.1 an effect can be run again, each time under a lock of its own", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const fences: Array<Fence.Fence> = []
      const once = locking.useLock("k", (lease) => Effect.sync(() => fences.push(lease.fence)))
      yield* once
      yield* Effect.repeatN(once, 2)
      assert.lengthOf(fences, 4)
      assert.deepStrictEqual(fences, [...new Set(fences)].sort((a, b) => a < b ? -1 : 1))
      yield* assertIdle(locking)
    }))

  it.scoped("R1.1 never two sections of one key at a time", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      let inside = 0
      let entered = 0
      const enter = Effect.acquireUseRelease(
        Effect.sync(() => {
          inside++
          entered++
          assert.strictEqual(inside, 1)
        }),
        () => Effect.forEach([1, 2, 3], () => Effect.yieldNow()),
        () => Effect.sync(() => inside--)
      )
      const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
      for (let i = 0; i < 30; i++) fibers.push(yield* Effect.fork((i % 3 === 0 ? two : one).withLock(enter, "k")))
      for (const fiber of fibers) yield* Fiber.join(fiber)
      assert.strictEqual(entered, 30)
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))

  it.scoped("R1.1 different keys do not wait for each other", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      const holder = yield* Effect.fork(locking.withLock(inside.run, "a"))
      yield* Deferred.await(inside.begun)
      assert.strictEqual(yield* locking.withLock(Effect.succeed(1), "b", { waitTimeout: 0 }), 1)
      assert.strictEqual(yield* locking.withLock(Effect.succeed(2), LockKey.platform("a"), { waitTimeout: 0 }), 2)
      assert.strictEqual(
        yield* LockKey.withTenant(locking.withLock(Effect.succeed(3), "a", { waitTimeout: 0 }), "acme"),
        3
      )
      yield* isRunning(holder)
    }))

  describe("R1.1 the lock is free after every exit, and the exit is the section's own", () => {
    const defect = new Error("defect")
    const exits: Record<string, Effect.Effect<number, string>> = {
      success: Effect.succeed(1),
      failure: Effect.fail("own"),
      defect: Effect.die(defect),
      "interruption of itself": Effect.interrupt,
      "a cause of many": Effect.failCause(Cause.parallel(Cause.fail("own"), Cause.die(defect)))
    }
    for (const [name, effect] of Object.entries(exits)) {
      it.scoped(`R1.1 ${name}`, () =>
        Effect.gen(function*() {
          const locking = yield* alone()
          const later = Effect.zipRight(Effect.yieldNow(), effect)
          const bare = yield* Effect.exit(later)
          const run = locking.withLock(Effect.zipRight(Effect.orDie(locking.inspect("k")), later), "k")
          const exit = yield* Effect.exit(run)
          assert.strictEqual(exit._tag, bare._tag)
          assert.deepStrictEqual(Exit.isFailure(exit) ? summary(exit.cause) : exit.value, summaryOf(bare))
          yield* assertFree(locking, "k")
          yield* assertIdle(locking)
        }))
    }

    it.scoped("R1.1 interruption by the caller, finalizers first", () =>
      Effect.gen(function*() {
        const locking = yield* alone()
        const inside = yield* section
        const log: Array<string> = []
        const finalizer = Effect.gen(function*() {
          yield* Effect.yieldNow()
          log.push(`finalizer, held: ${(yield* Effect.orDie(locking.inspect("k"))).length}`)
        })
        const fiber = yield* Effect.fork(locking.withLock(Effect.ensuring(inside.run, finalizer), "k"))
        yield* Deferred.await(inside.begun)
        const exit = yield* Fiber.interrupt(fiber)
        assert(Exit.isInterrupted(exit))
        assert.deepStrictEqual(log, ["finalizer, held: 1"])
        yield* assertFree(locking, "k")
        yield* assertIdle(locking)
      }))

    it.scoped("R1.1 a body that throws while it is made", () =>
      Effect.gen(function*() {
        const locking = yield* alone()
        const exit = yield* Effect.exit(locking.useLock("k", (): Effect.Effect<void> => {
          throw defect
        }))
        assert(Exit.isFailure(exit))
        assert.strictEqual(Option.getOrThrow(Cause.dieOption(exit.cause)), defect)
        yield* assertFree(locking, "k")
        yield* assertIdle(locking)
      }))
  })

  it.scoped("R1.1 a waiter enters only when the finalizers of the section before have ended", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      for (const next of [one, two]) {
        const log: Array<string> = []
        const inside = yield* section
        const finalizer = Effect.zipRight(Effect.sleep("1 second"), Effect.sync(() => log.push("finalized")))
        const first = yield* Effect.fork(one.withLock(Effect.ensuring(inside.run, finalizer), "k"))
        yield* Deferred.await(inside.begun)
        const second = yield* Effect.fork(next.withLock(Effect.sync(() => log.push("entered")), "k"))
        yield* settle
        yield* Deferred.succeed(inside.end, undefined)
        yield* TestClock.adjust("999 millis")
        yield* isRunning(second)
        yield* TestClock.adjust("1 millis")
        assert(Exit.isSuccess(yield* ended(first)))
        assert(Exit.isSuccess(yield* ended(second)))
        assert.deepStrictEqual(log, ["finalized", "entered"])
      }
    }))

  it.scoped("R1.1 changes to fiber-local state come back, from failed sections too", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const ref = yield* FiberRef.make("before")
      yield* locking.withLock(FiberRef.set(ref, "section"), "k")
      assert.strictEqual(yield* FiberRef.get(ref), "section")
      yield* Effect.ignore(locking.withLock(Effect.zipRight(FiberRef.set(ref, "failed"), Effect.fail("own")), "k"))
      assert.strictEqual(yield* FiberRef.get(ref), "failed")
      yield* locking.withLockIfAvailable(FiberRef.set(ref, "single"), "k")
      assert.strictEqual(yield* FiberRef.get(ref), "single")
      yield* locking.withLocks(FiberRef.set(ref, "several"), ["a", "b"])
      assert.strictEqual(yield* FiberRef.get(ref), "several")
      yield* Effect.scoped(
        Effect.flatMap(locking.acquire("k"), (lease) => lease.guard(lease.provide(FiberRef.set(ref, "guarded"))))
      )
      assert.strictEqual(yield* FiberRef.get(ref), "guarded")
    }))

  it.scoped("R1.1 the section sees the fiber-local state, services and references of its caller", () =>
    Effect.gen(function*() {
      class Answer extends Context.Tag("Answer")<Answer, number>() {}
      const locking = yield* alone()
      const ref = yield* FiberRef.make(0)
      const seen = yield* locking.withLock(Effect.all([Answer, FiberRef.get(ref), LockKey.currentTenant]), "k").pipe(
        Effect.locally(ref, 7),
        Effect.provideService(Answer, 42),
        LockKey.withTenant("acme")
      )
      assert.deepStrictEqual(seen, [42, 7, "acme"])
    }))

  it.scoped("R1.1 fibers forked in the section end with it, before the lock is given back", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const child = Effect.onInterrupt(
        Effect.sleep("1 hour"),
        () => Effect.map(Effect.orDie(locking.inspect("k")), (holders) => log.push(`ended, held: ${holders.length}`))
      )
      const fiber = yield* locking.withLock(Effect.tap(Effect.fork(child), settle), "k")
      assert(Exit.isInterrupted(yield* ended(fiber)))
      assert.deepStrictEqual(log, ["ended, held: 1"])
      yield* assertIdle(locking)
    }))

  it.scoped("R1.1 fibers forked as daemons or into another scope outlive the section", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const scope = yield* Effect.scope
      const daemon = yield* locking.withLock(Effect.forkDaemon(Effect.sleep("1 second")), "k")
      const other = yield* locking.withLock(Effect.forkIn(Effect.sleep("1 second"), scope), "k")
      const ours = yield* locking.withLock(Effect.forkScoped(Effect.sleep("1 second")), "k")
      for (const fiber of [daemon, other, ours]) yield* isRunning(fiber)
      yield* assertIdle(locking)
      yield* TestClock.adjust("1 second")
      for (const fiber of [daemon, other, ours]) assert(Exit.isSuccess(yield* ended(fiber)))
    }))

  it.scoped("R1.1 in a region that cannot be interrupted the section cannot be either, and the wait still has its limit", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      const holder = yield* Effect.fork(Effect.uninterruptible(locking.withLock(inside.run, "k")))
      yield* Deferred.await(inside.begun)
      const waiter = yield* Effect.fork(
        Effect.uninterruptible(Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: "1 second" })))
      )
      yield* settle
      yield* Effect.fork(Fiber.interrupt(holder))
      yield* Effect.fork(Fiber.interrupt(waiter))
      yield* TestClock.adjust("999 millis")
      yield* isRunning(holder)
      yield* isRunning(waiter)
      yield* TestClock.adjust("1 millis")
      yield* ended(waiter)
      yield* Deferred.succeed(inside.end, undefined)
      yield* ended(holder)
      yield* assertIdle(locking)
    }))
})

describe("the fiber of a section", () => {
  it.scoped("R1.1 it begins within the step of its caller, so that what waits for nothing needs no scheduler", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      assert.strictEqual(Effect.runSync(locking.withLock(Effect.sync(() => "value"), "k")), "value")
      assert.strictEqual(Effect.runSync(Effect.flip(locking.withLock(Effect.fail("own"), "k"))), "own")
      yield* assertIdle(locking)
    }))

  it.scoped("R1.1 locks within locks, deeper than a stack", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const nest = (left: number): Effect.Effect<number, LockError.WithLockError> =>
        left === 0
          ? Effect.succeed(0)
          : Effect.map(locking.withLock(Effect.suspend(() => nest(left - 1)), `k${left}`), (depth) => depth + 1)
      assert.strictEqual(yield* nest(1500), 1500)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.1 an interrupt of the caller ends it, whoever sends it and whenever", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const body = (before: Effect.Effect<unknown>) =>
        Effect.ensuring(Effect.zipRight(before, Effect.never), Effect.sync(() => log.push("finalizer")))
      const late = yield* Effect.fork(locking.withLock(body(Effect.void), "k"))
      yield* settle
      yield* Fiber.interrupt(late)
      assert(Exit.isInterrupted(yield* ended(late)))
      // the caller's fiber is in the very step in which its section asks for its end
      const self: Fiber.RuntimeFiber<never, unknown> = yield* Effect.fork(
        locking.withLock(body(Effect.suspend(() => Fiber.interruptFork(self))), "k")
      )
      assert(Exit.isInterrupted(yield* ended(self)))
      assert.deepStrictEqual(log, ["finalizer", "finalizer"])
      yield* assertIdle(locking)
    }))

  it.scoped("R1.1 an interrupt reaches what may be interrupted in a section that may not", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      let part: Exit.Exit<void> | undefined
      const body = Effect.map(Effect.exit(Effect.interruptible(inside.run)), (exit) => part = exit)
      const fiber = yield* Effect.fork(Effect.uninterruptible(locking.withLock(body, "k")))
      yield* Deferred.await(inside.begun)
      yield* Effect.fork(Fiber.interrupt(fiber))
      yield* ended(fiber)
      assert(part !== undefined && Exit.isInterrupted(part))
      yield* assertIdle(locking)
    }))

  it.scoped("R1.1 it never begins under an interrupt that came before it", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      let begun = false
      const fiber: Fiber.RuntimeFiber<unknown, unknown> = yield* Effect.fork(
        Effect.uninterruptibleMask((restore) =>
          Effect.zipRight(
            Effect.sync(() => fiber.unsafeInterruptAsFork(FiberId.none)),
            locking.withLock(restore(Effect.sync(() => begun = true)), "k")
          )
        )
      )
      assert(Exit.isInterrupted(yield* ended(fiber)))
      assert.isFalse(begun)
      yield* assertIdle(locking)
    }))
})

describe("useLock", () => {
  it.scoped("R1.2 the lease is in hand, with and without options", () =>
    Effect.gen(function*() {
      const locking = yield* alone({ backend: "orders" })
      yield* locking.useLock("k", (lease) =>
        Effect.gen(function*() {
          assert.strictEqual(lease.key, "k")
          assert.strictEqual(lease.mode, "exclusive")
          assert.strictEqual(lease.backend, "orders")
          assert(lease.fence > 0n)
          assert(yield* lease.isValid)
        }))
      const shared = yield* locking.useLock("k", { mode: "shared" }, (lease) => Effect.succeed(lease.mode))
      assert.strictEqual(shared, "shared")
      assert.strictEqual(
        yield* Locking.useLock("k", { ttl: "1 minute" }, (lease) => Effect.succeed(Duration.toMillis(lease.ttl))).pipe(
          Effect.provideService(Locking.Locking, locking)
        ),
        60_000
      )
      yield* assertIdle(locking)
    }))

  it.scoped("R1.2 after an early release the rest runs unguarded", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      const waiter = { entered: false }
      const body = yield* Effect.fork(locking.useLock("k", { ttl: "1 second", maxHold: "3 seconds" }, (lease) =>
        Effect.gen(function*() {
          yield* Effect.yieldNow()
          assert.isTrue(yield* lease.release)
          assert.isFalse(yield* lease.isValid)
          assert(Duration.isZero(yield* lease.remaining))
          assert.isFalse(yield* lease.release)
          yield* inside.run
          return "done"
        })))
      yield* Deferred.await(inside.begun)
      yield* assertFree(locking, "k")
      const next = yield* section
      const other = yield* Effect.fork(
        locking.withLock(
          Effect.zipRight(
            Effect.sync(() =>
              waiter.entered = true
            ),
            next.run
          ),
          "k"
        )
      )
      yield* Deferred.await(next.begun)
      // neither the ttl nor the hold limit of what was given back counts any more
      yield* TestClock.adjust("1 minute")
      yield* isRunning(body)
      yield* Deferred.succeed(inside.end, undefined)
      assert.deepStrictEqual(yield* ended(body), Exit.succeed("done"))
      // the end of the section takes nothing from the one who came after
      assertNone(yield* locking.withLockIfAvailable(Effect.void, "k"))
      yield* Deferred.succeed(next.end, undefined)
      assert(Exit.isSuccess(yield* ended(other)))
      assert.isTrue(waiter.entered)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.2 an early release wakes who waits", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      for (const next of [one, two]) {
        const inside = yield* section
        const go = yield* Deferred.make<void>()
        const holder = yield* Effect.fork(one.useLock("k", (lease) =>
          Deferred.await(go).pipe(Effect.zipRight(lease.release), Effect.zipRight(inside.run))))
        yield* settle
        const waiter = yield* Effect.fork(next.withLock(Effect.succeed("entered"), "k"))
        yield* isRunning(waiter)
        yield* Deferred.succeed(go, undefined)
        assert.deepStrictEqual(yield* ended(waiter), Exit.succeed("entered"))
        yield* Deferred.succeed(inside.end, undefined)
        assert(Exit.isSuccess(yield* ended(holder)))
      }
    }))

  it.scoped("R1.2 the key can be locked again in the same section after an early release", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const fences = yield* locking.useLock(
        "k",
        (lease) =>
          Effect.zipRight(lease.release, locking.useLock("k", (again) => Effect.succeed([lease.fence, again.fence])))
      )
      assert(fences[0]! < fences[1]!)
      yield* assertIdle(locking)
    }))
})

describe("withLockIfAvailable", () => {
  it.scoped("R1.4 a free lock: the value; a held one: none, at once", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      assertSome(yield* one.withLockIfAvailable(Effect.succeed(1), "k"), 1)
      const inside = yield* section
      const holder = yield* Effect.fork(one.withLock(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      let ran = false
      const body = Effect.sync(() => ran = true)
      assertNone(yield* one.withLockIfAvailable(body, "k"))
      assertNone(yield* two.withLockIfAvailable(body, "k"))
      assertNone(yield* Effect.scoped(one.tryAcquire("k")))
      assertNone(yield* Effect.scoped(two.tryAcquire("k")))
      assert.isFalse(ran)
      yield* Deferred.succeed(inside.end, undefined)
      yield* Fiber.join(holder)
      assertSome(yield* two.withLockIfAvailable(Effect.succeed(2), "k"), 2)
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))

  it.effect("R1.4 both forms", () =>
    Effect.gen(function*() {
      assertSome(yield* Locking.withLockIfAvailable(Effect.succeed(1), "k"), 1)
      assertSome(yield* Effect.succeed(1).pipe(Locking.withLockIfAvailable("k", { ttl: "1 minute" })), 1)
      assert(Option.isSome(yield* Effect.scoped(Locking.tryAcquire("k"))))
    }).pipe(Effect.provide(Locking.layerMemory)))

  it.scoped("R1.4 a holder or a queue in this process: the store is not asked", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const { calls, driver } = counting(yield* MemoryStore.driver(store))
      const locking = yield* Locking.make(driver)
      const other = yield* node(store)
      const inside = yield* section
      const holder = yield* Effect.fork(locking.withLock(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      calls.attempt = 0
      assertNone(yield* locking.withLockIfAvailable(Effect.void, "k"))
      assertNone(yield* Effect.scoped(locking.tryAcquire("k")))
      assert.strictEqual(calls.attempt, 0)
      yield* Deferred.succeed(inside.end, undefined)
      yield* Fiber.join(holder)
      // now only a waiter of this process is there, and somebody elsewhere holds it
      const there = yield* section
      yield* Effect.fork(other.withLock(there.run, "k"))
      yield* Deferred.await(there.begun)
      const waiter = yield* Effect.fork(locking.withLock(Effect.void, "k"))
      yield* settle
      calls.attempt = 0
      assertNone(yield* locking.withLockIfAvailable(Effect.void, "k"))
      assert.strictEqual(calls.attempt, 0)
      yield* Deferred.succeed(there.end, undefined)
      assert(Exit.isSuccess(yield* ended(waiter)))
    }))

  it.scoped("R1.4 a holder elsewhere: one attempt, and nothing is registered at the store", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const { calls, driver } = counting(yield* MemoryStore.driver(store))
      const locking = yield* Locking.make(driver)
      yield* Effect.flatMap(node(store), (other) => other.acquire("k"))
      assertNone(yield* locking.withLockIfAvailable(Effect.void, "k"))
      assert.deepStrictEqual(calls, { attempt: 1, arm: 0, withdraw: 0, renew: 0, release: 0 })
      assertNone(yield* Effect.scoped(locking.tryAcquire("k")))
      assert.deepStrictEqual(calls, { attempt: 2, arm: 0, withdraw: 0, renew: 0, release: 0 })
    }))

  it.scoped("R1.4 the section's own error passes, and the lock is free after it", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      assert.strictEqual(yield* Effect.flip(locking.withLockIfAvailable(Effect.fail("own" as const), "k")), "own")
      // an error of the same name that the section fails with is not taken for an answer
      const busy = new LockError.LockBusy({ backend: "other", keyHash: "0", waited: Duration.zero })
      assert.strictEqual(yield* Effect.flip(locking.withLockIfAvailable(Effect.fail(busy), "k")), busy)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.4 a lost lease fails LeaseLost there too", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const inside = yield* section
      const fiber = yield* Effect.fork(one.withLockIfAvailable(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      yield* two.forceRelease("k")
      const error = yield* failureOf(fiber)
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "revoked")
      yield* assertIdle(one)
    }))

  it.effect("R1.4 a store that does not answer is an error, not a none", () =>
    Effect.gen(function*() {
      yield* TestLocking.refuse({ op: "attempt", times: 1 })
      const refused = yield* Effect.flip(Locking.withLockIfAvailable(Effect.void, "k"))
      assert.strictEqual(refused._tag, "ProviderFailed")
      yield* TestLocking.mute("1 hour")
      const fiber = yield* Effect.fork(Locking.withLockIfAvailable(Effect.void, "k"))
      yield* TestClock.adjust("1999 millis")
      yield* isRunning(fiber)
      yield* TestClock.adjust("1 millis")
      assert.strictEqual((yield* failureOf(fiber))._tag, "OutcomeUnknown")
      yield* TestLocking.heal
    }).pipe(Effect.provide(TestLocking.layer)))
})

describe("withLocks", () => {
  it.scoped("R1.5 one lease and fence per key, in the order of the keys' bytes, each key once", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const given = ["é", "b", "a", "b", "\u{1F600}", "\uFFFD", "aa", "Z"]
      const leases = yield* locking.useLocks(given, (leases) =>
        Effect.gen(function*() {
          assert.deepStrictEqual((yield* locking.list()).map(({ key }) => key).sort(), [...new Set(given)].sort())
          return leases.map(({ fence, key }) => ({ fence, key }))
        }))
      assert.deepStrictEqual(
        leases.map(({ key }) => key),
        [...new Set(given)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
      )
      assert.strictEqual(new Set(leases.map(({ fence }) => fence)).size, 7)
      yield* assertIdle(locking)
    }))

  it.effect("R1.5 all forms", () =>
    Effect.gen(function*() {
      const held = Effect.map(Locking.list(), (keys) => keys.length)
      assert.strictEqual(yield* Locking.withLocks(held, ["a", "b"]), 2)
      assert.strictEqual(yield* held.pipe(Locking.withLocks(["a", "b", LockKey.platform("a")])), 3)
      assert.strictEqual(yield* held.pipe(Locking.withLocks(["a"], { ttl: "1 minute" })), 1)
      assert.strictEqual(
        yield* Locking.useLocks(["a", "b"], { mode: "shared" }, (leases) => Effect.succeed(leases.length)),
        2
      )
      assert.strictEqual(yield* held, 0)
    }).pipe(Effect.provide(Locking.layerMemory)))

  it.scoped("R1.5 an empty list runs the effect unguarded", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const { calls, driver } = counting(yield* MemoryStore.driver(store))
      const locking = yield* Locking.make(driver)
      assert.strictEqual(yield* locking.withLocks(Effect.succeed(1), []), 1)
      assert.deepStrictEqual(yield* locking.useLocks([], (leases) => Effect.succeed(leases)), [])
      assert.strictEqual(calls.attempt, 0)
    }))

  it.scoped("R1.5 at most 64 different keys", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const keys = Array.from({ length: 65 }, (_, i) => `key ${i}`)
      assert.strictEqual(yield* locking.useLocks(keys.slice(1), (leases) => Effect.succeed(leases.length)), 64)
      assert.strictEqual(
        yield* locking.useLocks([...keys.slice(1), ...keys.slice(1)], (leases) => Effect.succeed(leases.length)),
        64
      )
      const error = yield* Effect.flip(locking.withLocks(Effect.void, keys))
      assert(error._tag === "InvalidKey")
      assert.deepStrictEqual(error.issues.map(({ path }) => path), ["keys"])
    }))

  it.scoped("R1.5 all or none: while one key is held elsewhere, the others stay free for other processes", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const [one, two, three] = [yield* node(store), yield* node(store), yield* node(store)]
      const inside = yield* section
      yield* Effect.fork(two.withLock(inside.run, "b"))
      yield* Deferred.await(inside.begun)
      const waiter = yield* Effect.fork(one.withLocks(Effect.succeed("entered"), ["a", "b", "c"]))
      yield* isRunning(waiter)
      yield* assertFree(three, "a")
      yield* assertFree(three, "c")
      yield* Deferred.succeed(inside.end, undefined)
      assert.deepStrictEqual(yield* ended(waiter), Exit.succeed("entered"))
      yield* assertIdle(one)
    }))

  it.scoped("R1.5 one limit for the whole wait", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      // each key alone would be free in time
      yield* Effect.fork(one.withLock(Effect.sleep("600 millis"), "a"))
      yield* Effect.fork(two.withLock(Effect.sleep("1200 millis"), "b"))
      yield* settle
      for (const mode of ["exclusive", "shared"] as const) {
        const waiter = yield* Effect.fork(one.withLocks(Effect.void, ["a", "b"], { mode, waitTimeout: "500 millis" }))
        yield* TestClock.adjust("499 millis")
        yield* isRunning(waiter)
        yield* TestClock.adjust("1 millis")
        const error = yield* failureOf(waiter)
        assert(error._tag === "WaitTimeout")
        assert.strictEqual(Duration.toMillis(error.waited), 500)
      }
      yield* TestClock.adjust("1 minute")
      yield* assertIdle(one)
    }))

  it.scoped("R1.5 a single attempt that finds one key held takes none", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      yield* two.acquire("b")
      for (const mode of ["exclusive", "shared"] as const) {
        const error = yield* Effect.flip(one.withLocks(Effect.void, ["a", "b", "c"], { mode, waitTimeout: 0 }))
        assert.strictEqual(error._tag, "LockBusy")
        yield* assertFree(two, "a")
        yield* assertFree(two, "c")
      }
    }))

  it.scoped("R1.5 the loss of one is the loss of all", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      for (const mode of ["exclusive", "shared"] as const) {
        const inside = yield* section
        const valid: Array<boolean> = []
        const holder = yield* Effect.fork(one.useLocks(["a", "b", "c"], { mode }, (leases) =>
          Effect.onInterrupt(inside.run, () =>
            Effect.forEach(leases, (lease) =>
              Effect.map(lease.isValid, (is) =>
                valid.push(is))))))
        yield* Deferred.await(inside.begun)
        yield* two.forceRelease("b")
        const error = yield* failureOf(holder)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "revoked")
        assert.deepStrictEqual(valid, [false, false, false])
        for (const key of ["a", "b", "c"]) {
          yield* assertFree(two, key)
        }
        yield* assertIdle(one)
      }
    }))

  it.scoped("R1.5 an early release gives all back", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      for (const mode of ["exclusive", "shared"] as const) {
        yield* one.useLocks(["a", "b"], { mode }, ([a, b]) =>
          Effect.gen(function*() {
            assert.isTrue(yield* b!.release)
            assert.isFalse(yield* a!.isValid)
            assert.isFalse(yield* a!.release)
            for (const key of ["a", "b"]) yield* assertFree(two, key)
          }))
      }
      yield* assertIdle(one)
    }))

  it.effect("R1.5 readers and writers take several keys in one order, whatever the letters", () =>
    Effect.gen(function*() {
      // by bytes the first comes first, by UTF-16 units the second
      const keys = ["\uFFFD", "\u{1F600}"]
      yield* TestLocking.answerLate("100 millis", { op: "attempt", times: 1 })
      const readers = yield* Effect.fork(Locking.withLocks(Effect.succeed("readers"), keys, { mode: "shared" }))
      yield* TestClock.adjust(10)
      const writer = yield* Effect.fork(Locking.withLocks(Effect.succeed("writer"), keys))
      yield* TestClock.adjust("3 seconds")
      assert.deepStrictEqual(yield* ended(readers), Exit.succeed("readers"))
      assert.deepStrictEqual(yield* ended(writer), Exit.succeed("writer"))
    }).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R1.5 opposite orders never deadlock, in one process or in two", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const inside = new Set<string>()
      const enter = (keys: ReadonlyArray<string>) =>
        Effect.acquireUseRelease(
          Effect.sync(() =>
            keys.forEach((key) => {
              assert(!inside.has(key), `two sections of ${key}`)
              inside.add(key)
            })
          ),
          () => Effect.yieldNow(),
          () => Effect.sync(() => keys.forEach((key) => inside.delete(key)))
        )
      const orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "a"], ["c", "a"], ["b"], ["a", "c"]]
      const fibers: Array<Fiber.RuntimeFiber<void, unknown>> = []
      for (let i = 0; i < 120; i++) {
        const keys = orders[i % orders.length]!
        const locking = i % 2 === 0 ? one : two
        fibers.push(yield* Effect.fork(locking.withLocks(enter(keys), keys)))
        if (i % 5 === 0) yield* Effect.yieldNow()
      }
      for (const fiber of fibers) yield* Fiber.join(fiber)
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))
})

describe("the end of a section", () => {
  const stubborn = (duration: Duration.DurationInput) => Effect.uninterruptible(Effect.sleep(duration))

  it.scoped("R1.11 a section that outlives its lease: its value is refused, its overrun is reported", () =>
    capturingLogs((logs) =>
      Effect.gen(function*() {
        const backend = "R1.11 overrun"
        const locking = yield* alone({ backend })
        const run = locking.withLock(Effect.as(stubborn("10 seconds"), "value"), "k", {
          ttl: "1 second",
          autoRenew: false
        })
        const fiber = yield* Effect.fork(run)
        yield* TestClock.adjust("9 seconds")
        yield* isRunning(fiber)
        yield* TestClock.adjust("1 second")
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "expired")
        // the lease was believed for a second without the margin of 1 % and 5 ms
        assert.strictEqual(Duration.toMillis(error.overrun), 10_000 - (1000 - 15))
        assert.strictEqual(yield* metric(backend, "overruns_total"), 1)
        const reports = withCode(logs, "LEASE_OVERRUN")
        assert(reports.length > 0)
        for (const { annotations, level } of reports) {
          assert.strictEqual(level, "WARN")
          assert.strictEqual(annotations["lock"], error.keyHash)
        }
        yield* assertIdle(locking)
      })
    ))

  it.scoped("R1.11 the value of one that could not be interrupted at all is refused too", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const ways: ReadonlyArray<(body: Effect.Effect<string>) => Effect.Effect<unknown, LockError.WithLockError>> = [
        (body) => one.withLock(body, "k"),
        (body) => one.withLockIfAvailable(body, "k"),
        (body) => one.withLocks(body, ["k", "l"]),
        (body) => Effect.scoped(Effect.flatMap(one.acquire("k"), (lease) => lease.guard(body)))
      ]
      for (const way of ways) {
        const inside = yield* section
        const fiber = yield* Effect.fork(Effect.uninterruptible(way(Effect.as(inside.run, "value"))))
        yield* Deferred.await(inside.begun)
        yield* two.forceRelease("k")
        yield* settle
        yield* Deferred.succeed(inside.end, undefined)
        assert.strictEqual((yield* failureOf(fiber))._tag, "LeaseLost")
      }
      yield* assertIdle(one)
    }))

  it.scoped("R1.11 a section that fails by itself after the loss: its failure first, LeaseLost behind it", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const fails: Record<string, Effect.Effect<never, string>> = {
        failure: Effect.fail("own"),
        defect: Effect.die("own")
      }
      for (const effect of Object.values(fails)) {
        const late = Effect.zipRight(stubborn("2 seconds"), effect)
        const fiber = yield* Effect.fork(
          locking.withLock(Effect.uninterruptible(late), "k", { ttl: "1 second", autoRenew: false })
        )
        yield* TestClock.adjust("2 seconds")
        const exit = yield* ended(fiber)
        assert(Exit.isFailure(exit))
        assert(Cause.isSequentialType(exit.cause))
        assert.deepStrictEqual(
          [...Cause.defects(exit.cause.left), ...Cause.failures(exit.cause.left)],
          ["own"]
        )
        const behind = Option.getOrThrow(Cause.failureOption(exit.cause.right))
        assert(LockError.isLockError(behind) && behind._tag === "LeaseLost")
        assert.isFalse(Cause.isInterrupted(exit.cause))
      }
      yield* assertIdle(locking)
    }))

  it.scoped("R1.11 a finalizer that fails while the loss interrupts the section is not hidden", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const inside = yield* section
      const fiber = yield* Effect.fork(one.withLock(Effect.ensuring(inside.run, Effect.die("finalizer")), "k"))
      yield* Deferred.await(inside.begun)
      yield* two.forceRelease("k")
      const exit = yield* ended(fiber)
      assert(Exit.isFailure(exit))
      assert.deepStrictEqual([...Cause.defects(exit.cause)], ["finalizer"])
      assert.deepStrictEqual([...Cause.failures(exit.cause)].map((error) => error._tag), ["LeaseLost"])
    }))

  it.scoped("R1.11 the caller's own interruption wins over all", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const inside = yield* section
      // the loss first, and while the section winds up its caller is interrupted
      const fiber = yield* Effect.fork(
        one.withLock(Effect.onInterrupt(inside.run, () => Effect.sleep("1 second")), "k")
      )
      yield* Deferred.await(inside.begun)
      yield* two.forceRelease("k")
      yield* isRunning(fiber)
      const interrupting = yield* Effect.fork(Fiber.interrupt(fiber))
      yield* settle
      yield* TestClock.adjust("1 second")
      const exit = yield* Fiber.join(interrupting)
      assert(Exit.isFailure(exit))
      assert(Cause.isInterruptedOnly(exit.cause), Cause.pretty(exit.cause))
      yield* assertIdle(one)
    }))

  describe("B65 R1.11 the release cannot be done", () => {
    const failing: Record<string, (driver: LockDriver) => LockDriver> = {
      refused: (driver) => ({
        ...driver,
        release: () => Effect.fail(new DriverError({ executed: "no", message: "down" }))
      }),
      "without an answer": (driver) => ({
        ...driver,
        release: () => Effect.fail(new DriverError({ executed: "unknown", message: "reset" }))
      }),
      "a driver that dies": (driver) => ({ ...driver, release: () => Effect.die("driver") }),
      "a driver that throws": (driver) => ({
        ...driver,
        release: () => {
          throw new Error("driver")
        }
      })
    }
    for (const [name, change] of Object.entries(failing)) {
      it.scoped(`B65 R1.11 ${name}: the section's own end stands, and the trouble is reported`, () =>
        capturingLogs((logs) =>
          Effect.gen(function*() {
            const backend = `B65 ${name}`
            const scope = yield* Scope.make()
            const locking = yield* Effect.provideService(over(change, { backend }), Scope.Scope, scope)
            const options = { ttl: "1 second" } as const
            assert.strictEqual(yield* locking.withLock(Effect.succeed("value"), "success", options), "value")
            assert.deepStrictEqual(
              yield* Effect.exit(locking.withLock(Effect.fail("own"), "failure", options)),
              Exit.fail("own")
            )
            assert.deepStrictEqual(
              yield* Effect.exit(locking.withLock(Effect.die("own"), "defect", options)),
              Exit.die("own")
            )
            const inside = yield* section
            const fiber = yield* Effect.fork(locking.withLock(inside.run, "interrupted", options))
            yield* Deferred.await(inside.begun)
            const exit = yield* Fiber.interrupt(fiber)
            assert(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause))
            yield* settle
            assert.strictEqual(yield* metric(backend, "release_failures_total"), 4)
            assert.lengthOf(withCode(logs, "RELEASE_UNANSWERED"), 4)
            // nobody repeats it for longer than the lease could last
            yield* TestClock.adjust("5 seconds")
            yield* assertIdle(locking)
            yield* Scope.close(scope, Exit.void)
          })
        ))
    }

    it.scoped("B65 R1.11 after a loss nobody spends time on a release", () =>
      Effect.gen(function*() {
        const { calls, driver } = counting(yield* MemoryStore.driver(yield* MemoryStore.make))
        const locking = yield* Locking.make(driver)
        const inside = yield* section
        const fiber = yield* Effect.fork(locking.withLock(inside.run, "k", { ttl: "1 second" }))
        yield* Deferred.await(inside.begun)
        yield* locking.forceRelease("k")
        // no time passes
        assert.strictEqual((yield* failureOf(fiber))._tag, "LeaseLost")
        assert.strictEqual(calls.release, 0)
        yield* assertIdle(locking)
      }))

    it.effect("B65 R1.11 a mute store at release time: the call ends after one attempt's time, with its value", () =>
      Effect.gen(function*() {
        const inside = yield* section
        const fiber = yield* Effect.fork(Locking.withLock(Effect.as(inside.run, "value"), "k"))
        yield* TestClock.adjust(1)
        yield* TestLocking.mute("3 seconds")
        yield* Deferred.succeed(inside.end, undefined)
        yield* TestClock.adjust("1999 millis")
        yield* isRunning(fiber)
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("value"))
        // and in the background it is given back long before its ttl
        yield* TestClock.adjust("2 seconds")
        assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
      }).pipe(Effect.provide(TestLocking.layer)))
  })
})

describe("waiting", () => {
  /** A caller, once it stands in the queue. It remembers when it enters. */
  const callOf = (locking: Locking.Locking, name: string, log: Array<string>, options = {}) =>
    Effect.tap(
      Effect.fork(locking.withLock(
        Effect.zipRight(Effect.sync(() => log.push(name)), Effect.yieldNow()),
        "k",
        { waitTimeout: "1 minute", ...options }
      )),
      settle
    )

  /** Callers that come one after the other. */
  const queueOf = (locking: Locking.Locking, names: ReadonlyArray<string>, log: Array<string>) =>
    Effect.forEach(names, (name) => callOf(locking, name, log))

  const letters = "abcdefghijklmnopqrst".split("")

  it.scoped("R1.13 first in, first out", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const inside = yield* section
      yield* Effect.fork(locking.withLock(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      const fibers = yield* queueOf(locking, letters, log)
      assert.deepStrictEqual(log, [])
      yield* Deferred.succeed(inside.end, undefined)
      for (const fiber of fibers) yield* Fiber.join(fiber)
      assert.deepStrictEqual(log, letters)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.13 also where callers differ in what they ask for", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const inside = yield* section
      yield* Effect.fork(locking.withLock(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
      const kinds = [{}, { ttl: "1 minute" }, { metadata: { a: "1" } }, { autoRenew: false, ttl: "30 seconds" }]
      for (const [i, name] of letters.entries()) {
        fibers.push(yield* callOf(locking, name, log, kinds[i % kinds.length]))
      }
      yield* Deferred.succeed(inside.end, undefined)
      for (const fiber of fibers) yield* Fiber.join(fiber)
      assert.deepStrictEqual(log, letters)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.13 callers for several keys keep their place", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const inside = yield* section
      yield* Effect.fork(locking.withLock(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      const enter = (name: string) => Effect.zipRight(Effect.sync(() => log.push(name)), Effect.yieldNow())
      const fibers = [
        yield* Effect.tap(Effect.fork(locking.withLock(enter("a"), "k")), settle),
        yield* Effect.tap(Effect.fork(locking.withLocks(enter("b"), ["k", "l"])), settle),
        yield* Effect.tap(Effect.fork(locking.withLock(enter("c"), "k")), settle),
        yield* Effect.tap(Effect.fork(locking.withLocks(enter("d"), ["l", "k"])), settle),
        yield* Effect.tap(Effect.fork(locking.withLock(enter("e"), "l")), settle)
      ]
      yield* Deferred.succeed(inside.end, undefined)
      for (const fiber of fibers) yield* Fiber.join(fiber)
      assert.deepStrictEqual(log.filter((name) => name !== "e"), ["a", "b", "c", "d"])
      yield* assertIdle(locking)
    }))

  it.scoped("R1.13 interrupted and timed-out waiters lose nobody's place", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const inside = yield* section
      yield* Effect.fork(locking.withLock(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      const leaving = (i: number) => i % 3 !== 2
      const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
      for (const [i, name] of letters.entries()) {
        fibers.push(yield* callOf(locking, name, log, i % 3 === 0 ? { waitTimeout: "1 second" } : {}))
      }
      yield* TestClock.adjust("1 second")
      for (const [i, fiber] of fibers.entries()) {
        if (i % 3 === 0) {
          assert(Exit.isFailure(yield* ended(fiber)))
        } else if (i % 3 === 1) {
          yield* Fiber.interrupt(fiber)
        }
      }
      yield* Deferred.succeed(inside.end, undefined)
      for (const [i, fiber] of fibers.entries()) if (!leaving(i)) yield* Fiber.join(fiber)
      assert.deepStrictEqual(log, letters.filter((_, i) => !leaving(i)))
      yield* assertIdle(locking)
    }))

  it.scoped("R1.13 nobody overtakes at the moment of a release", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const enter = (name: string) => Effect.zipRight(Effect.sync(() => log.push(name)), Effect.yieldNow())
      const waiting = yield* Deferred.make<Fiber.RuntimeFiber<unknown, unknown>>()
      yield* locking.withLock(
        Effect.gen(function*() {
          const waiter = Locking.withLock(enter("waiter"), "k", { reentrant: "wait" })
          yield* Deferred.succeed(
            waiting,
            yield* Effect.forkDaemon(Effect.provideService(waiter, Locking.Locking, locking))
          )
          yield* settle
        }),
        "k"
      )
      // not one step later than the release
      yield* locking.withLock(enter("late"), "k")
      yield* Fiber.join(yield* Deferred.await(waiting))
      assert.deepStrictEqual(log, ["waiter", "late"])
      yield* assertIdle(locking)
    }))

  it.scoped("R1.13 the first of a process that waits for another process is served first", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const log: Array<string> = []
      const inside = yield* section
      yield* Effect.fork(two.withLock(inside.run, "k"))
      yield* Deferred.await(inside.begun)
      const fibers = yield* queueOf(one, letters, log)
      yield* Fiber.interrupt(fibers[0]!)
      yield* Fiber.interrupt(fibers[2]!)
      yield* Deferred.succeed(inside.end, undefined)
      for (const [i, fiber] of fibers.entries()) if (i !== 0 && i !== 2) yield* Fiber.join(fiber)
      assert.deepStrictEqual(log, letters.filter((name) => name !== "a" && name !== "c"))
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))
})

const summary = (cause: Cause.Cause<unknown>) => ({
  failures: [...Cause.failures(cause)],
  defects: [...Cause.defects(cause)],
  interrupted: Cause.isInterrupted(cause)
})

const summaryOf = (exit: Exit.Exit<unknown, unknown>) => Exit.isFailure(exit) ? summary(exit.cause) : exit.value
