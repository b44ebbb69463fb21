/**
 * Locks for tests: a store in memory that several nodes reach over a network, and the means to break either. Each node
 * is a `Locking` of its own and plays one process; its engine is the one that runs in production, and behaves as it
 * does with a server.
 *
 * Everything runs on the clock in context: under the `TestClock` it is deterministic, and takes no time. What a fault
 * delays ends when the clock is adjusted, and not before: a scope that gives a lease back while its node is mute waits
 * until then, so `heal` comes first.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Scope from "effect/Scope"
import { type DurationInput, forkDaemon, scopedLayer, tag } from "./internal/compat.js"
import type { Core } from "./internal/core.js"
import * as modelDriver from "./internal/modelDriver.js"
import { cores } from "./internal/sizes.js"
import * as testStore from "./internal/testStore.js"
import type { Holder } from "./LockDriver.js"
import type { StartError } from "./LockError.js"
import * as Locking from "./Locking.js"
import * as LockKey from "./LockKey.js"
import type { LockingOptions } from "./LockOptions.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: TypeId = "~effect-locking/TestLocking"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = "~effect-locking/TestLocking"

/**
 * A call of a node to the store, as `LockDriver` names them.
 *
 * @since 0.1.0
 * @category models
 */
export type Operation =
  | "attempt"
  | "arm"
  | "withdraw"
  | "renew"
  | "release"
  | "offer"
  | "inspect"
  | "list"
  | "forceRelease"

/**
 * How many calls were made, by operation.
 *
 * @since 0.1.0
 * @category models
 */
export type Calls = { readonly [op in Operation]: number }

/**
 * Which calls a fault befalls.
 *
 * @since 0.1.0
 * @category models
 */
export interface Where {
  /** Those of the nodes with this name. Default: of all nodes. */
  readonly node?: string | undefined
  /** Those of one kind; `grant` is an attempt that is granted. Default: all. */
  readonly op?: Operation | "grant" | undefined
  /** Only so many of them. The default is told with each fault. */
  readonly times?: number | undefined
}

/**
 * The store that the nodes share, with its faults.
 *
 * Use the functions of this module, which take it from the context.
 *
 * @since 0.1.0
 * @category models
 */
export interface TestLocking {
  readonly [TypeId]: TypeId
}

class TestLockingImpl implements TestLocking {
  readonly [TypeId]: TypeId = TypeId
  constructor(readonly store: testStore.TestStore) {}
}

/**
 * The tag of the store, which `layer`, `layerWith` and `layerStore` provide.
 *
 * @since 0.1.0
 * @category tags
 */
export const TestLocking = tag<TestLocking>("effect-locking/TestLocking")

