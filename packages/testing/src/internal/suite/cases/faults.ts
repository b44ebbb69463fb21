import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import { assert } from "vitest"
import { type Group, isGrant, newToken, settle, testIf } from "../world.js"

/** Faults may cost a lease and its wait. */
const patience = { waitTimeout: "50 seconds" } as const

export const faults: Group = {
  name: "faults",
  cases: [
    testIf(["faults.dropConnections"])(
      "R7.2 R7.3 B38 connections drop while it holds: the next lock works",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const section = yield* Effect.fork(
            one.locking.withLock(Effect.sleep(2 * world.ttl), "k", { ttl: world.ttl })
          )
          yield* world.until("the grant", Effect.sync(() => one.answered.attempt > 0))
          yield* settle
          yield* world.store.faults!.dropConnections!
          const exit = yield* world.within("its end", Fiber.await(section), 6 * world.ttl + world.soon)
          if (one.driver.capabilities.expiry === "session") {
            assert.isTrue(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost")
          }
          for (const { locking } of [two, one]) {
            yield* world.within(
              "the next lock",
              locking.withLock(Effect.void, "k", patience),
              3 * world.ttl + 4 * world.soon
            )
          }
        })
    ),

    testIf(["faults.dropConnections"])(
      "R6.2 B22 connections drop while it waits: its turn comes",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const lease = yield* one.locking.acquire("k", { ttl: world.ttl })
          const waiter = yield* Effect.fork(two.locking.withLock(Effect.void, "k", patience))
          yield* world.until("the waiter", Effect.sync(() => two.answered.attempt > 1))
          yield* world.store.faults!.dropConnections!
          yield* lease.release
          yield* world.within("its turn", Fiber.join(waiter), 3 * world.ttl + 4 * world.soon)
        })
    ),

    testIf(["faults.loseNextReply"])(
      "R1.7 B13 a grant whose reply is lost is found again, or given back",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const two = yield* world.process
          for (let i = 0; i < 3; i++) {
            const one = yield* world.process
            const token = newToken()
            yield* world.store.faults!.loseNextReply!
            const first = yield* Effect.either(one.attempt(keys, { token }))
            if (first._tag === "Left") {
              assert.strictEqual(first.left.executed, "unknown", "it may have been executed")
            } else assert.strictEqual(first.right._tag, "Grant", "nobody else holds it")
            const claim = { token, keys, mode: "exclusive" } as const
            if (i % 2 === 0) {
              const again = yield* one.grant(keys, { token })
              if (first._tag === "Right" && isGrant(first.right)) {
                assert.deepStrictEqual(again.fences, first.right.fences)
              }
              yield* two.assertBusy(keys, "it was found again")
            }
            yield* world.until(
              "the release",
              Effect.map(Effect.either(one.release(claim)), ({ _tag }) => _tag === "Right")
            )
            const next = yield* two.grant(keys)
            yield* two.release(next)
          }
        })
    ),

    testIf(["faults.loseNextReply"])(
      "R1.11 B65 the reply to a release is lost: the section has its own result",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const result = one.locking.withLock(Effect.as(world.store.faults!.loseNextReply!, "mine"), "k")
          assert.strictEqual(yield* world.within("the section", result, 3 * world.soon), "mine")
          yield* world.within("the next one", two.locking.withLock(Effect.void, "k", patience), 4 * world.soon)
        })
    ),

    testIf(["faults.stall"])(
      "R1.7 B44 the store is mute: a call ends in time, and nothing is granted later",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          yield* one.locking.withLock(Effect.void, "k")
          yield* Effect.scoped(Effect.gen(function*() {
            yield* world.store.faults!.stall!
            const error = yield* world.within(
              "the end of the wait",
              Effect.flip(one.locking.withLock(Effect.die("was inside"), "k", { waitTimeout: 1_000 })),
              3_000 + world.soon
            )
            assert.include(["OutcomeUnknown", "ProviderFailed"], error._tag)
          }))
          yield* world.within("the key is free", two.locking.withLock(Effect.void, "k", patience), 4 * world.soon)
        })
    ),

    testIf(["faults.stall"])(
      "R2.5 R2.4 B01 B65 the store is mute for longer than the ttl: the section ends in time",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const before = yield* world.now
          let left = Infinity
          const body = Effect.ensuring(
            Effect.sleep("1 hour"),
            Effect.map(world.now, (now) => {
              left = now
            })
          )
          const section = yield* Effect.fork(Effect.zip(
            Effect.exit(one.locking.withLock(body, "k", { ttl: world.ttl, attemptTimeout: world.soon })),
            world.now
          ))
          yield* world.until("the grant", Effect.sync(() => one.answered.attempt > 0))
          yield* settle
          yield* Effect.scoped(Effect.gen(function*() {
            yield* world.store.faults!.stall!
            const [exit, at] = yield* world.within("its end", Fiber.join(section), 3 * world.ttl + world.soon)
            // B65: what is lost is not given back
            assert.isBelow(at - left, 200 * world.options.slack)
            assert.isTrue(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost")
            assert.isAtLeast((yield* world.now) - before, world.ttl / 2)
          }))
          yield* world.within(
            "the next one",
            two.locking.withLock(Effect.void, "k", patience),
            3 * world.ttl + 4 * world.soon
          )
        })
    ),

    testIf(["faults.stall"])("R7.1 B29 the store is mute: a close ends in time", (world) =>
      Effect.gen(function*() {
        yield* Effect.scoped(Effect.gen(function*() {
          const close = Effect.scoped(Effect.gen(function*() {
            const one = yield* world.node({ shutdownTimeout: "1 second" })
            yield* Effect.forkDaemon(one.locking.withLock(Effect.sleep("1 hour"), "k", { ttl: world.ttl }))
            yield* world.until("the grant", Effect.sync(() => one.answered.attempt > 0))
            yield* world.store.faults!.stall!
          }))
          yield* world.within("the close", close, 3_000 + 3 * world.soon)
        }))
      })),

    testIf(["faults.restart"])(
      "R7.2 the store restarts: a waiter gets its turn, and the next lock works",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const section = yield* Effect.fork(
            one.locking.withLock(Effect.sleep(world.ttl), "k", { ttl: world.ttl })
          )
          yield* world.until("the grant", Effect.sync(() => one.answered.attempt > 0))
          const waiter = yield* Effect.fork(two.locking.withLock(Effect.void, "k", patience))
          yield* world.until("the waiter", Effect.sync(() => two.answered.attempt > 0))
          yield* world.store.faults!.restart!
          yield* world.within("the section's end", Fiber.await(section), 6 * world.ttl + world.soon)
          yield* world.within("its turn", Fiber.join(waiter), 30_000 * world.options.slack)
          assert.isTrue(Option.isSome(yield* one.locking.withLockIfAvailable(Effect.void, "another key")))
        })
    )
  ]
}
