import { assert, describe, it } from "@effect/vitest"
import { assertNone } from "@effect/vitest/utils"
import { Cause, Deferred, Duration, Effect, Exit, Fiber, Option, Queue, TestClock } from "effect"
import * as FencedRegister from "effect-locking/FencedRegister"
import * as Lease from "effect-locking/Lease"
import { DriverError } from "effect-locking/LockDriver"
import type { LeaseLostReason } from "effect-locking/LockError"
import * as Locking from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as TestLocking from "effect-locking/TestLocking"
import {
  alone,
  assertFree,
  assertIdle,
  counting,
  ended,
  eventsOf,
  failureOf,
  inScope,
  isRunning,
  node,
  section,
  settableClock,
  settle
} from "./kit.js"

const twoNodes = Effect.gen(function*() {
  const store = yield* MemoryStore.make
  return { one: yield* node(store), two: yield* node(store) }
})

/** What a lease of this length is believed for: one percent and five milliseconds are kept back. */
const trusted = (ttl: number) => ttl - ttl / 100 - 5

const remainingMillis = (lease: Lease.Lease) => Effect.map(lease.remaining, Duration.toMillis)

describe("the lease", () => {
  it.scoped("R2.1 tells what it is", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(1_000_000)
      const locking = yield* alone({ backend: "orders" })
      const { close } = yield* inScope(locking.acquire("key of mine"))
      const waiting = yield* inScope(Effect.fork(locking.acquire("key of mine", { ttl: "10 seconds" })))
      yield* TestClock.adjust("3 seconds")
      yield* close(Exit.void)
      const lease = yield* Fiber.join(waiting.value)
      assert.strictEqual(lease.key, "key of mine")
      assert.strictEqual(lease.mode, "exclusive")
      assert.strictEqual(lease.backend, "orders")
      assert.isTrue(lease.fence > 0n)
      assert.strictEqual(Duration.toMillis(lease.ttl), 10_000)
      assert.strictEqual(lease.acquiredAt, 1_003_000)
      assert.strictEqual(Duration.toMillis(lease.waited), 3000)
      yield* waiting.close(Exit.void)
    }))

  it.scoped("R2.1 the key is as the caller wrote it, whatever tenant or scope it belongs to", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const keyOf = (key: LockKey.Input) => locking.useLock(key, (lease) => Effect.succeed(lease.key))
      assert.strictEqual(yield* keyOf(LockKey.platform("k")), "k")
      assert.strictEqual(yield* keyOf(LockKey.make("k")), "k")
      assert.strictEqual(yield* LockKey.withTenant(keyOf("k"), "acme"), "k")
    }))

  it.scoped("R2.1 the wait of one that did not wait is zero", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      assert(Duration.isZero((yield* locking.acquire("k")).waited))
    }))

  it.scoped("R2.2 a lease without end is valid until it is released", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k")
      yield* TestClock.adjust("300 days")
      assert.isTrue(yield* lease.isValid)
      assert.isFalse(Duration.isFinite(yield* lease.remaining))
      yield* lease.release
      assert.isFalse(yield* lease.isValid)
      assert(Duration.isZero(yield* lease.remaining))
    }))

  it.scoped("R2.2 R2.5 one with an end is believed for a little less than the store keeps it", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k", { ttl: "10 seconds", autoRenew: false })
      assert.strictEqual(yield* remainingMillis(lease), trusted(10_000))
      yield* TestClock.adjust(trusted(10_000) - 1)
      assert.isTrue(yield* lease.isValid)
      assert.strictEqual(yield* remainingMillis(lease), 1)
      yield* TestClock.adjust(1)
      assert.isFalse(yield* lease.isValid)
      assert.strictEqual(yield* remainingMillis(lease), 0)
      // the store still has it: what is believed ends first
      assert.lengthOf(yield* locking.inspect("k"), 1)
    }))

  it.scoped("R2.2 never valid after a loss", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      for (const options of [{}, { ttl: "1 minute" }] as const) {
        const lease = yield* one.acquire("k", options)
        yield* two.forceRelease("k")
        yield* settle
        assert.isFalse(yield* lease.isValid)
        assert(Duration.isZero(yield* lease.remaining))
      }
    }))

  it.effect("R2.2 R2.5 renewals without an answer extend nothing", () =>
    Effect.gen(function*() {
      const lease = yield* Locking.acquire("k")
      yield* TestLocking.dropNextReply({ op: "renew", times: Infinity })
      yield* TestClock.adjust(trusted(15_000) - 1)
      assert.isAtLeast((yield* TestLocking.calls()).renew, 3)
      assert.isTrue(yield* lease.isValid)
      assert.strictEqual(yield* remainingMillis(lease), 1)
      yield* TestClock.adjust(1)
      assert.isFalse(yield* lease.isValid)
      assert.strictEqual((yield* Effect.flip(lease.lost)).reason, "unconfirmed")
    }).pipe(Effect.scoped, Effect.provide(TestLocking.layer)))
})

