import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Either, Exit, Fiber, Layer, Option, Queue, type Scope, TestClock } from "effect"
import { type Busy, callback, DriverError, type Grant, type LockDriver } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { ResolvedKey } from "effect-locking/LockKey"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import { sizes } from "../src/internal/sizes.js"
import * as Faulty from "./faultyDriver.js"

const settled = TestClock.adjust(0)

const exitOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return exit.value
  })

const valueOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) => Effect.flatten(exitOf(fiber))

// ---------------------------------------------------------------------------------------------------------------------
// a driver of somebody else
// ---------------------------------------------------------------------------------------------------------------------

/** Locks in a `Map`, exclusive and without end: no push, no expiry, no time. */
const simple = (held: Map<string, Grant>) =>
  Effect.map(Queue.unbounded<never>(), (losses): LockDriver => ({
    name: "simple",
    capabilities: {
      modes: ["exclusive"],
      fair: false,
      push: false,
      expiry: "none",
      remote: false,
      ttl: { default: Duration.infinity, min: Duration.millis(1), infinite: true }
    },
    ready: Effect.void,
    contend: ({ keys, mode, ttl }) => ({
      attempt: ({ token }) =>
        Effect.sync((): Grant | Busy => {
          if (keys.some((key) => held.has(key.id) && held.get(key.id)!.token !== token)) return { _tag: "Busy" }
          const fences = keys.map(() => BigInt(nextFence++))
          const grant: Grant = { _tag: "Grant", token, keys, mode, ttl, fences, block: 1 }
          for (const key of keys) held.set(key.id, held.get(key.id) ?? grant)
          return grant
        }),
      arm: () => Effect.void,
      withdraw: Effect.void
    }),
    renew: (grants) => Effect.succeed(grants.map(() => ({ _tag: "Confirmed", contended: false }))),
    release: ({ keys, token }) =>
      Effect.sync(() => {
        const own = keys.filter((key) => held.get(key.id)?.token === token)
        for (const key of own) held.delete(key.id)
        return own.length === keys.length ? "released" : "gone"
      }),
    losses,
    inspect: (key) => Effect.sync(() => [held.get(key.id)].flatMap((grant) => grant ? [{ mode: grant.mode }] : [])),
    list: () => Effect.succeed([]),
    forceRelease: () => Effect.succeed({ holders: [], others: [] })
  }))

let nextFence = 1

