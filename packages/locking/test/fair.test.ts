import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { LockRequest } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import * as MemoryStore from "effect-locking/MemoryStore"
import { sizes } from "../src/internal/sizes.js"
import { settle } from "./kit.js"

describe("R1.13 fair", () => {
  it.scoped("is refused where the driver keeps no order, and where it is no boolean", () =>
    Effect.gen(function*() {
      const locking = yield* Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make))
      for (const fair of [true, "yes"] as ReadonlyArray<boolean>) {
        const error = yield* Effect.flip(locking.withLock(Effect.void, "a", { fair }))
        assert(error._tag === "InvalidOptions")
        assert.deepStrictEqual(error.issues.map(({ path }) => path), ["fair"])
      }
      yield* locking.withLock(Effect.void, "a", { fair: false })
    }))

  it.scoped("every caller has a contention of its own, and is served by the store", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const requests: Array<LockRequest> = []
      const locking = yield* Locking.make({
        ...driver,
        capabilities: { ...driver.capabilities, fair: true },
        contend: (request) => {
          requests.push(request)
          return driver.contend(request)
        }
      })
      const lease = yield* locking.acquire("a", { fair: true })
      const waiters = yield* Effect.forEach(
        [1, 2],
        () => Effect.fork(locking.withLock(Effect.void, "a", { fair: true }))
      )
      yield* settle
      assert.lengthOf(requests, 3)
      assert.isTrue(requests.every(({ fair }) => fair))
      yield* lease.release
      yield* Effect.forEach(waiters, (fiber) => Fiber.join(fiber))
      assert.deepStrictEqual(yield* locking.list(), [])
    }))

  it.scoped("R6.6 R6.5 a key counts once, however many wait for it, and no longer than they do", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const locking = yield* Locking.make(
        { ...driver, capabilities: { ...driver.capabilities, fair: true } },
        { maxKeys: 2 }
      )
      const fair = { fair: true, waitTimeout: "1 hour" } as const
      const lease = yield* locking.acquire("a", fair)
      const waiters = yield* Effect.forEach([1, 2, 3], () => Effect.fork(locking.withLock(Effect.void, "a", fair)))
      yield* settle
      const other = yield* locking.acquire("b")
      for (const options of [fair, {}]) {
        const error = yield* Effect.flip(locking.withLock(Effect.void, "c", options))
        assert.strictEqual(error._tag, "KeyLimit")
      }
      // the same key in no order is no other key
      const plain = yield* Effect.fork(locking.withLock(Effect.void, "a", { waitTimeout: "1 hour" }))
      const ordered = yield* Effect.fork(locking.withLock(Effect.void, "b", fair))
      yield* settle
      const both = yield* Effect.flip(locking.withLocks(Effect.void, ["a", "c"], fair))
      assert.strictEqual(both._tag, "KeyLimit")
      yield* Fiber.interrupt(waiters[0]!)
      yield* lease.release
      yield* Effect.forEach(waiters.slice(1), (fiber) => Fiber.join(fiber))
      yield* Fiber.join(plain)
      yield* locking.withLock(Effect.void, "c", fair)
      yield* other.release
      yield* Fiber.join(ordered)
      yield* locking.withLocks(Effect.void, ["c", "d"], fair)
      assert.deepStrictEqual(sizes(locking), { ...sizes(locking), records: 0, waiters: 0 })
    }))
})
