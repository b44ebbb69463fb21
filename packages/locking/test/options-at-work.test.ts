import { assert, describe, it } from "@effect/vitest"
import { assertNone } from "@effect/vitest/utils"
import { Chunk, Deferred, Duration, Effect, Exit, Fiber, Random, Stream, TestClock } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import { DriverError } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { AcquireOptions, LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as TestLocking from "effect-locking/TestLocking"
import {
  alone,
  assertFree,
  assertIdle,
  capturingLogs,
  counting,
  ended,
  failureOf,
  inScope,
  isRunning,
  metric,
  node,
  section,
  settle,
  withCode
} from "./kit.js"

const twoNodes = (options?: LockingOptions) =>
  Effect.gen(function*() {
    const store = yield* MemoryStore.make
    return { one: yield* node(store, options), two: yield* node(store, options) }
  })

/** A layer whose attempts answer as told, and when they were made. */
const answering = (answer: (n: number) => DriverError | "granted" | "busy", options?: LockingOptions) =>
  Effect.gen(function*() {
    const clock = yield* Effect.clock
    const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
    const times: Array<number> = []
    const changed: LockDriver = {
      ...driver,
      contend: (request) => {
        const contention = driver.contend(request)
        return {
          attempt: (attempt) =>
            Effect.suspend(() => {
              times.push(clock.unsafeCurrentTimeMillis())
              const told = answer(times.length - 1)
              return told === "granted"
                ? contention.attempt(attempt)
                : told === "busy"
                ? Effect.succeed({ _tag: "Busy" as const })
                : Effect.fail(told)
            }),
          arm: (wake) => contention.arm(wake),
          withdraw: Effect.suspend(() => contention.withdraw)
        }
      }
    }
    return { locking: yield* Locking.make(changed, options), times }
  })

const down = new DriverError({ executed: "no", message: "down" })
const cut = new DriverError({ executed: "unknown", message: "cut" })

describe("waitTimeout", () => {
  it.scoped("R1.7 is 5 seconds by default, the layer's or the call's where they say so; not a millisecond less", () =>
    Effect.gen(function*() {
      const cases: ReadonlyArray<[LockingOptions, AcquireOptions, number]> = [
        [{}, {}, 5000],
        [{ waitTimeout: "2 seconds" }, {}, 2000],
        [{ waitTimeout: "2 seconds" }, { waitTimeout: "3 seconds" }, 3000],
        [{}, { waitTimeout: 1 }, 1]
      ]
      for (const [layer, call, millis] of cases) {
        const { one, two } = yield* twoNodes(layer)
        yield* one.acquire("k")
        for (const locking of [one, two]) {
          const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k", call))
          yield* TestClock.adjust(millis - 1)
          yield* isRunning(fiber)
          yield* TestClock.adjust(1)
          const error = yield* failureOf(fiber)
          assert(error._tag === "WaitTimeout")
          assert.strictEqual(Duration.toMillis(error.waited), millis)
          assert.strictEqual(Duration.toMillis(error.waitTimeout), millis)
          assert.strictEqual(error.holder?.local, locking === one)
        }
      }
    }))

  it.scoped("R1.7 zero: exactly one attempt, then LockBusy", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const { calls, driver } = counting(yield* MemoryStore.driver(store))
      const locking = yield* Locking.make(driver)
      assert.strictEqual(yield* locking.withLock(Effect.succeed("free"), "k", { waitTimeout: 0 }), "free")
      assert.strictEqual(calls.attempt, 1)
      yield* Effect.flatMap(node(store), (other) => other.acquire("k"))
      const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
      assert.strictEqual(error._tag, "LockBusy")
      assert.strictEqual(calls.attempt, 2)
      assert.strictEqual(calls.arm, 0)
    }))

  it.scoped("R1.7 infinity: as long as it takes", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      const { close } = yield* inScope(one.acquire("k"))
      const waiting = []
      for (const locking of [one, two]) {
        waiting.push(yield* Effect.fork(locking.withLock(Effect.succeed("in"), "k", { waitTimeout: Infinity })))
      }
      yield* TestClock.adjust("1000 days")
      for (const fiber of waiting) yield* isRunning(fiber)
      yield* close(Exit.void)
      yield* TestClock.adjust("1 second")
      for (const fiber of waiting) assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("in"))
    }))

  describe("B45 R1.7 odd values", () => {
    const refused: ReadonlyArray<unknown> = [
      -1,
      -0.001,
      NaN,
      -Infinity,
      "",
      "soon",
      "-1 seconds",
      -1n,
      null,
      {},
      [1],
      true
    ]
    const operations: Record<string, (locking: Locking.Locking, waitTimeout: any) => Effect.Effect<unknown, unknown>> =
      {
        withLock: (locking, waitTimeout) => locking.withLock(Effect.void, "k", { waitTimeout }),
        useLock: (locking, waitTimeout) => locking.useLock("k", { waitTimeout }, () => Effect.void),
        withLocks: (locking, waitTimeout) => locking.withLocks(Effect.void, ["k", "l"], { waitTimeout }),
        useLocks: (locking, waitTimeout) => locking.useLocks(["k", "l"], { waitTimeout }, () => Effect.void),
        acquire: (locking, waitTimeout) => Effect.scoped(locking.acquire("k", { waitTimeout }))
      }
    for (const [name, operation] of Object.entries(operations)) {
      it.scoped(`B45 R1.7 ${name} refuses them, before the store is asked`, () =>
        Effect.gen(function*() {
          const { calls, driver } = counting(yield* MemoryStore.driver(yield* MemoryStore.make))
          const locking = yield* Locking.make(driver)
          for (const waitTimeout of refused) {
            const error: any = yield* Effect.flip(operation(locking, waitTimeout))
            assert.strictEqual(error._tag, "InvalidOptions", String(waitTimeout))
            assert.deepStrictEqual(error.issues.map(({ path }: any) => path), ["waitTimeout"])
          }
          assert.strictEqual(calls.attempt, 0)
          yield* assertIdle(locking)
        }))
    }

    it.scoped("B45 R1.7 a single attempt takes no waitTimeout at all", () =>
      Effect.gen(function*() {
        const locking = yield* alone()
        const options = { waitTimeout: "1 second" } as {}
        const failures = [
          yield* Effect.flip(locking.withLockIfAvailable(Effect.void, "k", options)),
          yield* Effect.flip(Effect.scoped(locking.tryAcquire("k", options)))
        ]
        for (const error of failures) {
          assert(error._tag === "InvalidOptions")
          assert.deepStrictEqual(error.issues.map(({ path }) => path), ["waitTimeout"])
        }
      }))

    it.scoped("B45 R1.7 every other value wins a free lock, and a busy one within its limit", () =>
      Effect.gen(function*() {
        const values: ReadonlyArray<[Duration.DurationInput, number]> = [
          [0, 0],
          [-0, 0],
          ["0 seconds", 0],
          [Duration.seconds(-1), 0],
          [0.5, 0.5],
          [1, 1],
          ["1 second", 1000],
          [Duration.seconds(1), 1000],
          [1_000_000_000n, 1000],
          [[1, 500_000_000], 1500],
          [Infinity, Infinity],
          [Duration.infinity, Infinity]
        ]
        const { one, two } = yield* twoNodes()
        for (const [waitTimeout, millis] of values) {
          assert.strictEqual(yield* one.withLock(Effect.succeed("free"), "k", { waitTimeout }), "free")
          for (const locking of [one, two]) {
            const { close } = yield* inScope(one.acquire("k"))
            const fiber = yield* Effect.fork(locking.withLock(Effect.succeed("in"), "k", { waitTimeout }))
            if (millis === Infinity) {
              yield* TestClock.adjust("10 days")
              yield* isRunning(fiber)
              yield* close(Exit.void)
              yield* TestClock.adjust("1 second")
              assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("in"))
              continue
            }
            if (millis > 0) yield* isRunning(fiber)
            yield* TestClock.adjust(Math.ceil(millis))
            assert.strictEqual((yield* failureOf(fiber))._tag, millis === 0 ? "LockBusy" : "WaitTimeout")
            yield* close(Exit.void)
          }
        }
        yield* assertIdle(one)
        yield* assertIdle(two)
      }))

    it.effect("B45 R1.7 over a remote store even a millisecond is enough for a free lock", () =>
      Effect.gen(function*() {
        yield* TestLocking.answerLate(20, { op: "attempt" })
        for (const waitTimeout of [1, 2, 10]) {
          const fiber = yield* Effect.fork(Locking.withLock(Effect.succeed("in"), "k", { waitTimeout }))
          yield* TestClock.adjust(20)
          yield* TestClock.adjust(20)
          assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("in"))
        }
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("B45 R1.7 retries share the one deadline", () =>
      Effect.gen(function*() {
        const { locking, times } = yield* answering(() => down)
        const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "1 second" }))
        yield* TestClock.adjust("999 millis")
        yield* isRunning(fiber)
        yield* TestClock.adjust("1 millis")
        assert.strictEqual((yield* failureOf(fiber))._tag, "ProviderFailed")
        assert(times.length >= 3 && times.length <= 20, `${times.length} attempts`)
      }))
  })
})

