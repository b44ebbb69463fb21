import { assert, describe, it } from "@effect/vitest"
import { assertNone } from "@effect/vitest/utils"
import { Deferred, Duration, Effect, Exit, Fiber, Option, Random, TestClock } from "effect"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as TestLocking from "effect-locking/TestLocking"
import { alone, assertFree, assertIdle, counting, ended, failureOf, isRunning, node, section, settle } from "./kit.js"

const shared = { mode: "shared" } as const

const twoNodes = Effect.gen(function*() {
  const store = yield* MemoryStore.make
  return { one: yield* node(store), two: yield* node(store) }
})

/** Somebody inside. */
const inside = (locking: Locking.Locking, options: { readonly mode?: "shared" | "exclusive" } = {}) =>
  Effect.gen(function*() {
    const within = yield* section
    const fiber = yield* Effect.fork(locking.withLock(within.run, "k", { waitTimeout: "1 hour", ...options }))
    yield* settle
    return {
      fiber,
      isIn: Effect.zipRight(settle, Deferred.isDone(within.begun)),
      leave: Effect.zipRight(Deferred.succeed(within.end, undefined), settle)
    }
  })

describe("readers", () => {
  it.scoped("R1.6 are inside together, however many and in however many processes", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const readers = []
      for (let i = 0; i < 30; i++) readers.push(yield* inside(i % 3 === 0 ? two : one, shared))
      for (const reader of readers) assert(yield* reader.isIn)
      for (const reader of readers) yield* reader.leave
      for (const reader of readers) assert(Exit.isSuccess(yield* ended(reader.fiber)))
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))

  it.scoped("R1.6 join readers who have been inside for a while", () =>
    Effect.gen(function*() {
      const every: ReadonlyArray<LockingOptions> = [{}, { ttl: "3 seconds" }]
      for (const options of every) {
        const locking = yield* alone(options)
        const first = yield* inside(locking, shared)
        const later = []
        for (let i = 0; i < 10; i++) {
          yield* TestClock.adjust("700 millis")
          const reader = yield* inside(locking, shared)
          assert(yield* reader.isIn, `reader ${i}`)
          later.push(reader)
        }
        for (const { leave } of [first, ...later]) yield* leave
        yield* assertIdle(locking)
      }
    }))

  it.scoped("R1.6 R1.4 join with a single attempt too, at any time", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      yield* locking.acquire("k", shared)
      for (let i = 0; i < 12; i++) {
        yield* locking.acquire("k", { ...shared, waitTimeout: 0 })
        assert(Option.isSome(yield* locking.tryAcquire("k", shared)), `reader ${i}`)
        assert(Option.isSome(yield* locking.withLockIfAvailable(Effect.void, "k", shared)), `reader ${i}`)
        if (i % 4 === 3) yield* TestClock.adjust("1 minute")
      }
    }))

  it.effect("R1.6 join over a remote store, at once and after a while", () =>
    Effect.gen(function*() {
      const locking = yield* Locking.Locking
      const readers = []
      for (let i = 0; i < 12; i++) {
        readers.push(yield* inside(locking, shared))
        yield* TestClock.adjust(i < 8 ? 0 : "2 seconds")
      }
      for (const [i, reader] of readers.entries()) assert(yield* reader.isIn, `reader ${i}`)
      for (const reader of readers) yield* reader.leave
      assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
    }).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R1.6 leave one by one; the last one gives the key back", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const { calls, driver } = counting(yield* MemoryStore.driver(store))
      const locking = yield* Locking.make(driver)
      const other = yield* node(store)
      const readers = [yield* inside(locking, shared), yield* inside(locking, shared), yield* inside(locking, shared)]
      assert.strictEqual(calls.attempt, 1)
      for (const [i, reader] of readers.entries()) {
        assertNone(yield* other.withLockIfAvailable(Effect.void, "k"))
        assert.strictEqual(calls.release, 0, `${i} have left`)
        yield* reader.leave
      }
      assert.strictEqual(calls.release, 1)
      yield* assertFree(other, "k")
    }))

  it.scoped("R1.6 have numbers that tell whose turn it was, never a writer's", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const before = yield* one.useLock("k", (lease) => Effect.succeed<bigint>(lease.fence))
      const readers: Array<bigint> = []
      yield* Effect.scoped(Effect.gen(function*() {
        for (let i = 0; i < 20; i++) {
          const lease = yield* (i % 2 === 0 ? one : two).acquire("k", shared)
          assert.strictEqual(lease.mode, "shared")
          readers.push(lease.fence)
        }
      }))
      const after = yield* two.useLock("k", (lease) => Effect.succeed<bigint>(lease.fence))
      for (const fence of readers) assert(before < fence && fence < after)
    }))

  it.scoped("R1.6 R1.9 one that is not renewed ends by itself, the others go on", () =>
    Effect.gen(function*() {
      const locking = yield* alone({ ttl: "3 seconds" })
      const renewed = yield* inside(locking, shared)
      yield* TestClock.adjust("800 millis")
      const fiber = yield* Effect.fork(locking.withLock(Effect.sleep("1 hour"), "k", { ...shared, autoRenew: false }))
      yield* TestClock.adjust("2900 millis")
      yield* isRunning(fiber)
      yield* TestClock.adjust("100 millis")
      const error = yield* failureOf(fiber)
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "expired")
      yield* TestClock.adjust("1 minute")
      yield* isRunning(renewed.fiber)
      yield* renewed.leave
      yield* assertIdle(locking)
    }))

  it.scoped("R1.6 R1.10 one that is held too long ends, the others go on", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const reader = yield* inside(locking, shared)
      const limited = yield* Effect.fork(
        locking.withLock(Effect.sleep("1 hour"), "k", { ...shared, maxHold: "2 seconds" })
      )
      yield* TestClock.adjust("2 seconds")
      const error = yield* failureOf(limited)
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "max-hold")
      yield* isRunning(reader.fiber)
      yield* reader.leave
      yield* assertIdle(locking)
    }))

  it.scoped("R1.6 all lose their leases when the key is taken away", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const readers = [yield* inside(one, shared), yield* inside(two, shared), yield* inside(one, shared)]
      assert.lengthOf((yield* one.forceRelease("k")).holders, 2)
      for (const reader of readers) assert.strictEqual((yield* failureOf(reader.fiber))._tag, "LeaseLost")
      yield* assertFree(one, "k")
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))
})

