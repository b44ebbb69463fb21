import { assert, describe, it } from "@effect/vitest"
import {
  Deferred,
  Duration,
  Effect,
  Exit,
  Fiber,
  HashMap,
  Logger,
  LogLevel,
  Metric,
  MetricState,
  Option,
  Scope,
  Stream,
  TestClock
} from "effect"
import type { LockEvent } from "effect-locking/LockEvent"
import * as Locking from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as util from "node:util"
import * as Faulty from "./faultyDriver.js"
import { die, refuse, world } from "./faultyDriver.js"

const settled = TestClock.adjust(0)

const errorOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.flatMap(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return Effect.flip(exit.value)
  })

const waits = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.tap(Effect.fork(effect), () => settled)

/** Metrics live as long as the process: each test has a backend of its own. */
let backends = 0
const backend = () => `backend ${++backends}`

/** Every metric of a backend: counts, gauges, and for histograms how many and how much. */
const metricsOf = (backend: string) =>
  Effect.map(Metric.snapshot, (pairs) => {
    const values: Record<string, number | { readonly count: number; readonly sum: number }> = {}
    for (const { metricKey, metricState } of pairs) {
      const tags = Object.fromEntries([...metricKey.tags].map((tag) => [tag.key, tag.value]))
      if (tags["backend"] !== backend) continue
      const { backend: _, ...rest } = tags
      const name = [metricKey.name.replace("effect_locking_", ""), ...Object.values(rest)].join(" ")
      if (MetricState.isCounterState(metricState)) values[name] = Number(metricState.count)
      else if (MetricState.isGaugeState(metricState)) values[name] = Number(metricState.value)
      else if (MetricState.isHistogramState(metricState)) {
        values[name] = { count: metricState.count, sum: metricState.sum }
      }
    }
    return values
  })

/** What differs from zero. */
const movedOf = (backend: string) =>
  Effect.map(metricsOf(backend), (values) =>
    Object.fromEntries(
      Object.entries(values).filter(([, value]) => typeof value === "number" ? value !== 0 : value.count !== 0)
    ))

const events = (locking: Locking.Locking) =>
  Effect.gen(function*() {
    const seen: Array<LockEvent> = []
    const fiber = yield* Effect.fork(
      Stream.runForEach(yield* locking.events, (event) => Effect.sync(() => void seen.push(event)))
    )
    yield* settled
    return { seen, tags: () => seen.map((event) => event._tag), fiber }
  })

const logging = (level: LogLevel.LogLevel = LogLevel.Debug) => {
  const lines: Array<{ level: string; code: unknown; fields: Record<string, unknown>; message: string }> = []
  const logger = Logger.make(({ annotations, logLevel, message }) => {
    const fields = Object.fromEntries(HashMap.toEntries(annotations))
    lines.push({ level: logLevel.label, code: fields["code"], fields, message: String(message) })
  })
  return {
    lines,
    provide: <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      effect.pipe(
        Effect.provide(Logger.replace(Logger.defaultLogger, logger)),
        Logger.withMinimumLogLevel(level)
      )
  }
}

