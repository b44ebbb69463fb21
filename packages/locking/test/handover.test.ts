import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, FiberId, Option, Scope, TestClock } from "effect"
import type { Lease } from "effect-locking/Lease"
import * as Locking from "effect-locking/Locking"
import type { AcquireOptions, LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as fc from "fast-check"
import { broken, die, type FaultyDriver, late, refuse, slow, world } from "./faultyDriver.js"

const settled = TestClock.adjust(0)

const patient = { waitTimeout: "1 hour" } as const

const isRunning = <A, E>(fiber: Fiber.RuntimeFiber<A, E>) =>
  Effect.map(fiber.poll, (exit) => assert(Option.isNone(exit), "has ended"))

/** A holder that goes when it is told to, and those who wait behind it. */
const queueUp = (
  locking: Locking.Locking,
  count: number,
  options: AcquireOptions = patient,
  body: Effect.Effect<unknown> = Effect.void
) =>
  Effect.gen(function*() {
    const fences: Array<bigint> = []
    const section = (lease: Lease) =>
      Effect.suspend(() => {
        fences.push(lease.fence)
        return body
      })
    const go = yield* Deferred.make<void>()
    const first = yield* Effect.fork(
      locking.useLock("k", options, (lease) => Effect.zipRight(Deferred.await(go), section(lease)))
    )
    yield* settled
    const waiters: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
    for (let i = 1; i < count; i++) waiters.push(yield* Effect.fork(locking.useLock("k", options, section)))
    yield* settled
    return { fences, go: Effect.zipRight(Deferred.succeed(go, undefined), settled), first, waiters }
  })

/** How many leases each of the grants at the store had. */
const turns = (fences: ReadonlyArray<bigint>): ReadonlyArray<number> => {
  const turns: Array<number> = []
  fences.forEach((fence, i) => {
    if (i > 0 && fence === fences[i - 1]! + 1n) turns[turns.length - 1]!++
    else turns.push(1)
  })
  return turns
}

/** Blocks are of eight, so that a grant's first number tells it from its neighbour's last one. */
const assertRise = (fences: ReadonlyArray<bigint>) => {
  for (let i = 1; i < fences.length; i++) {
    assert.isTrue(fences[i]! > fences[i - 1]!, `${fences[i - 1]} then ${fences[i]}`)
  }
}

const asked = (driver: FaultyDriver) => ({ attempts: driver.count("attempt"), releases: driver.count("release") })

describe("hand-over", () => {
  it.scoped("R6.4 a release passes the grant on, without the store, under the next number of the block", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const queue = yield* queueUp(locking, 3)
      yield* queue.go
      assert.strictEqual(queue.fences.length, 3)
      assert.deepStrictEqual(queue.fences.map((fence) => fence - queue.fences[0]!), [0n, 1n, 2n])
      assert.deepStrictEqual(asked(driver), { attempts: 1, releases: 1 })
    }))

  it.scoped("R6.4 at most four times in a row, then the process asks the store again", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const queue = yield* queueUp(locking, 12)
      yield* queue.go
      assert.deepStrictEqual(turns(queue.fences), [5, 5, 2])
      assertRise(queue.fences)
      assert.deepStrictEqual(asked(driver), { attempts: 3, releases: 3 })
    }))

  for (const [maxHandovers, expected] of [[0, [1, 1, 1, 1]], [1, [2, 2]], [3, [4]], [1_000, [4]]] as const) {
    it.scoped(`R6.4 R6.6 maxHandovers ${maxHandovers}`, () =>
      Effect.gen(function*() {
        const { locking } = yield* world({ maxHandovers })
        const queue = yield* queueUp(locking, 4)
        yield* queue.go
        assert.deepStrictEqual(turns(queue.fences), expected)
        assertRise(queue.fences)
      }))
  }

  it.scoped("R6.4 R3.1 never beyond the numbers of the block", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world({ maxHandovers: 1_000 })
      const queue = yield* queueUp(locking, 20)
      yield* queue.go
      assert.strictEqual(queue.fences.length, 20)
      assertRise(queue.fences)
      // 8 + 8 + 4
      assert.strictEqual(driver.count("attempt"), 3)
    }))

  it.scoped("R6.4 not for longer than 50 ms, whatever their number", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const queue = yield* queueUp(locking, 5, patient, Effect.sleep("20 millis"))
      yield* queue.go
      for (let i = 0; i < 10; i++) yield* TestClock.adjust("10 millis")
      assert.strictEqual(queue.fences.length, 5)
      // the first at 0, 20 and 40 ms; at 60 it is the store's turn
      assert.deepStrictEqual(turns(queue.fences), [3, 2])
      assertRise(queue.fences)
      assert.deepStrictEqual(asked(driver), { attempts: 2, releases: 2 })
    }))

  describe("by an offer, which grants anew where nobody waits elsewhere", () => {
    const calls = (driver: FaultyDriver) => ({ ...asked(driver), offers: driver.count("offer") })

    const offering = (options?: LockingOptions) =>
      Effect.tap(world(options), ({ driver }) =>
        Effect.sync(() => {
          driver.offers = true
        }))

    it.scoped("R6.4 R3.1 one call between two turns, and every lease has a higher fence", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* offering()
        const queue = yield* queueUp(locking, 12)
        yield* queue.go
        assert.deepStrictEqual(turns(queue.fences), [5, 5, 2])
        assertRise(queue.fences)
        assert.deepStrictEqual(calls(driver), { attempts: 1, releases: 1, offers: 2 })
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("R6.4 who waits elsewhere gets the key, and this process stands back", () =>
      Effect.gen(function*() {
        const { driver, locking, other } = yield* offering()
        const queue = yield* queueUp(locking, 12)
        const there = yield* Effect.fork(other.useLock("k", patient, (lease) => Effect.succeed(lease.fence)))
        yield* settled
        yield* queue.go
        for (let i = 0; i < 20; i++) yield* TestClock.adjust("50 millis")
        const theirs = yield* Fiber.join(there)
        assert.deepStrictEqual(turns(queue.fences), [5, 5, 2])
        assert.isTrue(theirs > queue.fences[4]! && theirs < queue.fences[5]!)
        assert.deepStrictEqual(calls(driver).offers, 2)
      }))

    it.scoped("R2.5 the lease that it brings counts from the call, by its whole ttl", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* offering({ ttl: "900 millis", maxHandovers: 0 })
        const first = yield* locking.acquire("k")
        const second = yield* Effect.fork(Effect.scoped(Effect.flatMap(locking.acquire("k", patient), (lease) =>
          Effect.zipRight(Effect.sleep("5 millis"), lease.remaining))))
        yield* TestClock.adjust("200 millis")
        driver.next("offer", late("100 millis"))
        const done = yield* Effect.fork(first.release)
        yield* TestClock.adjust("100 millis")
        yield* Fiber.join(done)
        const [holder] = yield* holders("k")
        assert.isTrue(holder!.fence! > first.fence)
        yield* TestClock.adjust("5 millis")
        // 900 - 100 for the answer - 5 for the section - the margin of 14
        assert.strictEqual(Duration.toMillis(yield* Fiber.join(second)), 900 - 100 - 5 - 14)
      }))

    for (
      const [name, fault] of [["is refused", refuse], ["is not known to have come", broken], ["dies", die]] as const
    ) {
      it.scoped(`R5 R6.4 one that ${name}: the next one asks by itself, and nothing stays behind`, () =>
        Effect.gen(function*() {
          const { driver, holders, locking } = yield* offering()
          driver.always("offer", fault)
          const queue = yield* queueUp(locking, 7)
          yield* queue.go
          for (let i = 0; i < 10; i++) yield* TestClock.adjust("50 millis")
          assert.deepStrictEqual(turns(queue.fences), [5, 2])
          assertRise(queue.fences)
          assert.deepStrictEqual(yield* holders("k"), [])
        }))
    }

    it.scoped("R1.4 R6.4 one that is never answered costs no more than an attempt", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* offering({ attemptTimeout: "100 millis" })
        driver.next("offer", driver.lost)
        const queue = yield* queueUp(locking, 6)
        yield* queue.go
        yield* TestClock.adjust("100 millis")
        yield* TestClock.adjust("50 millis")
        assert.deepStrictEqual(turns(queue.fences), [5, 1])
        assert.deepStrictEqual(yield* holders("k"), [])
      }))

    it.scoped("B12 R6.4 the heir leaves meanwhile: it goes back to the store, within the same time", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* offering()
        driver.next("offer", late("100 millis"))
        const queue = yield* queueUp(locking, 6)
        yield* queue.go
        const heir = yield* Effect.fork(Fiber.interrupt(queue.waiters[4]!))
        yield* TestClock.adjust("99 millis")
        yield* Fiber.join(heir)
        assert.strictEqual((yield* holders("k")).length, 1)
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(yield* holders("k"), [])
        assert.deepStrictEqual(calls(driver), { attempts: 1, releases: 1, offers: 1 })
        yield* Fiber.join(queue.waiters[3]!)
      }))

    it.scoped("B12 R6.4 the heir leaves meanwhile: the one behind it inherits", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* offering()
        driver.next("offer", late("100 millis"))
        const queue = yield* queueUp(locking, 7)
        yield* queue.go
        yield* Fiber.interrupt(queue.waiters[4]!)
        yield* TestClock.adjust("100 millis")
        yield* Fiber.join(queue.waiters[5]!)
        assert.deepStrictEqual(turns(queue.fences), [5, 1])
        assert.deepStrictEqual(calls(driver), { attempts: 1, releases: 1, offers: 1 })
      }))

    it.scoped("R7.1 the layer closes meanwhile: nothing is granted any more", () =>
      Effect.gen(function*() {
        const scope = yield* Scope.make()
        const { driver, locking, store } = yield* Scope.extend(offering(), scope)
        const other = yield* Locking.make(yield* MemoryStore.driver(store))
        driver.next("offer", late("100 millis"))
        const queue = yield* queueUp(locking, 6)
        yield* queue.go
        const closed = yield* Effect.fork(Scope.close(scope, Exit.void))
        yield* TestClock.adjust("100 millis")
        yield* settled
        assert.strictEqual(queue.fences.length, 5)
        assert.strictEqual((yield* Fiber.await(queue.waiters[4]!))._tag, "Failure")
        yield* Fiber.join(closed)
        assert.deepStrictEqual(yield* other.inspect("k"), [])
      }))

    for (const [what, op] of [["an offer", "offer"], ["an attempt", "attempt"]] as const) {
      it.scoped(`R10.3 R2.4 ${what} that brings what was revoked meanwhile: its holder learns it at once`, () =>
        Effect.gen(function*() {
          const { driver, locking, other } = yield* offering({ maxHandovers: 0, ttl: "1 hour" })
          if (op === "attempt") driver.next("attempt", late("100 millis"))
          else driver.next("offer", late("100 millis"))
          const first = op === "offer" ? yield* locking.acquire("k") : undefined
          let isInside = false
          const section = Effect.zipRight(Effect.sync(() => isInside = true), Effect.sleep("10 minutes"))
          const heir = yield* Effect.fork(Effect.flip(locking.withLock(section, "k", patient)))
          yield* settled
          if (first !== undefined) yield* Effect.fork(first.release)
          yield* settled
          yield* other.forceRelease("k")
          yield* TestClock.adjust("100 millis")
          const error = yield* Fiber.join(heir)
          assert(error._tag === "LeaseLost")
          assert.strictEqual(error.reason, "revoked")
          assert.isFalse(isInside)
        }))
    }

    it.scoped("R3.1 a driver that answers no fence is not believed", () =>
      Effect.gen(function*() {
        const { driver, holders, locking } = yield* offering()
        driver.always("offer", (execute) =>
          Effect.map(execute, (answer) => ({ ...answer as unknown as object, fences: [] }) as never))
        const queue = yield* queueUp(locking, 6)
        yield* queue.go
        yield* TestClock.adjust("50 millis")
        assert.deepStrictEqual(turns(queue.fences), [5, 1])
        assert.deepStrictEqual(yield* holders("k"), [])
      }))
  })

  describe("to a request of the same kind only", () => {
    const others: Record<string, readonly [AcquireOptions, AcquireOptions]> = {
      "another mode": [{}, { mode: "shared" }],
      "a mode that is shared before": [{ mode: "shared" }, {}],
      "another ttl": [{}, { ttl: "14 seconds" }],
      "other metadata": [{ metadata: { job: "a" } }, { metadata: { job: "b" } }],
      "metadata where there was none": [{}, { metadata: { job: "b" } }],
      "none where there was metadata": [{ metadata: { job: "a" } }, {}],
      "no renewal": [{}, { autoRenew: false }]
    }
    for (const [name, [before, after]] of Object.entries(others)) {
      it.scoped(`R6.4 not to ${name}`, () =>
        Effect.gen(function*() {
          const { driver, holders, locking } = yield* world()
          const go = yield* Deferred.make<void>()
          const stay = yield* Deferred.make<void>()
          const first = yield* Effect.fork(
            locking.useLock("k", before, (lease) => Effect.as(Deferred.await(go), lease.fence))
          )
          yield* settled
          const second = yield* Effect.fork(
            locking.useLock("k", { ...patient, ...after }, (lease) => Effect.as(Deferred.await(stay), lease.fence))
          )
          yield* settled
          yield* Deferred.succeed(go, undefined)
          yield* settled
          const [holder] = yield* holders("k")
          assert.strictEqual(holder?.mode, after.mode ?? "exclusive")
          assert.deepStrictEqual(holder?.metadata, after.metadata ?? {})
          yield* Deferred.succeed(stay, undefined)
          assert.isTrue((yield* Fiber.join(second)) >= (yield* Fiber.join(first)) + 8n)
          assert.deepStrictEqual(asked(driver), { attempts: 2, releases: 2 })
        }))
    }

    it.scoped("R6.4 not to one that wants more keys", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        const go = yield* Deferred.make<void>()
        yield* Effect.fork(locking.withLock(Deferred.await(go), "k"))
        yield* settled
        const both = yield* Effect.fork(locking.withLocks(Effect.void, ["j", "k"]))
        yield* settled
        yield* Deferred.succeed(go, undefined)
        yield* settled
        yield* Fiber.join(both)
        assert.deepStrictEqual(driver.of("attempt").map((call) => call.keys), [["k"], ["j", "k"]])
      }))

    it.scoped("R6.4 only with two thirds of the ttl left", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ ttl: "90 millis", attemptTimeout: "5 millis" })
        driver.always("renew", driver.mute)
        const queue = yield* queueUp(locking, 2, patient)
        yield* TestClock.adjust("29 millis")
        yield* queue.go
        assert.deepStrictEqual(turns(queue.fences), [2])
        const late = yield* queueUp(locking, 2, patient)
        yield* TestClock.adjust("42 millis")
        yield* late.go
        // a release waits for the end of a renewal on its way
        yield* TestClock.adjust("6 millis")
        assert.strictEqual(late.fences.length, 2)
        assert.isTrue(late.fences[1]! >= late.fences[0]! + 8n)
      }))
  })

  it.scoped("R6.4 R1.13 an heir that was interrupted is passed over, and nobody loses a place", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const queue = yield* queueUp(locking, 4)
      yield* Fiber.interrupt(queue.waiters[0]!)
      yield* queue.go
      assert.deepStrictEqual(queue.fences.map((fence) => fence - queue.fences[0]!), [0n, 1n, 2n])
      assert.strictEqual(driver.count("attempt"), 1)
    }))

  it.scoped("R6.4 B12 an heir that is interrupted at the moment of the hand-over passes it on", () =>
    Effect.gen(function*() {
      const { driver, locking } = yield* world()
      const lease = yield* locking.acquire("k")
      let ran = false
      const heir = yield* Effect.fork(locking.withLock(Effect.sync(() => void (ran = true)), "k", patient))
      const next = yield* Effect.fork(locking.useLock("k", patient, (lease) => Effect.succeed(lease.fence)))
      yield* settled
      yield* lease.release
      heir.unsafeInterruptAsFork(FiberId.none)
      yield* settled
      const fence = yield* Fiber.join(next)
      assert.isTrue(fence > lease.fence)
      if (!ran) assert.strictEqual((yield* Fiber.await(heir))._tag, "Failure")
      assert.strictEqual(driver.count("release"), 1)
    }))

  it.scoped("R6.4 a lost grant is not passed on", () =>
    Effect.gen(function*() {
      const { driver, locking, other } = yield* world()
      const queue = yield* queueUp(locking, 2)
      yield* other.forceRelease("k")
      yield* settled
      assert.strictEqual((yield* Fiber.await(queue.first))._tag, "Failure")
      yield* Fiber.join(queue.waiters[0]!)
      assert.strictEqual(driver.count("attempt"), 2)
    }))

  it.scoped("R6.4 R1.10 a hold that was too long ends, and the grant goes to the next one or back", () =>
    Effect.gen(function*() {
      const { locking } = yield* world()
      const first = yield* Effect.fork(
        Effect.flip(locking.withLock(Effect.never, "k", { ...patient, maxHold: "20 millis" }))
      )
      yield* settled
      const second = yield* Effect.fork(locking.withLock(Effect.succeed("second"), "k", patient))
      yield* TestClock.adjust("20 millis")
      const error = yield* Fiber.join(first)
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "max-hold")
      assert.strictEqual(yield* Fiber.join(second), "second")
    }))

  describe("beside other processes", () => {
    for (
      const [name, options, capabilities] of [
        ["remote", {}, {}],
        ["memory", {}, { remote: false }]
      ] as const
    ) {
      it.scoped(`R6.4 ${name}: stands back where the store says that others wait, and goes on after them`, () =>
        Effect.gen(function*() {
          const { driver, locking, other } = yield* world(options as LockingOptions, capabilities)
          const queue = yield* queueUp(locking, 12)
          const order: Array<string> = []
          const stay = yield* Deferred.make<void>()
          const there = yield* Effect.fork(
            other.useLock("k", patient, (lease) =>
              Effect.zipRight(
                Effect.sync(() => queue.fences.push(lease.fence)),
                Deferred.await(stay)
              ))
          )
          yield* settled
          const before = driver.count("attempt")
          yield* queue.go
          // the first turn is over, and the other process has the lock
          assert.strictEqual(queue.fences.length, 5 + 1)
          assert.isAtMost(driver.count("attempt") - before, 1)
          yield* Deferred.succeed(stay, undefined)
          yield* settled
          yield* Fiber.join(there)
          assert.strictEqual(queue.fences.length, 12 + 1)
          assertRise(queue.fences)
          assert.deepStrictEqual(order, [])
        }))

      it.scoped(`R6.4 ${name}: goes on at once where nobody waits`, () =>
        Effect.gen(function*() {
          const { locking, other } = yield* world(options as LockingOptions, capabilities)
          // somebody waited, and gave up
          const queue = yield* queueUp(locking, 12)
          const there = yield* Effect.fork(other.withLock(Effect.void, "k", patient))
          yield* settled
          yield* Fiber.interrupt(there)
          yield* queue.go
          assert.strictEqual(queue.fences.length, 12)
        }))
    }

    it.scoped("R6.4 stands back for one poll at most, when those who waited do not come", () =>
      Effect.gen(function*() {
        const { driver, locking, store: _, ...rest } = yield* world()
        const lease = yield* locking.acquire("k")
        const there = yield* Effect.fork(rest.other.withLock(Effect.void, "k", patient))
        yield* settled
        const here = yield* Effect.fork(
          locking.withLock(Effect.succeed("here"), "k", { ...patient, metadata: { a: "b" } })
        )
        yield* settled
        const before = driver.count("attempt")
        // says that others wait, but they are gone with their wake-up
        driver.next("release", (execute) => Effect.tap(execute, () => Fiber.interrupt(there)))
        yield* lease.release
        yield* settled
        if (driver.count("attempt") === before) yield* TestClock.adjust("313 millis")
        assert.strictEqual(yield* Fiber.join(here), "here")
      }))

    it.scoped("R6.4 in memory, who stood back goes on when those who waited give up", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world({}, { remote: false })
        const lease = yield* locking.acquire("k")
        const there = yield* Effect.fork(other.withLock(Effect.void, "k", patient))
        yield* settled
        const here = yield* Effect.fork(
          locking.withLock(Effect.succeed("here"), "k", { ...patient, metadata: { a: "b" } })
        )
        yield* settled
        yield* lease.release
        // its wake-up is on its way
        there.unsafeInterruptAsFork(FiberId.none)
        yield* TestClock.adjust("1 second")
        const exit = yield* here.poll
        assert(Option.isSome(exit), "still waits for nobody")
        assert.strictEqual(yield* exit.value, "here")
      }))

    it.scoped("R1.7 R6.4 B45 a wait that ends while it stands back asks once, and does not fail OutcomeUnknown", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world()
        const lease = yield* locking.acquire("k")
        yield* Effect.fork(other.withLock(Effect.never, "k", patient))
        yield* settled
        const here = yield* Effect.fork(
          locking.withLock(Effect.void, "k", { metadata: { a: "b" }, waitTimeout: "1 second" })
        )
        yield* TestClock.adjust("950 millis")
        yield* lease.release
        yield* TestClock.adjust("100 millis")
        assert.strictEqual((yield* Effect.flip(Fiber.join(here)))._tag, "WaitTimeout")
      }))

    it.scoped("R1.13 R6.4 two processes under load take turns", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world({}, { remote: false })
        const order: Array<"a" | "b"> = []
        const loop = (locking: Locking.Locking, name: "a" | "b") =>
          Effect.repeatN(
            locking.withLock(Effect.zipRight(Effect.sync(() => order.push(name)), Effect.yieldNow()), "k", patient),
            9
          )
        const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
        for (let i = 0; i < 4; i++) {
          fibers.push(yield* Effect.fork(loop(locking, "a")), yield* Effect.fork(loop(other, "b")))
        }
        yield* TestClock.adjust("10 seconds")
        yield* Fiber.joinAll(fibers)
        // until one of them has nothing left to do, neither is inside more than five times in a row
        const busy = order.slice(0, Math.min(order.lastIndexOf("a"), order.lastIndexOf("b")))
        let inARow = 0
        busy.forEach((name, i) => {
          inARow = name === busy[i - 1] ? inARow + 1 : 1
          assert.isAtMost(inARow, 5, order.join(""))
        })
      }))
  })

  describe("readers", () => {
    const shared = { ...patient, mode: "shared" } as const

    /** Readers that stay until they are told to go. */
    const readers = (locking: Locking.Locking, count: number, go: Deferred.Deferred<void>) =>
      Effect.gen(function*() {
        const inside: Array<bigint> = []
        const fibers: Array<Fiber.RuntimeFiber<void, unknown>> = []
        for (let i = 0; i < count; i++) {
          fibers.push(
            yield* Effect.fork(locking.useLock("k", shared, (lease) => {
              inside.push(lease.fence)
              return Deferred.await(go)
            }))
          )
          yield* settled
        }
        return { inside, fibers }
      })

    it.scoped("R6.4 join the grant of their process without the store, four of them; then it is asked who waits", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world()
        const go = yield* Deferred.make<void>()
        const four = yield* readers(locking, 5, go)
        assert.strictEqual(four.inside.length, 5)
        assert.strictEqual(driver.count("attempt"), 1)
        assert.strictEqual(driver.count("renew"), 0)
        const more = yield* readers(locking, 10, go)
        // nobody waits elsewhere: they go on, the one who asked with three more
        assert.strictEqual(more.inside.length, 10)
        assert.strictEqual(driver.count("attempt"), 1)
        assert.strictEqual(driver.count("renew"), 3)
        yield* Deferred.succeed(go, undefined)
        yield* settled
        yield* Fiber.joinAll([...four.fibers, ...more.fibers])
        assert.strictEqual(driver.count("release"), 1)
      }))

    it.scoped("R6.4 R1.6 let a writer elsewhere in after at most four more of them", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world()
        const go = yield* Deferred.make<void>()
        const early = yield* readers(locking, 1, go)
        const writer = yield* Effect.fork(other.useLock("k", patient, (lease) => Effect.succeed(lease.fence)))
        yield* settled
        const late = yield* readers(locking, 10, go)
        assert.strictEqual(early.inside.length, 1)
        assert.isAtMost(late.inside.length, 4)
        yield* isRunning(writer)
        yield* Deferred.succeed(go, undefined)
        yield* settled
        const fence = yield* Fiber.join(writer)
        yield* Fiber.joinAll([...early.fibers, ...late.fibers])
        // who came later than the writer got in after it
        assert.strictEqual(late.inside.length, 10)
        for (const reader of late.inside.slice(4)) assert.isTrue(reader > fence)
      }))

    for (const [name, capabilities] of [["remote", {}], ["memory", { remote: false }]] as const) {
      it.scoped(`R6.4 R1.6 ${name}: go on when a writer elsewhere has given up, also where leases have no end`, () =>
        Effect.gen(function*() {
          const { locking, other } = yield* world({ ttl: Duration.infinity }, capabilities)
          const go = yield* Deferred.make<void>()
          yield* readers(locking, 5, go)
          const writer = yield* Effect.fork(Effect.exit(other.withLock(Effect.void, "k", { waitTimeout: "1 second" })))
          yield* settled
          const late = yield* readers(locking, 3, go)
          assert.strictEqual(late.inside.length, 0)
          yield* TestClock.adjust("1 second")
          assert(Option.isSome(yield* writer.poll))
          yield* TestClock.adjust("1 second")
          assert.strictEqual(late.inside.length, 3)
          yield* Deferred.succeed(go, undefined)
        }))
    }

    it.scoped("R6.4 R1.6 do not overtake a writer of their own process", () =>
      Effect.gen(function*() {
        const { locking } = yield* world()
        const go = yield* Deferred.make<void>()
        yield* readers(locking, 2, go)
        const log: Array<string> = []
        yield* Effect.fork(locking.withLock(Effect.sync(() => void log.push("writer")), "k", patient))
        yield* settled
        for (let i = 0; i < 3; i++) {
          yield* Effect.fork(locking.withLock(Effect.sync(() => void log.push("reader")), "k", shared))
        }
        yield* settled
        assert.deepStrictEqual(log, [])
        yield* Deferred.succeed(go, undefined)
        yield* settled
        assert.deepStrictEqual(log, ["writer", "reader", "reader", "reader"])
      }))

    it.scoped("R6.4 R1.6 come in long after the first one, too", () =>
      Effect.gen(function*() {
        const { locking, other } = yield* world()
        const go = yield* Deferred.make<void>()
        yield* readers(locking, 1, go)
        yield* TestClock.adjust("7 seconds")
        assert.strictEqual((yield* readers(locking, 3, go)).inside.length, 3)
        assert.strictEqual((yield* readers(other, 3, go)).inside.length, 3)
      }))

    it.scoped("R6.4 wait, when the store does not say whether others wait, and are not lost", () =>
      Effect.gen(function*() {
        const { driver, locking } = yield* world({ attemptTimeout: "100 millis" })
        const go = yield* Deferred.make<void>()
        yield* readers(locking, 5, go)
        driver.next("renew", driver.mute)
        const late = yield* readers(locking, 1, go)
        assert.strictEqual(late.inside.length, 0)
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual(late.inside.length, 1)
        yield* Deferred.succeed(go, undefined)
      }))
  })

  it.effect("R3.1 R6.4 fences rise strictly over hand-overs, releases, losses and processes", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.array(
            fc.record({
              here: fc.boolean(),
              hold: fc.integer({ min: 0, max: 30 }),
              wait: fc.integer({ min: 0, max: 10 }),
              ends: fc.constantFrom("success", "failure", "interrupt", "early")
            }),
            { minLength: 5, maxLength: 25, size: "max" }
          ),
          fc.integer({ min: 0, max: 5 }),
          (plan, maxHandovers) =>
            Effect.runPromise(Effect.scoped(Effect.gen(function*() {
              const { driver, locking, other } = yield* world({ maxHandovers, attemptTimeout: "30 millis" })
              driver.always("attempt", slow(1))
              const fences: Array<bigint> = []
              let inside = 0
              let most = 0
              const enter = Effect.sync(() => {
                most = Math.max(most, ++inside)
              })
              const leave = Effect.sync(() => inside--)
              const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
              for (const { ends, here, hold, wait } of plan) {
                const fiber = yield* Effect.fork(
                  (here ? locking : other).useLock("k", patient, (lease) => {
                    fences.push(lease.fence)
                    return Effect.zipRight(
                      Effect.acquireUseRelease(enter, () => Effect.sleep(hold / 10), () => leave),
                      ends === "failure" ? Effect.fail("failure") : ends === "early" ? lease.release : Effect.void
                    )
                  })
                )
                fibers.push(fiber)
                if (ends === "interrupt") yield* Effect.fork(Effect.delay(Fiber.interrupt(fiber), 5))
                yield* Effect.sleep(wait / 10)
              }
              for (const fiber of fibers) yield* Fiber.await(fiber)
              assert.strictEqual(most, 1)
              assert.isAbove(fences.length, 0)
              assertRise(fences)
            })))
        ),
        { numRuns: 40, interruptAfterTimeLimit: 20_000 }
      )
    ))
})