describe("lease.renew", () => {
  it.scoped("R2.3 extends by the ttl from now", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k", { ttl: "10 seconds", autoRenew: false })
      for (let i = 0; i < 5; i++) {
        yield* TestClock.adjust("9 seconds")
        yield* lease.renew
        assert.strictEqual(yield* remainingMillis(lease), trusted(10_000))
      }
      yield* TestClock.adjust("10 seconds")
      assert.isFalse(yield* lease.isValid)
      assert.strictEqual((yield* Effect.flip(lease.renew)).reason, "expired")
    }))

  it.scoped("R2.3 a section that is not renewed in the background runs on when it is renewed by hand", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const fiber = yield* Effect.fork(
        locking.useLock("k", { ttl: "10 seconds", autoRenew: false }, (lease) =>
          Effect.gen(function*() {
            for (let i = 0; i < 5; i++) yield* Effect.zipRight(Effect.sleep("9 seconds"), lease.renew)
            return "done"
          }))
      )
      yield* TestClock.adjust("45 seconds")
      assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("done"))
    }))

  it.scoped("R2.3 keeps the fence", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k", { ttl: "10 seconds" })
      const { fence } = lease
      yield* lease.renew
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(lease.fence, fence)
      assert.strictEqual((yield* locking.inspect("k"))[0]!.fence, fence)
    }))

  it.scoped("R2.3 never takes a lost lock back: free again, or somebody else's", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const lease = yield* one.acquire("k", { ttl: "10 seconds", autoRenew: false })
      yield* two.forceRelease("k")
      assert.strictEqual((yield* Effect.flip(lease.renew))._tag, "LeaseLost")
      assert.deepStrictEqual(yield* one.inspect("k"), [])
      const next = yield* two.acquire("k")
      assert.strictEqual((yield* Effect.flip(lease.renew))._tag, "LeaseLost")
      assert.strictEqual((yield* one.inspect("k"))[0]!.fence, next.fence)
      assert.isTrue(yield* next.isValid)
    }))

  it.effect("R2.3 R2.4 the store forgot it: fails, and the key stays free", () =>
    Effect.gen(function*() {
      const lease = yield* Locking.acquire("k")
      yield* TestLocking.loseLease("k", { reason: "expired" })
      const renewing = yield* Effect.fork(lease.renew)
      yield* TestClock.adjust(0)
      assert.strictEqual((yield* failureOf(renewing)).reason, "expired")
      assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
    }).pipe(Effect.scoped, Effect.provide(TestLocking.layer)))

  it.scoped("R2.3 of a released lease fails", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k", { ttl: "10 seconds" })
      yield* lease.release
      assert.strictEqual((yield* Effect.flip(lease.renew))._tag, "LeaseLost")
      yield* assertFree(locking, "k")
    }))

  it.effect("R2.3 asks until there is an answer or no trust left", () =>
    Effect.gen(function*() {
      const lease = yield* Locking.acquire("k", { autoRenew: false })
      yield* TestLocking.dropNextReply({ op: "renew", times: 2 })
      const renewing = yield* Effect.fork(lease.renew)
      yield* TestClock.adjust("10 seconds")
      assert(Exit.isSuccess(yield* ended(renewing)))
      yield* TestLocking.mute("1 hour")
      const hopeless = yield* Effect.fork(lease.renew)
      yield* TestClock.adjust("15 seconds")
      assert.strictEqual((yield* failureOf(hopeless))._tag, "LeaseLost")
      assert.isFalse(yield* lease.isValid)
    }).pipe(Effect.scoped, Effect.provide(TestLocking.layer)))

  it.scoped("R2.3 with a key of several, renews all", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      yield* Effect.fork(locking.useLocks(["a", "b"], { ttl: "10 seconds", autoRenew: false }, ([a, b]) =>
        Effect.gen(function*() {
          yield* Effect.sleep("5 seconds")
          yield* b!.renew
          assert.strictEqual(yield* remainingMillis(a!), trusted(10_000))
          assert.strictEqual(yield* remainingMillis(b!), trusted(10_000))
        }))).pipe(
          Effect.tap(() =>
            TestClock.adjust("5 seconds")
          ),
          Effect.flatMap(Fiber.join)
        )
    }))
})