describe("metrics", () => {
  it.scoped("R10.1 are registered at zero", () =>
    Effect.gen(function*() {
      const name = backend()
      yield* world({ backend: name })
      assert.deepStrictEqual(yield* metricsOf(name), {
        "acquires_total busy": 0,
        "acquires_total closed": 0,
        "acquires_total failed": 0,
        "acquires_total granted": 0,
        "acquires_total interrupted": 0,
        "acquires_total limit": 0,
        "acquires_total reentry": 0,
        "acquires_total timeout": 0,
        "acquires_total unknown": 0,
        events_dropped_total: 0,
        hold_seconds: { count: 0, sum: 0 },
        leases: 0,
        "leases_lost_total closed": 0,
        "leases_lost_total expired": 0,
        "leases_lost_total max-hold": 0,
        "leases_lost_total revoked": 0,
        "leases_lost_total session-ended": 0,
        "leases_lost_total taken": 0,
        "leases_lost_total unconfirmed": 0,
        long_holds_total: 0,
        oldest_wait_start_time_seconds: 0,
        overruns_total: 0,
        release_failures_total: 0,
        "renewals_total confirmed": 0,
        "renewals_total lost": 0,
        "renewals_total unknown": 0,
        wait_seconds: { count: 0, sum: 0 },
        waiters: 0
      })
    }))

  it.scoped("R10.1 two layers of one name add up, two names do not", () =>
    Effect.gen(function*() {
      const [a, b] = [backend(), backend()]
      const layers = [yield* world({ backend: a }), yield* world({ backend: a }), yield* world({ backend: b })]
      for (const { locking } of layers) yield* locking.withLock(Effect.void, "k")
      assert.strictEqual((yield* movedOf(a))["acquires_total granted"], 2)
      assert.strictEqual((yield* movedOf(b))["acquires_total granted"], 1)
    }))

  describe("every call counts once, by its outcome", () => {
    type World = Effect.Effect.Success<ReturnType<typeof world>>
    const outcomes: Record<string, readonly [string, (world: World) => Effect.Effect<unknown, unknown, Scope.Scope>]> =
      {
        "withLock": ["granted", ({ locking }) => locking.withLock(Effect.void, "k")],
        "a section that fails": ["granted", ({ locking }) => locking.withLock(Effect.fail(1), "k")],
        "acquire": ["granted", ({ locking }) => Effect.scoped(locking.acquire("k"))],
        "tryAcquire": ["granted", ({ locking }) => Effect.scoped(locking.tryAcquire("k"))],
        "several keys": ["granted", ({ locking }) => locking.withLocks(Effect.void, ["a", "b"])],
        "several keys of a reader": [
          "granted",
          ({ locking }) => locking.withLocks(Effect.void, ["a", "b"], { mode: "shared" })
        ],
        "None, taken elsewhere": [
          "busy",
          ({ locking, other }) => other.withLock(locking.withLockIfAvailable(Effect.void, "k"), "k")
        ],
        "LockBusy": [
          "busy",
          ({ locking, other }) => other.withLock(locking.withLock(Effect.void, "k", { waitTimeout: 0 }), "k")
        ],
        "WaitTimeout": ["timeout", ({ locking, other }) =>
          other.withLock(
            Effect.gen(function*() {
              const waiter = yield* waits(locking.withLock(Effect.void, "k", { waitTimeout: 100 }))
              yield* TestClock.adjust(100)
              yield* errorOf(waiter)
            }),
            "k"
          )],
        "an interrupted contender": ["interrupted", ({ locking, other }) =>
          other.withLock(
            Effect.flatMap(waits(locking.withLock(Effect.void, "k")), Fiber.interrupt),
            "k"
          )],
        "an interrupted attempt": ["interrupted", ({ driver, locking }) => {
          driver.next("attempt", driver.mute)
          return Effect.flatMap(waits(locking.withLock(Effect.void, "k")), Fiber.interrupt)
        }],
        "InvalidKey": ["failed", ({ locking }) => locking.withLock(Effect.void, "")],
        "InvalidOptions": ["failed", ({ locking }) => locking.withLock(Effect.void, "k", { ttl: -1 })],
        "ProviderFailed": ["failed", ({ driver, locking }) => {
          driver.next("attempt", refuse)
          return locking.withLock(Effect.void, "k", { waitTimeout: 0 })
        }],
        "OutcomeUnknown": ["unknown", ({ driver, locking }) => {
          driver.next("attempt", die)
          return locking.withLock(Effect.void, "k", { waitTimeout: 0 })
        }],
        "KeyLimit": ["limit", ({ locking }) => locking.withLocks(Effect.void, ["1", "2", "3", "4", "5"])]
      }
    for (const [name, [outcome, call]] of Object.entries(outcomes)) {
      it.scoped(`R10.1 ${name}: ${outcome}`, () =>
        Effect.gen(function*() {
          const name = backend()
          const ready = yield* world({ backend: name, maxKeys: 4 })
          yield* Effect.exit(Effect.scoped(call(ready)))
          yield* settled
          const moved = Object.entries(yield* movedOf(name)).filter(([name]) => name.startsWith("acquires_total"))
          assert.deepStrictEqual(Object.fromEntries(moved), { [`acquires_total ${outcome}`]: 1 })
        }))
    }

    it.scoped("R10.1 beside the holder: interrupted in the queue, refused, re-entry, full, closed", () =>
      Effect.gen(function*() {
        const name = backend()
        const scope = yield* Scope.make()
        const locking = yield* Effect.provideService(
          Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make), { backend: name, maxWaiters: 1 }),
          Scope.Scope,
          scope
        )
        const asked = (outcome: string) => Effect.map(movedOf(name), (moved) => moved[`acquires_total ${outcome}`] ?? 0)
        yield* locking.withLock(Effect.ignore(locking.withLock(Effect.void, "k")), "k")
        assert.strictEqual(yield* asked("reentry"), 1)
        yield* locking.acquire("k")
        const waiter = yield* waits(locking.withLock(Effect.void, "k"))
        yield* Effect.ignore(locking.withLock(Effect.void, "k"))
        assert.strictEqual(yield* asked("limit"), 1)
        yield* Fiber.interrupt(waiter)
        assert.strictEqual(yield* asked("interrupted"), 1)
        const last = yield* waits(locking.withLock(Effect.void, "k"))
        yield* Scope.close(scope, Exit.void)
        yield* settled
        yield* errorOf(last)
        yield* Effect.ignore(locking.withLock(Effect.void, "k"))
        assert.strictEqual(yield* asked("closed"), 2)
        assert.strictEqual(yield* asked("granted"), 2)
      }))
  })

  it.scoped("R10.1 waits and holds are measured in seconds", () =>
    Effect.gen(function*() {
      const name = backend()
      const { locking, other } = yield* world({ backend: name })
      const lease = yield* other.acquire("k")
      const fiber = yield* waits(locking.withLock(Effect.sleep("3 seconds"), "k"))
      yield* TestClock.adjust("2 seconds")
      yield* lease.release
      yield* settled
      yield* TestClock.adjust("3 seconds")
      yield* Fiber.join(fiber)
      const metrics = yield* metricsOf(name)
      assert.deepStrictEqual(metrics["wait_seconds"], { count: 1, sum: 2 })
      assert.deepStrictEqual(metrics["hold_seconds"], { count: 1, sum: 3 })
    }))

  it.scoped("R10.1 a lease that is lost, released and closed is one hold", () =>
    Effect.gen(function*() {
      const name = backend()
      const { locking } = yield* world({ backend: name })
      yield* Effect.scoped(Effect.gen(function*() {
        const lease = yield* locking.acquire("k")
        yield* TestClock.adjust("2 seconds")
        yield* locking.forceRelease("k")
        yield* settled
        assert.isFalse(yield* lease.release)
        assert.isFalse(yield* lease.release)
      }))
      const metrics = yield* metricsOf(name)
      assert.deepStrictEqual(metrics["hold_seconds"], { count: 1, sum: 2 })
      assert.strictEqual(metrics["leases"], 0)
      assert.strictEqual(metrics["leases_lost_total revoked"], 1)
    }))

  it.scoped("R10.1 B68 gauges: leases, waiters, and since when the oldest one waits", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(1_000_000)
      const name = backend()
      const { locking } = yield* world({ backend: name })
      const at = (gauge: string) => Effect.map(metricsOf(name), (metrics) => metrics[gauge])
      yield* locking.acquire("a")
      const lease = yield* locking.acquire("b")
      assert.strictEqual(yield* at("leases"), 2)
      // who gets a free key has not waited
      assert.strictEqual(yield* at("waiters"), 0)
      assert.strictEqual(yield* at("oldest_wait_start_time_seconds"), 0)
      const first = yield* waits(locking.withLock(Effect.void, "a", { waitTimeout: "1 hour" }))
      // nothing happens for so long, and the number is right all the time
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual(yield* at("waiters"), 1)
      assert.strictEqual(yield* at("oldest_wait_start_time_seconds"), 1000)
      const second = yield* waits(locking.withLock(Effect.void, "a", { waitTimeout: "1 hour" }))
      assert.strictEqual(yield* at("waiters"), 2)
      assert.strictEqual(yield* at("oldest_wait_start_time_seconds"), 1000)
      yield* Fiber.interrupt(first)
      assert.strictEqual(yield* at("waiters"), 1)
      assert.strictEqual(yield* at("oldest_wait_start_time_seconds"), 1030)
      yield* Fiber.interrupt(second)
      assert.strictEqual(yield* at("oldest_wait_start_time_seconds"), 0)
      yield* lease.release
      assert.strictEqual(yield* at("leases"), 1)
    }))

  it.scoped("R10.1 renewals by outcome, losses by reason, overruns, releases without an answer, long holds", () =>
    Effect.gen(function*() {
      const name = backend()
      const { driver, locking, other } = yield* world({ backend: name })
      const at = (metric: string) => Effect.map(metricsOf(name), (metrics) => metrics[metric])
      const section = yield* Effect.fork(
        locking.withLock(Effect.uninterruptible(Effect.sleep("2 minutes")), "k")
      )
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* at("renewals_total confirmed"), 1)
      driver.next("renew", refuse)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* at("renewals_total unknown"), 1)
      yield* TestClock.adjust("50 seconds")
      assert.strictEqual(yield* at("long_holds_total"), 1)
      driver.next("renew", (execute) => Effect.zipRight(Effect.orDie(other.forceRelease("k")), execute))
      yield* TestClock.adjust("60 seconds")
      assert.strictEqual(yield* at("renewals_total lost"), 1)
      assert.strictEqual(yield* at("leases_lost_total revoked"), 1)
      yield* errorOf(section)
      assert.strictEqual(yield* at("overruns_total"), 1)
      assert.strictEqual(yield* at("long_holds_total"), 1)
      driver.next("release", refuse)
      yield* locking.withLock(Effect.void, "k")
      assert.strictEqual(yield* at("release_failures_total"), 1)
    }))
})