describe("what the error of a caller that did not get it tells", () => {
  it.scoped("R5 of a holder in this process and of one elsewhere, and when the holder's lease ends as of now", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(1_000_000)
      const store = yield* MemoryStore.make
      const one = yield* node(store, { session: "one" })
      const two = yield* node(store, { session: "two" })
      const lease = yield* one.acquire("k", { ttl: "10 seconds", autoRenew: false })
      for (const locking of [one, two]) {
        const waiting = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "3 seconds" }))
        const asked = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
        yield* TestClock.adjust("3 seconds")
        const waited = yield* failureOf(waiting)
        assert(waited._tag === "WaitTimeout")
        const busy = yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
        assert(busy._tag === "LockBusy")
        assert(Duration.isZero(busy.waited))
        for (const { holder, keyHash } of [waited, busy]) {
          assert.strictEqual(holder!.keyHash, keyHash)
          assert.strictEqual(holder!.mode, "exclusive")
          assert.strictEqual<unknown>(holder!.fence, lease.fence)
          assert.strictEqual(holder!.since, 1_000_000)
          assert.strictEqual(holder!.session, "one")
          assert.strictEqual(holder!.local, locking === one)
          // what this process holds it knows by its own clock, which ends a little earlier
          const left = 1_000_000 + 10_000 - asked - 3000
          const endsIn = Duration.toMillis(holder!.endsIn!)
          assert(endsIn <= left && endsIn >= left - 105, `${endsIn} of ${left}`)
        }
        assert.match(waited.message, /^Waited 3s for lock [0-9a-f]{12}: held by .*; the holder's lease ends in /)
      }
    }))

  it.scoped("R5 of readers, and of a holder without an end", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      yield* one.acquire("k", { mode: "shared" })
      for (const locking of [one, two]) {
        const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
        assert(error._tag === "LockBusy")
        assert.strictEqual(error.holder!.mode, "shared")
        assert.isUndefined(error.holder!.endsIn)
      }
    }))
})