describe("writers", () => {
  it.scoped("R1.6 are alone: they wait for every reader, here and elsewhere, and every reader for them", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const readers = [yield* inside(one, shared), yield* inside(one, shared), yield* inside(two, shared)]
      const writer = yield* inside(one)
      for (const reader of readers) {
        assert.isFalse(yield* writer.isIn)
        yield* reader.leave
      }
      assert.isTrue(yield* writer.isIn)
      const behind = [yield* inside(one, shared), yield* inside(two, shared)]
      for (const reader of behind) assert.isFalse(yield* reader.isIn)
      yield* writer.leave
      // a process that gives a key to others lets them go first, for one poll
      yield* TestClock.adjust("1 second")
      for (const reader of behind) assert.isTrue(yield* reader.isIn)
      for (const reader of behind) yield* reader.leave
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))

  it.scoped("R1.6 a writer that waits here is not overtaken by new readers here", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const reader = yield* inside(locking, shared)
      const writer = yield* inside(locking)
      const late = [yield* inside(locking, shared), yield* inside(locking, shared)]
      assertNone(yield* locking.withLockIfAvailable(Effect.void, "k", shared))
      for (const one of late) assert.isFalse(yield* one.isIn)
      yield* reader.leave
      assert.isTrue(yield* writer.isIn)
      for (const one of late) assert.isFalse(yield* one.isIn)
      yield* writer.leave
      for (const one of late) assert.isTrue(yield* one.isIn)
      for (const one of late) yield* one.leave
      yield* assertIdle(locking)
    }))

  it.scoped("R1.6 a writer that waits elsewhere keeps new readers of a third process out", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const [one, two, three] = [yield* node(store), yield* node(store), yield* node(store)]
      const reader = yield* inside(one, shared)
      const writer = yield* inside(two)
      const late = yield* inside(three, shared)
      assertNone(yield* three.withLockIfAvailable(Effect.void, "k", shared))
      assert.isFalse(yield* late.isIn)
      yield* reader.leave
      assert.isTrue(yield* writer.isIn)
      assert.isFalse(yield* late.isIn)
      yield* writer.leave
      assert.isTrue(yield* late.isIn)
      yield* late.leave
      for (const locking of [one, two, three]) yield* assertIdle(locking)
    }))

  /** Readers that never leave the key alone: each one comes before the one before it has left. */
  const stream = (locking: Locking.Locking, entered: { count: number }) =>
    Effect.forever(
      Effect.zipRight(
        Effect.fork(Effect.ignore(locking.withLock(
          Effect.zipRight(Effect.sync(() => entered.count++), Effect.sleep("30 millis")),
          "k",
          { ...shared, waitTimeout: "1 hour" }
        ))),
        Effect.sleep("10 millis")
      )
    )

  it.scoped("R1.6 a writer is not starved by a stream of readers of another process", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes
      const entered = { count: 0 }
      const readers = yield* Effect.fork(stream(one, entered))
      yield* TestClock.adjust("1 second")
      assert(entered.count >= 50, `${entered.count} readers`)
      const writer = yield* inside(two)
      for (let i = 0; i < 20; i++) yield* TestClock.adjust("10 millis")
      assert.isTrue(yield* writer.isIn)
      yield* writer.leave
      const before = entered.count
      for (let i = 0; i < 20; i++) yield* TestClock.adjust("10 millis")
      assert(entered.count > before, "the readers come again")
      yield* Fiber.interrupt(readers)
    }))

  it.effect("R1.6 a writer is not starved by a stream of readers over a remote store", () =>
    Effect.gen(function*() {
      const writers = yield* TestLocking.node("writers")
      const entered = { count: 0 }
      const readers = yield* Effect.fork(stream(yield* Locking.Locking, entered))
      for (let i = 0; i < 20; i++) yield* TestClock.adjust("10 millis")
      assert(entered.count >= 10, `${entered.count} readers`)
      const writer = yield* inside(writers)
      for (let i = 0; i < 60; i++) yield* TestClock.adjust("10 millis")
      assert.isTrue(yield* writer.isIn)
      yield* writer.leave
      yield* Fiber.interrupt(readers)
    }).pipe(Effect.scoped, Effect.provide(TestLocking.layer)))

  it.scoped("R1.6 a writer that gives up lets the readers in that waited behind it", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const [one, two, three] = [yield* node(store), yield* node(store), yield* node(store)]
      const reader = yield* inside(one, shared)
      for (const end of ["interrupt", "timeout"]) {
        const writers = []
        for (const locking of [one, two]) {
          writers.push(yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "1 second" })))
          yield* settle
        }
        const behind = [yield* inside(one, shared), yield* inside(two, shared), yield* inside(three, shared)]
        for (const late of behind) assert.isFalse(yield* late.isIn)
        if (end === "interrupt") { for (const writer of writers) yield* Fiber.interrupt(writer) }
        else yield* TestClock.adjust("1 second")
        for (const late of behind) assert.isTrue(yield* late.isIn)
        for (const late of behind) yield* late.leave
      }
      yield* reader.leave
      for (const locking of [one, two, three]) yield* assertIdle(locking)
    }))

  it.scoped("R1.6 R1.12 a reader that asks to write is refused at once, whatever `reentrant` says short of \"wait\"", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const ask = (options: {}) => Effect.flip(locking.withLock(Effect.void, "k", options))
      for (const reentrant of [false, true]) {
        const error = yield* locking.withLock(ask({ reentrant }), "k", shared)
        assert.strictEqual(error._tag, "LockReentry")
      }
      const waiting = yield* Effect.fork(
        locking.withLock(ask({ reentrant: "wait", waitTimeout: "1 second" }), "k", shared)
      )
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(waiting))._tag, "WaitTimeout")
      yield* assertIdle(locking)
    }))

  it.scoped("R1.6 R1.12 a writer that asks to read joins itself with `reentrant: true` only", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const read = (options: {}) =>
        Effect.either(locking.withLock(Effect.succeed("read"), "k", { ...shared, ...options }))
      const refused = yield* locking.withLock(read({}), "k")
      assert(refused._tag === "Left" && refused.left._tag === "LockReentry")
      const joined = yield* locking.withLock(read({ reentrant: true }), "k")
      assert(joined._tag === "Right")
      yield* assertIdle(locking)
    }))
})