describe("events", () => {
  it.scoped("R10.2 tell the life of a lease", () =>
    Effect.gen(function*() {
      const name = backend()
      const { locking, other } = yield* world({ backend: name })
      const { seen } = yield* events(locking)
      yield* TestClock.adjust("1 minute")
      const lease = yield* other.acquire("secret")
      const fiber = yield* waits(locking.useLock("secret", ({ fence }) => Effect.as(Effect.sleep("3 seconds"), fence)))
      yield* TestClock.adjust("2 seconds")
      yield* lease.release
      yield* settled
      yield* TestClock.adjust("3 seconds")
      const fence = yield* Fiber.join(fiber)
      yield* settled
      const keyHash = seen[0]!._tag === "Waiting" ? seen[0]!.keyHash : ""
      assert.match(keyHash, /^[0-9a-f]{12}$/)
      assert.deepStrictEqual(seen, [
        { _tag: "Waiting", backend: name, at: 60_000, keyHash, mode: "exclusive" },
        { _tag: "Granted", backend: name, at: 62_000, keyHash, mode: "exclusive", fence, waited: Duration.seconds(2) },
        { _tag: "Released", backend: name, at: 65_000, keyHash, fence, held: Duration.seconds(3) }
      ])
    }))

  it.scoped("R10.2 a key that is free at the store is not waited for", () =>
    Effect.gen(function*() {
      const { locking } = yield* world()
      const { tags } = yield* events(locking)
      yield* locking.withLock(Effect.void, "k")
      yield* settled
      assert.deepStrictEqual(tags(), ["Granted", "Released"])
    }))

  it.scoped("R10.2 tell of losses, of what goes on after them, and of long holds", () =>
    Effect.gen(function*() {
      const { locking } = yield* world()
      const { seen, tags } = yield* events(locking)
      const section = yield* Effect.fork(
        locking.withLock(Effect.uninterruptible(Effect.sleep("65 seconds")), "k")
      )
      yield* TestClock.adjust("62 seconds")
      yield* locking.forceRelease("k")
      yield* TestClock.adjust("3 seconds")
      yield* errorOf(section)
      yield* settled
      assert.deepStrictEqual(tags(), ["Granted", "LongHold", "Lost", "Overrun", "Overrun"])
      const [, longHold, lost, going, ended] = seen
      assert(longHold!._tag === "LongHold" && lost!._tag === "Lost")
      assert(going!._tag === "Overrun" && ended!._tag === "Overrun")
      assert.deepStrictEqual(longHold!.held, Duration.minutes(1))
      assert.strictEqual(lost!.reason, "revoked")
      assert.isFalse(going!.ended)
      assert.isTrue(ended!.ended)
      assert.deepStrictEqual(ended!.overrun, Duration.seconds(3))
    }))

  it.scoped("R10.2 a reader whose buffer is full at the close still comes to the end", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const locking = yield* Effect.provideService(
        Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make)),
        Scope.Scope,
        scope
      )
      const go = yield* Deferred.make<void>()
      const reader = yield* Effect.fork(
        Stream.runDrain(Stream.tap(yield* locking.events, () => Deferred.await(go)))
      )
      yield* settled
      for (let i = 0; i < 800; i++) yield* locking.withLock(Effect.void, "k")
      yield* Scope.close(scope, Exit.void)
      yield* Deferred.succeed(go, undefined)
      yield* settled
      assert(Option.isSome(yield* reader.poll), "the stream goes on")
    }))
  it.scoped("R10.2 R6.5 a slow reader loses the oldest, the last 1 024 stay, and the loss is counted", () =>
    Effect.gen(function*() {
      const name = backend()
      const { locking } = yield* world({ backend: name }, { remote: false })
      const go = yield* Deferred.make<void>()
      const read: Array<LockEvent> = []
      yield* Effect.fork(
        Stream.runForEach(
          yield* locking.events,
          (event) => Effect.zipRight(Deferred.await(go), Effect.sync(() => read.push(event)))
        )
      )
      const quick = yield* events(locking)
      for (let i = 0; i < 800; i++) {
        yield* locking.withLock(Effect.void, "k")
        if (i % 100 === 0) yield* settled
      }
      yield* settled
      // nobody was held up, and who keeps up has all of them
      assert.strictEqual(quick.seen.length, 1_600)
      const lost = (yield* metricsOf(name))["events_dropped_total"] as number
      yield* Deferred.succeed(go, undefined)
      yield* settled
      assert.strictEqual(read.length, 1_600 - lost)
      // what it had in hand, and what was kept for it
      assert.isAtLeast(read.length, 1_024)
      assert.isAtMost(read.length, 1_024 + 2)
      assert.deepStrictEqual(read.slice(-1_024), quick.seen.slice(-1_024))
    }))

  it.scoped("R10.2 are not kept for nobody: a reader sees what comes after it", () =>
    Effect.gen(function*() {
      const { locking } = yield* world()
      const stream = yield* locking.events
      yield* locking.withLock(Effect.void, "k")
      const first = yield* Effect.fork(Stream.runHead(stream))
      yield* settled
      yield* locking.withLock(Effect.void, "l")
      const event = Option.getOrThrow(yield* Fiber.join(first))
      assert.strictEqual(event._tag, "Granted")
      // and the stream may be run again
      const again = yield* Effect.fork(Stream.runHead(stream))
      yield* settled
      yield* locking.withLock(Effect.void, "k")
      assert.isTrue(Option.isSome(yield* Fiber.join(again)))
    }))

  it.scoped("R10.2 a reader that gives up a pull misses nothing", () =>
    Effect.gen(function*() {
      const { locking } = yield* world()
      const pull = yield* Stream.toPull(yield* locking.events)
      const impatient = yield* Effect.fork(pull)
      yield* settled
      yield* Fiber.interrupt(impatient)
      yield* locking.withLock(Effect.void, "k")
      const [first] = yield* pull
      assert.strictEqual(first?._tag, "Granted")
    }))

  it.scoped("R10.2 end with the layer, after the events of its close", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const driver = yield* Faulty.make(store)
      const scope = yield* Scope.make()
      const locking = yield* Effect.provideService(
        Locking.make(driver, { shutdownTimeout: "1 second" }),
        Scope.Scope,
        scope
      )
      yield* Faulty.atEnd(driver.heal)
      const stream = yield* locking.events
      const seen: Array<string> = []
      // one that needs its time
      const reader = yield* Effect.fork(
        Stream.runForEach(
          stream,
          (event) => Effect.zipRight(Effect.yieldNow(), Effect.sync(() => seen.push(event._tag)))
        )
      )
      yield* settled
      for (const key of ["a", "b", "c"]) yield* waits(locking.withLock(Effect.never, key))
      driver.always("release", driver.mute)
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("1 second")
      assert(Option.isSome(yield* closing.poll))
      yield* settled
      assert(Option.isSome(yield* reader.poll), "the stream goes on")
      assert.deepStrictEqual(seen, ["Granted", "Granted", "Granted", "Lost", "Lost", "Lost", "CleanupTimeout"])
      const late = yield* Effect.fork(Stream.runCollect(stream))
      yield* settled
      assert(Option.isSome(yield* late.poll), "a stream that is run after the close goes on")
    }))

  it.scoped("R10.2 a reader that stops takes nothing from others", () =>
    Effect.gen(function*() {
      const { locking } = yield* world()
      const [one, two] = [yield* events(locking), yield* events(locking)]
      yield* Fiber.interrupt(one.fiber)
      yield* locking.withLock(Effect.void, "k")
      yield* settled
      assert.deepStrictEqual(one.tags(), [])
      assert.deepStrictEqual(two.tags(), ["Granted", "Released"])
    }))
})