describe("a store that does not do its part", () => {
  it.scoped("R1.7 errors are retried with pauses that grow and differ, until it grants", () =>
    Effect.gen(function*() {
      const gaps: Array<ReadonlyArray<number>> = []
      for (const seed of [1, 2]) {
        // the pauses are of the layer's randomness, whoever calls
        const { locking, times } = yield* Effect.withRandom(
          answering((n) => n < 6 ? (n % 2 === 0 ? down : cut) : "granted"),
          Random.make(seed)
        )
        const fiber = yield* Effect.fork(locking.withLock(Effect.succeed("in"), "k", { waitTimeout: "1 minute" }))
        yield* TestClock.adjust("10 seconds")
        assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("in"))
        const pauses = times.slice(1).map((time, i) => time - times[i]!)
        assert.lengthOf(pauses, 6)
        for (const pause of pauses) assert(pause >= 20 && pause <= 1001, `${pause} ms`)
        assert(pauses[5]! > pauses[0]!)
        gaps.push(pauses)
        yield* TestClock.adjust("1 minute")
        yield* assertIdle(locking)
      }
      assert.notDeepEqual(gaps[0], gaps[1])
    }))

  const lastAnswers: Record<string, [ReadonlyArray<DriverError | "busy">, string]> = {
    "it is held": [["busy"], "WaitTimeout"],
    "held, after errors": [[down, cut, "busy"], "WaitTimeout"],
    "provably nothing was done": [[down], "ProviderFailed"],
    "nothing was done, after it was held": [["busy", down], "ProviderFailed"],
    "no answer": [[cut], "OutcomeUnknown"],
    "no answer, after errors": [[down, cut], "OutcomeUnknown"]
  }
  for (const [name, [answers, tag]] of Object.entries(lastAnswers)) {
    it.scoped(`R1.7 the last answer decides: ${name}`, () =>
      Effect.gen(function*() {
        const { locking } = yield* answering((n) => answers[Math.min(n, answers.length - 1)]!)
        const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: "3 seconds" }))
        yield* TestClock.adjust("3 seconds")
        assert.strictEqual((yield* failureOf(fiber))._tag, tag)
        yield* TestClock.adjust("1 minute")
        yield* assertIdle(locking)
      }))
  }

  it.scoped("R1.7 a single attempt says what its one answer was", () =>
    Effect.gen(function*() {
      for (const [answer, tag] of [["busy", "LockBusy"], [down, "ProviderFailed"], [cut, "OutcomeUnknown"]] as const) {
        const { locking, times } = yield* answering(() => answer)
        const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
        assert.strictEqual(error._tag, tag)
        assert.lengthOf(times, 1)
        // what may have been granted is given back twice, the second time when it can no longer come
        yield* TestClock.adjust("2 seconds")
        yield* assertIdle(locking)
      }
    }))

  it.scoped("R1.7 a store that says when to come again is not asked before, and its words are passed on", () =>
    Effect.gen(function*() {
      const later = new DriverError({
        executed: "no",
        message: "too many",
        cause: new Error("LIMIT"),
        retryAfter: Duration.seconds(3)
      })
      const { locking, times } = yield* answering(() => later)
      const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k"))
      yield* TestClock.adjust("5 seconds")
      const error = yield* failureOf(fiber)
      assert(error._tag === "ProviderFailed")
      assert.strictEqual(Duration.toMillis(error.retryAfter!), 3000)
      assert.strictEqual((error.cause as Error).message, "LIMIT")
      assert.deepStrictEqual(times.slice(0, 2), [0, 3000])
    }))

  it.effect("R1.7 a call to the store is bounded by the smaller of a third of the ttl and 2 seconds, or as told", () =>
    Effect.gen(function*() {
      const cases: ReadonlyArray<[AcquireOptions, number]> = [
        [{}, 2000],
        [{ ttl: "3 seconds" }, 1000],
        [{ ttl: "1 hour" }, 2000],
        [{ attemptTimeout: "300 millis" }, 300],
        [{ ttl: "3 seconds", attemptTimeout: "2 seconds" }, 2000]
      ]
      yield* TestLocking.mute("1 day")
      for (const [options, millis] of cases) {
        const fiber = yield* Effect.fork(Locking.withLock(Effect.void, "k", { ...options, waitTimeout: 0 }))
        yield* TestClock.adjust(millis - 1)
        yield* isRunning(fiber)
        yield* TestClock.adjust(1)
        assert.strictEqual((yield* failureOf(fiber))._tag, "OutcomeUnknown")
      }
      yield* TestLocking.heal
    }).pipe(Effect.provide(TestLocking.layer)))

  it.effect("R1.7 the wait limit holds whatever the store does; nothing is granted later", () =>
    Effect.gen(function*() {
      const faults = [
        TestLocking.mute("10 seconds"),
        TestLocking.dropNextReply({ op: "attempt", times: Infinity }),
        TestLocking.answerLate("10 seconds", { op: "attempt" })
      ]
      let entered = 0
      for (const fault of faults) {
        yield* fault
        const fiber = yield* Effect.fork(
          Locking.withLock(Effect.sync(() => entered++), "k", { waitTimeout: "1 second" })
        )
        yield* TestClock.adjust("999 millis")
        yield* isRunning(fiber)
        // the last attempt has 50 ms at least
        yield* TestClock.adjust("51 millis")
        assert.strictEqual((yield* failureOf(fiber))._tag, "OutcomeUnknown")
        yield* TestLocking.heal
        yield* TestClock.adjust("3 seconds")
        assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
        yield* TestClock.adjust("1 minute")
        assert.strictEqual(entered, 0)
        yield* assertIdle(yield* Locking.Locking)
      }
    }).pipe(Effect.provide(TestLocking.layer)))

  it.effect("R1.7 it comes back in time: the wait ends with the lock", () =>
    Effect.gen(function*() {
      yield* TestLocking.mute("3 seconds")
      const fiber = yield* Effect.fork(Locking.withLock(Effect.succeed("in"), "k"))
      yield* TestClock.adjust("2900 millis")
      yield* isRunning(fiber)
      yield* TestClock.adjust("1100 millis")
      assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("in"))
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
    }).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R1.7 down when the layer is built: the layer fails, unless it is told to start lazily", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const dead: LockDriver = { ...driver, ready: Effect.fail(down) }
      const error = yield* Effect.flip(Locking.make(dead))
      assert(error._tag === "ProviderFailed")
      const eager = yield* Effect.flip(Effect.scoped(Effect.provide(
        Locking.withLock(Effect.void, "k"),
        Locking.layer(Effect.succeed(dead), { start: "eager" })
      )))
      assert.strictEqual(eager._tag, "ProviderFailed")
      const locking = yield* Locking.make(dead, { start: "lazy" })
      assert.strictEqual(yield* locking.withLock(Effect.succeed("in"), "k"), "in")
    }))

  it.scoped("R1.7 options of the layer are refused together, with their paths", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const error = yield* Effect.flip(Locking.make(driver, { ttl: -1, waitTimeout: NaN, maxKeys: 0 }))
      assert(error._tag === "InvalidOptions")
      assert.deepStrictEqual(error.issues.map(({ path }) => path).sort(), ["maxKeys", "ttl", "waitTimeout"])
    }))
})

