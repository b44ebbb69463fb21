import { assert, describe, it } from "@effect/vitest"
import { assertNone, assertSome } from "@effect/vitest/utils"
import { Deferred, Effect, Exit, Fiber, FiberRef, Option, TestClock } from "effect"
import * as Lease from "effect-locking/Lease"
import type * as LockError from "effect-locking/LockError"
import type * as Locking from "effect-locking/Locking"
import * as LockingModule from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import * as MemoryStore from "effect-locking/MemoryStore"
import { alone, assertFree, assertIdle, counting, ended, failureOf, isRunning, node, section, settle } from "./kit.js"

/** The error, which must have come at once: no time passes here. */
const refused = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<E, A, R> =>
  Effect.gen(function*() {
    const fiber = yield* Effect.fork(effect)
    return yield* failureOf(fiber)
  })

describe("asking for a key that this flow holds", () => {
  const ways: Record<string, (locking: Locking.Locking) => Effect.Effect<unknown, { readonly _tag: string }>> = {
    "withLock": (locking) => locking.withLock(Effect.void, "k"),
    "without end": (locking) => locking.withLock(Effect.void, "k", { waitTimeout: Infinity }),
    "useLock": (locking) => locking.useLock("k", () => Effect.void),
    "a reader": (locking) => locking.withLock(Effect.void, "k", { mode: "shared" }),
    "withLockIfAvailable": (locking) => locking.withLockIfAvailable(Effect.void, "k"),
    "acquire": (locking) => Effect.scoped(locking.acquire("k")),
    "tryAcquire": (locking) => Effect.scoped(locking.tryAcquire("k")),
    "one of several keys": (locking) => locking.withLocks(Effect.void, ["a", "k", "z"]),
    "one of several keys, as a reader": (locking) => locking.withLocks(Effect.void, ["a", "k"], { mode: "shared" }),
    "the same key by another name": (locking) => locking.withLock(Effect.void, LockKey.make("k"))
  }
  for (const [name, ask] of Object.entries(ways)) {
    it.scoped(`R1.12 is refused at once: ${name}`, () =>
      Effect.gen(function*() {
        const locking = yield* alone()
        const error = yield* locking.withLock(refused(ask(locking)), "k")
        assert.strictEqual(error._tag, "LockReentry")
        yield* assertIdle(locking)
      }))
  }

  const flows: Record<string, <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>> = {
    "a forked fiber": (effect) => Effect.flatMap(Effect.fork(effect), Fiber.join),
    "a daemon": (effect) => Effect.flatMap(Effect.forkDaemon(effect), Fiber.join),
    "a time-out": (effect) =>
      Effect.flatten(Effect.timeoutTo(effect, {
        duration: "1 second",
        onSuccess: Effect.succeed,
        onTimeout: () => Effect.die("time-out")
      })),
    "a parallel step": (effect) =>
      Effect.map(Effect.all([effect, Effect.void], { concurrency: "unbounded" }), ([a]) => a),
    "a race": (effect) => Effect.raceAll([effect, Effect.never]),
    "the section of another key": (effect) => effect,
    "a region that cannot be interrupted": Effect.uninterruptible
  }
  for (const [name, flow] of Object.entries(flows)) {
    it.scoped(`R1.12 the flow of the code counts, not the fiber: ${name}`, () =>
      Effect.gen(function*() {
        const locking = yield* alone()
        const ask = Effect.flip(locking.withLock(Effect.void, "k"))
        const error = yield* locking.withLock(locking.withLock(flow(ask), "other"), "k")
        assert.strictEqual(error._tag, "LockReentry")
        yield* assertIdle(locking)
      }))
  }

  it.scoped("R1.12 other keys, tenants, scopes and layers are others", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const locking = yield* node(store)
      const elsewhere = yield* node(store, { namespace: "elsewhere" })
      const stranger = yield* node(store)
      yield* locking.withLock(
        Effect.gen(function*() {
          yield* locking.withLock(Effect.void, "l")
          yield* locking.withLock(Effect.void, LockKey.platform("k"))
          yield* LockKey.withTenant(locking.withLock(Effect.void, "k"), "acme")
          yield* elsewhere.withLock(Effect.void, "k")
          // another layer is another process, which cannot know: it finds the key held
          assertNone(yield* stranger.withLockIfAvailable(Effect.void, "k"))
        }),
        "k"
      )
    }))

  it.scoped("R1.12 a claim ends with its section, for the caller and for fibers that outlive it", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      for (const reentrant of [false, true, "wait"] as const) {
        const go = yield* Deferred.make<void>()
        const ask = locking.useLock("k", { reentrant }, (lease) => Effect.succeed(lease.fence))
        const first = yield* locking.useLock(
          "k",
          (lease) =>
            Effect.map(Effect.forkDaemon(Effect.zipRight(Deferred.await(go), ask)), (daemon) => ({ lease, daemon }))
        )
        assert.isTrue((yield* ask) > first.lease.fence)
        yield* Deferred.succeed(go, undefined)
        assert.isTrue((yield* Fiber.join(first.daemon)) > first.lease.fence)
      }
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 nothing of a claim stays in the context of the caller", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const ref = yield* FiberRef.make(0)
      const names = Effect.map(Effect.context<never>(), (context) => [...context.unsafeMap.keys()].sort())
      const before = yield* names
      for (const body of [Effect.void, FiberRef.set(ref, 1), Effect.ignore(Effect.fail("own"))]) {
        yield* locking.withLock(body, "k")
        yield* locking.withLockIfAvailable(body, "k")
        yield* locking.withLocks(body, ["k", "l"])
        yield* Effect.scoped(Effect.flatMap(locking.acquire("k"), (lease) => lease.guard(lease.provide(body))))
        assert.deepStrictEqual(yield* names, before)
      }
    }))

  it.scoped("R1.12 a lease that was lost is no claim any more", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      const fences: Array<bigint> = []
      const remember = (lease: Lease.Lease<"exclusive">) => Effect.sync(() => fences.push(lease.fence))
      const fiber = yield* Effect.fork(locking.useLock("k", (lease) =>
        Effect.uninterruptible(
          remember(lease).pipe(
            Effect.zipRight(inside.run),
            Effect.zipRight(locking.useLock("k", remember)),
            Effect.zipRight(locking.useLock("k", { reentrant: true }, remember))
          )
        )))
      yield* Deferred.await(inside.begun)
      yield* locking.forceRelease("k")
      yield* settle
      yield* Deferred.succeed(inside.end, undefined)
      assert.strictEqual((yield* failureOf(fiber))._tag, "LeaseLost")
      assert.lengthOf(fences, 3)
      assert(fences[0]! < fences[1]! && fences[1]! < fences[2]!)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 R1.3 a lease in a scope is a claim where it is provided, and only there", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      yield* Effect.scoped(Effect.gen(function*() {
        const lease = yield* locking.acquire("k")
        assert.strictEqual(
          (yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 })))._tag,
          "LockBusy"
        )
        assert.strictEqual((yield* lease.provide(refused(locking.withLock(Effect.void, "k"))))._tag, "LockReentry")
        const same = locking.useLock("k", { reentrant: true }, (joined) => Effect.succeed(joined.fence))
        assert.strictEqual(yield* lease.provide(same), lease.fence)
        assert.strictEqual(
          (yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 })))._tag,
          "LockBusy"
        )
      }))
      yield* assertIdle(locking)
    }))

  it.effect("R1.12 the functions of the module agree", () =>
    Effect.gen(function*() {
      const ask = Effect.flip(LockingModule.withLock(Effect.void, "k"))
      assert.strictEqual((yield* LockingModule.withLock(ask, "k"))._tag, "LockReentry")
      const join = LockingModule.withLock(Effect.succeed("joined"), "k", { reentrant: true })
      assert.strictEqual(yield* LockingModule.withLock(join, "k"), "joined")
    }).pipe(Effect.provide(LockingModule.layerMemory)))
})

