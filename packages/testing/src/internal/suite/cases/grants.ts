import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import { assert } from "vitest"
import { type Group, isGrant, newToken, settle, test } from "../world.js"

export const grants: Group = {
  name: "grants",
  cases: [
    test("R1.1 R3.1 a free key is granted, with what was asked for", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const one = yield* world.process
        const token = newToken()
        const grant = yield* one.grant(keys, { token })
        assert.strictEqual(grant.token, token)
        assert.strictEqual(grant.mode, "exclusive")
        assert.deepStrictEqual(grant.keys.map(({ id }) => id), keys.map(({ id }) => id))
        assert.lengthOf(grant.fences, 1)
        assert.isTrue(typeof grant.fences[0] === "bigint" && grant.fences[0] > 0n, "a fence is a positive bigint")
        assert.isTrue(Number.isSafeInteger(grant.block) && grant.block >= 1, "a block has at least one number")
        assert.isTrue(Duration.lessThanOrEqualTo(grant.ttl, Duration.millis(world.longTtl)), "no longer than asked for")
        assert.isTrue(Duration.greaterThan(grant.ttl, Duration.zero))
      })),

    test("R1.1 what one process holds another does not get, until it is released", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys)
        for (let i = 0; i < 3; i++) yield* two.assertBusy(keys, "one holds it")
        yield* one.release(grant)
        yield* two.grant(keys)
        yield* one.assertBusy(keys, "two holds it")
      })),

    test("R1.1 different keys do not stand in each other's way", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.process, yield* world.process]
        for (const name of ["a", "b", "aa", "A", "a ", "ab"]) {
          const process = name.length === 1 ? one : two
          assert.isTrue(isGrant(yield* process.attempt(yield* world.keys(name))), `${name} is free`)
        }
      })),

    test("R1.5 several keys: all of them or none", (world) =>
      Effect.gen(function*() {
        const all = yield* world.keys("a", "b", "c", "d")
        const [one, two, three] = [yield* world.process, yield* world.process, yield* world.process]
        for (const taken of all) {
          const grant = yield* one.grant([taken])
          yield* two.assertBusy(all, "one of them is held")
          for (const free of all.filter((key) => key !== taken)) {
            const probe = yield* three.grant([free])
            yield* three.release(probe)
          }
          yield* one.release(grant)
        }
        const grant = yield* two.grant(all)
        assert.lengthOf(grant.fences, 4)
        for (const key of all) yield* one.assertBusy([key], "it is one of those that are held")
        yield* two.release(grant)
        yield* one.grant(all)
      })),

    test("R1.5 several keys in opposite orders: nobody waits for ever", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const rounds = 10
        let inside = 0
        let entered = 0
        const section = Effect.gen(function*() {
          assert.strictEqual(++inside, 1, "two sections at once")
          yield* Effect.yieldNow()
          inside--
          entered++
        })
        const go = (node: typeof one, names: ReadonlyArray<string>) =>
          Effect.repeatN(node.locking.withLocks(section, names, { waitTimeout: "50 seconds" }), rounds - 1)
        const fibers = [
          yield* Effect.fork(go(one, ["a", "b", "c"])),
          yield* Effect.fork(go(two, ["c", "b", "a"])),
          yield* Effect.fork(go(two, ["b", "c"]))
        ]
        yield* world.within("all rounds", Effect.forEach(fibers, Fiber.join), 20_000 * world.options.slack)
        assert.strictEqual(entered, 3 * rounds)
      })),

    test("R1.7 a repeated attempt finds its own grant, with the same fences", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("a", "b")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys)
        for (let i = 0; i < 3; i++) {
          const again = yield* one.attempt(keys, { token: grant.token })
          assert.isTrue(isGrant(again), "its own grant is not in its way")
          if (isGrant(again)) assert.deepStrictEqual(again.fences, grant.fences)
        }
        // one release gives up all of it
        yield* one.release(grant)
        yield* two.grant(keys)
      })),

    test("R1.4 one attempt never waits", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        yield* one.locking.acquire("k")
        for (const node of [one, two]) {
          const found = yield* world.within("an attempt", node.locking.tryAcquire("k"))
          assert.isTrue(Option.isNone(found))
        }
        assert.strictEqual(one.answered.attempt, 1, "a local holder is known without asking the store")
      })),

    test("R1.1 B04 many fibers of one process: one is inside at any time", (world) =>
      Effect.gen(function*() {
        const { locking } = yield* world.node()
        let inside = 0
        const section = Effect.gen(function*() {
          assert.strictEqual(++inside, 1, "two sections at once")
          yield* settle
          inside--
        })
        const fibers = yield* Effect.forEach(
          Array.from({ length: 10 }),
          () => Effect.fork(locking.withLock(section, "k", { waitTimeout: "50 seconds" }))
        )
        yield* world.within("all of them", Effect.forEach(fibers, Fiber.join), 20_000 * world.options.slack)
      })),

    test("R1.12 B60 what a section forks does not skip the lock: refused, one at a time, or a stranger", (world) =>
      Effect.gen(function*() {
        const { locking } = yield* world.node()
        const entered = { children: 0, most: 0, now: 0 }
        const body = Effect.gen(function*() {
          entered.children++
          entered.now++
          entered.most = Math.max(entered.most, entered.now)
          yield* Effect.sleep(world.ttl / 20)
          entered.now--
        })
        const five = <A, E>(child: Effect.Effect<A, E>) =>
          Effect.forEach([1, 2, 3, 4, 5], () => child, { concurrency: "unbounded" })
        const child = (reentrant: boolean | "wait") =>
          locking.withLock(body, "k", { reentrant, waitTimeout: "50 seconds" })
        const over = yield* Deferred.make<void>()
        const section = locking.withLock(
          Effect.gen(function*() {
            for (const { _tag } of yield* five(Effect.flip(child(false)))) assert.strictEqual(_tag, "LockReentry")
            assert.strictEqual(entered.children, 0)
            yield* five(child(true))
            assert.strictEqual(entered.children, 5)
            const strangers = yield* five(Effect.forkDaemon(child("wait")))
            yield* Effect.sleep(world.ttl / 5)
            assert.strictEqual(entered.children, 5, "strangers wait for the section's end")
            // what outlives the section has no claim of it any more
            const later = yield* Effect.forkDaemon(Effect.zipRight(Deferred.await(over), child(false)))
            return [...strangers, later]
          }),
          "k"
        )
        const daemons = yield* world.within("the section", section, 2 * world.ttl + world.soon)
        yield* Deferred.succeed(over, undefined)
        yield* world.within("what it forked", Effect.forEach(daemons, Fiber.join), world.ttl + world.soon)
        assert.deepStrictEqual(entered, { children: 11, most: 1, now: 0 })
      })),

    test("R1.1 no update is lost between processes", (world) =>
      Effect.gen(function*() {
        const nodes = [yield* world.node(), yield* world.node(), yield* world.node()]
        let balance = 0
        const deposit = Effect.gen(function*() {
          const before = balance
          yield* settle
          balance = before + 1
        })
        const fibers = yield* Effect.forEach(
          Array.from({ length: 12 }, (_, i) => nodes[i % nodes.length]!),
          ({ locking }) => Effect.fork(Effect.repeatN(locking.withLock(deposit, "k", { waitTimeout: "50 seconds" }), 4))
        )
        yield* world.within("all deposits", Effect.forEach(fibers, Fiber.join), 40_000 * world.options.slack)
        assert.strictEqual(balance, 60)
      }))
  ]
}