describe("ttl", () => {
  it.scoped("R1.8 in memory without end by default; the layer's or the call's where they say so", () =>
    Effect.gen(function*() {
      const ttlOf = (locking: Locking.Locking, options: AcquireOptions = {}) =>
        locking.useLock("k", options, (lease) => Effect.succeed(Duration.toMillis(lease.ttl)))
      assert.strictEqual(yield* ttlOf(yield* alone()), Infinity)
      const locking = yield* alone({ ttl: "20 seconds" })
      assert.strictEqual(yield* ttlOf(locking), 20_000)
      assert.strictEqual(yield* ttlOf(locking, { ttl: "7 seconds" }), 7000)
      assert.strictEqual(yield* ttlOf(locking, { ttl: Infinity }), Infinity)
    }))

  it.effect("R1.8 over a remote store 15 seconds", () =>
    Effect.map(
      Locking.useLock("k", (lease) => Effect.succeed(Duration.toMillis(lease.ttl))),
      (millis) => assert.strictEqual(millis, 15_000)
    ).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R1.8 outside of its range it is refused", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const remote: LockDriver = {
        ...driver,
        capabilities: {
          ...driver.capabilities,
          ttl: { default: Duration.seconds(15), min: Duration.millis(100), infinite: false }
        }
      }
      const locking = yield* Locking.make(remote)
      for (const ttl of [0, 99, Infinity, Duration.days(366), -1, NaN]) {
        const error = yield* Effect.flip(locking.withLock(Effect.void, "k", { ttl }))
        assert(error._tag === "InvalidOptions", String(ttl))
        assert.deepStrictEqual(error.issues.map(({ path }) => path), ["ttl"])
      }
      for (const ttl of [100, Duration.days(365)]) yield* locking.withLock(Effect.void, "k", { ttl })
      yield* assertIdle(locking)
    }))

  it.scoped("R1.8 no timer overflows up to a year", () =>
    Effect.gen(function*() {
      const locking = yield* alone({ holdWarning: Infinity })
      const { one, two } = yield* twoNodes()
      const year = Duration.days(365)
      const lease = yield* one.acquire("k", { ttl: year, autoRenew: false })
      const limited = yield* Effect.fork(locking.withLock(Effect.never, "k", { maxHold: year }))
      yield* TestClock.adjust(Duration.days(1))
      const waiting = yield* Effect.fork(two.withLock(Effect.succeed("in"), "k", { waitTimeout: year }))
      yield* TestClock.adjust(Duration.days(360))
      assert.isTrue(yield* lease.isValid)
      yield* isRunning(limited)
      yield* isRunning(waiting)
      yield* TestClock.adjust(Duration.days(5))
      assert.isFalse(yield* lease.isValid)
      assert.strictEqual((yield* failureOf(limited))._tag, "LeaseLost")
      assert.deepStrictEqual(yield* ended(waiting), Exit.succeed("in"))
    }))

  it.live("R1.8 no timer overflows on the real clock: a year is not at once", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      const year = Duration.days(365)
      const inside = yield* section
      const options = { ttl: year, maxHold: year, waitTimeout: year } as const
      const holder = yield* Effect.fork(one.withLock(inside.run, "k", options))
      yield* Deferred.await(inside.begun)
      const waiting = [
        yield* Effect.fork(one.withLock(Effect.void, "k", options)),
        yield* Effect.fork(two.withLock(Effect.void, "k", options))
      ]
      // a timer that overflows fires after one millisecond
      yield* Effect.sleep(20)
      for (const fiber of [holder, ...waiting]) yield* isRunning(fiber)
      yield* Deferred.succeed(inside.end, undefined)
      for (const fiber of [holder, ...waiting]) yield* Fiber.join(fiber)
    }).pipe(Effect.scoped))
})

