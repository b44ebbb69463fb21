import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { assert } from "vitest"
import { type Group, newToken, settle, test, testIf, waits, type World } from "../world.js"

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

    testIf(["offers"])(
      "R6.4 R3.1 an offer that nobody wants grants anew, under higher fences",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [one, two] = [yield* world.process, yield* world.process]
          let grant = yield* one.grant(keys)
          for (let i = 0; i < 3; i++) {
            const answer = yield* one.offer(grant)
            if (typeof answer === "string") return assert.fail(`expected a grant, got ${answer}`)
            assert.isAtLeast(Number(answer.fences[0]!), Number(grant.fences[0]!) + grant.block)
            assert.deepInclude(answer, { token: grant.token, keys, mode: "exclusive" })
            yield* two.assertBusy(keys, "one holds it still")
            assert.deepStrictEqual((yield* one.renew(answer))[0], { _tag: "Confirmed", contended: false })
            grant = answer
          }
          assert.strictEqual(yield* one.release(grant), "released")
          const next = yield* two.grant(keys)
          assert.isAtLeast(Number(next.fences[0]!), Number(grant.fences[0]!) + grant.block)
        })
    ),

    testIf(["offers", "push"])(
      "R6.4 R6.2 an offer that somebody wants is a release",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [holder, waiter] = [yield* world.process, yield* world.process]
          const grant = yield* holder.grant(keys)
          const contender = waiter.contend(keys)
          const woken = yield* waits(contender)
          assert.strictEqual(yield* holder.offer(grant), "woke")
          yield* world.within("the wake-up", woken)
          yield* world.until("the grant", Effect.map(contender.attempt, ({ _tag }) => _tag === "Grant"))
          yield* contender.contention.withdraw
          assert.strictEqual(yield* holder.offer(grant), "gone")
          assert.strictEqual((yield* holder.renew(grant))[0]!._tag, "Lost")
          yield* waiter.release(contender.claim)
        })
    ),

    testIf(["offers"])(
      "R6.4 an offer that comes twice only answers what came of it",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [holder, waiter] = [yield* world.process, yield* world.process]
          const grant = yield* holder.grant(keys)
          const answer = yield* holder.offer(grant)
          const contender = waiter.contend(keys)
          yield* Effect.asVoid(waits(contender))
          const again = yield* holder.offer(grant)
          assert.deepStrictEqual(again, answer)
          assert.strictEqual((yield* contender.attempt)._tag, "Busy")
          assert.strictEqual((yield* holder.renew(grant))[0]!._tag, "Confirmed")
        })
    ),

    testIf(["offers", "expiry by the server"])(
      "R6.4 R2.3 an offer takes nothing back, and extends what it keeps",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [one, two] = [yield* world.process, yield* world.process]
          const grant = yield* one.grant(keys, { ttl: 2 * world.ttl })
          yield* world.pass(world.ttl)
          const answer = yield* one.offer(grant)
          if (typeof answer === "string") return assert.fail(`expected a grant, got ${answer}`)
          yield* world.pass(1.5 * world.ttl)
          yield* two.assertBusy(keys, "its time began anew")
          yield* world.pass(2 * world.ttl)
          assert.oneOf(yield* one.offer(answer), ["lapsed", "gone"])
          yield* two.grant(keys)
          yield* one.assertBusy(keys, "two holds it")
        })
    ),

    testIf(["offers"])(
      "R6.4 who queues in one process needs one call for five leases",
      (world) =>
        Effect.gen(function*() {
          const { answered, locking } = yield* world.node()
          const lease = yield* locking.acquire("k")
          const fences: Array<bigint> = [lease.fence]
          const waiters = yield* Effect.forEach(Array.from({ length: 11 }), () =>
            Effect.fork(locking.useLock("k", { waitTimeout: "50 seconds" }, ({ fence }) =>
              Effect.sync(() =>
                fences.push(fence)
              ))))
          yield* settle
          yield* lease.release
          yield* world.within("all of them", Effect.forEach(waiters, Fiber.join))
          assert.deepStrictEqual(
            fences,
            [...fences].sort((a, b) =>
              a < b ? -1 : 1
            )
          )
          assert.strictEqual(new Set(fences).size, 12)
          yield* world.until(
            "the release",
            Effect.sync(() => answered.release === 1)
          )
          // a slow machine ends a turn by its 50 ms
          assert.isAtLeast(answered.offer, 2)
          assert.strictEqual(answered.attempt, 1)
        })
    ),

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