const withStore = <A, E = never, R = never>(
  use: (store: testStore.TestStore) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R | TestLocking> =>
  Effect.flatMap(TestLocking, (service) => use((service as TestLockingImpl).store))

const change = (use: (store: testStore.TestStore) => void): Effect.Effect<void, never, TestLocking> =>
  withStore((store) => Effect.sync(() => use(store)))

// ---------------------------------------------------------------------------------------------------------------------
// layers and nodes
// ---------------------------------------------------------------------------------------------------------------------

/**
 * A store without nodes: make them with `node`.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Option, TestContext } from "effect"
 * import { TestLocking } from "effect-locking"
 *
 * const program = Effect.gen(function*() {
 *   const one = yield* TestLocking.node("one")
 *   const two = yield* TestLocking.node("two")
 *   yield* one.acquire("orders")
 *   strictEqual(Option.isNone(yield* two.tryAcquire("orders")), true)
 * })
 *
 * // in a test: it.scoped("…", () => program.pipe(Effect.provide(TestLocking.layerStore)))
 * Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(TestLocking.layerStore), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerStore: Layer.Layer<TestLocking> = scopedLayer(
  TestLocking,
  Effect.map(testStore.make, (store) => new TestLockingImpl(store))
)

/**
 * A node: one more process that reaches the store. It ends with the scope, and whatever faults there are, its end is
 * undisturbed. Options are those of any layer; the session is the node's name.
 *
 * Its locks have what a server's have: 15 seconds of ttl, renewal, calls that are bounded by `attemptTimeout`.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Option, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // the report runs on one machine only
 * const program = Effect.gen(function*() {
 *   const other = yield* TestLocking.node("other")
 *   const elsewhere = other.withLockIfAvailable(Effect.succeed("done"), "report")
 *   strictEqual(Option.isNone(yield* Locking.withLock(elsewhere, "report")), true)
 *   strictEqual(Option.isSome(yield* elsewhere), true)
 * })
 *
 * // in a test: it.scoped("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category nodes
 */
export const node = (
  name: string,
  options?: LockingOptions
): Effect.Effect<Locking.Locking, StartError, Scope.Scope | TestLocking> =>
  withStore((store) => makeNode(store, name, options))

const makeNode = (store: testStore.TestStore, name: string, options: LockingOptions | undefined) =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    const self = store.addNode(name)
    self.close = Scope.close(scope, Exit.void)
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => {
        store.stop(self, "over")
        return Effect.map(self.close, () => store.giveBack(self))
      })
    )
    const build = Effect.flatMap(
      store.driver(self),
      (driver) => Effect.withRandom(Locking.make(driver, { session: name, ...options }), Random.make(name))
    )
    const locking = yield* Effect.provideService(build, Scope.Scope, scope)
    self.close = close(scope, cores.get(locking)!)
    return locking
  })

/** Turns of the scheduler in which everything that does not wait for time or for the outside has come to its end. */
const turns = 200

/**
 * Closes a layer whose store answers at once from now on. Work that the engine repeats later would wait for time to
 * pass, and under the `TestClock` nobody may be there to let it; so it is dropped, and the store cleans up after it.
 */
const close = (scope: Scope.CloseableScope, core: Core): Effect.Effect<void> =>
  Effect.gen(function*() {
    const closing = yield* forkDaemon(Scope.close(scope, Exit.void))
    let closed = false
    closing.addObserver(() => {
      closed = true
    })
    for (let turn = 0; turn < turns && !closed; turn++) yield* Effect.yieldNow()
    for (const activity of [...core.activities]) if (activity.kind === "background") activity.abort()
    yield* Fiber.join(closing)
  })

/**
 * As `layer`, with options for the node. Fails `InvalidOptions` with every issue and its path.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * const program = Effect.gen(function*() {
 *   const error = yield* Effect.flip(Locking.withLock(Effect.void, "orders"))
 *   strictEqual(error.code, "INVALID_KEY")
 * }).pipe(Effect.provide(TestLocking.layerWith({ tenancy: "required" })))
 *
 * Effect.runPromise(Effect.provide(program, TestContext.TestContext))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (
  options?: LockingOptions
): Layer.Layer<TestLocking | Locking.Locking, StartError> =>
  Layer.provideMerge(scopedLayer(Locking.Locking, node("main", options)), layerStore)

/**
 * A store with one node, named `main`, which is the `Locking` of the program under test.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * const work = Locking.withLock(Effect.sleep("1 minute"), "orders")
 *
 * // a section is interrupted when its lock is taken away
 * const program = Effect.gen(function*() {
 *   const running = yield* Effect.fork(work)
 *   yield* TestClock.adjust("10 seconds")
 *   yield* TestLocking.loseLease("orders")
 *   const error = yield* Effect.flip(Fiber.join(running))
 *   strictEqual(error.code, "LEASE_LOST")
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<TestLocking | Locking.Locking> = Layer.orDie(layerWith())

/**
 * Kills a node: its sections are interrupted, and none of its calls reaches the store any more, so what it held stays
 * held until its ttl is over. Ends when the sections have ended. Another node may then be made with the same name.
 *
 * A real process that is killed does not run its finalizers; here they run, and what they do outside of the store is
 * done.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // another node takes over once the ttl of a killed one is over
 * const program = Effect.gen(function*() {
 *   const worker = yield* TestLocking.node("worker")
 *   yield* worker.acquire("orders")
 *   yield* TestLocking.kill("worker")
 *   const next = yield* Effect.fork(
 *     Locking.withLock(Effect.succeed("taken over"), "orders", { waitTimeout: "20 seconds" })
 *   )
 *   yield* TestClock.adjust("20 seconds")
 *   strictEqual(yield* Fiber.join(next), "taken over")
 * })
 *
 * // in a test: it.scoped("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category nodes
 */