describe("autoRenew", () => {
  it.effect("R1.9 on by default: a section outlives its ttl many times over", () =>
    Effect.gen(function*() {
      const fiber = yield* Effect.fork(Locking.withLock(Effect.as(Effect.sleep("5 minutes"), "done"), "k"))
      yield* TestClock.adjust("299 seconds")
      const { renew } = yield* TestLocking.calls()
      // every third of 15 seconds
      assert(renew >= 58 && renew <= 62, `${renew} renewals`)
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* ended(fiber), Exit.succeed("done"))
      assert.deepStrictEqual(yield* TestLocking.holders("k"), [])
    }).pipe(Effect.provide(TestLocking.layer)))

  it.effect("R1.9 a lost lease interrupts the section, finalizers awaited, and the call says why", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const inside = yield* section
      const windUp = Effect.zipRight(Effect.sleep("2 seconds"), Effect.sync(() => log.push("wound up")))
      const fiber = yield* Effect.fork(Locking.withLock(Effect.onInterrupt(inside.run, () => windUp), "k"))
      yield* TestClock.adjust("1 second")
      yield* TestLocking.loseLease("k", { reason: "expired" })
      yield* TestClock.adjust("4 seconds")
      yield* isRunning(fiber)
      yield* TestClock.adjust("2 seconds")
      const error = yield* failureOf(fiber)
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "expired")
      assert.strictEqual(Duration.toMillis(error.overrun), 2000)
      assert.deepStrictEqual(log, ["wound up"])
    }).pipe(Effect.provide(TestLocking.layer)))

  it.scoped("R1.9 off: the lease ends at its ttl, the section is interrupted then, and the next one enters", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      for (const next of [one, two]) {
        const fiber = yield* Effect.fork(one.withLock(Effect.never, "k", { ttl: "10 seconds", autoRenew: false }))
        yield* settle
        const waiting = yield* Effect.fork(next.withLock(Effect.succeed("in"), "k", { waitTimeout: "1 minute" }))
        // what is believed ends a little before what the store keeps
        yield* TestClock.adjust(10_000 - 105 - 1)
        yield* isRunning(fiber)
        yield* TestClock.adjust(1)
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "expired")
        yield* TestClock.adjust(105 + 1)
        assert.deepStrictEqual(yield* ended(waiting), Exit.succeed("in"))
      }
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))

  it.effect("R1.9 off: the store is not asked", () =>
    Effect.gen(function*() {
      const fiber = yield* Effect.fork(Locking.withLock(Effect.sleep("14 seconds"), "k", { autoRenew: false }))
      yield* TestClock.adjust("14 seconds")
      assert(Exit.isSuccess(yield* ended(fiber)))
      assert.strictEqual((yield* TestLocking.calls()).renew, 0)
    }).pipe(Effect.provide(TestLocking.layer)))
})