describe("a driver of somebody else", () => {
  it.scoped("R8.5 a small one works", () =>
    Effect.gen(function*() {
      const held = new Map<string, Grant>()
      const [one, two] = [yield* Locking.make(yield* simple(held)), yield* Locking.make(yield* simple(held))]
      assert.strictEqual(one.backend, "simple")
      const lease = yield* one.acquire("k")
      assert.strictEqual((yield* two.inspect("k")).length, 1)
      assert(Option.isNone(yield* two.tryAcquire("k")))
      const there = yield* Effect.fork(two.useLock("k", ({ fence }) => Effect.succeed(fence)))
      const here = yield* Effect.fork(one.useLock("k", ({ fence }) => Effect.succeed(fence)))
      yield* TestClock.adjust("1 second")
      yield* lease.release
      // it does not push, so it is polled
      yield* TestClock.adjust("2 seconds")
      const fences = [lease.fence, yield* valueOf(there), yield* valueOf(here)]
      assert.strictEqual(new Set(fences).size, 3)
      assert.strictEqual(yield* one.withLocks(Effect.succeed("both"), ["a", "b"]), "both")
      assert.strictEqual(held.size, 0)
      assert.strictEqual(sizes(one).records + sizes(two).records, 0)
    }))

  it.scoped("R8.5 R3.1 a block of one number: nothing is handed over", () =>
    Effect.gen(function*() {
      const held = new Map<string, Grant>()
      const locking = yield* Locking.make(yield* simple(held))
      const fences: Array<bigint> = []
      const fibers = yield* Effect.forEach(Array.from({ length: 10 }), () =>
        Effect.fork(locking.useLock("k", ({ fence }) =>
          Effect.zipRight(
            Effect.sync(() =>
              fences.push(fence)
            ),
            Effect.sleep(1)
          ))))
      for (let i = 0; i < 20; i++) yield* TestClock.adjust(5)
      for (const fiber of fibers) yield* valueOf(fiber)
      assert.strictEqual(new Set(fences).size, 10)
      assert.deepStrictEqual(fences, [...fences].sort((a, b) => Number(a - b)))
    }))

  it.scoped("R8.5 R1.6 R1.8 what it cannot do is refused before it is asked", () =>
    Effect.gen(function*() {
      const driver = yield* simple(new Map())
      const limited: LockDriver = {
        ...driver,
        capabilities: {
          ...driver.capabilities,
          ttl: { default: Duration.seconds(10), min: Duration.seconds(1), infinite: false }
        },
        contend: () => {
          throw new Error("was asked")
        }
      }
      const locking = yield* Locking.make(limited)
      const refused: ReadonlyArray<readonly [string, object]> = [
        ["mode", { mode: "shared" }],
        ["ttl", { ttl: "999 millis" }],
        ["ttl", { ttl: Duration.infinity }]
      ]
      for (const [path, options] of refused) {
        const error = yield* Effect.flip(locking.withLock(Effect.void, "k", options))
        assert(error._tag === "InvalidOptions", error._tag)
        assert.deepStrictEqual(error.issues.map((issue) => issue.path), [path])
      }
      const layer = yield* Effect.flip(Locking.make(limited, { ttl: "10 millis" }))
      assert.strictEqual(layer._tag, "InvalidOptions")
    }))

  it.scoped("R8.5 exclusionId: two keys that are one lock at the store are one lock here", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const locking = yield* Locking.make({
        ...driver,
        exclusionId: (key: ResolvedKey) => String(key.key.length % 2)
      })
      yield* locking.acquire("a")
      assert(Option.isNone(yield* locking.tryAcquire("abc")))
      assert(Option.isSome(yield* locking.tryAcquire("ab")))
      const both = yield* Effect.fork(locking.withLocks(Effect.succeed("done"), ["x", "y"], { waitTimeout: 100 }))
      yield* TestClock.adjust(100)
      assert(Exit.isFailure(yield* exitOf(both)))
    }))

  it.scoped("R8.5 exclusionId: several keys that are one lock can be had together", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const locking = yield* Locking.make({ ...driver, exclusionId: () => "all" })
      for (const mode of ["exclusive", "shared"] as const) {
        const all = locking.useLocks(["a", "b", "c"], { mode }, (leases) =>
          Effect.succeed(leases.map((lease) =>
            lease.key
          )))
        assert.deepStrictEqual(yield* all, ["a", "b", "c"])
      }
      assert.strictEqual(sizes(locking).records, 0)
    }))

  it.scoped("R2.4 R8.5 losses that it knows of end the leases of that token only, whatever else it says", () =>
    Effect.gen(function*() {
      const inner = yield* MemoryStore.driver(yield* MemoryStore.make)
      const losses = yield* Queue.unbounded<any>()
      const locking = yield* Locking.make({ ...inner, losses })
      const [a, b] = [yield* locking.acquire("a"), yield* locking.acquire("b")]
      const [holder] = yield* locking.inspect("a")
      yield* Queue.offer(losses, { token: "nobody's", reason: "revoked" })
      yield* Queue.offer(losses, { token: holder!.token, reason: "session-ended" })
      yield* Queue.offer(losses, { token: holder!.token, reason: "session-ended" })
      yield* settled
      assert.strictEqual((yield* Effect.flip(a.lost)).reason, "session-ended")
      assert.isTrue(yield* b.isValid)
    }))

  it.scoped("R8.5 a session driver unlocks at the instant at which the lease ends", () =>
    Effect.gen(function*() {
      const { driver, holders, locking } = yield* Faulty.world({ ttl: "1 second" }, { expiry: "session" })
      driver.always("renew", driver.mute)
      const fiber = yield* Effect.fork(
        locking.withLock(Effect.uninterruptible(Effect.sleep("10 seconds")), "k")
      )
      yield* TestClock.adjust("984 millis")
      assert.strictEqual(driver.count("release"), 0)
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(driver.count("release"), 1)
      assert.deepStrictEqual(yield* holders("k"), [])
      yield* TestClock.adjust("10 seconds")
      assert(Exit.isFailure(yield* exitOf(fiber)))
    }))

  describe("ready", () => {
    it.scoped("R1.7 B44 eager: a store that is up but mute fails the layer, too", () =>
      Effect.gen(function*() {
        for (const fault of [(d: Faulty.FaultyDriver) => d.mute, (d: Faulty.FaultyDriver) => Faulty.stubborn(d.mute)]) {
          const driver = yield* Faulty.make(yield* MemoryStore.make)
          yield* Faulty.atEnd(driver.heal)
          driver.always("ready", fault(driver))
          const making = yield* Effect.fork(Locking.make(driver))
          yield* TestClock.adjust("1 minute")
          const made = yield* exitOf(making)
          assert(Exit.isFailure(made) && made.cause._tag === "Fail")
          assert.strictEqual(made.cause.error._tag, "ProviderFailed")
        }
      }))

    const down = (options?: LockingOptions) =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const driver = yield* Faulty.make(store)
        driver.always("ready", () =>
          Effect.fail(
            new DriverError({ executed: "no", message: "connection refused", retryAfter: Duration.seconds(3) })
          ))
        return { driver, made: yield* Effect.exit(Locking.make(driver, options)) }
      })

    it.scoped("R1.7 eager: a store that is down when the layer is built fails the layer", () =>
      Effect.gen(function*() {
        const { made } = yield* down({ backend: "orders" })
        assert(Exit.isFailure(made) && made.cause._tag === "Fail")
        const error = made.cause.error
        assert(error._tag === "ProviderFailed")
        assert.strictEqual(error.backend, "orders")
        assert.include(error.message, "connection refused")
        assert.deepStrictEqual(error.retryAfter, Duration.seconds(3))
      }))

    it.scoped("R1.7 eager: as a Layer", () =>
      Effect.gen(function*() {
        const driver = yield* Faulty.make(yield* MemoryStore.make)
        driver.always("ready", Faulty.refuse)
        const layer = Locking.layer(Effect.succeed(driver))
        const error = yield* Effect.flip(Effect.provide(Locking.withLock(Effect.void, "k"), layer))
        assert.strictEqual(error._tag, "ProviderFailed")
        // what the driver itself fails with is the layer's error, too
        const failing = Locking.layer(Effect.fail("no driver" as const))
        assert.strictEqual(yield* Effect.flip(Effect.scoped(Layer.build(failing))), "no driver")
      }))

    it.scoped("R1.7 lazy: the first calls fail while it is down, and work when it is up", () =>
      Effect.gen(function*() {
        const { driver, made } = yield* down({ start: "lazy" })
        assert(Exit.isSuccess(made))
        const locking = made.value
        assert.strictEqual(driver.count("ready"), 0)
        driver.always("attempt", Faulty.refuse)
        assert.strictEqual(
          (yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 })))._tag,
          "ProviderFailed"
        )
        driver.heal()
        assert.strictEqual(yield* locking.withLock(Effect.succeed("up"), "k"), "up")
      }))

    it.scoped("R1.7 a driver that dies while it gets ready is a defect of the layer", () =>
      Effect.gen(function*() {
        const driver = yield* Faulty.make(yield* MemoryStore.make)
        driver.always("ready", Faulty.die)
        const made = yield* Effect.exit(Locking.make(driver))
        assert(Exit.isFailure(made) && made.cause._tag === "Die")
      }))

    it.scoped("options are refused before the store is asked", () =>
      Effect.gen(function*() {
        const driver = yield* Faulty.make(yield* MemoryStore.make)
        const error = yield* Effect.flip(Locking.make(driver, { maxKeys: -1 }))
        assert.strictEqual(error._tag, "InvalidOptions")
        assert.strictEqual(driver.count("ready"), 0)
      }))
  })

  describe("a driver that breaks its contract", () => {
    const garbage: Record<string, unknown> = {
      undefined,
      null: null,
      "a number": 42,
      "an empty object": {},
      "an unknown tag": { _tag: "Maybe" },
      "an empty array": [],
      "an array of garbage": [undefined],
      "an unknown renewal": [{ _tag: "Maybe" }],
      "too many renewals": [{ _tag: "Unknown" }, { _tag: "Lost", reason: "taken" }]
    }

    /** Whatever happened before: the key can be had again, and nothing is left. */
    const assertWorks = (locking: Locking.Locking) =>
      Effect.gen(function*() {
        yield* TestClock.adjust("20 seconds")
        const again = yield* Effect.fork(locking.withLock(Effect.succeed("again"), "k"))
        yield* settled
        assert.strictEqual(yield* valueOf(again), "again")
        yield* settled
        const { timers: _, ...left } = sizes(locking)
        assert.deepStrictEqual(left, { records: 0, grants: 0, leases: 0, waiters: 0, sections: 0, activities: 0 })
      })

    for (const op of ["attempt", "arm", "withdraw", "renew", "release", "inspect"] as const) {
      for (const [name, answer] of Object.entries(garbage)) {
        it.scoped(`R8.5 answers ${op} with ${name}: the key is not wedged, and the section has its own result`, () =>
          Effect.gen(function*() {
            const { driver, locking, other } = yield* Faulty.world({ ttl: "3 seconds" })
            const held = op === "arm" || op === "withdraw" ? yield* other.acquire("k") : undefined
            driver.next(op, () => Effect.succeed(answer as any))
            if (op === "inspect") {
              assert(Exit.isSuccess(yield* Effect.exit(locking.inspect("k"))))
              return
            }
            const fiber = yield* Effect.fork(locking.withLock(Effect.as(Effect.sleep("5 seconds"), "done"), "k"))
            yield* TestClock.adjust("1 second")
            if (held !== undefined) yield* held.release
            yield* TestClock.adjust("10 seconds")
            // one bad answer is like none
            assert.strictEqual(yield* valueOf(fiber), "done")
            yield* assertWorks(locking)
          }))
      }
    }

    it.scoped("R8.5 always answers with garbage: OutcomeUnknown at the wait limit", () =>
      Effect.gen(function*() {
        for (const answer of Object.values(garbage)) {
          const { driver, locking } = yield* Faulty.world()
          driver.always("attempt", () => Effect.succeed(answer as any))
          const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k"))
          yield* TestClock.adjust("6 seconds")
          assert.strictEqual((yield* Effect.flip(valueOf(fiber)))._tag, "OutcomeUnknown")
          driver.heal()
          yield* assertWorks(locking)
        }
      }))

    /** A driver whose functions throw where they should answer an effect. */
    const throwing = (op: string) =>
      Effect.gen(function*() {
        const store = yield* MemoryStore.make
        const inner = yield* Faulty.make(store)
        const other = yield* Locking.make(yield* MemoryStore.driver(store))
        let left = 1
        const boom = (at: string) => {
          if (at === op && left-- > 0) throw new Error(`${at} throws`)
        }
        const driver: LockDriver = {
          ...inner,
          contend: (request) => {
            boom("contend")
            const contention = inner.contend(request)
            return {
              attempt: (attempt) => (boom("attempt"), contention.attempt(attempt)),
              arm: (wake) => (boom("arm"), contention.arm(wake)),
              get withdraw() {
                boom("withdraw")
                return contention.withdraw
              }
            }
          },
          renew: (grants) => (boom("renew"), inner.renew(grants)),
          release: (claim) => (boom("release"), inner.release(claim)),
          inspect: (key) => (boom("inspect"), inner.inspect(key)),
          list: (namespace) => (boom("list"), inner.list(namespace)),
          forceRelease: (key, options) => (boom("forceRelease"), inner.forceRelease(key, options))
        }
        return { driver, other, locking: yield* Locking.make(driver, { ttl: "3 seconds" }) }
      })

    for (const op of ["contend", "attempt", "arm", "withdraw", "renew", "release"]) {
      it.scoped(`R8.5 ${op} throws: the section has its own result, the key is not wedged, and the layer closes`, () =>
        Effect.gen(function*() {
          const { locking, other } = yield* throwing(op)
          const held = op === "arm" || op === "withdraw" ? yield* other.acquire("k") : undefined
          const fiber = yield* Effect.fork(locking.withLock(Effect.as(Effect.sleep("5 seconds"), "done"), "k"))
          yield* TestClock.adjust("1 second")
          if (held !== undefined) yield* held.release
          yield* TestClock.adjust("10 seconds")
          assert.strictEqual(yield* valueOf(fiber), "done")
          yield* assertWorks(locking)
        }))
    }

    it.scoped("R8.5 R10.3 an administrator's question to a driver that throws", () =>
      Effect.gen(function*() {
        for (const op of ["inspect", "list", "forceRelease"] as const) {
          const { locking } = yield* throwing(op)
          const ask: Effect.Effect<unknown, unknown> = op === "list" ? locking.list() : locking[op]("k")
          const error: any = yield* Effect.flip(ask)
          assert.strictEqual(error._tag, "OutcomeUnknown")
        }
      }))

    it.scoped("R8.5 a driver that dies at every call: typed errors, no wedge", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* Faulty.world({ ttl: "3 seconds" })
        const operations = [
          "attempt",
          "arm",
          "withdraw",
          "renew",
          "release",
          "inspect",
          "list",
          "forceRelease"
        ] as const
        for (const op of operations) driver.always(op, Faulty.die)
        const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k"))
        yield* TestClock.adjust("6 seconds")
        assert.strictEqual((yield* Effect.flip(valueOf(fiber)))._tag, "OutcomeUnknown")
        for (const ask of [locking.inspect("k"), locking.list(), locking.forceRelease("k")]) {
          const error: any = yield* Effect.flip(ask as Effect.Effect<unknown, unknown>)
          assert.strictEqual(error._tag, "OutcomeUnknown")
        }
        driver.heal()
        yield* assertWorks(locking)
      }))

    it.scoped("R3.1 R8.5 a grant whose fences do not fit its keys is none", () =>
      Effect.gen(function*() {
        for (const fences of [[], [0n], [-1n], [undefined], [1], [1n, 2n]] as ReadonlyArray<ReadonlyArray<any>>) {
          const { driver, holders, locking } = yield* Faulty.world()
          driver.always("attempt", (execute) =>
            Effect.map(execute, (answer) => ({ ...answer, fences })) as typeof execute)
          const fiber = yield* Effect.fork(locking.useLock("k", ({ fence }) =>
            Effect.succeed(fence)))
          yield* TestClock.adjust("6 seconds")
          assert.strictEqual((yield* Effect.flip(valueOf(fiber)))._tag, "OutcomeUnknown", String(fences))
          driver.heal()
          yield* TestClock.adjust("3 seconds")
          assert.deepStrictEqual(yield* holders("k"), [])
        }
      }))
  })
})

