import { assert, describe, it } from "@effect/vitest"
import { Chunk, Context, Deferred, Effect, Exit, Fiber, Layer, Scope, Supervisor, TestClock } from "effect"
import type * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import * as TestLocking from "effect-locking/TestLocking"
import { interruptNow } from "../src/internal/compat.js"
import type { StoreModel } from "../src/internal/pure/storeModel.js"
import { assertFree, assertIdle, node, section, settle } from "./kit.js"

/**
 * The fiber of a victim is interrupted after k yields of the fiber beside it, for every k, while it is made to yield
 * after every few operations: so every step of its way is met. At ten or fewer a fiber of Effect yields for ever.
 */
const budgets = [11, 13, 16, 23, 37, 64, 2048]
const remoteBudgets = [11, 16, 37, 2048]
const longest = 80

interface World {
  readonly locking: Locking.Locking
  /** Another process at the same store. */
  readonly other: Locking.Locking
  /** A few steps under a lock; two at once are an error. */
  readonly steps: Effect.Effect<void>
  readonly readers: Effect.Effect<void>
  readonly store: StoreModel
}

interface Attack {
  readonly victim: Effect.Effect<unknown, unknown>
  /** Done when the victim has come as far as it can, just before the count begins. */
  readonly trigger?: Effect.Effect<unknown>
  /** Ends whoever else takes part. */
  readonly after?: Effect.Effect<unknown>
  /** It waits until it is interrupted. */
  readonly waits?: boolean
}

const isOver = (
  fiber: Fiber.RuntimeFiber<unknown, unknown>,
  what: string
): Effect.Effect<Exit.Exit<unknown, unknown>> =>
  Effect.gen(function*() {
    for (let i = 0; i < 5000; i++) {
      const exit = fiber.unsafePoll()
      if (exit !== null) return exit
      yield* Effect.yieldNow()
    }
    return yield* Effect.dieMessage(`${what}: the fiber does not end`)
  })

const fewSteps = Effect.forEach([1, 2, 3, 4], () => Effect.yieldNow(), { discard: true })

const guarded = (limit: number, inside: { readers: number; writers: number }, key: "readers" | "writers") =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      inside[key]++
      assert(inside.writers === 0 || inside.writers + inside.readers <= limit, "two sections of one key at once")
    }),
    () => fewSteps,
    () => Effect.zipRight(Effect.yieldNow(), Effect.sync(() => inside[key]--))
  )

const makeWorld = (
  store: StoreModel,
  make: (options: LockingOptions) => Effect.Effect<Locking.Locking, unknown, Scope.Scope>
): Effect.Effect<World, never, Scope.Scope> =>
  Effect.gen(function*() {
    const inside = { readers: 0, writers: 0 }
    return {
      store,
      locking: yield* make({ session: "one" }),
      other: yield* make({ session: "two" }),
      steps: guarded(1, inside, "writers"),
      readers: guarded(1, inside, "readers")
    }
  }).pipe(Effect.orDie)

const memory = Effect.flatMap(
  MemoryStore.make,
  (store) => makeWorld((store as unknown as { model: StoreModel }).model, (options) => node(store, options))
)

const remote = Effect.flatMap(Layer.build(TestLocking.layerStore), (context) => {
  const { store } = Context.get(context, TestLocking.TestLocking) as unknown as { store: { model: StoreModel } }
  return makeWorld(store.model, (options) => Effect.provide(TestLocking.node(options.session!), context))
})

const keys = ["k", "l", "m"]

const sweep = (
  world: Effect.Effect<World, never, Scope.Scope>,
  attack: (world: World) => Effect.Effect<Attack, unknown, Scope.Scope>,
  /** For a store that answers from afar: what the victim left on its way is given back beside it. */
  remote = false
) =>
  Effect.gen(function*() {
    const supervisor = yield* Supervisor.track
    const all = new Map<string, number>()
    for (const budget of remote ? remoteBudgets : budgets) {
      const ends = new Map<string, number>()
      const run = Effect.gen(function*() {
        // closed when all went well: a layer waits for a fiber that hangs
        const scope = yield* Scope.make()
        const here = yield* Effect.provideService(world, Scope.Scope, scope)
        for (let k = 0; k <= longest; k++) {
          const what = `budget ${budget}, step ${k}`
          yield* Effect.gen(function*() {
            const { after, trigger, victim, waits } = yield* attack(here)
            if (waits === true) ends.set("success", 1)
            const fiber = yield* Effect.forkDaemon(victim)
            if (trigger !== undefined) yield* Effect.zipRight(settle, trigger)
            for (let i = 0; i < k; i++) yield* Effect.yieldNow()
            interruptNow(fiber)
            const exit = yield* isOver(fiber, what)
            const end = Exit.isSuccess(exit) ? "success" : Exit.isInterrupted(exit) ? "interrupted" : String(exit)
            ends.set(end, (ends.get(end) ?? 0) + 1)
            if (after !== undefined) yield* after
          }).pipe(Effect.scoped, Effect.orDie)
          if (remote) yield* settle
          for (const key of keys) yield* assertFree(here.locking, key)
          for (const key of keys) yield* assertFree(here.other, key)
          if (remote && k < longest) continue
          // an attempt that was given up is given back once more when it can no longer act
          if (remote) yield* TestClock.adjust("5 seconds")
          yield* settle
          yield* assertIdle(here.locking)
          yield* assertIdle(here.other)
          const { grants, interests, keys: rows } = here.store.sizes()
          assert.deepStrictEqual({ grants, interests, rows }, { grants: 0, interests: 0, rows: 0 }, what)
        }
        yield* Scope.close(scope, Exit.void)
      })
      yield* run.pipe(Effect.withMaxOpsBeforeYield(budget), Effect.supervised(supervisor))
      yield* settle
      const left = yield* supervisor.value
      assert.lengthOf(Chunk.toReadonlyArray(Chunk.fromIterable(left)), 0, `budget ${budget}: fibers are left`)
      // a sweep that ends before its victim does has not met every step
      assert((ends.get("success") ?? 0) > 0, `budget ${budget}: no victim came through`)
      for (const [end, count] of ends) all.set(end, (all.get(end) ?? 0) + count)
    }
    assert((all.get("interrupted") ?? 0) > 0, "no victim was interrupted on its way")
    return all
  })