describe("lease.lost", () => {
  it.scoped("R2.4 is interrupted by a normal release, early or late, so nobody hangs", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const early = yield* locking.acquire("k")
      const waiting = yield* Effect.fork(early.lost)
      yield* isRunning(waiting)
      yield* early.release
      const exit = yield* ended(waiting)
      assert(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause))
      const after = yield* Effect.exit(early.lost)
      assert(Exit.isFailure(after) && Cause.isInterruptedOnly(after.cause))

      const { close, value: late } = yield* inScope(locking.acquire("k"))
      const again = yield* Effect.fork(late.lost)
      yield* settle
      yield* close(Exit.void)
      const end = yield* ended(again)
      assert(Exit.isFailure(end) && Cause.isInterruptedOnly(end.cause))
    }))

  it.scoped("R2.4 tells everybody who waits", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const lease = yield* one.acquire("k")
      const all = yield* Effect.forEach([1, 2, 3], () => Effect.fork(lease.lost))
      yield* settle
      yield* Fiber.interrupt(all[1]!)
      yield* two.forceRelease("k")
      for (const i of [0, 2]) assert.strictEqual((yield* failureOf(all[i]!)).reason, "revoked")
    }))

  describe("R2.4 the reason", () => {
    const reasons: Record<
      Exclude<LeaseLostReason, "closed" | "session-ended">,
      Effect.Effect<unknown, unknown, Locking.Locking | TestLocking.TestLocking>
    > = {
      expired: Effect.zipRight(
        TestLocking.loseLease("k", { reason: "expired" }),
        TestClock.adjust("6 seconds")
      ),
      unconfirmed: Effect.zipRight(TestLocking.mute("1 hour"), TestClock.adjust("15 seconds")),
      taken: Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        yield* TestLocking.jumpClock("1 hour")
        const taker = yield* Effect.fork(other.withLock(Effect.sleep("1 hour"), "k"))
        yield* TestClock.adjust("6 seconds")
        yield* Fiber.interrupt(taker)
      }).pipe(Effect.scoped),
      revoked: Effect.zipRight(TestLocking.loseLease("k"), TestClock.adjust(0)),
      "max-hold": TestClock.adjust("10 minutes")
    }
    for (const [reason, happen] of Object.entries(reasons)) {
      it.effect(`R2.4 ${reason}`, () =>
        Effect.gen(function*() {
          const inside = yield* section
          const fiber = yield* Effect.fork(
            Locking.withLock(inside.run, "k", reason === "max-hold" ? { maxHold: "10 minutes" } : {})
          )
          yield* TestClock.adjust(0)
          yield* isRunning(fiber)
          yield* happen
          const error = yield* failureOf(fiber)
          assert(error._tag === "LeaseLost")
          assert.strictEqual(error.reason, reason)
          yield* TestLocking.heal
        }).pipe(Effect.provide(TestLocking.layer)))
    }

    it.effect("R2.4 expired: not renewed", () =>
      Effect.gen(function*() {
        const fiber = yield* Effect.fork(Locking.withLock(Effect.sleep("1 hour"), "k", { autoRenew: false }))
        yield* TestClock.adjust("15 seconds")
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "expired")
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R2.4 session-ended, by the driver's word", () =>
      Effect.gen(function*() {
        const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
        const losses = yield* Queue.unbounded<{ readonly token: string; readonly reason: "session-ended" }>()
        const tokens: Array<string> = []
        const locking = yield* Locking.make({
          ...driver,
          losses,
          contend: (request) => {
            const contention = driver.contend(request)
            return {
              attempt: (attempt) => Effect.suspend(() => (tokens.push(attempt.token), contention.attempt(attempt))),
              arm: (wake) => contention.arm(wake),
              withdraw: Effect.suspend(() => contention.withdraw)
            }
          }
        })
        const fiber = yield* Effect.fork(locking.withLock(Effect.never, "k"))
        const other = yield* Effect.fork(locking.withLock(Effect.never, "l"))
        yield* settle
        yield* Queue.offer(losses, { token: "somebody else's", reason: "session-ended" })
        yield* isRunning(fiber)
        yield* Queue.offer(losses, { token: tokens[0]!, reason: "session-ended" })
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "session-ended")
        yield* isRunning(other)
      }))

    it.scoped("R2.4 closed: the layer goes", () =>
      Effect.gen(function*() {
        const { close, value: locking } = yield* inScope(alone())
        const fiber = yield* Effect.fork(locking.withLock(Effect.never, "k"))
        const lease = yield* locking.acquire("l")
        const lost = yield* Effect.fork(lease.lost)
        yield* settle
        yield* close(Exit.void)
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "closed")
        assert.strictEqual((yield* failureOf(lost)).reason, "closed")
        assert.isFalse(yield* lease.isValid)
      }))
  })
})