describe("modes", () => {
  it.scoped("R1.6 a mode that the driver cannot grant is refused by name", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const locking = yield* Locking.make({
        ...driver,
        capabilities: { ...driver.capabilities, modes: ["exclusive"] }
      })
      const error = yield* Effect.flip(locking.withLock(Effect.void, "k", shared))
      assert(error._tag === "InvalidOptions")
      assert.deepStrictEqual(error.issues.map(({ path }) => path), ["mode"])
    }))

  it.scoped("R1.6 exclusive is the default", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      assert.strictEqual(yield* locking.useLock("k", (lease) => Effect.succeed<string>(lease.mode)), "exclusive")
      assert.strictEqual(yield* locking.useLock("k", {}, (lease) => Effect.succeed<string>(lease.mode)), "exclusive")
    }))

  for (const seed of [1, 2, 3]) {
    it.scoped(`R1.6 no writer beside anybody, in any mix (seed ${seed})`, () =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const nodes = [yield* node(store), yield* node(store), yield* node(store)]
        const now = { readers: 0, writers: 0, most: 0, entered: 0 }
        const enter = (who: "readers" | "writers", duration: number) =>
          Effect.acquireUseRelease(
            Effect.sync(() => {
              now[who]++
              now.entered++
              now.most = Math.max(now.most, now.readers)
              assert(now.writers === 0 || now.writers + now.readers === 1, JSON.stringify(now))
            }),
            () => duration === 0 ? Effect.yieldNow() : Effect.sleep(duration),
            () => Effect.sync(() => now[who]--)
          )
        const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
        for (let i = 0; i < 200; i++) {
          const locking = nodes[yield* Random.nextIntBetween(0, nodes.length)]!
          const mode = (yield* Random.nextInt) % 3 === 0 ? "exclusive" : "shared"
          const duration = yield* Random.nextIntBetween(0, 30)
          const options = {
            mode,
            waitTimeout: "1 hour",
            ...(i % 7 === 0 ? { maxHold: Duration.millis(12) } : {})
          } as const
          const fiber = yield* Effect.fork(
            locking.withLock(enter(mode === "shared" ? "readers" : "writers", duration), "k", options)
          )
          fibers.push(fiber)
          const next = yield* Random.nextIntBetween(0, 10)
          if (next === 0) yield* Fiber.interruptFork(fibers[yield* Random.nextIntBetween(0, fibers.length)]!)
          if (next > 6) yield* TestClock.adjust(next)
        }
        yield* TestClock.adjust("1 minute")
        for (const fiber of fibers) yield* ended(fiber)
        assert(now.entered > 100 && now.most > 1, JSON.stringify(now))
        for (const locking of nodes) yield* assertIdle(locking)
      }).pipe(Effect.withRandom(Random.make(seed))))
  }
})