describe("reentrant: true", () => {
  it.scoped("R1.12 joins the lease: the same fence, and the store is not asked", () =>
    Effect.gen(function*() {
      const { calls, driver } = counting(yield* MemoryStore.driver(yield* MemoryStore.make))
      const locking = yield* LockingModule.make(driver)
      yield* locking.useLock("k", (outer) =>
        locking.useLock("k", { reentrant: true }, (inner) =>
          locking.useLock("k", { reentrant: true }, (innermost) =>
            Effect.gen(function*() {
              assert.strictEqual(inner.fence, outer.fence)
              assert.strictEqual(innermost.fence, outer.fence)
              assert.isTrue(yield* innermost.isValid)
              assert.strictEqual(Option.getOrThrow(yield* Lease.current).fence, outer.fence)
            }))))
      assert.strictEqual(calls.attempt, 1)
      assert.strictEqual(calls.release, 1)
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 a join of one of several keys has that key's fence", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      for (const mode of ["exclusive", "shared"] as const) {
        yield* locking.useLocks(["a", "b", "c"], { mode }, (leases) =>
          Effect.forEach(leases, (lease) =>
            locking.useLock(lease.key, { reentrant: true, mode }, (inner) =>
              Effect.sync(() => {
                assert.strictEqual(inner.key, lease.key)
                assert.strictEqual<bigint>(inner.fence, lease.fence)
              }))))
      }
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 several keys join together, when this flow holds them all", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const fencesOf = (leases: ReadonlyArray<Lease.Lease>) => leases.map(({ fence }): bigint => fence)
      for (const mode of ["exclusive", "shared"] as const) {
        const options = { mode, reentrant: true } as const
        yield* locking.useLocks(["a", "b"], { mode }, (outer) =>
          Effect.gen(function*() {
            const inner = yield* locking.useLocks(["b", "a"], options, (leases) => Effect.succeed(fencesOf(leases)))
            assert.deepStrictEqual(inner, fencesOf(outer))
            // to take the rest as well could deadlock with somebody who has the rest
            const error = yield* Effect.flip(locking.withLocks(Effect.void, ["a", "b", "c"], options))
            assert.strictEqual(error._tag, "LockReentry")
          }))
      }
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 the end of a join gives nothing back", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const [locking, other] = [yield* node(store), yield* node(store)]
      yield* locking.useLock("k", (lease) =>
        Effect.gen(function*() {
          yield* locking.withLock(Effect.void, "k", { reentrant: true })
          yield* Effect.ignore(locking.withLock(Effect.fail("own"), "k", { reentrant: true }))
          yield* Effect.scoped(locking.acquire("k", { reentrant: true }))
          assertSome(yield* locking.withLockIfAvailable(Effect.succeed(1), "k", { reentrant: true }), 1)
          const joined = yield* locking.useLock("k", { reentrant: true }, Effect.succeed)
          assert.isFalse(yield* joined.isValid)
          assert.isTrue(yield* lease.isValid)
          assertNone(yield* other.withLockIfAvailable(Effect.void, "k"))
        }))
      yield* assertFree(other, "k")
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 siblings enter one at a time, in order, within their own wait limits", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      let inside = 0
      const join = (name: string, options: {} = {}) =>
        locking.withLock(
          Effect.acquireUseRelease(
            Effect.sync(() => {
              assert.strictEqual(++inside, 1)
              log.push(name)
            }),
            () => Effect.sleep("1 second"),
            () => Effect.sync(() => inside--)
          ),
          "k",
          { reentrant: true, ...options }
        )
      const outer = yield* Effect.fork(locking.withLock(
        Effect.gen(function*() {
          const fibers = []
          for (const name of ["a", "b", "c", "d"]) {
            fibers.push(yield* Effect.tap(Effect.fork(join(name)), settle))
          }
          assert.strictEqual((yield* Effect.flip(join("zero", { waitTimeout: 0 })))._tag, "LockBusy")
          assertNone(yield* locking.withLockIfAvailable(Effect.void, "k", { reentrant: true }))
          const impatient = yield* Effect.fork(Effect.flip(join("impatient", { waitTimeout: "500 millis" })))
          yield* settle
          yield* Fiber.interrupt(fibers[1]!)
          assert.strictEqual((yield* Fiber.join(impatient))._tag, "WaitTimeout")
          for (const i of [0, 2, 3]) yield* Fiber.join(fibers[i]!)
        }),
        "k"
      ))
      yield* TestClock.adjust("3 seconds")
      assert(Exit.isSuccess(yield* ended(outer)))
      assert.deepStrictEqual(log, ["a", "c", "d"])
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 the loss of the lease is the loss of those who joined it", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      const join = locking.withLock(inside.run, "k", { reentrant: true })
      let daemon: Fiber.RuntimeFiber<void, LockError.WithLockError> | undefined
      const outer = yield* Effect.fork(
        locking.withLock(
          Effect.gen(function*() {
            daemon = yield* Effect.forkDaemon(join)
            yield* Effect.sleep("1 hour")
          }),
          "k"
        )
      )
      yield* Deferred.await(inside.begun)
      yield* locking.forceRelease("k")
      for (const fiber of [outer, daemon!]) {
        const error = yield* failureOf(fiber)
        assert(error._tag === "LeaseLost")
        assert.strictEqual(error.reason, "revoked")
      }
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 R1.10 the hold limit of a join ends the join, not the lease", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const outer = yield* Effect.fork(locking.useLock("k", (lease) =>
        Effect.gen(function*() {
          const error = yield* Effect.flip(
            locking.withLock(Effect.sleep("1 hour"), "k", { reentrant: true, maxHold: "1 second" })
          )
          assert(error._tag === "LeaseLost")
          assert.strictEqual(error.reason, "max-hold")
          assert.isTrue(yield* lease.isValid)
          assert.strictEqual(yield* locking.withLock(Effect.succeed("again"), "k", { reentrant: true }), "again")
        })))
      yield* TestClock.adjust("1 second")
      assert(Exit.isSuccess(yield* ended(outer)))
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 a daemon that joined and outlives the section is interrupted before anybody else enters", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const inside = yield* section
      const log: Array<string> = []
      const windUp = Effect.zipRight(Effect.sleep("1 second"), Effect.sync(() => log.push("daemon ended")))
      const daemon = yield* locking.withLock(
        Effect.tap(
          Effect.forkDaemon(locking.withLock(Effect.onInterrupt(inside.run, () => windUp), "k", { reentrant: true })),
          () => Deferred.await(inside.begun)
        ),
        "k"
      )
      const next = yield* Effect.fork(locking.withLock(Effect.sync(() => log.push("next")), "k"))
      yield* isRunning(next)
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* failureOf(daemon))._tag, "LeaseLost")
      assert(Exit.isSuccess(yield* ended(next)))
      assert.deepStrictEqual(log, ["daemon ended", "next"])
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 a daemon that still waits for its turn when the section ends becomes a stranger", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const first = yield* section
      const fences = yield* locking.useLock("k", (lease) =>
        Effect.gen(function*() {
          yield* Effect.forkDaemon(Effect.ignore(locking.withLock(first.run, "k", { reentrant: true })))
          yield* Deferred.await(first.begun)
          const late = yield* Effect.forkDaemon(
            locking.useLock("k", { reentrant: true }, (joined) => Effect.succeed(joined.fence))
          )
          yield* isRunning(late)
          return { outer: lease.fence, late }
        }))
      assert.isTrue((yield* Fiber.join(fences.late)) > fences.outer)
      yield* assertIdle(locking)
    }))
})