describe("operating", () => {
  const two = (options: LockingOptions = {}) =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const one = yield* Locking.make(yield* MemoryStore.driver(store), { session: "one", ...options })
      const two = yield* Locking.make(yield* MemoryStore.driver(store), { session: "two", ...options })
      return { one, two }
    })

  it.scoped("R10.3 inspect: who holds a key, since and until when, with its metadata", () =>
    Effect.gen(function*() {
      const { one, two: other } = yield* two()
      assert.deepStrictEqual(yield* one.inspect("k"), [])
      yield* TestClock.adjust("1 minute")
      const lease = yield* other.acquire("k", { ttl: "10 seconds", metadata: { job: "report" } })
      const [holder, ...rest] = yield* one.inspect("k")
      assert.deepStrictEqual(rest, [])
      const { token, ...known } = holder!
      assert.isString(token)
      assert.deepStrictEqual(known, {
        mode: "exclusive",
        fence: lease.fence,
        since: 60_000,
        until: 70_000,
        session: "two",
        metadata: { job: "report" }
      })
      yield* lease.release
      assert.deepStrictEqual(yield* one.inspect("k"), [])
    }))

  it.scoped("R10.3 inspect: every reader, and no end where there is none", () =>
    Effect.gen(function*() {
      const { one, two: other } = yield* two()
      yield* one.acquire("k", { mode: "shared" })
      yield* other.acquire("k", { mode: "shared" })
      const holders = yield* one.inspect("k")
      assert.deepStrictEqual(holders.map((holder) => holder.session).sort(), ["one", "two"])
      for (const holder of holders) {
        assert.strictEqual(holder.mode, "shared")
        assert.isUndefined(holder.until)
      }
    }))

  it.scoped("R10.3 list: every held key of the namespace", () =>
    Effect.gen(function*() {
      const { one, two: other } = yield* two()
      assert.deepStrictEqual(yield* one.list(), [])
      yield* one.acquire("a")
      yield* LockKey.withTenant(other.acquire("a"), "acme")
      yield* other.acquire(LockKey.platform("nightly"))
      const waiter = yield* waits(other.withLock(Effect.void, "a"))
      const held = yield* one.list()
      assert.sameDeepMembers(
        held.map(({ key, namespace, scope, tenant }) => ({ key, namespace, scope, tenant })),
        [
          { key: "a", namespace: "effect-locking", scope: "none", tenant: undefined },
          { key: "a", namespace: "effect-locking", scope: "tenant", tenant: "acme" },
          { key: "nightly", namespace: "effect-locking", scope: "platform", tenant: undefined }
        ]
      )
      for (const { hash, holders } of held) {
        assert.match(hash, /^[0-9a-f]{12}$/)
        assert.strictEqual(holders.length, 1)
      }
      assert.strictEqual(new Set(held.map(({ hash }) => hash)).size, 3)
      yield* Fiber.interrupt(waiter)
    }))

  it.scoped("R10.3 list: those of a tenant, of a scope, with a prefix; what the store does not know is not meant", () =>
    Effect.gen(function*() {
      const driver = yield* MemoryStore.driver(yield* MemoryStore.make)
      const locking = yield* Locking.make({
        ...driver,
        // some stores keep only a hash
        list: (namespace) => Effect.map(driver.list(namespace), (held) => [...held, { hash: "12", holders: [] }])
      })
      yield* locking.acquire("invoice/1")
      yield* LockKey.withTenant(locking.acquire("invoice/2"), "acme")
      yield* LockKey.withTenant(locking.acquire("report"), "acme")
      yield* locking.acquire(LockKey.platform("invoice/all"))
      const found = (filter: Locking.ListFilter) =>
        Effect.map(locking.list(filter), (held) => held.map(({ key }) => key).sort())
      assert.lengthOf(yield* found({}), 5)
      assert.deepStrictEqual(yield* found({ tenant: "acme" }), ["invoice/2", "report"])
      assert.deepStrictEqual(yield* found({ scope: "none" }), ["invoice/1"])
      assert.deepStrictEqual(yield* found({ scope: "platform" }), ["invoice/all"])
      assert.deepStrictEqual(yield* found({ prefix: "invoice/" }), ["invoice/1", "invoice/2", "invoice/all"])
      assert.lengthOf(yield* found({ prefix: "" }), 4)
      assert.deepStrictEqual(yield* found({ tenant: "acme", prefix: "invoice/" }), ["invoice/2"])
      assert.deepStrictEqual(yield* found({ tenant: "acme", scope: "platform" }), [])
    }))

  it.scoped("R10.3 forceRelease: answers who they were; they learn revoked, and the next one enters", () =>
    Effect.gen(function*() {
      const { one, two: other } = yield* two()
      const section = yield* waits(other.withLock(Effect.never, "k"))
      const next = yield* waits(one.withLock(Effect.succeed("next"), "k"))
      const held = yield* one.inspect("k")
      assert.deepStrictEqual(yield* one.forceRelease("k"), { holders: held, others: [] })
      yield* settled
      const error = yield* errorOf(section)
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "revoked")
      assert.strictEqual(yield* Fiber.join(next), "next")
      assert.deepStrictEqual(yield* one.forceRelease("k"), { holders: [], others: [] })
    }))

  it.scoped("R10.3 forceRelease: every reader, here and elsewhere, and nobody of another key or tenant", () =>
    Effect.gen(function*() {
      const { one, two: other } = yield* two()
      const deposed = [
        yield* one.acquire("k", { mode: "shared" }),
        yield* one.acquire("k", { mode: "shared" }),
        yield* other.acquire("k", { mode: "shared" })
      ]
      const kept = [
        yield* one.acquire("l"),
        yield* LockKey.withTenant(other.acquire("k"), "acme"),
        yield* other.acquire(LockKey.platform("k"))
      ]
      yield* one.forceRelease("k")
      yield* settled
      for (const lease of deposed) {
        assert.isFalse(yield* lease.isValid)
        assert.strictEqual((yield* Effect.flip(lease.lost)).reason, "revoked")
      }
      for (const lease of kept) assert.isTrue(yield* lease.isValid)
    }))

  it.scoped("R10.3 R4.3 a key that cannot be is refused", () =>
    Effect.gen(function*() {
      const { one } = yield* two({ tenancy: "required" })
      for (const key of ["", "a\u0000b", "\ud800", "no tenant"]) {
        assert.strictEqual((yield* Effect.flip(one.inspect(key)))._tag, "InvalidKey")
        assert.strictEqual((yield* Effect.flip(one.forceRelease(key)))._tag, "InvalidKey")
      }
      assert.deepStrictEqual(yield* LockKey.withTenant(one.inspect("k"), "acme"), [])
    }))

  it.scoped("R10.3 the functions of the module ask the service in context", () =>
    Effect.gen(function*() {
      yield* Locking.acquire("k")
      assert.strictEqual((yield* Locking.inspect("k")).length, 1)
      assert.strictEqual((yield* Locking.list()).length, 1)
      const first = yield* Effect.fork(Stream.runHead(yield* Locking.events))
      yield* settled
      assert.strictEqual((yield* Locking.forceRelease("k")).holders.length, 1)
      yield* settled
      assert.strictEqual(Option.getOrThrow(yield* Fiber.join(first))._tag, "Lost")
    }).pipe(Effect.provide(Locking.layerMemory)))
})