describe("maxHold", () => {
  it.scoped("R1.10 off by default; after it the section is interrupted, renewed or not", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const unlimited = yield* Effect.fork(locking.withLock(Effect.never, "unlimited"))
      for (const ttl of [Infinity, "1 second", "1 hour"] as const) {
        const fiber = yield* Effect.fork(locking.withLock(Effect.never, "k", { ttl, maxHold: "3 seconds" }))
        yield* TestClock.adjust("2999 millis")
        yield* isRunning(fiber)
        yield* TestClock.adjust("1 millis")
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "max-hold")
        yield* assertFree(locking, "k")
      }
      yield* TestClock.adjust("30 days")
      yield* isRunning(unlimited)
    }))

  it.scoped("R1.10 counts from the grant, not from the call", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const { close } = yield* inScope(locking.acquire("k"))
      const fiber = yield* Effect.fork(locking.withLock(Effect.never, "k", { maxHold: "3 seconds" }))
      yield* TestClock.adjust("4 seconds")
      yield* close(Exit.void)
      yield* TestClock.adjust("2999 millis")
      yield* isRunning(fiber)
      yield* TestClock.adjust("1 millis")
      assert.strictEqual((yield* failureOf(fiber))._tag, "LeaseLost")
    }))

  it.scoped("R1.10 a lease in a scope loses it too", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const lease = yield* locking.acquire("k", { ttl: "1 second", maxHold: "3 seconds" })
      yield* TestClock.adjust("3 seconds")
      assert.strictEqual((yield* Effect.flip(lease.lost)).reason, "max-hold")
      assert.strictEqual((yield* Effect.flip(lease.renew)).reason, "max-hold")
      // nobody renews it at the store
      yield* TestClock.adjust("1 second")
      yield* assertFree(locking, "k")
    }))

  it.scoped("R1.10 holdWarning: a minute by default, logged and counted once for each long hold", () =>
    capturingLogs((logs) =>
      Effect.gen(function*() {
        const backend = "R1.10 warning"
        const locking = yield* alone({ backend })
        const events = yield* Effect.fork(Stream.runCollect(Stream.take(
          Stream.filter(Stream.unwrap(locking.events), (event) => event._tag === "LongHold"),
          1
        )))
        yield* Effect.promise(() => import("effect/Stream"))
        yield* settle
        const fiber = yield* Effect.fork(locking.withLock(Effect.sleep("1 hour"), "k"))
        yield* TestClock.adjust("59999 millis")
        yield* locking.withLock(Effect.void, "short")
        assert.strictEqual(yield* metric(backend, "long_holds_total"), 0)
        yield* TestClock.adjust("1 millis")
        yield* settle
        const [warning] = withCode(logs, "LOCK_LONG_HOLD")
        assert.strictEqual(warning?.level, "WARN")
        assert.strictEqual(yield* metric(backend, "long_holds_total"), 1)
        yield* TestClock.adjust("1 hour")
        assert(Exit.isSuccess(yield* ended(fiber)))
        assert.lengthOf(withCode(logs, "LOCK_LONG_HOLD"), 1)
        assert.strictEqual(yield* metric(backend, "long_holds_total"), 1)
        const [event] = Chunk.toReadonlyArray(yield* Fiber.join(events))
        assert(event?._tag === "LongHold")
        assert.strictEqual(Duration.toMillis(event.held), 60_000)
      })
    ))

  it.scoped("R1.10 holdWarning: its own time, or never", () =>
    Effect.gen(function*() {
      for (const [holdWarning, count] of [["5 seconds", 1], [Infinity, 0]] as const) {
        const backend = `R1.10 warning ${holdWarning}`
        const locking = yield* alone({ backend, holdWarning })
        const fiber = yield* Effect.fork(locking.withLock(Effect.sleep("1 hour"), "k"))
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual(yield* metric(backend, "long_holds_total"), count)
        yield* Fiber.interrupt(fiber)
      }
    }))
})