/** Somebody inside who ends when told. */
const holding = (locking: Locking.Locking, key: string | ReadonlyArray<string>, options = {}) =>
  Effect.gen(function*() {
    const inside = yield* section
    const effect = typeof key === "string"
      ? locking.withLock(inside.run, key, options)
      : locking.withLocks(inside.run, key, options)
    const fiber = yield* Effect.forkDaemon(effect)
    yield* Deferred.await(inside.begun)
    return {
      end: Deferred.succeed(inside.end, undefined),
      ended: Effect.zipRight(Deferred.succeed(inside.end, undefined), isOver(fiber, "the holder"))
    }
  })

const attacks: Record<string, (world: World) => Effect.Effect<Attack, unknown, Scope.Scope>> = {
  "a free lock": ({ locking, steps }) => Effect.succeed({ victim: locking.withLock(steps, "k") }),

  "a free lock, single attempt": ({ locking, steps }) =>
    Effect.succeed({ victim: locking.withLockIfAvailable(steps, "k") }),

  "queued in the process": ({ locking, steps }) =>
    Effect.map(holding(locking, "k"), (holder) => ({
      victim: locking.withLock(steps, "k"),
      after: holder.ended,
      waits: true
    })),

  "handed over in the process": ({ locking, steps }) =>
    Effect.map(holding(locking, "k"), (holder) => ({
      victim: locking.withLock(steps, "k"),
      trigger: holder.end,
      after: holder.ended
    })),

  "not handed over: another ttl": ({ locking, steps }) =>
    Effect.map(holding(locking, "k"), (holder) => ({
      victim: locking.withLock(steps, "k", { ttl: "1 hour" }),
      trigger: holder.end,
      after: holder.ended
    })),

  "between two in the queue": ({ locking, steps }) =>
    Effect.gen(function*() {
      const holder = yield* holding(locking, "k")
      let behind: Fiber.RuntimeFiber<unknown, unknown> | undefined
      return {
        victim: locking.withLock(steps, "k"),
        trigger: Effect.gen(function*() {
          behind = yield* Effect.forkDaemon(locking.withLock(steps, "k"))
          yield* settle
          yield* holder.end
        }),
        after: Effect.zipRight(
          holder.ended,
          Effect.flatMap(
            Effect.suspend(() => isOver(behind!, "the one behind")),
            (exit) => Effect.sync(() => assert(Exit.isSuccess(exit), "the one behind lost its place"))
          )
        )
      }
    }),

  "waiting for another process": ({ locking, other, steps }) =>
    Effect.map(holding(other, "k"), (holder) => ({
      victim: locking.withLock(steps, "k"),
      after: holder.ended,
      waits: true
    })),

  "woken by another process": ({ locking, other, steps }) =>
    Effect.map(holding(other, "k"), (holder) => ({
      victim: locking.withLock(steps, "k"),
      trigger: holder.end,
      after: holder.ended
    })),

  "a reader beside readers": ({ locking, readers }) =>
    Effect.map(holding(locking, "k", { mode: "shared" }), (holder) => ({
      victim: locking.withLock(readers, "k", { mode: "shared" }),
      after: holder.ended
    })),

  "a reader behind a writer": ({ locking, readers }) =>
    Effect.map(holding(locking, "k"), (holder) => ({
      victim: locking.withLock(readers, "k", { mode: "shared" }),
      trigger: holder.end,
      after: holder.ended
    })),

  "a writer behind readers here and elsewhere": ({ locking, other, steps }) =>
    Effect.gen(function*() {
      const here = yield* holding(locking, "k", { mode: "shared" })
      const there = yield* holding(other, "k", { mode: "shared" })
      return {
        victim: locking.withLock(steps, "k"),
        trigger: Effect.zipRight(here.end, there.end),
        after: Effect.zipRight(here.ended, there.ended)
      }
    }),

  "several free keys": ({ locking, steps }) => Effect.succeed({ victim: locking.withLocks(steps, keys) }),

  "several keys, one held here": ({ locking, steps }) =>
    Effect.map(holding(locking, "l"), (holder) => ({
      victim: locking.withLocks(steps, keys),
      trigger: holder.end,
      after: holder.ended
    })),

  "several keys, one held elsewhere": ({ locking, other, steps }) =>
    Effect.map(holding(other, "l"), (holder) => ({
      victim: locking.withLocks(steps, keys),
      trigger: holder.end,
      after: holder.ended
    })),

  "several keys, shared, one held by a writer": ({ locking, other, readers }) =>
    Effect.map(holding(other, "l"), (holder) => ({
      victim: locking.withLocks(readers, keys, { mode: "shared" }),
      trigger: holder.end,
      after: holder.ended
    })),

  "a lease in a scope": ({ locking, steps }) =>
    Effect.succeed({ victim: Effect.scoped(Effect.zipRight(locking.acquire("k"), steps)) }),

  "a lease in a scope, queued": ({ locking, steps }) =>
    Effect.map(holding(locking, "k"), (holder) => ({
      victim: Effect.scoped(Effect.zipRight(locking.acquire("k"), steps)),
      trigger: holder.end,
      after: holder.ended
    })),

  "a lease in a scope, guarded and provided": ({ locking, steps }) =>
    Effect.succeed({
      victim: Effect.scoped(Effect.flatMap(locking.acquire("k"), (lease) => lease.guard(lease.provide(steps))))
    }),

  "a re-entrant join": ({ locking, steps }) =>
    Effect.succeed({ victim: locking.withLock(locking.withLock(steps, "k", { reentrant: true }), "k") }),

  "siblings that join": ({ locking, steps }) =>
    Effect.succeed({
      victim: locking.withLock(
        Effect.gen(function*() {
          const join = locking.withLock(steps, "k", { reentrant: true })
          const siblings = [yield* Effect.fork(join), yield* Effect.fork(join), yield* Effect.fork(join)]
          for (const sibling of siblings) yield* Fiber.join(sibling)
        }),
        "k"
      )
    }),

  "a renewal by hand": ({ locking, steps }) =>
    Effect.succeed({
      victim: locking.useLock("k", { ttl: "1 minute" }, (lease) =>
        Effect.zipRight(lease.renew, Effect.zipRight(steps, lease.renew)))
    }),

  "an early release": ({ locking }) =>
    Effect.succeed({
      victim: locking.useLock("k", (lease) => Effect.zipRight(lease.release, fewSteps))
    }),

  "an early release with one behind": ({ locking, steps }) =>
    Effect.gen(function*() {
      const go = yield* Deferred.make<void>()
      let behind: Fiber.RuntimeFiber<unknown, unknown> | undefined
      return {
        victim: locking.useLock("k", (lease) =>
          Effect.zipRight(Deferred.await(go), Effect.zipRight(lease.release, fewSteps))),
        trigger: Effect.gen(function*() {
          behind = yield* Effect.forkDaemon(locking.withLock(steps, "k"))
          yield* settle
          yield* Deferred.succeed(go, undefined)
        }),
        after: Effect.suspend(() =>
          isOver(behind!, "the one behind")
        )
      }
    }),

  "a lease that an operator takes away": ({ locking, other, steps }) =>
    Effect.gen(function*() {
      const go = yield* Deferred.make<void>()
      return {
        victim: Effect.catchTag(
          locking.withLock(Effect.zipRight(Effect.zipRight(steps, Deferred.await(go)), steps), "k"),
          "LeaseLost",
          () => Effect.void
        ),
        trigger: Effect.zipRight(Effect.forkDaemon(other.forceRelease("k")), Deferred.succeed(go, undefined))
      }
    }),

  "a failing section": ({ locking, steps }) =>
    Effect.succeed({
      victim: Effect.ignore(locking.withLock(Effect.zipRight(steps, Effect.fail("own")), "k"))
    })
}

describe("interruption", () => {
  describe("B12 R1.1 nothing is left of a caller that is interrupted at any step (memory)", () => {
    for (const [name, attack] of Object.entries(attacks)) {
      it.effect(`B12 R1.1 ${name}`, () => sweep(memory, attack), 60_000)
    }
  })

  describe("B12 R1.1 nothing is left of a caller that is interrupted at any step (remote store)", () => {
    for (const [name, attack] of Object.entries(attacks)) {
      it.effect(`B12 R1.1 ${name}`, () => sweep(remote, attack, true), 60_000)
    }
  })
})