describe("several layers over one store", () => {
  const layers = (count: number) =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const all: Array<Locking.Locking> = []
      for (let i = 0; i < count; i++) all.push(yield* Locking.make(yield* MemoryStore.driver(store)))
      return all
    })

  it.scoped("R8.1 exclude each other", () =>
    Effect.gen(function*() {
      const all = yield* layers(5)
      let inside = 0
      const order: Array<number> = []
      const fibers: Array<Fiber.RuntimeFiber<void, unknown>> = []
      for (const [i, locking] of all.entries()) {
        for (let j = 0; j < 3; j++) {
          fibers.push(
            yield* Effect.fork(locking.withLock(
              Effect.gen(function*() {
                assert.strictEqual(++inside, 1)
                yield* Effect.sleep("100 millis")
                inside--
                order.push(i)
              }),
              "k"
            ))
          )
        }
      }
      yield* TestClock.adjust("3 seconds")
      for (const fiber of fibers) yield* valueOf(fiber)
      assert.strictEqual(order.length, 15)
      assert.strictEqual(new Set(order).size, 5)
    }))

  it.scoped("R8.1 R1.6 readers of all of them are inside together, writers alone", () =>
    Effect.gen(function*() {
      const all = yield* layers(3)
      const leases: Array<Effect.Effect<boolean>> = []
      for (const locking of all) {
        leases.push((yield* locking.acquire("k", { mode: "shared" })).release)
        leases.push((yield* locking.acquire("k", { mode: "shared" })).release)
      }
      for (const locking of all) assert(Option.isNone(yield* locking.tryAcquire("k")))
      const writer = yield* Effect.fork(all[0]!.withLock(Effect.succeed("wrote"), "k"))
      yield* settled
      for (const release of leases) {
        assert(Option.isNone(yield* writer.poll))
        yield* release
        yield* settled
      }
      assert.strictEqual(yield* valueOf(writer), "wrote")
    }))

  it.scoped("R8.1 R1.5 several keys in opposite orders never block each other for good", () =>
    Effect.gen(function*() {
      const [one, two] = yield* layers(2)
      const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
      const loop = (locking: Locking.Locking, keys: ReadonlyArray<string>, mode: "exclusive" | "shared") =>
        Effect.fork(
          Effect.repeatN(locking.withLocks(Effect.sleep("1 millis"), keys, { mode, waitTimeout: "1 minute" }), 9)
        )
      for (const mode of ["exclusive", "shared"] as const) {
        for (const locking of [one!, two!]) {
          fibers.push(yield* loop(locking, ["a", "b", "c"], mode), yield* loop(locking, ["c", "b", "a"], mode))
        }
      }
      for (let i = 0; i < 40; i++) yield* TestClock.adjust("10 millis")
      for (const fiber of fibers) yield* valueOf(fiber)
    }))

  it.scoped("R8.1 a layer that closes gives its keys to the others, and waits for nobody of them", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const one = yield* Locking.make(yield* MemoryStore.driver(store))
      const waiter = yield* Effect.scoped(Effect.gen(function*() {
        const two = yield* Locking.make(yield* MemoryStore.driver(store))
        yield* two.acquire("k")
        const waiter = yield* Effect.forkDaemon(one.withLock(Effect.succeed("one"), "k"))
        yield* settled
        assert(Option.isNone(yield* waiter.poll))
        return waiter
      }))
      yield* settled
      assert.strictEqual(yield* valueOf(waiter), "one")
    }))

  it.scoped("R8.1 layers of two stores do not meet", () =>
    Effect.gen(function*() {
      const [one] = yield* layers(1)
      const [apart] = yield* layers(1)
      yield* one!.acquire("k")
      assert(Option.isSome(yield* apart!.tryAcquire("k")))
    }))

  it.effect("R8.1 every use of layerMemory has a store of its own", () =>
    Effect.gen(function*() {
      const holding: Effect.Effect<unknown, unknown, Scope.Scope> = Effect.provide(
        Effect.zipRight(
          Locking.acquire("k"),
          Effect.provide(Locking.withLockIfAvailable(Effect.void, "k"), Layer.fresh(Locking.layerMemory))
        ),
        Locking.layerMemory
      )
      assert(Option.isSome((yield* Effect.scoped(holding)) as Option.Option<void>))
    }))
})

