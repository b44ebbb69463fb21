import { assert, describe, it } from "@effect/vitest"
import { assertNone } from "@effect/vitest/utils"
import { Cause, Deferred, Duration, Effect, Exit, Fiber, Layer, Option, Scope, TestClock } from "effect"
import * as Lease from "effect-locking/Lease"
import * as Locking from "effect-locking/Locking"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as TestLocking from "effect-locking/TestLocking"
import {
  alone,
  assertFree,
  assertIdle,
  ended,
  failureOf,
  inScope,
  isRunning,
  metric,
  node,
  section,
  settle
} from "./kit.js"

const twoNodes = Effect.gen(function*() {
  const store = yield* MemoryStore.make
  return { one: yield* node(store), two: yield* node(store) }
})

describe("acquire", () => {
  it.scoped("R1.3 the lock is held as long as the scope is open, whatever its exit", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      for (const exit of [Exit.void, Exit.fail("own"), Exit.die("defect"), Exit.interrupt(yield* Effect.fiberId)]) {
        const { close, value: lease } = yield* inScope(one.acquire("k"))
        yield* TestClock.adjust("1 hour")
        assert.isTrue(yield* lease.isValid)
        assertNone(yield* two.withLockIfAvailable(Effect.void, "k"))
        yield* close(exit)
        assert.isFalse(yield* lease.isValid)
        yield* assertFree(two, "k")
        yield* assertIdle(one)
      }
    }))

  it.effect("R1.3 both forms", () =>
    Effect.gen(function*() {
      yield* Effect.scoped(Effect.gen(function*() {
        const lease = yield* Locking.acquire("k", { mode: "shared" })
        assert.strictEqual(lease.mode, "shared")
        const tried = Option.getOrThrow(yield* Locking.tryAcquire("l"))
        assert.strictEqual(tried.mode, "exclusive")
        assert.lengthOf(yield* Locking.list(), 2)
      }))
      assert.deepStrictEqual(yield* Locking.list(), [])
    }).pipe(Effect.provide(Locking.layerMemory)))

  it.effect("R1.3 it is renewed like the rest", () =>
    Effect.gen(function*() {
      yield* Effect.scoped(Effect.gen(function*() {
        const lease = yield* Locking.acquire("k")
        yield* TestClock.adjust("10 minutes")
        assert.isTrue(yield* lease.isValid)
        assert.isAtLeast((yield* TestLocking.calls()).renew, 100)
      }))
      assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
    }).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R1.3 the scope's close releases, by whichever fiber", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const scope = yield* Scope.make()
      const acquiring = yield* Effect.fork(Effect.provideService(one.acquire("k"), Scope.Scope, scope))
      yield* Fiber.join(acquiring)
      assertNone(yield* two.withLockIfAvailable(Effect.void, "k"))
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* Fiber.join(closing)
      yield* assertFree(two, "k")
      yield* assertIdle(one)
    }))

  it.scoped("R1.3 an acquire into a scope that is closed already holds nothing", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const scope = yield* Scope.make()
      yield* Scope.close(scope, Exit.void)
      const lease = yield* Effect.exit(Effect.provideService(locking.acquire("k"), Scope.Scope, scope))
      if (Exit.isSuccess(lease)) assert.isFalse(yield* lease.value.isValid)
      yield* assertFree(locking, "k")
      yield* assertIdle(locking)
    }))

  it.scoped("R1.3 in a layer: the lock lives as long as the service", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const scope = yield* Scope.make()
      yield* Layer.buildWithScope(Layer.scopedDiscard(locking.acquire("k")), scope)
      assertNone(yield* locking.withLockIfAvailable(Effect.void, "k"))
      yield* Scope.close(scope, Exit.void)
      yield* assertFree(locking, "k")
    }))

  it.scoped("R1.3 leases of one scope go back in the opposite order", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const { close } = yield* inScope(Effect.gen(function*() {
        for (const key of ["a", "b", "c"]) {
          yield* Effect.addFinalizer(() =>
            Effect.gen(function*() {
              assert.lengthOf(yield* Effect.orDie(locking.inspect(key)), 0, "given back already")
            })
          )
          yield* locking.acquire(key)
          yield* Effect.addFinalizer(() =>
            Effect.gen(function*() {
              assert.lengthOf(yield* Effect.orDie(locking.inspect(key)), 1, "not given back yet")
            })
          )
        }
      }))
      yield* close(Exit.void)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.3 it waits its turn and fails like the rest", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const { close } = yield* inScope(two.acquire("k"))
      const impatient = yield* Effect.fork(Effect.scoped(one.acquire("k", { waitTimeout: "1 second" })))
      const patient = yield* inScope(Effect.fork(one.acquire("k")))
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* failureOf(impatient))._tag, "WaitTimeout")
      assert.strictEqual((yield* Effect.flip(Effect.scoped(one.acquire("k", { waitTimeout: 0 }))))._tag, "LockBusy")
      yield* isRunning(patient.value)
      yield* close(Exit.void)
      const lease = yield* Fiber.join(patient.value)
      assert.isTrue(yield* lease.isValid)
      yield* patient.close(Exit.void)
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))

  it.scoped("R1.3 an interrupted wait leaves the scope as it was", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const { close } = yield* inScope(two.acquire("k"))
      const waiting = yield* inScope(Effect.fork(one.acquire("k")))
      yield* settle
      yield* Fiber.interrupt(waiting.value)
      yield* close(Exit.void)
      yield* assertFree(two, "k")
      yield* waiting.close(Exit.void)
      yield* assertIdle(one)
    }))
})

