import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { assert } from "vitest"
import { type Group, test, testIf } from "../world.js"

export const shutdown: Group = {
  name: "shutdown",
  cases: [
    test("R7.1 B29 a close ends in time: waiters fail, sections are interrupted, all is given back", (world) =>
      Effect.gen(function*() {
        const [other, two] = [yield* world.node(), yield* world.node()]
        yield* other.locking.acquire("theirs")
        const scope = yield* Scope.make()
        const one = yield* Scope.extend(world.node(), scope)
        const section = yield* Effect.fork(one.locking.withLock(Effect.sleep("1 hour"), "ours"))
        const waiter = yield* Effect.fork(
          one.locking.withLock(Effect.die("was inside"), "theirs", { waitTimeout: "50 seconds" })
        )
        yield* world.until("holder and waiter", Effect.sync(() => one.answered.attempt >= 2 && one.answered.arm >= 1))
        yield* world.within("the close", Scope.close(scope, Exit.void), 5_000 + world.soon)
        for (const fiber of [section, waiter]) {
          const exit = yield* world.within("its end", Fiber.await(fiber))
          assert.isTrue(Exit.isFailure(exit), "it has failed")
        }
        const late = yield* Effect.flip(one.locking.withLock(Effect.void, "k"))
        assert.strictEqual(late._tag, "LockingClosed")
        yield* world.within("what was held", two.locking.withLock(Effect.void, "ours", { waitTimeout: "50 seconds" }))
      })),

    testIf(["expiry by the session"])(
      "R8.2 a driver that is closed holds nothing any more",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const scope = yield* Scope.make()
          const one = yield* Scope.extend(world.process, scope)
          const contender = one.contend(keys, { waiting: false })
          assert.strictEqual((yield* contender.attempt)._tag, "Grant")
          const two = yield* world.process
          yield* two.assertBusy(keys, "one holds it")
          yield* world.within("the close", Scope.close(scope, Exit.void))
          yield* two.grant(keys)
        })
    ),

    test("R7.3 drivers open and close, and leave no handle behind", (world) =>
      Effect.gen(function*() {
        const handles = Effect.sync(() => process.getActiveResourcesInfo().filter((name) => name !== "Timeout").length)
        const keys = yield* world.keys("k")
        const use = Effect.scoped(Effect.gen(function*() {
          const one = yield* world.process
          const grant = yield* one.grant(keys)
          const waiter = one.contend(yield* world.keys("other"))
          yield* waiter.contention.arm(() => {})
          yield* waiter.contention.withdraw
          yield* one.release(grant)
        }))
        // what is made once for all of them is made now
        yield* use
        const before = yield* handles
        yield* Effect.repeatN(use, 4)
        yield* world.until("as many as before", Effect.map(handles, (count) => count <= before))
      })),

    testIf(["storeView.grants"])("R6.5 R7.1 nothing is left at the store", (world) =>
      Effect.gen(function*() {
        const grants = world.store.storeView!.grants!
        yield* world.until("nobody holds anything", Effect.map(grants, (count) => count === 0), world.ttl + world.soon)
        yield* Effect.scoped(Effect.gen(function*() {
          const { locking } = yield* world.node()
          yield* locking.withLock(
            Effect.map(grants, (count) => assert.isAtLeast(count, 1)),
            "k"
          )
          yield* locking.acquire("until the close")
        }))
        yield* world.until("nobody holds anything", Effect.map(grants, (count) => count === 0))
      })),

    testIf(["storeView.interests"])(
      "R6.5 R7.1 nobody waits at the store",
      (world) => world.until("no interest", Effect.map(world.store.storeView!.interests!, (count) => count === 0))
    )
  ]
}