describe("logs", () => {
  it.effect("R10.6 debug LOCK_BACKEND_READY, with backend and code only", () => {
    const { lines, provide } = logging()
    return provide(Effect.gen(function*() {
      yield* Effect.scoped(world({ backend: "orders" }))
      const ready = lines.filter((line) => line.code === "LOCK_BACKEND_READY" && line.fields["backend"] === "orders")
      assert.strictEqual(ready.length, 1)
      assert.strictEqual(ready[0]!.level, "DEBUG")
      assert.deepStrictEqual(ready[0]!.fields, { backend: "orders", code: "LOCK_BACKEND_READY" })
      assert.deepStrictEqual(lines.filter((line) => line.level !== "DEBUG"), [])
    }))
  })

  it.effect("R1.10 R10.6 a long hold is told once, after a minute; or when the layer says; or never", () => {
    const { lines, provide } = logging()
    return provide(Effect.scoped(Effect.gen(function*() {
      const { locking } = yield* world({ backend: "a" })
      const sooner = yield* world({ backend: "b", holdWarning: "10 seconds" })
      const never = yield* world({ backend: "c", holdWarning: Duration.infinity })
      for (const { locking } of [sooner, never]) yield* locking.acquire("k")
      yield* locking.acquire("k")
      const told = () => lines.filter((line) => line.code === "LOCK_LONG_HOLD").map((line) => line.fields["backend"])
      yield* TestClock.adjust("59 seconds")
      assert.deepStrictEqual(told(), ["b"])
      yield* TestClock.adjust("10 minutes")
      assert.deepStrictEqual(told(), ["b", "a"])
    })))
  })

  it.effect("B68 R4.4 the store is away for half a minute: events, counters and log lines say so, rarely and without keys", () => {
    const { lines, provide } = logging()
    return provide(Effect.scoped(Effect.gen(function*() {
      const name = backend()
      const { driver, locking } = yield* world({ backend: name, session: "web-1" })
      const { seen, tags } = yield* events(locking)
      // one that outlives the trouble, one that does not, one that waits, and one that ends in the midst of it
      const long = yield* waits(locking.withLock(Effect.never, "secret long", { ttl: "2 minutes" }))
      const short = yield* waits(locking.withLock(Effect.never, "secret short"))
      yield* waits(locking.withLock(Effect.never, "secret long", { waitTimeout: "1 hour" }))
      yield* Effect.fork(locking.withLock(Effect.sleep("46 seconds"), "secret done"))
      yield* TestClock.adjust("45 seconds")
      assert.notInclude(tags(), "RenewalFailed")
      for (const op of ["attempt", "renew", "release"] as const) driver.always(op, driver.mute)
      yield* TestClock.adjust("30 seconds")
      driver.heal()
      yield* TestClock.adjust("1 minute")

      assert(Option.isNone(yield* long.poll))
      assert.strictEqual((yield* errorOf(short))._tag, "LeaseLost")
      const failed = seen.filter((event) => event._tag === "RenewalFailed")
      assert.isAtLeast(failed.length, 1)
      // at most one in ten seconds
      failed.slice(1).forEach((event, i) => assert.isAtLeast(event.at - failed[i]!.at, 10_000))
      assert.strictEqual(seen.filter((event) => event._tag === "Recovered").length, 1)
      assert.strictEqual(seen.filter((event) => event._tag === "Lost").length, 1)
      assert.isAbove(tags().indexOf("Recovered"), tags().indexOf("RenewalFailed"))

      const metrics = yield* metricsOf(name)
      assert.isAtLeast(metrics["renewals_total unknown"] as number, failed.length)
      assert.strictEqual(metrics["leases_lost_total unconfirmed"], 1)
      assert.strictEqual(metrics["leases"], 1)
      assert.strictEqual(metrics["waiters"], 1)

      const codes = lines.filter((line) => line.level !== "DEBUG").map((line) => line.code)
      assert.strictEqual(codes.filter((code) => code === "RENEWAL_FAILED").length, failed.length)
      assert.strictEqual(codes.filter((code) => code === "RENEWAL_RECOVERED").length, 1)
      for (const line of lines.filter((line) => line.level !== "DEBUG")) {
        assert.strictEqual(line.fields["backend"], name)
        assert.strictEqual(line.fields["session"], "web-1", String(line.code))
        // the end of the trouble is about no lock
        if (line.code !== "RENEWAL_RECOVERED") {
          assert.match(String(line.fields["lock"]), /^[0-9a-f]{12}$/, String(line.code))
        }
      }
      const all = ["LEASE_LOST", "LOCK_LONG_HOLD", "RELEASE_FAILED", "RELEASE_UNANSWERED", "RENEWAL_FAILED"]
      for (const code of all) assert.include(codes, code)
      assert.notInclude(util.inspect([lines, seen], { depth: Infinity }), "secret")
    })))
  })

  it.effect("R4.4 no key, tenant, token or metadata in logs, events and metrics, whatever happens", () => {
    const { lines, provide } = logging(LogLevel.All)
    return provide(Effect.scoped(Effect.gen(function*() {
      const { driver, locking, other } = yield* world({ backend: "orders", shutdownTimeout: 0 })
      const { seen } = yield* events(locking)
      const options = { metadata: { "secret name": "secret value" } }
      const run = <A, E>(effect: Effect.Effect<A, E>) => waits(Effect.exit(LockKey.withTenant(effect, "secret tenant")))
      yield* run(locking.withLock(Effect.void, "secret key"))
      yield* run(locking.withLock(Effect.uninterruptible(Effect.sleep("70 seconds")), "secret 1", options))
      yield* run(locking.withLock(Effect.never, "secret 2", { ...options, ttl: "20 seconds", maxHold: "50 seconds" }))
      yield* run(locking.withLock(Effect.void, "secret 1", { ...options, waitTimeout: "1 second" }))
      yield* TestClock.adjust("30 seconds")
      driver.next("renew", die, refuse, driver.mute)
      driver.next("release", refuse, driver.mute)
      driver.next("attempt", die, refuse, driver.mute)
      yield* run(locking.withLock(Effect.void, "secret 3", options))
      yield* TestClock.adjust("10 seconds")
      yield* LockKey.withTenant(Effect.ignore(other.forceRelease("secret 1")), "secret tenant")
      yield* TestClock.adjust("1 minute")
      yield* Effect.ignore(locking.withLock(Effect.void, "secret key"))
      yield* Effect.ignore(locking.withLock(Effect.void, "secret \u0000"))
      assert.isAbove(lines.length, 5)
      assert.isAbove(seen.length, 5)
      const everything = util.inspect([lines, seen, yield* Metric.snapshot], { depth: 12, maxArrayLength: null })
      assert.notInclude(everything, "secret")
      for (const token of driver.calls.flatMap((call) => call.tokens)) assert.notInclude(everything, token)
    })))
  })
})