describe("reentrant: \"wait\"", () => {
  it.scoped("R1.12 queues as a stranger", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const log: Array<string> = []
      const enter = (name: string) => locking.withLock(Effect.sync(() => log.push(name)), "k", { reentrant: "wait" })
      const inside = yield* section
      const holder = yield* Effect.fork(locking.withLock(
        Effect.gen(function*() {
          const daemon = yield* Effect.forkDaemon(enter("daemon"))
          yield* settle
          yield* inside.run
          return daemon
        }),
        "k"
      ))
      yield* Deferred.await(inside.begun)
      const stranger = yield* Effect.fork(enter("stranger"))
      yield* settle
      assert.deepStrictEqual(log, [])
      yield* Deferred.succeed(inside.end, undefined)
      yield* Fiber.join(yield* Fiber.join(holder))
      yield* Fiber.join(stranger)
      assert.deepStrictEqual(log, ["daemon", "stranger"])
      yield* assertIdle(locking)
    }))

  it.scoped("R1.12 in the section itself it waits for itself, up to its limit", () =>
    Effect.gen(function*() {
      const locking = yield* alone()
      const ask = locking.withLock(Effect.void, "k", { reentrant: "wait", waitTimeout: "1 second" })
      const fiber = yield* Effect.fork(locking.withLock(ask, "k"))
      yield* TestClock.adjust("999 millis")
      yield* isRunning(fiber)
      yield* TestClock.adjust("1 millis")
      assert.strictEqual((yield* failureOf(fiber))._tag, "WaitTimeout")
      yield* assertIdle(locking)
    }))
})