describe("trust", () => {
  it.effect("R2.5 when it runs out the section is interrupted without asking the store", () =>
    Effect.gen(function*() {
      const inside = yield* section
      const fiber = yield* Effect.fork(Locking.withLock(inside.run, "k"))
      yield* TestClock.adjust("1 second")
      yield* TestLocking.mute("1 hour")
      // renewed at 5 s for the last time: not answered
      yield* TestClock.adjust(trusted(15_000) - 1001)
      yield* isRunning(fiber)
      yield* TestClock.adjust(1)
      const error = yield* failureOf(fiber)
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "unconfirmed")
      assert.strictEqual(Duration.toMillis(error.overrun), 0)
      yield* TestLocking.heal
    }).pipe(Effect.provide(TestLocking.layer)))

  it.effect("R2.5 counts from the start of the last confirmed renewal, not from its answer", () =>
    Effect.gen(function*() {
      const lease = yield* Locking.acquire("k")
      yield* TestLocking.answerLate("1500 millis", { op: "renew", times: 1 })
      yield* TestClock.adjust("5 seconds")
      yield* TestLocking.mute("1 hour")
      yield* TestClock.adjust("1500 millis")
      assert.strictEqual((yield* TestLocking.calls()).renew >= 1, true)
      assert.strictEqual(yield* remainingMillis(lease), trusted(15_000) - 1500)
      yield* TestLocking.heal
    }).pipe(Effect.scoped, Effect.provide(TestLocking.layer)))

  it.effect("R2.5 one failed renewal ends nothing", () =>
    Effect.gen(function*() {
      const inside = yield* section
      const fiber = yield* Effect.fork(Locking.withLock(inside.run, "k"))
      for (let i = 0; i < 10; i++) {
        yield* TestLocking.refuse({ op: "renew", times: 1 })
        yield* TestLocking.dropNextReply({ op: "renew" })
        yield* TestClock.adjust("10 seconds")
      }
      yield* isRunning(fiber)
      yield* Deferred.succeed(inside.end, undefined)
      yield* TestClock.adjust(0)
      assert(Exit.isSuccess(yield* ended(fiber)))
    }).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R2.5 a wall clock that jumps ends nothing: an event and a renewal within a second", () =>
    Effect.gen(function*() {
      const { clock, jump } = yield* settableClock
      const { calls, driver } = counting(yield* MemoryStore.driver(yield* MemoryStore.make))
      for (const by of [3_600_000, -3_600_000]) {
        const locking = yield* Effect.withClock(Locking.make(driver, { ttl: "1 minute" }), clock)
        const jumps = yield* eventsOf(locking, "ClockJumped")
        const inside = yield* section
        const fiber = yield* Effect.fork(locking.withLock(inside.run, `${by}`))
        yield* TestClock.adjust("1500 millis")
        calls.renew = 0
        jump(by)
        yield* TestClock.adjust("1 second")
        assert.strictEqual(calls.renew, 1, "renewed long before it is due")
        assert.deepStrictEqual(jumps.map((event) => Duration.toMillis(event.by)), [3_600_000])
        yield* TestClock.adjust("1 minute")
        assert.lengthOf(jumps, 1, "told once")
        yield* isRunning(fiber)
        yield* Deferred.succeed(inside.end, undefined)
        assert(Exit.isSuccess(yield* ended(fiber)))
        yield* assertIdle(locking)
      }
    }))

  it.scoped("R2.5 a wall clock that jumps while a lease without end is held: an event within a second", () =>
    Effect.gen(function*() {
      const { clock, jump } = yield* settableClock
      const locking = yield* Effect.withClock(alone(), clock)
      const jumps = yield* eventsOf(locking, "ClockJumped")
      const inside = yield* section
      const fiber = yield* Effect.fork(locking.withLock(inside.run, "k"))
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(jumps, [])
      jump(-5000)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(jumps.map((event) => Duration.toMillis(event.by)), [5000])
      yield* Deferred.succeed(inside.end, undefined)
      assert(Exit.isSuccess(yield* ended(fiber)))
    }))

  it.scoped("B42 R2.5 the lease's clock starts with the attempt that wins, however long the wait was", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      for (const behind of [one, two]) {
        const { close } = yield* inScope(one.acquire("k"))
        const waiting = yield* inScope(
          Effect.fork(behind.acquire("k", { ttl: "2 seconds", waitTimeout: "10 seconds" }))
        )
        yield* TestClock.adjust("5 seconds")
        yield* close(Exit.void)
        const lease = yield* Fiber.join(waiting.value)
        assert.strictEqual(yield* remainingMillis(lease), trusted(2000))
        const [holder] = yield* one.inspect("k")
        // never later than the store's own end
        assert.isAtLeast(holder!.until!, 5000 + trusted(2000))
        yield* waiting.close(Exit.void)
      }
    }))

  it.effect("B42 R2.5 a slow answer is taken off the lease", () =>
    Effect.gen(function*() {
      yield* TestLocking.answerLate("700 millis", { op: "attempt" })
      const options = { ttl: "2 seconds", attemptTimeout: "1 second", autoRenew: false } as const
      const acquiring = yield* Effect.fork(Locking.acquire("k", options))
      yield* TestClock.adjust("700 millis")
      const lease = yield* Effect.flatten(ended(acquiring))
      assert.strictEqual(yield* remainingMillis(lease), trusted(2000) - 700)
      const [holder] = yield* TestLocking.holders("k")
      assert.isAtMost(700 + (yield* remainingMillis(lease)), holder!.until!)
      yield* TestLocking.heal
    }).pipe(Effect.scoped, Effect.provide(TestLocking.layer)))

  it.effect("B42 R2.5 a grant whose time is used up on arrival is given back, and the wait goes on", () =>
    Effect.gen(function*() {
      yield* TestLocking.answerLate("1990 millis", { op: "attempt", times: 1 })
      const options = { ttl: "2 seconds", attemptTimeout: "3 seconds", waitTimeout: "10 seconds" } as const
      const running = yield* Effect.fork(
        Locking.useLock("k", options, (lease) => remainingMillis(lease))
      )
      yield* TestClock.adjust("1989 millis")
      yield* isRunning(running)
      yield* TestClock.adjust("3 seconds")
      assert.deepStrictEqual(yield* ended(running), Exit.succeed(trusted(2000)))
      assert.isAtLeast((yield* TestLocking.calls()).attempt, 2)
      yield* TestClock.adjust("5 seconds")
      assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
    }).pipe(Effect.provide(TestLocking.layer)))
})

