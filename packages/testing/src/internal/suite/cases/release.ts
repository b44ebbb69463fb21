import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { assert } from "vitest"
import { type Group, newToken, settle, test, type World } from "../world.js"

/** Another process gets the key at once. */
const assertFree = (world: World, locking: Effect.Effect.Success<ReturnType<World["node"]>>["locking"]) =>
  world.within("the key is free", locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }))

export const releases: Group = {
  name: "release",
  cases: [
    test("R8.5 may be repeated", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("a", "b")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys)
        assert.strictEqual(yield* one.release(grant), "released")
        for (let i = 0; i < 3; i++) assert.strictEqual(yield* one.release(grant), "gone")
        const next = yield* two.grant(keys)
        assert.strictEqual(yield* one.release(grant), "gone")
        assert.strictEqual((yield* two.renew(next))[0]!._tag, "Confirmed")
      })),

    test("R8.5 by a token that was never granted frees nothing", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two, three] = [yield* world.process, yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys)
        for (const process of [one, two]) {
          assert.strictEqual(yield* process.release({ token: newToken(), keys, mode: "exclusive" }), "gone")
        }
        yield* three.assertBusy(keys, "one holds it")
        assert.strictEqual((yield* one.renew(grant))[0]!._tag, "Confirmed")
        const free = yield* world.keys("free")
        assert.strictEqual(yield* one.release({ token: newToken(), keys: free, mode: "exclusive" }), "gone")
      })),

    test("R8.5 of an attempt that was told busy frees nothing", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("a", "b")
        const [one, two, three] = [yield* world.process, yield* world.process, yield* world.process]
        yield* one.grant([keys[0]!])
        const { attempt, claim } = two.contend(keys)
        assert.strictEqual((yield* attempt)._tag, "Busy")
        assert.strictEqual(yield* two.release(claim), "gone")
        yield* three.assertBusy([keys[0]!], "one holds it")
        yield* three.grant([keys[1]!])
      })),

    test("R1.1 B15 every end of a section gives it back", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const ends: Record<string, Effect.Effect<unknown, unknown>> = {
          success: Effect.void,
          failure: Effect.fail("no"),
          defect: Effect.die("no"),
          "interruption from within": Effect.interrupt
        }
        for (const [name, end] of Object.entries(ends)) {
          const exit = yield* Effect.exit(one.locking.withLock(end, "k"))
          assert.strictEqual(Exit.isSuccess(exit), name === "success")
          yield* assertFree(world, two.locking)
        }
        const fiber = yield* Effect.fork(one.locking.withLock(Effect.sleep("1 hour"), "k"))
        yield* world.until("the grant", Effect.sync(() => one.answered.attempt === 5))
        yield* settle
        yield* Fiber.interrupt(fiber)
        yield* assertFree(world, two.locking)
      })),

    test("R1.3 the close of a scope gives it back, and so does an early release", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const scope = yield* Scope.make()
        yield* Scope.extend(one.locking.acquire("k"), scope)
        yield* Scope.close(scope, Exit.void)
        yield* assertFree(world, two.locking)
        const lease = yield* one.locking.acquire("k")
        assert.isTrue(yield* lease.release)
        assert.isFalse(yield* lease.release)
        assert.isFalse(yield* lease.isValid)
        yield* assertFree(world, two.locking)
      })),

    test("R1.11 a section's own failure is the caller's answer", (world) =>
      Effect.gen(function*() {
        const { locking } = yield* world.node()
        assert.strictEqual(yield* Effect.flip(locking.withLock(Effect.fail("mine"), "k")), "mine")
      })),

    test("R2.2 B33 no renewal follows a release", (world) =>
      Effect.gen(function*() {
        const { answered, locking } = yield* world.node()
        for (let i = 0; i < 5; i++) {
          yield* locking.withLock(Effect.sleep(world.ttl / 3), "k", { ttl: world.ttl }).pipe((section) =>
            world.within("the section", section, world.ttl + world.soon)
          )
        }
        yield* world.until("the answers", Effect.sync(() => answered.release >= 5))
        const before = answered.renew
        yield* world.pass(2 * world.ttl)
        assert.strictEqual(answered.renew, before)
      }))
  ]
}