describe("B60 five children of a section that each lock its key", () => {
  const run = (locking: Locking.Locking, options: { readonly reentrant?: boolean | "wait" }) =>
    Effect.gen(function*() {
      const now = { inside: 0, entered: 0, daemonEntered: 0 }
      const hold = (count: () => void) =>
        Effect.acquireUseRelease(
          Effect.sync(() => {
            count()
            assert.strictEqual(++now.inside, 1, "two of them at once")
          }),
          () => Effect.sleep("10 millis"),
          () => Effect.sync(() => now.inside--)
        )
      const child = locking.withLock(hold(() => now.entered++), "k", { waitTimeout: "1 hour", ...options })
      const daemonSection = locking.withLock(hold(() => now.daemonEntered++), "k", {
        waitTimeout: "1 hour",
        ...options
      })
      const outcome = yield* Effect.fork(locking.withLock(
        Effect.gen(function*() {
          const daemon = yield* Effect.forkDaemon(Effect.exit(daemonSection))
          const children = []
          for (let i = 0; i < 5; i++) children.push(yield* Effect.forkDaemon(Effect.either(child)))
          if (options.reentrant === "wait") yield* settle
          else for (const fiber of children) yield* Fiber.await(fiber)
          return { daemon, children }
        }),
        "k"
      ))
      yield* TestClock.adjust("1 second")
      const { children, daemon } = yield* Fiber.join(outcome)
      yield* ended(daemon)
      const results = yield* Effect.forEach(children, Fiber.join)
      yield* assertIdle(locking)
      return { ...now, errors: results.flatMap((result) => result._tag === "Left" ? [result.left._tag] : []) }
    })

  it.scoped("B60 by default each is refused at once", () =>
    Effect.gen(function*() {
      const { entered, errors } = yield* run(yield* alone(), {})
      assert.strictEqual(entered, 0)
      assert.deepStrictEqual(errors, Array.from({ length: 5 }, () => "LockReentry"))
    }))

  it.scoped("B60 with `true` they enter one at a time", () =>
    Effect.gen(function*() {
      const { entered, errors } = yield* run(yield* alone(), { reentrant: true })
      assert.strictEqual(entered, 5)
      assert.deepStrictEqual(errors, [])
    }))

  it.scoped("B60 with \"wait\" they queue as strangers and enter after the section", () =>
    Effect.gen(function*() {
      const { daemonEntered, entered, errors } = yield* run(yield* alone(), { reentrant: "wait" })
      assert.strictEqual(entered, 5)
      assert.strictEqual(daemonEntered, 1)
      assert.deepStrictEqual(errors, [])
    }))
})