export const kill = (name: string): Effect.Effect<void, never, TestLocking> =>
  withStore((store) =>
    Effect.suspend(() => {
      const killed = store.nodes.filter((node) => node.name === name && node.state === "alive")
      for (const node of killed) store.stop(node, "dead")
      // not in this fiber: it may be in one of the sections
      return Effect.flatMap(
        forkDaemon(Effect.interruptible(Effect.forEach(killed, (node) => node.close, { discard: true }))),
        Fiber.join
      )
    })
  )

// ---------------------------------------------------------------------------------------------------------------------
// faults
// ---------------------------------------------------------------------------------------------------------------------

/**
 * Takes a key from its holders at once, whoever they are, and answers who they were.
 *
 * `revoked`, the default, is what an administrator does: the holders are told. `expired` is a store that lost the
 * record: they learn it by their next renewal.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // the next renewal tells the holder that the store has lost its record
 * const program = Effect.gen(function*() {
 *   const running = yield* Effect.fork(Locking.withLock(Effect.never, "orders"))
 *   yield* TestClock.adjust("1 second")
 *   const [holder] = yield* TestLocking.loseLease("orders", { reason: "expired" })
 *   strictEqual(holder?.session, "main")
 *   yield* TestClock.adjust("5 seconds")
 *   const error = yield* Effect.flip(Fiber.join(running))
 *   strictEqual(error._tag, "LeaseLost")
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const loseLease = (
  key: LockKey.Input,
  options?: { readonly reason?: "revoked" | "expired" | undefined }
): Effect.Effect<ReadonlyArray<Holder>, never, TestLocking> =>
  withStore((store) =>
    Effect.map(held(store, key), (keys) =>
      keys.flatMap(({ key: { id } }) =>
        (options?.reason === "expired"
          ? store.model.forget(store.now(), id)
          : store.model.forceRelease(store.now(), id)).map(modelDriver.toHolder)
      ))
  )

/**
 * Nothing passes between the store and a node (default: any node) for a time, which may be infinite. Calls wait and are
 * executed at its end, unless nobody waits for their answer any more; wake-ups and notices are lost.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // a holder that does not reach the store ends by its own clock
 * const program = Effect.gen(function*() {
 *   const running = yield* Effect.fork(Locking.withLock(Effect.never, "orders"))
 *   yield* TestClock.adjust("1 second")
 *   yield* TestLocking.mute("20 seconds", { node: "main" })
 *   yield* TestClock.adjust("20 seconds")
 *   const error = yield* Effect.flip(Fiber.join(running))
 *   strictEqual(error._tag === "LeaseLost" && error.reason, "unconfirmed")
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const mute = (
  duration: DurationInput,
  where?: Pick<Where, "node">
): Effect.Effect<void, never, TestLocking> => change((store) => store.mute(Duration.decode(duration), where?.node))

/**
 * The store refuses calls, and does nothing; `times` is infinite by default.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // a store that refuses is asked until the wait is over
 * const program = Effect.gen(function*() {
 *   yield* TestLocking.refuse({ op: "attempt" })
 *   const running = yield* Effect.fork(Locking.withLock(Effect.void, "orders"))
 *   yield* TestClock.adjust("5 seconds")
 *   const error = yield* Effect.flip(Fiber.join(running))
 *   strictEqual(error.code, "PROVIDER_FAILED")
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const refuse = (
  where?: Pick<Where, "node" | "times"> & { readonly op?: Operation | undefined }
): Effect.Effect<void, never, TestLocking> =>
  change((store) => store.addRule({ _tag: "Refuse", ...where, left: where?.times ?? Infinity }))

/**
 * The store executes the next call, but its answer is never heard. `times` is 1 by default.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // a grant whose answer is lost is found again
 * const program = Effect.gen(function*() {
 *   yield* TestLocking.dropNextReply({ op: "grant" })
 *   const running = yield* Effect.fork(Locking.withLock(Effect.succeed("done"), "orders"))
 *   yield* TestClock.adjust("5 seconds")
 *   strictEqual(yield* Fiber.join(running), "done")
 *   strictEqual((yield* TestLocking.calls()).attempt, 2)
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const dropNextReply = (where?: Where): Effect.Effect<void, never, TestLocking> =>
  change((store) => store.addRule({ _tag: "DropReply", ...where, left: where?.times ?? 1 }))

/**
 * The store executes calls at once, but its answers are late; `times` is infinite by default.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Duration, Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // a lease counts from the question, not from the answer; 155 ms are its margin
 * const program = Effect.gen(function*() {
 *   yield* TestLocking.answerLate("1 second", { op: "attempt" })
 *   const running = yield* Effect.fork(Locking.useLock("orders", (lease) => lease.remaining))
 *   yield* TestClock.adjust("1 second")
 *   strictEqual(Duration.toMillis(yield* Fiber.join(running)), 15_000 - 1_000 - 155)
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const answerLate = (delay: DurationInput, where?: Where): Effect.Effect<void, never, TestLocking> =>
  change((store) =>
    store.addRule({
      _tag: "AnswerLate",
      ...where,
      delay: Duration.decode(delay),
      left: where?.times ?? Infinity
    })
  )

/**
 * Wake-ups for waiters come late; `times` is infinite by default.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // a waiter polls beside its wake-up
 * const program = Effect.gen(function*() {
 *   yield* TestLocking.delayWakeups("10 seconds")
 *   const other = yield* TestLocking.node("other")
 *   const lease = yield* other.acquire("orders")
 *   const next = yield* Effect.fork(Locking.withLock(Effect.succeed("done"), "orders"))
 *   yield* TestClock.adjust("1 second")
 *   yield* lease.release
 *   yield* TestClock.adjust("1 second")
 *   strictEqual(yield* Fiber.join(next), "done")
 * })
 *
 * // in a test: it.scoped("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const delayWakeups = (
  delay: DurationInput,
  where?: Pick<Where, "node" | "times">
): Effect.Effect<void, never, TestLocking> =>
  change((store) =>
    store.addRule({
      _tag: "DelayWakeup",
      ...where,
      delay: Duration.decode(delay),
      left: where?.times ?? Infinity
    })
  )

/**
 * Wake-ups for waiters are lost, and only their poll helps them; `times` is infinite by default.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // nobody tells the waiter; its poll finds out
 * const program = Effect.gen(function*() {
 *   yield* TestLocking.dropWakeups()
 *   const other = yield* TestLocking.node("other")
 *   const lease = yield* other.acquire("orders")
 *   const next = yield* Effect.fork(Locking.withLock(Effect.succeed("done"), "orders"))
 *   yield* TestClock.adjust("1 second")
 *   yield* lease.release
 *   yield* TestClock.adjust("1 second")
 *   strictEqual(yield* Fiber.join(next), "done")
 * })
 *
 * // in a test: it.scoped("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const dropWakeups = (where?: Pick<Where, "node" | "times">): Effect.Effect<void, never, TestLocking> =>
  change((store) => store.addRule({ _tag: "DropWakeup", ...where, left: where?.times ?? Infinity }))

/**
 * The store's clock jumps, the nodes' clocks do not. Forward (default): leases end early at the store, and their
 * holders do not know. Back: they last longer there.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // two believe their lease; the fence tells who came later
 * const program = Effect.gen(function*() {
 *   const lease = yield* Locking.acquire("orders")
 *   yield* TestLocking.jumpClock("1 minute")
 *   const other = yield* TestLocking.node("other")
 *   const second = yield* other.acquire("orders")
 *   strictEqual(yield* lease.isValid, true)
 *   strictEqual(second.fence > lease.fence, true)
 * })
 *
 * // in a test: it.scoped("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const jumpClock = (
  distance: DurationInput,
  direction: "forward" | "back" = "forward"
): Effect.Effect<void, never, TestLocking> =>
  change((store) => {
    const millis = Duration.toMillis(distance)
    store.jump(direction === "forward" ? millis : -millis)
  })

/**
 * Ends all faults: nodes that are mute are heard, and what follows is as it should be. The store's clock stays where it
 * is, and the dead stay dead.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Fiber, TestClock, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // a call goes on when the network is back
 * const program = Effect.gen(function*() {
 *   yield* TestLocking.mute("1 hour")
 *   const running = yield* Effect.fork(Locking.withLock(Effect.succeed("done"), "orders"))
 *   yield* TestClock.adjust("1 second")
 *   yield* TestLocking.heal
 *   yield* TestClock.adjust("1 second")
 *   strictEqual(yield* Fiber.join(running), "done")
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category faults
 */