describe("the loss of a lease in a scope", () => {
  it.scoped("R1.3 interrupts nobody; `lost` tells", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const done = yield* Effect.scoped(Effect.gen(function*() {
        const lease = yield* one.acquire("k")
        const lost = yield* Effect.fork(Effect.flip(lease.lost))
        yield* isRunning(lost)
        yield* two.forceRelease("k")
        const error = yield* Fiber.join(lost)
        assert.strictEqual(error.reason, "revoked")
        assert.strictEqual(error.fence, lease.fence)
        assert.isFalse(yield* lease.isValid)
        // whoever asks later is told too
        assert.strictEqual((yield* Effect.flip(lease.lost)).reason, "revoked")
        yield* Effect.yieldNow()
        return "went on"
      }))
      assert.strictEqual(done, "went on")
      yield* assertIdle(one)
    }))

  it.scoped("R1.3 the close of the scope takes nothing from the next holder", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const first = yield* inScope(one.acquire("k"))
      yield* two.forceRelease("k")
      yield* settle
      const second = yield* inScope(two.acquire("k"))
      yield* first.close(Exit.void)
      assert.isTrue(yield* second.value.isValid)
      assertNone(yield* one.withLockIfAvailable(Effect.void, "k"))
      yield* second.close(Exit.void)
      yield* assertFree(one, "k")
    }))

  it.scoped("R1.3 `guard` interrupts what runs under it, finalizers awaited, and fails LeaseLost", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const inside = yield* section
      const log: Array<string> = []
      const windUp = Effect.zipRight(Effect.sleep("1 second"), Effect.sync(() => log.push("ended")))
      const fiber = yield* Effect.fork(Effect.scoped(
        Effect.flatMap(one.acquire("k"), (lease) => lease.guard(Effect.onInterrupt(inside.run, () => windUp)))
      ))
      yield* Deferred.await(inside.begun)
      yield* two.forceRelease("k")
      yield* isRunning(fiber)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(log, ["ended"])
      const error = yield* failureOf(fiber)
      assert.strictEqual(error._tag, "LeaseLost")
      yield* assertIdle(one)
    }))

  it.scoped("R1.3 `guard` does not begin under a lease that is lost", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      yield* Effect.scoped(Effect.gen(function*() {
        const lease = yield* one.acquire("k")
        yield* two.forceRelease("k")
        yield* settle
        let ran = false
        const error = yield* Effect.flip(lease.guard(Effect.yieldNow().pipe(Effect.map(() => ran = true))))
        assert.strictEqual(error._tag, "LeaseLost")
        assert.isFalse(ran)
      }))
    }))

  it.scoped("R1.3 `guard` passes value, failure, defect and interruption through", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k")
      assert.strictEqual(yield* lease.guard(Effect.succeed(1)), 1)
      assert.strictEqual(yield* Effect.flip(lease.guard(Effect.fail("own" as const))), "own")
      const died = yield* Effect.exit(lease.guard(Effect.die("defect")))
      assert(Exit.isFailure(died) && Option.isSome(Cause.dieOption(died.cause)))
      const fiber = yield* Effect.fork(lease.guard(Effect.never))
      yield* settle
      const exit = yield* Fiber.interrupt(fiber)
      assert(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause))
      assert.isTrue(yield* lease.isValid)
    }))

  it.scoped("R1.3 what is guarded goes on when the lease is released", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      const lease = yield* locking.acquire("k")
      const fiber = yield* Effect.fork(lease.guard(Effect.as(inside.run, "done")))
      yield* Deferred.await(inside.begun)
      assert.isTrue(yield* lease.release)
      yield* isRunning(fiber)
      yield* Deferred.succeed(inside.end, undefined)
      assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("done"))
    }))
})

