import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import { assert } from "vitest"
import { type Group, isGrant, newToken, test, testIf } from "../world.js"

const byServer = testIf(["expiry by the server"])

export const leases: Group = {
  name: "lease and renewal",
  cases: [
    byServer("R1.8 without renewal it is held for its ttl, and no longer", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const rival = { token: newToken() }
        const before = yield* world.now
        yield* one.grant(keys, { ttl: world.ttl })
        for (let tenth = 1; tenth < 10; tenth++) {
          const answer = yield* two.attempt(keys, rival)
          // what is not seen in time says nothing
          if ((yield* world.now) - before >= world.ttl) break
          assert.strictEqual(answer._tag, "Busy", "before its time")
          yield* world.pass(world.ttl / 10)
        }
        yield* world.until(
          "its end",
          Effect.map(two.attempt(keys, rival), isGrant),
          3 * world.ttl + world.soon
        )
        assert.isAtLeast((yield* world.now) - before, world.ttl)
      })),

    test("R1.9 renewal keeps it for many times its ttl", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("a", "b")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys, { ttl: world.ttl })
        const fence = grant.fences
        for (let third = 0; third < 12; third++) {
          yield* world.pass(world.ttl / 3)
          const renewals = yield* one.renew(grant)
          assert.lengthOf(renewals, 1)
          assert.strictEqual(renewals[0]!._tag, "Confirmed")
          yield* two.assertBusy([keys[third % 2]!], "it was renewed")
        }
        const again = yield* one.attempt(keys, { token: grant.token, ttl: world.ttl })
        if (isGrant(again)) assert.deepStrictEqual(again.fences, fence, "renewal changes no fence")
      })),

    byServer("R1.7 a repeated attempt extends it", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys, { ttl: world.ttl })
        for (let half = 0; half < 4; half++) {
          yield* world.pass(world.ttl / 2)
          const again = yield* one.attempt(keys, { token: grant.token, ttl: world.ttl })
          assert.isTrue(isGrant(again), "it finds its own grant")
          yield* two.assertBusy(keys, "it was extended")
        }
      })),

    byServer("R2.3 B34 renewal never takes a lapsed one back", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const lapsed = yield* one.grant(keys, { ttl: world.ttl })
        yield* world.pass(world.ttl + 20)
        for (let i = 0; i < 3; i++) assert.strictEqual((yield* one.renew(lapsed))[0]!._tag, "Lost")
        // it is free, whatever the renewals did
        const next = yield* two.grant(keys)
        assert.strictEqual((yield* one.renew(lapsed))[0]!._tag, "Lost")
        assert.strictEqual((yield* two.renew(next))[0]!._tag, "Confirmed")
        yield* two.release(next)
        assert.strictEqual((yield* one.renew(lapsed))[0]!._tag, "Lost")
        yield* two.grant(keys)
      })),

    test("R2.3 B09 renewal by another token extends nothing and ends nothing", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys, { ttl: world.ttl })
        const foreign = { ...grant, token: newToken() }
        assert.strictEqual((yield* two.renew(foreign))[0]!._tag, "Lost")
        assert.strictEqual((yield* one.renew(grant))[0]!._tag, "Confirmed")
        yield* two.assertBusy(keys, "it is one's")
      })),

    byServer(
      "R2.3 B09 renewal by another token does not lengthen the holder's time",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [one, two, three] = [yield* world.process, yield* world.process, yield* world.process]
          const grant = yield* one.grant(keys, { ttl: world.ttl })
          yield* world.pass(world.ttl * 0.7)
          yield* two.renew({ ...grant, token: newToken(), ttl: Duration.millis(world.longTtl) })
          yield* world.pass(world.ttl * 0.3 + 20)
          yield* world.until("its end", Effect.map(three.attempt(keys), isGrant), world.ttl + world.soon)
        })
    ),

    test("R2.3 many renewals at once: each its own answer, in order", (world) =>
      Effect.gen(function*() {
        const one = yield* world.process
        const [a, b, c] = [
          yield* one.grant(yield* world.keys("a")),
          yield* one.grant(yield* world.keys("b")),
          yield* one.grant(yield* world.keys("c", "d"))
        ]
        yield* one.release(b)
        const foreign = { ...a, token: newToken() }
        const answers = yield* one.renew(a, b, foreign, c)
        assert.deepStrictEqual(answers.map(({ _tag }) => _tag), ["Confirmed", "Lost", "Lost", "Confirmed"])
        assert.deepStrictEqual(yield* one.renew(), [])
      })),

    byServer("R1.5 R2.3 several keys are lost together", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("a", "b")
        const one = yield* world.process
        const grant = yield* one.grant(keys)
        yield* one.driver.forceRelease(keys[1]!, { hard: false })
        assert.strictEqual((yield* one.renew(grant))[0]!._tag, "Lost")
      })),

    byServer("R8.5 a release after the end says so, and harms no successor", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two, three] = [yield* world.process, yield* world.process, yield* world.process]
        const lapsed = yield* one.grant(keys, { ttl: world.ttl })
        yield* world.pass(world.ttl + 20)
        const next = yield* two.grant(keys)
        assert.include(["lapsed", "gone"], yield* one.release(lapsed))
        yield* three.assertBusy(keys, "the successor holds it")
        assert.strictEqual((yield* two.renew(next))[0]!._tag, "Confirmed")
      })),

    testIf(["leases without end"])("R1.8 a grant without end has none", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys, { ttl: Infinity })
        yield* world.pass(2 * world.ttl)
        yield* two.assertBusy(keys, "it has no end")
        assert.strictEqual((yield* one.renew(grant))[0]!._tag, "Confirmed")
      })),

    testIf(["a shortest ttl"])(
      "R1.8 a ttl below the shortest is refused before the store is asked",
      (world) =>
        Effect.gen(function*() {
          const { answered, driver, locking } = yield* world.node()
          const short = Duration.times(driver.capabilities.ttl.min, 0.5)
          const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { ttl: short }))
          assert.strictEqual(error._tag, "InvalidOptions")
          assert.strictEqual(answered.attempt, 0)
        })
    ),

    test("R1.9 R2.2 a section outlasts its ttl by renewal, and nobody else gets in", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const section = one.locking.useLock("k", { ttl: world.ttl }, (lease) =>
          Effect.gen(function*() {
            for (let half = 0; half < 8; half++) {
              yield* Effect.sleep(world.ttl / 2)
              assert.isTrue(yield* lease.isValid)
              assert.isAtMost(Duration.toMillis(yield* lease.remaining), world.ttl)
              assert.isTrue(Option.isNone(yield* two.locking.tryAcquire("k")), "somebody else got in")
            }
            return "done"
          }))
        assert.strictEqual(yield* world.within("the section", section, 4 * world.ttl * 3 + world.soon), "done")
        assert.isAtLeast(one.answered.renew, 4)
      })),

    testIf(["an end of grants"])(
      "R1.9 without renewal the section ends with its lease",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const before = yield* world.now
          const fiber = yield* Effect.fork(
            one.locking.withLock(Effect.sleep("1 hour"), "k", { ttl: world.ttl, autoRenew: false })
          )
          const exit = yield* world.within("the loss", Fiber.await(fiber), 3 * world.ttl + world.soon)
          assert.isTrue(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost")
          // within the trust in the lease, which is a little shorter
          assert.isAtLeast((yield* world.now) - before, world.ttl * 0.9)
          yield* world.within(
            "the next one's turn",
            two.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }),
            3 * world.ttl + world.soon
          )
        })
    ),

    testIf(["an end of grants"])(
      "R2.5 B42 who has waited for longer than its ttl has all of it when it gets in",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const ttl = 2 * world.ttl
          const inside = yield* Deferred.make<void>()
          const holder = yield* Effect.fork(
            one.locking.withLock(Effect.zipRight(Deferred.succeed(inside, undefined), Effect.sleep(1.5 * ttl)), "k")
          )
          yield* world.within("the holder", Deferred.await(inside))
          const left = yield* world.within(
            "its turn",
            two.locking.useLock(
              "k",
              { ttl, autoRenew: false, waitTimeout: "50 seconds" },
              (lease) => Effect.zip(lease.remaining, Effect.succeed(Duration.toMillis(lease.waited)))
            ),
            1.5 * ttl + world.soon
          )
          yield* Fiber.join(holder)
          const [remaining, waited] = left
          assert.isAbove(waited, ttl)
          assert.isAtMost(Duration.toMillis(remaining), ttl)
          // all but what the answer took
          assert.isAbove(Duration.toMillis(remaining), ttl / 4)
        })
    ),

    test("R1.10 B78 a section that does not end: after maxHold it is not renewed, and others get in", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        for (const ignores of [false, true]) {
          const inside = yield* Deferred.make<void>()
          const next = yield* Deferred.make<void>()
          const stuck = ignores ? Effect.uninterruptible(Deferred.await(next)) : Effect.sleep("1 hour")
          const holder = yield* Effect.fork(one.locking.withLock(
            Effect.zipRight(Deferred.succeed(inside, undefined), stuck),
            "k",
            // long enough for a slow machine to renew it
            { ttl: 4 * world.ttl, maxHold: 2 * world.ttl }
          ))
          yield* world.within("the holder", Deferred.await(inside))
          yield* world.within(
            "the next one",
            // beside the old one, which ignores that it was interrupted
            two.locking.withLock(Deferred.succeed(next, undefined), "k", { waitTimeout: "50 seconds" }),
            8 * world.ttl + world.soon
          )
          const exit = yield* world.within("the end of the first", Fiber.await(holder))
          const error = Exit.isFailure(exit) && exit.cause._tag === "Fail" ? exit.cause.error : undefined
          assert(error?._tag === "LeaseLost")
          assert.strictEqual(error.reason, "max-hold")
        }
      })),

    test("R2.3 lease.renew extends it", (world) =>
      Effect.gen(function*() {
        const { answered, locking } = yield* world.node()
        const lease = yield* locking.acquire("k", { ttl: world.ttl, autoRenew: false })
        for (let half = 0; half < 4; half++) {
          yield* world.pass(world.ttl / 2)
          yield* lease.renew
        }
        assert.isTrue(yield* lease.isValid)
        assert.strictEqual(answered.renew, 4)
      }))
  ]
}