export const heal: Effect.Effect<void, never, TestLocking> = change((store) => store.heal())

// ---------------------------------------------------------------------------------------------------------------------
// what the store knows
// ---------------------------------------------------------------------------------------------------------------------

/**
 * Who holds a key as the store sees it, whatever the nodes believe. A holder's session is its node's name. The key
 * belongs to the tenant in context, as everywhere; namespaces are not told apart.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, TestContext } from "effect"
 * import { TestLocking } from "effect-locking"
 *
 * // a holder that was killed keeps the key until its ttl is over
 * const program = Effect.gen(function*() {
 *   yield* TestLocking.node("worker").pipe(Effect.flatMap((worker) => worker.acquire("orders")))
 *   yield* TestLocking.kill("worker")
 *   const [holder] = yield* TestLocking.holders("orders")
 *   strictEqual(holder?.session, "worker")
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category observation
 */
export const holders = (key: LockKey.Input): Effect.Effect<ReadonlyArray<Holder>, never, TestLocking> =>
  withStore((store) =>
    Effect.map(held(store, key), (keys) => keys.flatMap(({ holders }) => holders.map(modelDriver.toHolder)))
  )

/**
 * How many calls the nodes of a name (default: all nodes) made so far, answered or not.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, TestContext } from "effect"
 * import { Locking, TestLocking } from "effect-locking"
 *
 * // three callers of one node ask the store once: the lock is handed on inside
 * const program = Effect.gen(function*() {
 *   const job = Locking.withLock(Effect.yieldNow(), "orders")
 *   yield* Effect.all([job, job, job], { concurrency: "unbounded" })
 *   strictEqual((yield* TestLocking.calls({ node: "main" })).attempt, 1)
 * })
 *
 * // in a test: it.effect("…", () => program.pipe(Effect.provide(TestLocking.layer)))
 * Effect.runPromise(program.pipe(Effect.provide(TestLocking.layer), Effect.provide(TestContext.TestContext)))
 * ```
 *
 * @since 0.1.0
 * @category observation
 */
export const calls = (where?: Pick<Where, "node">): Effect.Effect<Calls, never, TestLocking> =>
  withStore((store) =>
    Effect.sync(() => {
      const sum = testStore.noCalls()
      for (const { calls, name } of store.nodes) {
        if (where?.node !== undefined && where.node !== name) continue
        for (const op of testStore.operations) sum[op] += calls[op]
      }
      return sum
    })
  )

const held = (store: testStore.TestStore, input: LockKey.Input) =>
  Effect.map(LockKey.currentTenant, (current) => {
    const { name, scope } = typeof input === "string" ? LockKey.make(input) : input
    const tenant = scope === "platform" ? undefined : current
    return store.model.list(store.now()).filter(({ key }) =>
      key.key === name && key.tenant === tenant && (key.scope === "platform") === (scope === "platform")
    )
  })