describe("lease.provide", () => {
  it.scoped("R1.3 R2.6 makes it the current lease for an effect, forks included, and not after it", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k")
      assertNone(yield* Lease.current)
      yield* lease.provide(Effect.gen(function*() {
        assert.strictEqual(Option.getOrThrow(yield* Lease.current).fence, lease.fence)
        const forked = yield* Fiber.join(yield* Effect.fork(Lease.current))
        assert.strictEqual(Option.getOrThrow(forked).fence, lease.fence)
        assert.strictEqual((yield* Lease.assertHeld("k")).fence, lease.fence)
        yield* locking.useLock("l", (inner) =>
          Effect.gen(function*() {
            assert.strictEqual(Option.getOrThrow(yield* Lease.current).fence, inner.fence)
            assert.strictEqual((yield* Lease.assertHeld("k")).fence, lease.fence)
          }))
        assert.strictEqual(Option.getOrThrow(yield* Lease.current).fence, lease.fence)
      }))
      assertNone(yield* Lease.current)
    }))

  it.scoped("R1.3 guards nothing by itself", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const inside = yield* section
      const lease = yield* one.acquire("k")
      const fiber = yield* Effect.fork(lease.provide(Effect.as(inside.run, "went on")))
      yield* Deferred.await(inside.begun)
      yield* two.forceRelease("k")
      yield* isRunning(fiber)
      yield* Deferred.succeed(inside.end, undefined)
      assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("went on"))
    }))
})

describe("lease.release", () => {
  it.scoped("R1.3 true when this call gave it up, false when it was gone already", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      yield* Effect.scoped(Effect.gen(function*() {
        const lease = yield* one.acquire("k")
        assert.isTrue(yield* lease.release)
        assert.isFalse(yield* lease.release)
        yield* assertFree(two, "k")
        const lost = yield* one.acquire("l")
        yield* two.forceRelease("l")
        yield* settle
        assert.isFalse(yield* lost.release)
        const lapsed = yield* one.acquire("m", { ttl: "1 second", autoRenew: false })
        yield* TestClock.adjust("1 second")
        assert.isFalse(yield* lapsed.release)
      }))
      yield* assertIdle(one)
    }))

  it.scoped("R1.3 of two calls at once exactly one gives it up", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      for (let i = 0; i < 20; i++) {
        yield* Effect.scoped(Effect.gen(function*() {
          const lease = yield* locking.acquire("k")
          const both = [
            yield* Effect.fork(Effect.zipRight(Effect.yieldNow(), lease.release)),
            yield* Effect.fork(lease.release)
          ]
          const answers = [yield* Fiber.join(both[0]!), yield* Fiber.join(both[1]!)]
          assert.lengthOf(answers.filter((gaveUp) => gaveUp), 1)
        }))
      }
      yield* assertIdle(locking)
    }))

  it.scoped("R1.3 after the scope has closed it answers false and touches nobody", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const { close, value: lease } = yield* inScope(locking.acquire("k"))
      yield* close(Exit.void)
      const next = yield* locking.acquire("k")
      assert.isFalse(yield* lease.release)
      assert.isTrue(yield* next.isValid)
    }))

  it.scoped("R1.3 the wait and the hold are measured", () =>
    Effect.gen(function*() {
      const backend = "R1.3 measured"
      const locking = yield* alone({ backend })
      const { close } = yield* inScope(locking.acquire("k"))
      const waiting = yield* inScope(Effect.fork(locking.acquire("k")))
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(yield* metric(backend, "leases"), 1)
      assert.strictEqual(yield* metric(backend, "waiters"), 1)
      yield* close(Exit.void)
      const lease = yield* Fiber.join(waiting.value)
      assert.strictEqual(Duration.toMillis(lease.waited), 2000)
      yield* waiting.close(Exit.void)
      assert.strictEqual(yield* metric(backend, "leases"), 0)
      assert.strictEqual(yield* metric(backend, "waiters"), 0)
      assert.strictEqual(yield* metric(backend, "acquires_total", "granted"), 2)
    }))
})