describe("B78 a section that hangs", () => {
  const options = { ttl: "1 second", maxHold: "3 seconds" } as const

  it.scoped("B78 R1.10 is interrupted at its hold limit, and the next one enters", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      for (const next of [one, two]) {
        const hung = yield* Effect.fork(one.withLock(Effect.never, "k", options))
        yield* settle
        const waiting = yield* Effect.fork(next.withLock(Effect.succeed("in"), "k", { waitTimeout: "1 minute" }))
        yield* TestClock.adjust("2999 millis")
        yield* isRunning(hung)
        yield* isRunning(waiting)
        yield* TestClock.adjust("1 millis")
        const error = yield* failureOf(hung)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "max-hold")
        yield* TestClock.adjust("300 millis")
        assert.deepStrictEqual(yield* ended(waiting), Exit.succeed("in"))
      }
      yield* assertIdle(one)
      yield* assertIdle(two)
    }))

  it.scoped("B78 R1.10 R1.11 one that ignores interruption: the next one enters after the lease's end, and the log tells", () =>
    capturingLogs((logs) =>
      Effect.gen(function*() {
        const { one, two } = yield* twoNodes()
        for (const next of [one, two]) {
          const stubborn = yield* section
          const hung = yield* Effect.fork(one.withLock(Effect.uninterruptible(stubborn.run), "k", options))
          yield* settle
          const since = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
          let enteredAt = 0
          const enter = Effect.clockWith((clock) =>
            Effect.map(clock.currentTimeMillis, (now) => enteredAt = now - since)
          )
          const waiting = yield* Effect.fork(next.withLock(enter, "k", { waitTimeout: "1 minute" }))
          for (let i = 0; i < 70; i++) yield* TestClock.adjust("100 millis")
          assert(Exit.isSuccess(yield* ended(waiting)))
          // renewal stopped at 3 s, so the store's end is at most a second later
          assert(enteredAt >= 3000 && enteredAt <= 4300, `entered at ${enteredAt}`)
          const before = withCode(logs, "LEASE_OVERRUN").length
          assert(before > 0, "the old body still runs")
          yield* isRunning(hung)
          yield* Deferred.succeed(stubborn.end, undefined)
          const error = yield* failureOf(hung)
          assert(error._tag === "LeaseLost")
          assert.strictEqual(error.reason, "max-hold")
          assert.strictEqual(Duration.toMillis(error.overrun), 4000)
        }
        yield* assertIdle(one)
        yield* assertIdle(two)
      })
    ))

  it.scoped("B78 R1.10 without a limit it holds on, and `inspect` tells since when", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(5000)
      const { one, two } = yield* twoNodes()
      const hung = yield* Effect.fork(one.withLock(Effect.never, "k", { ttl: "1 second" }))
      yield* TestClock.adjust("1 minute")
      yield* isRunning(hung)
      assertNone(yield* two.withLockIfAvailable(Effect.void, "k"))
      const [holder] = yield* two.inspect("k")
      assert.strictEqual(holder?.since, 5000)
    }))
})

