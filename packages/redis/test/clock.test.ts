/**
 * One server whose clock is not to be trusted. It ends leases, so there are things that nobody can promise then; what is
 * left is that fences rise, that a holder learns of its loss, and that locking goes on.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, type Scope } from "effect"
import type { Locking } from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as RedisFence from "../src/RedisFence.js"
import * as kit from "./kit.js"

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 60_000)

/** A server, and two processes that know its clock. */
const world = (options: LockingOptions) =>
  Effect.gen(function*() {
    const server = yield* Effect.orDie(RedisServer.make({ movableClock: true }))
    const [one, two] = [yield* kit.node(server.url(), options), yield* kit.node(server.url(), options)]
    yield* Effect.forEach([one, two], (locking) => locking.withLock(Effect.void, "warm"))
    return { server, one, two }
  })

/** A section that goes on until it is told to end, and what its lease is. */
const hold = (locking: Locking, key: string) =>
  Effect.gen(function*() {
    const begun = yield* Deferred.make<bigint>()
    const end = yield* Deferred.make<void>()
    const fiber = yield* Effect.fork(
      locking.useLock(key, (lease) => Effect.zipRight(Deferred.succeed(begun, lease.fence), Deferred.await(end)))
    )
    return { fence: yield* Deferred.await(begun), fiber, end: Deferred.succeed(end, undefined) }
  })

const fenceOf = (locking: Locking, key: string) => locking.useLock(key, (lease) => Effect.succeed(lease.fence))

describe("a server's clock", () => {
  it_(
    "R3.1 B63 is set forward: the holder learns at its next renewal, and its late write is refused",
    () =>
      Effect.gen(function*() {
        const { one, server, two } = yield* world({ ttl: "6 seconds" })
        const client = yield* kit.client(server.url())
        const { fence, fiber } = yield* hold(one, "k")
        yield* server.moveClock(35_000)
        const next = yield* two.useLock(
          "k",
          (lease) => Effect.as(RedisFence.set(client, "resource", "second", lease), lease.fence)
        )
        assert.isTrue(next > fence)
        const [took, exit] = yield* Effect.timed(Fiber.await(fiber))
        assert.isTrue(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost")
        assert.isBelow(Duration.toMillis(took), 6_000)
        const refused = yield* Effect.flip(RedisFence.set(client, "resource", "first", fence as typeof next))
        assert.strictEqual(refused._tag, "StaleFence")
      })
  )

  it_(
    "R3.1 is set back by an hour: what is held stays held and is given back, and fences rise all the same",
    () =>
      Effect.gen(function*() {
        const { one, server, two } = yield* world({ ttl: "3 seconds" })
        const { end, fence, fiber } = yield* hold(one, "k")
        yield* server.moveClock(-3_500_000)
        const waiter = yield* Effect.fork(
          two.useLock("k", { waitTimeout: "20 seconds" }, (lease) => Effect.succeed(lease.fence))
        )
        // renewed by the clock that is set back
        yield* Effect.sleep("4 seconds")
        yield* end
        yield* Fiber.join(fiber)
        let last = fence
        for (const next of [yield* Fiber.join(waiter), yield* fenceOf(one, "k"), yield* fenceOf(two, "k")]) {
          assert.isTrue(next > last)
          last = next
        }
      })
  )

  it_(
    "B13 R1.7 jumps to and fro: attempts are not too late for it, nor too early, and one is inside at a time",
    () =>
      Effect.gen(function*() {
        const { one, server, two } = yield* world({ ttl: "1 minute" })
        const section = kit.oneAtATime(5)
        for (const ahead of [20_000, -20_000, 15_000, 0, -3_500_000, 0]) {
          yield* server.moveClock(ahead)
          yield* Effect.forEach(
            [one, two, one, two],
            (locking) => locking.useLock("k", { waitTimeout: "20 seconds" }, section),
            { concurrency: "unbounded" }
          )
        }
      })
  )
})