describe("the lease in context", () => {
  it.scoped("R2.6 `current` is the innermost one, in forks and time-outs too, and none outside", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const keyOf = Effect.map(Lease.current, Option.map((lease) => lease.key))
      assertNone(yield* keyOf)
      yield* locking.withLock(
        Effect.gen(function*() {
          assert.strictEqual(Option.getOrThrow(yield* keyOf), "a")
          assert.strictEqual(Option.getOrThrow(yield* Fiber.join(yield* Effect.fork(keyOf))), "a")
          assert.strictEqual(Option.getOrThrow(yield* Effect.timeout(keyOf, "1 second")), "a")
          yield* locking.withLock(
            Effect.gen(function*() {
              assert.strictEqual(Option.getOrThrow(yield* keyOf), "b")
            }),
            "b"
          )
          assert.strictEqual(Option.getOrThrow(yield* keyOf), "a")
        }),
        "a"
      )
      assertNone(yield* keyOf)
    }))

  it.scoped("R2.6 not in a daemon that outlives the section", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const go = yield* Deferred.make<void>()
      const daemon = yield* locking.withLock(
        Effect.forkDaemon(
          Effect.zipRight(Deferred.await(go), Effect.all([Lease.current, Effect.exit(Lease.assertHeld("k"))]))
        ),
        "k"
      )
      yield* Deferred.succeed(go, undefined)
      const [current, held] = yield* Fiber.join(daemon)
      assertNone(current)
      assert(Exit.isFailure(held) && Option.isSome(Cause.dieOption(held.cause)))
    }))

  it.scoped("R2.6 `assertHeld` answers the lease of the key, at any depth, and of each of several", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      yield* locking.useLock("outer", (outer) =>
        locking.useLocks(["b", "a"], ([a, b]) =>
          Effect.gen(function*() {
            assert.strictEqual((yield* Lease.assertHeld("outer")).fence, outer.fence)
            assert.strictEqual((yield* Lease.assertHeld("a")).fence, a!.fence)
            assert.strictEqual((yield* Lease.assertHeld(LockKey.make("b"))).fence, b!.fence)
          })))
    }))

  it.scoped("R2.6 `assertHeld` dies where the lock is not held: the key of another tenant, scope or nobody", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const dies = (effect: Effect.Effect<unknown, unknown>) =>
        Effect.map(Effect.exit(effect), (exit) => {
          assert(Exit.isFailure(exit) && Option.isSome(Cause.dieOption(exit.cause)))
          assert.notInclude(Cause.pretty(exit.cause), "secret")
        })
      yield* dies(Lease.assertHeld("secret"))
      yield* locking.withLock(
        Effect.gen(function*() {
          yield* dies(Lease.assertHeld("secret of another"))
          yield* dies(Lease.assertHeld(LockKey.platform("secret")))
          yield* dies(LockKey.withTenant(Lease.assertHeld("secret"), "secret tenant"))
          yield* dies(Lease.assertHeld(""))
          yield* Lease.assertHeld("secret")
        }),
        "secret"
      )
      yield* dies(Lease.assertHeld("secret"))
    }))

  it.scoped("R2.6 R1.2 after an early release there is none", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      yield* locking.useLock("outer", (outer) =>
        locking.useLock("k", (lease) =>
          Effect.gen(function*() {
            yield* lease.release
            assert.strictEqual(Option.getOrThrow(yield* Lease.current).fence, outer.fence)
            const held = yield* Effect.exit(Lease.assertHeld("k"))
            assert(Exit.isFailure(held) && Option.isSome(Cause.dieOption(held.cause)))
            yield* Lease.assertHeld("outer")
          })))
    }))

  it.scoped("R2.6 `assertHeld` fails LeaseLost when it was lost", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const lease = yield* one.acquire("k")
      yield* two.forceRelease("k")
      yield* settle
      const error = yield* Effect.flip(lease.provide(Lease.assertHeld("k")))
      assert.strictEqual(error.reason, "revoked")
    }))
})