/** `TestClock` hides timers that are late, early or lost. Lower bounds are exact, upper ones are only there to end. */
describe("on the real clock", () => {
  const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.map(Effect.timed(effect), ([time]) => Duration.toMillis(time))

  it.live("B45 R1.7 a wait ends when its time is over, not before", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      yield* one.acquire("k")
      for (const locking of [one, two]) {
        for (const waitTimeout of [1, 30, 100]) {
          const millis = yield* timed(Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout })))
          assert(millis >= waitTimeout && millis < waitTimeout + 5000, `${millis} for ${waitTimeout}`)
        }
      }
    }).pipe(Effect.scoped))

  it.live("B42 R1.9 R2.5 a lease that is not renewed ends when its trust does, however long the wait was", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      const holder = yield* Effect.fork(one.withLock(Effect.sleep(150), "k"))
      yield* settle
      const options = { ttl: 100, autoRenew: false } as const
      const [time, error] = yield* Effect.timed(Effect.flip(two.withLock(Effect.never, "k", options)))
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "expired")
      // 150 for the wait, and 94 for the lease
      assert.isAtLeast(Duration.toMillis(time), 240)
      yield* Fiber.join(holder)
    }).pipe(Effect.scoped))

  it.live("R1.9 R1.10 renewed many times over, until the hold limit", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      const [time, error] = yield* Effect.timed(
        Effect.flip(one.withLock(Effect.never, "k", { ttl: 500, maxHold: 1200 }))
      )
      assert(error._tag === "LeaseLost")
      // on a machine that stands still for half a second the lease is lost, and rightly so
      if (error.reason === "max-hold") assert.isAtLeast(Duration.toMillis(time), 1200)
      else assert.strictEqual(error.reason, "unconfirmed")
      yield* two.withLock(Effect.void, "k", { waitTimeout: "10 seconds" })
    }).pipe(Effect.scoped))

  it.live("R1.13 first in, first out", () =>
    Effect.gen(function*() {
      const { one, two } = yield* twoNodes()
      for (const holder of [one, two]) {
        const log: Array<number> = []
        const inside = yield* section
        const holding = yield* Effect.fork(holder.withLock(inside.run, "k"))
        yield* Deferred.await(inside.begun)
        const fibers = []
        for (let i = 0; i < 30; i++) {
          const enter = Effect.zipRight(
            Effect.sync(() => log.push(i)),
            i % 3 === 0 ? Effect.sleep(1) : Effect.yieldNow()
          )
          fibers.push(yield* Effect.fork(one.withLock(enter, "k", { waitTimeout: "1 minute" })))
          yield* i % 5 === 0 ? Effect.sleep(1) : settle
        }
        yield* Deferred.succeed(inside.end, undefined)
        for (const fiber of fibers) yield* Fiber.join(fiber)
        yield* Fiber.join(holding)
        assert.deepStrictEqual(log, Array.from({ length: 30 }, (_, i) => i))
      }
    }).pipe(Effect.scoped))
})
