import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Scope } from "effect"
import * as Locking from "effect-locking/Locking"
import * as MemoryStore from "effect-locking/MemoryStore"
import { sizes } from "../src/internal/sizes.js"
import { runChild } from "./child.js"

describe("memory", () => {
  it.live(
    "B40 R6.5 200,000 keys, some of them waited for in vain: no record stays, the heap is flat",
    () =>
      Effect.gen(function*() {
        const { code, output } = yield* runChild("heap.ts", [], ["--expose-gc"], 160_000)
        assert.strictEqual(code, 0, output)
        const { bytes, interrupted, sizes } = JSON.parse(output.trim().split("\n").at(-1)!)
        assert.deepStrictEqual(sizes, {
          records: 0,
          grants: 0,
          leases: 0,
          waiters: 0,
          sections: 0,
          activities: 0,
          timers: 0
        })
        assert.isAtLeast(interrupted, 4_000)
        // less than a hundred bytes for each key; a record has several hundred
        assert.isBelow(bytes, 200_000 * 100)
      }),
    120_000
  )

  it.scopedLive("B40 300 keys held never delay 300 others", () =>
    Effect.gen(function*() {
      const locking = yield* Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make))
      const names = (prefix: string) => Array.from({ length: 300 }, (_, i) => `${prefix}${i}`)
      for (const key of names("held ")) yield* locking.acquire(key)
      const waiters = yield* Effect.forEach(names("held "), (key) =>
        Effect.fork(locking.withLock(Effect.void, key, { waitTimeout: "1 minute" })))
      // without waiting, each of them
      yield* Effect.forEach(names("free "), (key) =>
        locking.withLock(Effect.void, key, { waitTimeout: 0 }), { concurrency: "unbounded" })
      yield* Effect.forEach(names("free "), (key) =>
        locking.acquire(key, { waitTimeout: 0 }))
      assert.strictEqual(sizes(locking).records, 600)
      assert.strictEqual(sizes(locking).waiters, 300)
      yield* Fiber.interruptAll(waiters)
    }))

  it.scopedLive("R6.5 B40 what comes and goes at one key, or under one claim, leaves nothing either", () =>
    Effect.gen(function*() {
      const locking = yield* Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make))
      const nested = locking.withLock(locking.withLock(Effect.void, "k", { reentrant: true }), "k")
      for (let i = 0; i < 2_000; i++) {
        yield* nested
        yield* locking.withLock(Effect.void, "k", { mode: "shared" })
        yield* locking.withLocks(Effect.void, ["a", "b", "c"])
      }
      yield* Effect.forEach(
        Array.from({ length: 500 }),
        () => locking.withLock(Effect.yieldNow(), "k", { waitTimeout: "1 minute" }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(sizes(locking), {
        records: 0,
        grants: 0,
        leases: 0,
        waiters: 0,
        sections: 0,
        activities: 0,
        timers: 0
      })
    }))

  it.scopedLive("R1.3 a lease in a scope that lives on keeps the scope's finalizer only", () =>
    Effect.gen(function*() {
      const locking = yield* Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make))
      const scope = yield* Scope.make()
      for (let i = 0; i < 1_000; i++) {
        const lease = yield* Effect.provideService(locking.acquire(`k${i}`), Scope.Scope, scope)
        yield* lease.release
      }
      assert.strictEqual(sizes(locking).records, 0)
      assert.strictEqual(sizes(locking).leases, 0)
    }))
})