describe("fences", () => {
  it.scoped("R2.1 B63 grow with every grant of a key: hand-overs, other processes, losses", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const fences: Array<bigint> = []
      const enter = (locking: Locking.Locking) =>
        locking.useLock("k", (lease) => Effect.zipRight(Effect.sync(() => fences.push(lease.fence)), Effect.yieldNow()))
      const fibers = []
      for (let i = 0; i < 60; i++) fibers.push(yield* Effect.fork(enter(i % 4 === 0 ? two : one)))
      for (const fiber of fibers) yield* Fiber.join(fiber)
      for (let i = 0; i < 10; i++) {
        const lease = yield* one.acquire("k")
        fences.push(lease.fence)
        yield* two.forceRelease("k")
        yield* settle
      }
      assert.lengthOf(fences, 70)
      for (let i = 1; i < fences.length; i++) assert(fences[i - 1]! < fences[i]!, `${fences[i - 1]} < ${fences[i]}`)
    }))

  it.effect("B63 a holder that slept past its lease is refused by the resource, and interrupted at its first step", () =>
    Effect.gen(function*() {
      const other = yield* TestLocking.node("other")
      const account = yield* FencedRegister.make(100)
      const log: Array<string> = []
      for (let round = 0; round < 5; round++) {
        const frozen = yield* Deferred.make<void>()
        const sleeper = yield* Effect.fork(Locking.useLock("account", (lease) =>
          Effect.gen(function*() {
            yield* account.set(lease.fence, 1000 * round)
            // it cannot be interrupted, as what does not run cannot: until its lease has passed and another has written
            yield* Effect.uninterruptible(
              Deferred.await(frozen).pipe(
                Effect.zipRight(account.set(lease.fence, -1)),
                Effect.match({
                  onFailure: (error) => log.push(error._tag),
                  onSuccess: () => log.push("written")
                })
              )
            )
            yield* Effect.sleep(1)
            log.push("went on")
          })))
        yield* TestClock.adjust(0)
        yield* TestLocking.mute("16 seconds", { node: "main" })
        const second = yield* Effect.fork(
          other.useLock("account", { waitTimeout: "1 minute" }, (lease) => account.set(lease.fence, round))
        )
        yield* TestClock.adjust("16 seconds")
        assert(Exit.isSuccess(yield* ended(second)))
        yield* Deferred.succeed(frozen, undefined)
        const exit = yield* ended(sleeper)
        assert(Exit.isFailure(exit))
        const error = Option.getOrThrow(Cause.failureOption(exit.cause))
        assert.strictEqual(error._tag, "LeaseLost")
        assert.strictEqual(yield* account.get, round)
        yield* TestClock.adjust("5 seconds")
      }
      assert.deepStrictEqual(log, Array.from({ length: 5 }, () => "StaleFence"))
    }).pipe(Effect.scoped, Effect.provide(TestLocking.layer)))
})

