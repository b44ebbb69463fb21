import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import { assert } from "vitest"
import { type Group, settle, test, testIf } from "../world.js"

const yields = (count: number) =>
  Effect.forEach(Array.from({ length: count }), () => Effect.yieldNow(), { discard: true })

export const interruption: Group = {
  name: "interruption",
  cases: [
    test("B12 B13 an attempt that is interrupted at any step, then given back, leaves nothing", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("a", "b")
        const [one, two] = [yield* world.process, yield* world.process]
        for (let steps = 0; steps <= 12; steps++) {
          const { attempt, claim } = one.contend(keys, { waiting: false })
          const fiber = yield* Effect.fork(attempt)
          yield* yields(steps)
          yield* Effect.fork(Fiber.interrupt(fiber))
          yield* one.release(claim)
          // an attempt on its way may still act, so it is given back again, as the engine does
          yield* Fiber.await(fiber)
          yield* one.release(claim)
          const grant = yield* two.grant(keys)
          yield* two.release(grant)
        }
      })),

    test("B12 B13 a caller that is interrupted at any step leaves the key free", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        for (let steps = 0; steps <= 20; steps++) {
          const fiber = yield* Effect.fork(one.locking.withLock(Effect.sleep("1 hour"), "k"))
          yield* yields(steps)
          yield* world.within("the interruption", Fiber.interrupt(fiber))
          yield* world.until(
            "the key is free",
            Effect.map(two.locking.withLockIfAvailable(Effect.void, "k"), Option.isSome)
          )
        }
      })),

    test("R1.13 R8.5 a waiter that is interrupted at any step takes nobody's turn", (world) =>
      Effect.gen(function*() {
        const [one, two, three] = [yield* world.node(), yield* world.node(), yield* world.node()]
        for (let steps = 0; steps <= 12; steps += 2) {
          const lease = yield* one.locking.acquire("k", { waitTimeout: "50 seconds" })
          const gone = yield* Effect.fork(
            two.locking.withLock(Effect.sleep("1 hour"), "k", { waitTimeout: "50 seconds" })
          )
          yield* settle
          const next = yield* Effect.fork(three.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }))
          yield* Effect.fork(lease.release)
          yield* yields(steps)
          yield* world.within("the interruption", Fiber.interrupt(gone))
          yield* world.within("the next one's turn", Fiber.join(next))
        }
      })),

    test("R6.5 a thousand waiters, all interrupted, all gone", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const lease = yield* one.locking.acquire("k")
        const fibers = yield* Effect.forEach(
          Array.from({ length: 1_000 }),
          () => Effect.fork(two.locking.withLock(Effect.die("was inside"), "k", { waitTimeout: "50 seconds" }))
        )
        yield* world.until("the first waiter", Effect.sync(() => two.answered.arm > 0))
        yield* world.within("their end", Fiber.interruptAll(fibers), 20_000 * world.options.slack)
        yield* lease.release
        yield* world.until(
          "the key is free",
          Effect.map(two.locking.withLockIfAvailable(Effect.void, "k"), Option.isSome)
        )
        yield* world.until(
          "what was armed is withdrawn",
          Effect.sync(() => two.answered.withdraw === two.answered.arm)
        )
      })),

    testIf(["storeView.interests"])(
      "R6.5 a waiter that times out is forgotten by the store",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          yield* one.locking.acquire("k")
          yield* world.within(
            "the time-out",
            Effect.flip(two.locking.withLock(Effect.void, "k", { waitTimeout: 300 })),
            1_000 + world.soon
          )
          yield* world.until("no interest", Effect.map(world.store.storeView!.interests!, (count) => count === 0))
          assert.strictEqual(two.answered.arm, two.answered.withdraw)
        })
    )
  ]
}