describe("calls by callback", () => {
  type Answer = Grant | Busy
  type Resume = (next: Effect.Effect<Answer, DriverError>) => void

  /** Behind a network, with attempts by callback. */
  const remote = (register: (resume: Resume, grant: Effect.Effect<Answer, DriverError>) => () => void) =>
    Effect.map(simple(new Map()), (driver): LockDriver => ({
      ...driver,
      capabilities: { ...driver.capabilities, remote: true },
      contend: (request) => {
        const contention = driver.contend(request)
        return {
          ...contention,
          attempt: (attempt) =>
            callback((resume) => register(resume, contention.attempt(attempt) as Effect.Effect<Answer, DriverError>))
        }
      }
    }))

  const nothing = () => {}

  it.scoped("R8.5 the answer is taken from wherever it is called", () =>
    Effect.gen(function*() {
      let answer: Resume | undefined
      let granted: Effect.Effect<Answer, DriverError> = Effect.never
      const locking = yield* Locking.make(
        yield* remote((resume, grant) => {
          answer = resume
          granted = grant
          return nothing
        })
      )
      const fiber = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k"))
      yield* settled
      assert(Option.isNone(yield* fiber.poll))
      answer!(Effect.succeed(yield* granted))
      yield* settled
      assert.strictEqual(yield* valueOf(fiber), "done")
      // only the first one counts
      answer!(Effect.succeed({ _tag: "Busy" }))
    }))

  it.scoped("R8.5 one that is there at once, and one that goes on asking, by an effect or by another callback", () =>
    Effect.gen(function*() {
      const goOn = [
        (grant: Effect.Effect<Answer, DriverError>) => grant,
        (grant: Effect.Effect<Answer, DriverError>) => Effect.delay(grant, "100 millis"),
        (grant: Effect.Effect<Answer, DriverError>) =>
          callback<Answer>((resume) => {
            resume(grant)
            return nothing
          })
      ]
      for (const next of goOn) {
        const locking = yield* Locking.make(
          yield* remote((resume, grant) => {
            resume(next(grant))
            return nothing
          })
        )
        const fiber = yield* Effect.fork(locking.withLock(Effect.succeed("done"), "k"))
        yield* TestClock.adjust("100 millis")
        assert.strictEqual(yield* valueOf(fiber), "done")
      }
    }))

  it.scoped("R1.7 what nobody waits for any more is abandoned, whatever it does then", () =>
    Effect.gen(function*() {
      const abandoned: Array<string> = []
      let step = 0
      let answer: Resume | undefined
      const locking = yield* Locking.make(
        yield* remote((resume) => {
          const name = `call ${step++}`
          if (name === "call 0") answer = resume
          if (name === "call 1") resume(Effect.onInterrupt(Effect.never, () => Effect.sync(() => abandoned.push(name))))
          return () => abandoned.push(name)
        })
      )
      const late = yield* Effect.fork(Effect.exit(locking.tryAcquire("k", { attemptTimeout: "1 second" })))
      const left = yield* Effect.fork(locking.withLock(Effect.void, "l"))
      yield* settled
      yield* Fiber.interrupt(left)
      assert.deepStrictEqual(abandoned, ["call 1"])
      yield* TestClock.adjust("1 second")
      assert(Exit.isFailure(yield* valueOf(late)))
      assert.deepStrictEqual(abandoned, ["call 1", "call 0"])
      let wentOn = false
      answer!(Effect.sync((): Busy => {
        wentOn = true
        return { _tag: "Busy" }
      }))
      assert.isFalse(wentOn)
      // it is given back until it cannot come any more
      yield* TestClock.adjust("1 minute")
    }))

  it.scoped("R5 one that throws is a call that died", () =>
    Effect.gen(function*() {
      const locking = yield* Locking.make(
        yield* remote(() => {
          throw new Error("a fault of the driver")
        })
      )
      const fiber = yield* Effect.fork(Effect.either(Effect.scoped(locking.tryAcquire("k"))))
      yield* TestClock.adjust("1 minute")
      const answer = yield* valueOf(fiber)
      assert(Either.isLeft(answer) && answer.left._tag === "OutcomeUnknown")
    }))

  it.effect("R8.5 it is an effect as any other", () =>
    Effect.gen(function*() {
      let isAbandoned = false
      const never = callback<string>(() => () => {
        isAbandoned = true
      })
      assert.strictEqual(
        yield* callback<string>((resume) => {
          resume(Effect.succeed("done"))
          return nothing
        }),
        "done"
      )
      const fiber = yield* Effect.fork(never)
      yield* settled
      yield* Fiber.interrupt(fiber)
      assert(isAbandoned)
    }))
})