describe("a renewal and a release", () => {
  it.effect("R2.3 never cross: no renewal after the release, no loss reported, the key stays free", () =>
    Effect.gen(function*() {
      yield* TestLocking.answerLate("200 millis", { op: "renew" })
      for (let i = 0; i < 30; i++) {
        const inside = yield* section
        const fiber = yield* Effect.fork(Locking.withLock(inside.run, "k", { ttl: "600 millis" }))
        // at some moment round the renewals at 200, 400, … ms
        yield* TestClock.adjust(150 + 7 * i)
        yield* Deferred.succeed(inside.end, undefined)
        yield* TestClock.adjust("400 millis")
        assert(Exit.isSuccess(yield* ended(fiber)))
        assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
        const { renew } = yield* TestLocking.calls()
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual((yield* TestLocking.calls()).renew, renew)
        assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
      }
    }).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R2.3 a driver that fails or dies at a renewal ends nothing before the lease's own end", () =>
    Effect.gen(function*() {
      const failing = [
        Effect.fail(new DriverError({ executed: "no", message: "down" })),
        Effect.die("driver")
      ]
      for (const answer of failing) {
        const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
        const locking = yield* Locking.make({ ...driver, renew: () => answer })
        const fiber = yield* Effect.fork(locking.withLock(Effect.never, "k", { ttl: "10 seconds" }))
        yield* TestClock.adjust(trusted(10_000) - 1)
        yield* isRunning(fiber)
        yield* TestClock.adjust(1)
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "unconfirmed")
        yield* TestClock.adjust("10 seconds")
        yield* assertIdle(locking)
      }
    }))
})
