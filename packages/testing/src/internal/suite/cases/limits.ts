import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import { assert } from "vitest"
import { type Group, settle, test } from "../world.js"

export const limits: Group = {
  name: "limits",
  cases: [
    test("B48 one process holds many keys at once", (world) =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world.node()
        const other = yield* world.node()
        const count = Math.min(200, Math.floor((driver.capabilities.maxKeys ?? 200) / 2))
        const scope = yield* Scope.make()
        for (let i = 0; i < count; i++) yield* Scope.extend(locking.acquire(`k${i}`), scope)
        for (const i of [0, Math.floor(count / 2), count - 1]) {
          assert.isTrue(Option.isNone(yield* other.locking.tryAcquire(`k${i}`)))
        }
        yield* world.within("all releases", Scope.close(scope, Exit.void), 20_000 * world.options.slack)
        yield* world.until(
          "all of them are free",
          Effect.forEach([0, count - 1], (i) => other.locking.withLockIfAvailable(Effect.void, `k${i}`)).pipe(
            Effect.map((found) => found.every(Option.isSome))
          )
        )
      })),

    test("R1.5 the most keys that one call may take", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const names = Array.from({ length: 64 }, (_, i) => `key ${i}`)
        yield* one.locking.withLocks(
          Effect.forEach([names[0]!, names[63]!], (name) =>
            Effect.map(two.locking.tryAcquire(name), (found) => assert.isTrue(Option.isNone(found)))),
          names,
          { waitTimeout: "50 seconds" }
        )
        yield* world.within("them again", two.locking.withLocks(Effect.void, names, { waitTimeout: "50 seconds" }))
      })),

    test("R6.1 maxKeys: one key more is KeyLimit, and the store is not asked", (world) =>
      Effect.gen(function*() {
        const { answered, locking } = yield* world.node({ maxKeys: 3 })
        const leases = [yield* locking.acquire("a"), yield* locking.acquire("b"), yield* locking.acquire("c")]
        const before = answered.attempt
        const error = yield* Effect.flip(locking.withLock(Effect.void, "d"))
        assert.strictEqual(error._tag, "KeyLimit")
        assert.strictEqual(answered.attempt, before)
        yield* leases[0]!.release
        yield* locking.withLock(Effect.void, "d")
      })),

    test("R6.1 maxKeys of the driver is the engine's", (world) =>
      Effect.gen(function*() {
        const driver = yield* world.open
        const { maxKeys } = driver.capabilities
        if (maxKeys === undefined) return
        const error = yield* Effect.flip(Effect.scoped(world.node({ maxKeys: maxKeys + 1 })))
        assert.isTrue(error instanceof Error && "_tag" in error && error._tag === "InvalidOptions")
      })),

    test("R6.1 maxWaiters 0: a free key can be had, and nobody waits", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node({ maxWaiters: 0 })]
        yield* two.locking.withLock(Effect.void, "k", { waitTimeout: 0 })
        yield* one.locking.acquire("k")
        const error = yield* world.within("the answer", Effect.flip(two.locking.withLock(Effect.void, "k")))
        assert.strictEqual(error._tag, "QueueFull")
      })),

    test("R6.3 many waiters of one process cost a handful of calls", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node({ pollInterval: "1 minute" })]
        const lease = yield* one.locking.acquire("k")
        const fibers = yield* Effect.forEach(
          Array.from({ length: 100 }),
          () => Effect.fork(two.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }))
        )
        yield* settle
        yield* world.until("the first waiter", Effect.sync(() => two.answered.attempt > 0))
        yield* lease.release
        yield* world.within("all of them", Effect.forEach(fibers, Fiber.join), 20_000 * world.options.slack)
        // five leases for each grant, and where it does not push, polls
        const grants = 100 / 5
        const allowed = two.driver.capabilities.push ? 3 * grants : 10 * grants
        assert.isAtMost(two.answered.attempt, allowed)
      }))
  ]
}
