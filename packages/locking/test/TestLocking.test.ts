import { assert, describe, it } from "@effect/vitest"
import { Clock, Duration, Effect, Exit, Fiber, Logger, Option, Scope, TestClock } from "effect"
import * as Locking from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import * as TestLocking from "effect-locking/TestLocking"

/** Runs the section and remembers in which order sections began. */
const section = (log: Array<string>, name: string, duration: Duration.DurationInput) =>
  Effect.zipRight(Effect.sync(() => log.push(name)), Effect.sleep(duration))

const sessions = (key: LockKey.Input) =>
  Effect.map(TestLocking.holders(key), (holders) => holders.map((holder) => holder.session))

/** The error of a running section that must have ended by now. */
const errorOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.flatMap(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return Effect.flip(exit.value)
  })

const valueOf = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.flatMap(fiber.poll, (exit) => {
    assert(Option.isSome(exit), "still running")
    return exit.value
  })

const isRunning = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => assert(Option.isNone(exit), "has ended"))

const patient = { waitTimeout: "10 minutes", pollInterval: "1 minute" } as const

describe("TestLocking", () => {
  describe("nodes", () => {
    it.scoped("R8.1 play processes over one store", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        const log: Array<string> = []
        const here = yield* Effect.fork(Locking.withLock(section(log, "main", "1 second"), "orders"))
        yield* TestClock.adjust("500 millis")
        assert.deepStrictEqual(yield* sessions("orders"), ["main"])
        const there = yield* Effect.fork(other.withLock(section(log, "other", "1 second"), "orders"))
        yield* TestClock.adjust("499 millis")
        assert.deepStrictEqual(log, ["main"])
        yield* TestClock.adjust("1 millis")
        yield* valueOf(here)
        assert.deepStrictEqual(log, ["main", "other"])
        assert.deepStrictEqual(yield* sessions("orders"), ["other"])
        yield* TestClock.adjust("1 second")
        yield* valueOf(there)
        assert.deepStrictEqual(yield* sessions("orders"), [])
      }).pipe(Effect.provide(TestLocking.layer)))

    it.effect("R8.1 two runs are the same to the millisecond, pauses between tries included", () =>
      Effect.gen(function*() {
        const run = Effect.gen(function*() {
          const start = yield* Clock.currentTimeMillis
          const trace: Array<string> = []
          const other = yield* TestLocking.node("other")
          yield* TestLocking.refuse({ op: "arm" })
          const at = (name: string) =>
            Effect.map(Clock.currentTimeMillis, (now) => void trace.push(`${name} ${now - start}`))
          const fibers = []
          for (const [name, locking] of [["main", yield* Locking.Locking], ["other", other]] as const) {
            for (let i = 0; i < 4; i++) {
              const section = Effect.zipRight(at(`${name} ${i}`), Effect.sleep("700 millis"))
              fibers.push(yield* Effect.fork(locking.withLock(section, "orders", { waitTimeout: "1 minute" })))
            }
          }
          yield* TestClock.adjust("30 seconds")
          for (const fiber of fibers) yield* valueOf(fiber)
          return trace
        }).pipe(Effect.scoped, Effect.provide(TestLocking.layer))
        const first = yield* run
        assert.lengthOf(first, 8)
        assert.deepStrictEqual(yield* run, first)
      }))

    it.scoped("R1.8 have the ttl of a server", () =>
      Effect.gen(function*() {
        const lease = yield* Locking.acquire("orders")
        assert.deepStrictEqual(lease.ttl, Duration.seconds(15))
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R6.6 take the options of a layer", () =>
      Effect.gen(function*() {
        const lease = yield* Locking.acquire("orders")
        assert.deepStrictEqual(lease.ttl, Duration.seconds(30))
        assert.deepStrictEqual(yield* sessions("orders"), ["web-1"])
        const error = yield* Effect.flip(TestLocking.node("other", { maxKeys: -1 }))
        assert.strictEqual(error.code, "INVALID_OPTIONS")
      }).pipe(Effect.provide(TestLocking.layerWith({ ttl: "30 seconds", session: "web-1" }))))

    it.scoped("R8.1 share nothing with another store", () =>
      Effect.gen(function*() {
        yield* Locking.acquire("orders")
        const apart = yield* Effect.flatMap(TestLocking.node("apart"), (node) => node.tryAcquire("orders")).pipe(
          Effect.provide(TestLocking.layerStore)
        )
        assert(Option.isSome(apart))
      }).pipe(Effect.provide(TestLocking.layer)))

    it.effect("R7.1 end undisturbed by the faults around them", () =>
      Effect.gen(function*() {
        const scope = yield* Scope.make()
        const other = yield* Effect.provideService(TestLocking.node("other"), Scope.Scope, scope)
        yield* Effect.fork(other.withLock(Effect.sleep("1 hour"), "orders"))
        yield* TestClock.adjust(1)
        yield* TestLocking.dropNextReply({ op: "attempt" })
        yield* Effect.fork(other.withLock(Effect.void, "unanswered"))
        yield* TestLocking.answerLate("1 hour", { op: "attempt" })
        yield* Effect.fork(other.withLock(Effect.void, "late"))
        yield* TestLocking.mute(Duration.infinity)
        yield* Effect.fork(other.withLock(Effect.void, "unsent"))
        yield* TestClock.adjust(100)
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(yield* sessions("orders"), [])
        assert.deepStrictEqual(yield* sessions("unanswered"), [])
        assert.deepStrictEqual(yield* sessions("late"), [])
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  it.effect("R7.1 a node that ends gives back what it could not give back before", () =>
    Effect.gen(function*() {
      yield* TestLocking.refuse({ op: "release" })
      const other = yield* TestLocking.node("other")
      yield* other.withLock(Effect.void, "orders")
      assert.deepStrictEqual(yield* sessions("orders"), ["other"])
    }).pipe(
      Effect.scoped,
      Effect.zipRight(sessions("orders")),
      Effect.provide(TestLocking.layer),
      Effect.map((left) => {
        assert.deepStrictEqual(left, [])
      })
    ))

  describe("loseLease", () => {
    it.scoped("R10.3 revoked: the section is interrupted at once", () =>
      Effect.gen(function*() {
        const running = yield* Effect.fork(Locking.withLock(Effect.sleep("1 hour"), "orders"))
        yield* TestClock.adjust("10 seconds")
        const holders = yield* TestLocking.loseLease("orders")
        assert.deepStrictEqual(holders.map((holder) => holder.session), ["main"])
        yield* TestClock.adjust(0)
        const error = yield* errorOf(running)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "revoked")
        assert.deepStrictEqual(yield* TestLocking.loseLease("orders"), [])
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R2.4 expired: its holder learns it by the next renewal", () =>
      Effect.gen(function*() {
        const running = yield* Effect.fork(Locking.withLock(Effect.sleep("1 hour"), "orders"))
        yield* TestClock.adjust("1 second")
        assert.lengthOf(yield* TestLocking.loseLease("orders", { reason: "expired" }), 1)
        yield* TestClock.adjust("1 second")
        yield* isRunning(running)
        yield* TestClock.adjust("8 seconds")
        const error = yield* errorOf(running)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "expired")
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R6.2 wakes who waits", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other", patient)
        yield* Effect.fork(Locking.withLock(Effect.sleep("1 hour"), "orders"))
        yield* TestClock.adjust(1)
        const waiting = yield* Effect.fork(other.withLock(Effect.void, "orders"))
        yield* TestClock.adjust(1)
        yield* TestLocking.loseLease("orders", { reason: "expired" })
        yield* TestClock.adjust(0)
        yield* valueOf(waiting)
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("mute", () => {
    it.scoped("R2.5 longer than the ttl: the section ends by its own clock, before another can begin", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other", patient)
        const log: Array<string> = []
        const running = yield* Effect.fork(Locking.withLock(section(log, "main", "1 hour"), "orders"))
        yield* TestClock.adjust(1)
        const waiting = yield* Effect.fork(other.withLock(section(log, "other", 0), "orders"))
        yield* TestLocking.mute("20 seconds", { node: "main" })
        yield* TestClock.adjust("14.9 seconds")
        const error = yield* errorOf(running)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "unconfirmed")
        yield* isRunning(waiting)
        yield* TestClock.adjust("1 second")
        yield* valueOf(waiting)
        assert.deepStrictEqual(log, ["main", "other"])
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R7.2 shorter than the ttl: nothing is lost", () =>
      Effect.gen(function*() {
        const running = yield* Effect.fork(Locking.withLock(Effect.sleep("1 minute"), "orders"))
        yield* TestClock.adjust("4 seconds")
        yield* TestLocking.mute("6 seconds")
        yield* TestClock.adjust("1 minute")
        yield* valueOf(running)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R10.3 R6.2 notices and wake-ups are lost meanwhile", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other", patient)
        const running = yield* Effect.fork(Locking.withLock(Effect.sleep("1 hour"), "orders"))
        yield* TestClock.adjust("1 second")
        const waiting = yield* Effect.fork(other.withLock(Effect.void, "orders"))
        yield* TestClock.adjust(1)
        yield* TestLocking.mute("2 seconds")
        yield* TestLocking.loseLease("orders")
        yield* TestClock.adjust("3 seconds")
        yield* isRunning(running)
        yield* isRunning(waiting)
        yield* TestClock.adjust("2 minutes")
        const error = yield* errorOf(running)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "revoked")
        yield* valueOf(waiting)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R1.7 who asks meanwhile gets no answer, and no grant afterwards", () =>
      Effect.gen(function*() {
        yield* TestLocking.mute("1 minute")
        const waiting = yield* Effect.fork(Locking.withLock(Effect.void, "orders"))
        yield* TestClock.adjust("8 seconds")
        assert.strictEqual((yield* errorOf(waiting)).code, "OUTCOME_UNKNOWN")
        yield* TestClock.adjust("2 minutes")
        assert.deepStrictEqual(yield* sessions("orders"), [])
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R7.2 calls wait for its end, or for heal", () =>
      Effect.gen(function*() {
        for (const end of [TestClock.adjust("1 second"), TestLocking.heal]) {
          yield* TestLocking.mute("1 second")
          const running = yield* Effect.fork(Locking.withLock(Effect.void, "orders"))
          yield* TestClock.adjust("999 millis")
          yield* isRunning(running)
          yield* end
          yield* TestClock.adjust(0)
          yield* valueOf(running)
        }
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("dropNextReply", () => {
    it.scoped("B51 a grant whose reply is lost is found again: same fence", () =>
      Effect.gen(function*() {
        yield* TestLocking.dropNextReply({ op: "grant" })
        const running = yield* Effect.fork(Locking.useLock("orders", (lease) => Effect.succeed(lease.fence)))
        yield* TestClock.adjust(1)
        const [holder] = yield* TestLocking.holders("orders")
        assert.strictEqual(holder?.session, "main")
        yield* TestClock.adjust("4 seconds")
        assert.strictEqual(yield* valueOf(running), holder.fence)
        assert.deepStrictEqual(yield* sessions("orders"), [])
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R1.7 nobody who asks in vain leaves a lock behind", () =>
      Effect.gen(function*() {
        yield* TestLocking.dropNextReply({ op: "grant" })
        const once = yield* Effect.fork(Locking.withLockIfAvailable(Effect.void, "orders"))
        yield* TestClock.adjust(1)
        assert.deepStrictEqual(yield* sessions("orders"), ["main"])
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual((yield* errorOf(once)).code, "OUTCOME_UNKNOWN")
        assert.deepStrictEqual(yield* sessions("orders"), [])
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("B54 a release whose reply is lost is a release", () =>
      Effect.gen(function*() {
        yield* TestLocking.dropNextReply({ op: "release", node: "other" })
        yield* TestLocking.dropNextReply({ op: "release", node: "main" })
        const running = yield* Effect.fork(Locking.withLock(Effect.succeed("done"), "orders"))
        yield* TestClock.adjust(1)
        yield* isRunning(running)
        assert.deepStrictEqual(yield* sessions("orders"), [])
        yield* TestClock.adjust("2 seconds")
        assert.strictEqual(yield* valueOf(running), "done")
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R1.1 an unanswered call can be interrupted", () =>
      Effect.gen(function*() {
        yield* TestLocking.dropNextReply({ times: 2 })
        const running = yield* Effect.fork(Locking.withLock(Effect.void, "orders"))
        yield* TestClock.adjust(1)
        yield* Fiber.interrupt(running)
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("answerLate", () => {
    it.scoped("R1.7 below the limit of a call: slow, and nothing else", () =>
      Effect.gen(function*() {
        yield* TestLocking.answerLate("1 second", { op: "attempt" })
        const running = yield* Effect.fork(
          Locking.useLock("orders", (lease) => Effect.succeed(Duration.toMillis(lease.waited)))
        )
        yield* TestClock.adjust("999 millis")
        yield* isRunning(running)
        yield* TestClock.adjust("1 millis")
        assert.strictEqual(yield* valueOf(running), 1_000)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("B42 the lease counts from the question, not from the answer", () =>
      Effect.gen(function*() {
        yield* TestLocking.answerLate("1500 millis", { op: "attempt", times: 1 })
        const running = yield* Effect.fork(
          Locking.useLock("orders", (lease) => Effect.map(lease.remaining, Duration.toMillis))
        )
        yield* TestClock.adjust("1500 millis")
        assert.isAtMost(yield* valueOf(running), 13_500)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R2.5 every answer too late: the section ends in time", () =>
      Effect.gen(function*() {
        const running = yield* Effect.fork(Locking.withLock(Effect.sleep("1 hour"), "orders"))
        yield* TestClock.adjust("1 second")
        yield* TestLocking.answerLate("1 minute", { op: "renew" })
        yield* TestClock.adjust("30 seconds")
        const error = yield* errorOf(running)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "unconfirmed")
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("refuse", () => {
    it.scoped("R1.7 provably nothing was granted", () =>
      Effect.gen(function*() {
        yield* TestLocking.refuse({ op: "attempt" })
        const error = yield* Effect.flip(Locking.withLockIfAvailable(Effect.void, "orders"))
        assert.strictEqual(error.code, "PROVIDER_FAILED")
        yield* TestLocking.heal
        assert.isTrue(Option.isSome(yield* Locking.withLockIfAvailable(Effect.void, "orders")))
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R8.1 one node and not the others", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        yield* TestLocking.refuse({ node: "other" })
        yield* Locking.withLock(Effect.void, "orders")
        const error = yield* Effect.flip(other.withLockIfAvailable(Effect.void, "orders"))
        assert.strictEqual(error.code, "PROVIDER_FAILED")
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("B43 a failed renewal is repeated in time", () =>
      Effect.gen(function*() {
        yield* TestLocking.refuse({ op: "renew", times: 2 })
        const running = yield* Effect.fork(Locking.withLock(Effect.sleep("1 minute"), "orders"))
        yield* TestClock.adjust("1 minute")
        yield* valueOf(running)
        assert.isAbove((yield* TestLocking.calls()).renew, 4)
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("wake-ups", () => {
    const contest = Effect.gen(function*() {
      const other = yield* TestLocking.node("other", patient)
      const running = yield* Effect.fork(Locking.withLock(Effect.sleep("1 second"), "orders", { ttl: "1 hour" }))
      yield* TestClock.adjust(1)
      const waiting = yield* Effect.fork(other.withLock(Effect.void, "orders"))
      yield* TestClock.adjust("999 millis")
      yield* valueOf(running)
      return waiting
    })

    it.scoped("R6.2 come at once", () => Effect.flatMap(contest, valueOf).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R6.2 delayWakeups", () =>
      Effect.gen(function*() {
        yield* TestLocking.delayWakeups("5 seconds", { times: 1 })
        const waiting = yield* contest
        yield* TestClock.adjust("4999 millis")
        yield* isRunning(waiting)
        yield* TestClock.adjust("1 millis")
        yield* valueOf(waiting)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R6.2 dropWakeups: the poll cures it", () =>
      Effect.gen(function*() {
        yield* TestLocking.dropWakeups({ node: "other" })
        const waiting = yield* contest
        yield* TestClock.adjust("40 seconds")
        yield* isRunning(waiting)
        yield* TestClock.adjust("40 seconds")
        yield* valueOf(waiting)
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("jumpClock", () => {
    it.scoped("R2.4 R3.1 forward: two holders for a while, and the fence tells them apart", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        const first = yield* Locking.acquire("orders")
        yield* TestLocking.jumpClock("1 minute")
        assert.deepStrictEqual(yield* sessions("orders"), [])
        const second = yield* other.acquire("orders")
        assert.isTrue(yield* first.isValid)
        assert.isAbove(Number(second.fence), Number(first.fence))
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual((yield* Effect.flip(first.lost)).reason, "taken")
        assert.isTrue(yield* second.isValid)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R3.1 back: what nobody renews lasts longer, and fences rise all the same", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        yield* TestClock.adjust("1 hour")
        const first = yield* other.acquire("orders")
        yield* TestLocking.kill("other")
        yield* TestLocking.jumpClock("5 minutes", "back")
        yield* TestClock.adjust("4 minutes")
        assert.deepStrictEqual(yield* sessions("orders"), ["other"])
        yield* TestClock.adjust("2 minutes")
        assert.isAbove(Number((yield* Locking.acquire("orders")).fence), Number(first.fence))
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("kill", () => {
    it.scoped("R7.2 the section stops, the lock stays for its ttl", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        const running = yield* Effect.fork(other.withLock(Effect.sleep("1 hour"), "orders"))
        yield* TestClock.adjust("1 second")
        yield* TestLocking.kill("other")
        assert.isTrue(Exit.isFailure(yield* Fiber.await(running)))
        assert.strictEqual((yield* Effect.flip(other.withLock(Effect.void, "orders"))).code, "CLOSED")
        assert.deepStrictEqual(yield* sessions("orders"), ["other"])
        assert.isTrue(Option.isNone(yield* Locking.withLockIfAvailable(Effect.void, "orders")))
        yield* TestClock.adjust("14 seconds")
        assert.isTrue(Option.isSome(yield* Locking.withLockIfAvailable(Effect.void, "orders")))
        const { release } = yield* TestLocking.calls({ node: "other" })
        assert.strictEqual(release, 0)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R7.2 from within the section", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        let reached = false
        const suicide = Effect.zipRight(TestLocking.kill("other"), Effect.sync(() => reached = true))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(other.withLock(suicide, "orders"))))
        assert.isFalse(reached)
        assert.deepStrictEqual(yield* sessions("orders"), ["other"])
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R7.2 while its calls are unanswered, and back again", () =>
      Effect.gen(function*() {
        const first = yield* TestLocking.node("worker")
        yield* first.acquire("orders")
        yield* TestLocking.dropNextReply({ op: "attempt" })
        yield* Effect.fork(first.withLock(Effect.void, "other"))
        yield* TestClock.adjust(1)
        yield* TestLocking.kill("worker")
        const second = yield* TestLocking.node("worker", { waitTimeout: "1 minute" })
        const lease = yield* Effect.fork(second.acquire("orders"))
        yield* TestClock.adjust("15 seconds")
        yield* valueOf(lease)
        yield* TestLocking.kill("nobody")
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R1.6 a killed writer does not stop readers for long", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        const reader = yield* TestLocking.node("reader")
        yield* Locking.acquire("orders", { mode: "shared" })
        yield* Effect.fork(other.withLock(Effect.void, "orders"))
        yield* TestClock.adjust(1)
        yield* TestLocking.kill("other")
        const read = reader.withLockIfAvailable(Effect.void, "orders", { mode: "shared" })
        assert.isTrue(Option.isNone(yield* read))
        yield* TestClock.adjust("2 seconds")
        assert.isTrue(Option.isSome(yield* read))
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  describe("observation", () => {
    it.scoped("R4.1 R4.2 holders of the tenant's key, or of the platform's", () =>
      Effect.gen(function*() {
        const count = (key: LockKey.Input) => Effect.map(TestLocking.holders(key), (holders) => holders.length)
        yield* Locking.acquire("orders").pipe(LockKey.withTenant("acme"))
        assert.strictEqual(yield* count("orders"), 0)
        assert.strictEqual(yield* count(LockKey.make("orders")).pipe(LockKey.withTenant("acme")), 1)
        assert.strictEqual(yield* count("orders").pipe(LockKey.withTenant("other")), 0)
        yield* Locking.acquire(LockKey.platform("orders")).pipe(LockKey.withTenant("acme"))
        assert.strictEqual(yield* count(LockKey.platform("orders")), 1)
        assert.strictEqual(yield* count("orders"), 0)
      }).pipe(Effect.provide(TestLocking.layer)))

    it.scoped("R6.3 calls: local waiters do not ask the store", () =>
      Effect.gen(function*() {
        const other = yield* TestLocking.node("other")
        yield* other.withLock(Effect.void, "orders")
        const all = yield* Effect.forEach(
          Array.from({ length: 20 }, () => Locking.withLockIfAvailable(Effect.sleep("1 second"), "orders")),
          Effect.fork
        )
        yield* TestClock.adjust("1 second")
        yield* Effect.forEach(all, Fiber.join)
        const { attempt, release } = yield* TestLocking.calls({ node: "main" })
        assert.deepStrictEqual({ attempt, release }, { attempt: 1, release: 1 })
        assert.strictEqual((yield* TestLocking.calls()).attempt, 2)
      }).pipe(Effect.provide(TestLocking.layer)))
  })

  it.live("R8.1 works on the real clock", () =>
    Effect.gen(function*() {
      const error = yield* Locking.withLock(
        Effect.zipRight(TestLocking.mute("1 minute"), Effect.sleep("1 minute")),
        "orders"
      )
        .pipe(Effect.flip)
      assert.strictEqual(error.code, "LEASE_LOST")
      yield* TestLocking.heal
      yield* TestLocking.answerLate(20)
      yield* Locking.withLock(Effect.void, "invoices")
    }).pipe(Effect.provide([TestLocking.layerWith({ ttl: 200 }), Logger.remove(Logger.defaultLogger)])))
})
