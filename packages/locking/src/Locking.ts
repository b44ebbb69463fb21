/**
 * Named, time-bound locks for programs that must not do the same thing twice.
 *
 * `withLock` guards an effect with the lock of a key: it waits its turn, runs the effect, and releases on success,
 * failure, defect and interruption. The lease behind it is renewed while the effect runs, and the effect is interrupted
 * when the lease is lost. What a lease cannot do is stop a frozen process that wakes up late: for that every lease has
 * a fence, to be checked where the data is (see `Fence`).
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import type * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import { scopedLayer, tag } from "./internal/compat.js"
import type { Core } from "./internal/core.js"
import * as engine from "./internal/engine.js"
import { leaseOf, leasesOf } from "./internal/lease.js"
import { cores } from "./internal/sizes.js"
import type { Lease } from "./Lease.js"
import type { Deposed, Finding, HeldKey, Holder, LockDriver, LockMode } from "./LockDriver.js"
import type * as LockError from "./LockError.js"
import type { LockEvent } from "./LockEvent.js"
import type * as LockKey from "./LockKey.js"
import type { AcquireOptions, LockingOptions, TryOptions } from "./LockOptions.js"
import * as MemoryStore from "./MemoryStore.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~effect-locking/Locking"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = typeof TypeId

/**
 * The mode that options ask for: `exclusive` where they say nothing.
 *
 * @since 0.1.0
 * @category models
 */
export type ModeOf<Options> = Options extends { readonly mode: infer Mode extends LockMode } ? Mode
  : "mode" extends keyof Options ? LockMode
  : "exclusive"

/**
 * Errors of the questions that operators ask.
 *
 * @since 0.1.0
 * @category errors
 */
export type AdminError = LockError.LockingClosed | LockError.ProviderFailed | LockError.OutcomeUnknown

/**
 * @since 0.1.0
 * @category models
 */
export interface ForceReleaseOptions {
  /** Also end the session of a holder who does not answer, and with it all else that it holds. Default `false`. */
  readonly hard?: boolean | undefined
}

/**
 * Which of the held keys `list` answers: those that have all that is named here. What the store does not know of a
 * key is not what was asked for.
 *
 * @since 0.1.0
 * @category models
 */
export interface ListFilter {
  readonly tenant?: string | undefined
  readonly scope?: "none" | "tenant" | "platform" | undefined
  /** How the key begins. */
  readonly prefix?: string | undefined
}

/**
 * The tag of the service: `yield* Locking.Locking` answers it. A program with several backends makes a tag for each, over
 * `make`.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.gen(function*() {
 *   const locking = yield* Locking.Locking
 *   return yield* locking.withLock(Effect.succeed(`done by ${locking.backend}`), "invoices")
 * })
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // done by memory
 * ```
 *
 * @since 0.1.0
 * @category models
 */
export interface Locking {
  readonly [TypeId]: TypeId
  /** Its name in errors, logs, spans and metrics. */
  readonly backend: string
  readonly withLock: <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    key: LockKey.Input,
    options?: AcquireOptions
  ) => Effect.Effect<A, E | LockError.WithLockError, R>
  readonly useLock: {
    <A, E, R>(
      key: LockKey.Input,
      body: (lease: Lease<"exclusive">) => Effect.Effect<A, E, R>
    ): Effect.Effect<A, E | LockError.WithLockError, R>
    <A, E, R, const Options extends AcquireOptions>(
      key: LockKey.Input,
      options: Options,
      body: (lease: Lease<ModeOf<Options>>) => Effect.Effect<A, E, R>
    ): Effect.Effect<A, E | LockError.WithLockError, R>
  }
  readonly withLocks: <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    keys: ReadonlyArray<LockKey.Input>,
    options?: AcquireOptions
  ) => Effect.Effect<A, E | LockError.WithLockError, R>
  readonly useLocks: {
    <A, E, R>(
      keys: ReadonlyArray<LockKey.Input>,
      body: (leases: ReadonlyArray<Lease<"exclusive">>) => Effect.Effect<A, E, R>
    ): Effect.Effect<A, E | LockError.WithLockError, R>
    <A, E, R, const Options extends AcquireOptions>(
      keys: ReadonlyArray<LockKey.Input>,
      options: Options,
      body: (leases: ReadonlyArray<Lease<ModeOf<Options>>>) => Effect.Effect<A, E, R>
    ): Effect.Effect<A, E | LockError.WithLockError, R>
  }
  readonly withLockIfAvailable: <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    key: LockKey.Input,
    options?: TryOptions
  ) => Effect.Effect<Option.Option<A>, E | LockError.TryLockError, R>
  readonly acquire: <const Options extends AcquireOptions = {}>(
    key: LockKey.Input,
    options?: Options
  ) => Effect.Effect<Lease<ModeOf<Options>>, LockError.AcquireError, Scope.Scope>
  readonly tryAcquire: <const Options extends TryOptions = {}>(
    key: LockKey.Input,
    options?: Options
  ) => Effect.Effect<Option.Option<Lease<ModeOf<Options>>>, LockError.TryAcquireError, Scope.Scope>
  readonly resolveKey: (key: LockKey.Input) => Effect.Effect<LockKey.ResolvedKey, LockError.InvalidKey>
  readonly inspect: (
    key: LockKey.Input
  ) => Effect.Effect<ReadonlyArray<Holder>, LockError.InvalidKey | AdminError>
  readonly list: (filter?: ListFilter) => Effect.Effect<ReadonlyArray<HeldKey>, AdminError>
  readonly forceRelease: (
    key: LockKey.Input,
    options?: ForceReleaseOptions
  ) => Effect.Effect<Deposed, LockError.InvalidKey | AdminError>
  readonly check: Effect.Effect<ReadonlyArray<Finding>, AdminError>
  readonly events: Effect.Effect<Stream.Stream<LockEvent>>
}

/**
 * @since 0.1.0
 * @category tags
 */
export const Locking = tag<Locking>("effect-locking/Locking")

/**
 * The service over a driver. Closing the scope interrupts what runs under its locks, waits for it, and gives everything
 * back, within `shutdownTimeout`.
 *
 * Fails `InvalidOptions` with every issue and its path and, unless `start` is `"lazy"`, `ProviderFailed` when the store
 * is down and `DriverInvalid` when it must not be used as it is deployed.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking, MemoryStore } from "effect-locking"
 *
 * const program = Effect.scoped(Effect.gen(function*() {
 *   const store = yield* MemoryStore.make
 *   const locking = yield* Locking.make(yield* MemoryStore.driver(store), { namespace: "billing" })
 *   return yield* locking.withLock(Effect.succeed("done"), "invoices")
 * }))
 *
 * Effect.runPromise(program).then(console.log) // done
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  driver: LockDriver,
  options?: LockingOptions
): Effect.Effect<Locking, LockError.StartError, Scope.Scope> => Effect.map(engine.make(driver, options), fromCore)

const fromCore = (core: Core): Locking => {
  const { driver } = core
  const locking: Locking = {
    [TypeId]: TypeId,
    backend: core.settings.backend,
    withLock: (effect, key, options) => engine.use(core, key, options, () => effect),
    useLock: (key: LockKey.Input, ...rest: UseArguments) => {
      const { body, options } = useArguments(rest)
      return engine.use(core, key, options, (hold) => Effect.suspend(() => body(leaseOf(hold!, 0))))
    },
    withLocks: (effect, keys, options) => engine.use(core, keys, options, () => effect),
    useLocks: (keys: ReadonlyArray<LockKey.Input>, ...rest: UseArguments) => {
      const { body, options } = useArguments(rest)
      return engine.use(
        core,
        keys,
        options,
        (hold) => Effect.suspend(() => body(hold === undefined ? [] : leasesOf(hold)))
      )
    },
    withLockIfAvailable: (effect, key, options) => engine.useIfAvailable(core, key, options, () => effect),
    acquire: (key, options) => engine.scoped(core, key, options),
    tryAcquire: (key, options) => engine.scopedIfAvailable(core, key, options),
    resolveKey: (key) => engine.resolved(core, key),
    inspect: (key) =>
      Effect.flatMap(engine.resolved(core, key), (resolved) => engine.admin(core, () => driver.inspect(resolved))),
    list: (filter = {}) =>
      Effect.map(
        engine.admin(core, () => driver.list(core.settings.namespace)),
        (all) => all.filter((held) => hasAll(held, filter))
      ),
    forceRelease: (key, options) =>
      Effect.flatMap(
        engine.resolved(core, key),
        (resolved) => engine.admin(core, () => driver.forceRelease(resolved, { hard: options?.hard === true }))
      ),
    check: engine.admin(core, () => driver.check ?? Effect.succeed([])),
    events: Effect.map(
      // eslint-disable-next-line no-restricted-syntax -- loaded when asked for: it doubles the cost of importing this module
      Effect.promise(() => import("effect/Stream")),
      (stream) => stream.unwrapScoped(Effect.map(core.events.subscribe, stream.repeatEffectOption))
    )
  }
  cores.set(locking, core)
  return locking
}

const hasAll = (held: HeldKey, { prefix, scope, tenant }: ListFilter): boolean =>
  (tenant === undefined || held.tenant === tenant) &&
  (scope === undefined || held.scope === scope) &&
  (prefix === undefined || held.key?.startsWith(prefix) === true)

type UseBody = (leases: any) => Effect.Effect<any, any, any>

type UseArguments = [body: UseBody] | [options: AcquireOptions, body: UseBody]

const useArguments = (rest: UseArguments): { readonly options: AcquireOptions | undefined; readonly body: UseBody } =>
  rest.length === 1 ? { options: undefined, body: rest[0] } : { options: rest[0], body: rest[1] }

/**
 * A layer over a driver, which it opens and closes. Fails as `make` does, and as the driver does when it is opened.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking, MemoryStore } from "effect-locking"
 *
 * // two services on one store, as two processes would be
 * const program = Effect.gen(function*() {
 *   const store = yield* MemoryStore.make
 *   const node = Locking.layer(MemoryStore.driver(store), { waitTimeout: "1 second" })
 *   const first = yield* Locking.withLock(Effect.succeed("on one"), "key").pipe(Effect.provide(node))
 *   const second = yield* Locking.withLock(Effect.succeed("on the other"), "key").pipe(Effect.provide(node))
 *   return [first, second]
 * })
 *
 * Effect.runPromise(program).then(console.log) // [ 'on one', 'on the other' ]
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = <E, R>(
  driver: Effect.Effect<LockDriver, E, R>,
  options?: LockingOptions
): Layer.Layer<Locking, E | LockError.StartError, Exclude<R, Scope.Scope>> =>
  scopedLayer(Locking, Effect.flatMap(driver, (opened) => make(opened, options)))

const memoryDriver = Effect.flatMap(MemoryStore.make, MemoryStore.driver)

/**
 * Locks inside one process, on a store of its own: for programs that are one process, and for tests. Leases do not end
 * by themselves unless a `ttl` is given. Build it once: two builds are two stores, which do not exclude each other.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Locking.withLock(Effect.succeed("done"), "invoices")
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // done
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<Locking> = scopedLayer(
  Locking,
  Effect.flatMap(memoryDriver, (driver) => Effect.orDie(make(driver)))
)

/**
 * `layerMemory` with options. Fails `InvalidOptions` with every issue and its path.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.void.pipe(
 *   Locking.withLock("invoices"),
 *   Effect.provide(Locking.layerMemoryWith({ tenancy: "required" })),
 *   Effect.flip,
 *   Effect.map((error) => error.code)
 * )
 *
 * Effect.runPromise(program).then(console.log) // INVALID_KEY
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemoryWith = (options: LockingOptions): Layer.Layer<Locking, LockError.InvalidOptions> =>
  scopedLayer(
    Locking,
    Effect.flatMap(
      memoryDriver,
      (driver) => Effect.catchTags(make(driver, options), { ProviderFailed: Effect.die, DriverInvalid: Effect.die })
    )
  )

/**
 * Guards an effect with the lock of a key.
 *
 * Waits at most `waitTimeout` (5 seconds), then fails `WaitTimeout`; with zero makes one attempt and fails `LockBusy`.
 * Releases on every exit, after the effect and its finalizers have ended. When the lease is lost the effect is
 * interrupted and the call fails `LeaseLost`. Asking for a key that this flow of code holds already fails
 * `LockReentry` at once. Fibers forked in the effect end with it.
 *
 * Fails `InvalidOptions` and `InvalidKey` before the store is asked, `QueueFull` and `KeyLimit` at the limits of the
 * layer, `ProviderFailed` when the store refused until the wait was over, `OutcomeUnknown` when it gave no answer, and
 * `LockingClosed` when the layer closes.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const closeMonth = Effect.succeed("closed").pipe(
 *   Locking.withLock("billing/close", { waitTimeout: "30 seconds" }),
 *   Effect.catchTag("WaitTimeout", (error) => Effect.succeed(`not now: ${error.message}`))
 * )
 *
 * Effect.runPromise(Effect.provide(closeMonth, Locking.layerMemory)).then(console.log) // closed
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const withLock: {
  (key: LockKey.Input, options?: AcquireOptions): <A, E, R>(
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | LockError.WithLockError, R | Locking>
  <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    key: LockKey.Input,
    options?: AcquireOptions
  ): Effect.Effect<A, E | LockError.WithLockError, R | Locking>
} = dual(
  (args) => Effect.isEffect(args[0]),
  <A, E, R>(effect: Effect.Effect<A, E, R>, key: LockKey.Input, options?: AcquireOptions) =>
    Effect.flatMap(Locking, (locking) => locking.withLock(effect, key, options))
)

/**
 * `withLock` with the lease in hand, for its fence. `lease.release` inside gives the lock back early; the rest runs
 * unguarded.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { FencedRegister, Locking } from "effect-locking"
 *
 * const program = Effect.gen(function*() {
 *   const balance = yield* FencedRegister.make(100)
 *   // the register refuses the write when a later holder has written already
 *   yield* Locking.useLock("account/1", (lease) => balance.set(lease.fence, 90))
 *   return yield* balance.get
 * })
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // 90
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const useLock: {
  <A, E, R>(
    key: LockKey.Input,
    body: (lease: Lease<"exclusive">) => Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | LockError.WithLockError, R | Locking>
  <A, E, R, const Options extends AcquireOptions>(
    key: LockKey.Input,
    options: Options,
    body: (lease: Lease<ModeOf<Options>>) => Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | LockError.WithLockError, R | Locking>
} = (key: LockKey.Input, ...rest: UseArguments) =>
  Effect.flatMap(Locking, (locking) => (locking.useLock as any)(key, ...rest))

/**
 * Guards an effect with the locks of several keys: all or none, under one wait limit, without deadlocks between callers
 * that name them in different orders. Losing one is losing all. At most 64 different keys, more are `InvalidKey`;
 * duplicates count once; an empty list guards nothing. Nested calls of `withLock` have no such order: they can wait for
 * each other until `waitTimeout`.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const transfer = Locking.withLocks(Effect.succeed("transferred"), ["account/1", "account/2"])
 *
 * Effect.runPromise(Effect.provide(transfer, Locking.layerMemory)).then(console.log) // transferred
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const withLocks: {
  (keys: ReadonlyArray<LockKey.Input>, options?: AcquireOptions): <A, E, R>(
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | LockError.WithLockError, R | Locking>
  <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    keys: ReadonlyArray<LockKey.Input>,
    options?: AcquireOptions
  ): Effect.Effect<A, E | LockError.WithLockError, R | Locking>
} = dual(
  (args) => Effect.isEffect(args[0]),
  <A, E, R>(effect: Effect.Effect<A, E, R>, keys: ReadonlyArray<LockKey.Input>, options?: AcquireOptions) =>
    Effect.flatMap(Locking, (locking) => locking.withLocks(effect, keys, options))
)

/**
 * `withLocks` with the leases in hand: one per key, each with a fence of its own. They come in canonical order (bytes of
 * the encoded key), not in the order of `keys`, and duplicates once: find a fence by its key.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Locking.useLocks(["b", "a"], (leases) => {
 *   const fences = new Map(leases.map((lease) => [lease.key, lease.fence]))
 *   return Effect.succeed([leases.map((lease) => lease.key), fences.get("b") === leases[1]?.fence])
 * })
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // [ [ 'a', 'b' ], true ]
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const useLocks: {
  <A, E, R>(
    keys: ReadonlyArray<LockKey.Input>,
    body: (leases: ReadonlyArray<Lease<"exclusive">>) => Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | LockError.WithLockError, R | Locking>
  <A, E, R, const Options extends AcquireOptions>(
    keys: ReadonlyArray<LockKey.Input>,
    options: Options,
    body: (leases: ReadonlyArray<Lease<ModeOf<Options>>>) => Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | LockError.WithLockError, R | Locking>
} = (keys: ReadonlyArray<LockKey.Input>, ...rest: UseArguments) =>
  Effect.flatMap(Locking, (locking) => (locking.useLocks as any)(keys, ...rest))

/**
 * Runs an effect when the lock is free, with one attempt that never waits: `None` when somebody holds it or waits for
 * it. The attempt takes at most `attemptTimeout`; then it fails `OutcomeUnknown`.
 *
 * @example
 * ```ts
 * import { Effect, Option } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const refresh = Effect.succeed("refreshed").pipe(
 *   Locking.withLockIfAvailable("cache"),
 *   Effect.map(Option.getOrElse(() => "somebody else does it"))
 * )
 *
 * Effect.runPromise(Effect.provide(refresh, Locking.layerMemory)).then(console.log) // refreshed
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const withLockIfAvailable: {
  (key: LockKey.Input, options?: TryOptions): <A, E, R>(
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<Option.Option<A>, E | LockError.TryLockError, R | Locking>
  <A, E, R>(
    effect: Effect.Effect<A, E, R>,
    key: LockKey.Input,
    options?: TryOptions
  ): Effect.Effect<Option.Option<A>, E | LockError.TryLockError, R | Locking>
} = dual(
  (args) => Effect.isEffect(args[0]),
  <A, E, R>(effect: Effect.Effect<A, E, R>, key: LockKey.Input, options?: TryOptions) =>
    Effect.flatMap(Locking, (locking) => locking.withLockIfAvailable(effect, key, options))
)

/**
 * Acquires a lock for as long as the scope lives. It is renewed like any other; its loss interrupts nobody by itself:
 * `lease.lost` tells, `lease.guard(effect)` interrupts, `lease.provide(effect)` makes it `Lease.current`. Fails as
 * `withLock` does, but for `LeaseLost`.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.scoped(Effect.gen(function*() {
 *   const lease = yield* Locking.acquire("importer")
 *   return yield* lease.guard(Effect.succeed("imported"))
 * }))
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // imported
 * ```
 *
 * @since 0.1.0
 * @category acquiring
 */
export const acquire = <const Options extends AcquireOptions = {}>(
  key: LockKey.Input,
  options?: Options
): Effect.Effect<Lease<ModeOf<Options>>, LockError.AcquireError, Locking | Scope.Scope> =>
  Effect.flatMap(Locking, (locking) => locking.acquire(key, options))

/**
 * `acquire` with one attempt that never waits: `None` when somebody holds the lock or waits for it.
 *
 * @example
 * ```ts
 * import { Effect, Option } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.scoped(Effect.map(Locking.tryAcquire("importer"), Option.isSome))
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // true
 * ```
 *
 * @since 0.1.0
 * @category acquiring
 */
export const tryAcquire = <const Options extends TryOptions = {}>(
  key: LockKey.Input,
  options?: Options
): Effect.Effect<Option.Option<Lease<ModeOf<Options>>>, LockError.TryAcquireError, Locking | Scope.Scope> =>
  Effect.flatMap(Locking, (locking) => locking.tryAcquire(key, options))

/**
 * A key in full, as drivers see it: with the namespace of the layer and the tenant in context. Asks nobody. Fails
 * `InvalidKey`.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { LockKey, Locking } from "effect-locking"
 *
 * const program = Locking.resolveKey("orders").pipe(
 *   LockKey.withTenant("acme"),
 *   Effect.map(({ key, namespace, tenant }) => ({ key, namespace, tenant }))
 * )
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log)
 * // { key: 'orders', namespace: 'effect-locking', tenant: 'acme' }
 * ```
 *
 * @since 0.1.0
 * @category operating
 */
export const resolveKey = (
  key: LockKey.Input
): Effect.Effect<LockKey.ResolvedKey, LockError.InvalidKey, Locking> =>
  Effect.flatMap(Locking, (locking) => locking.resolveKey(key))

/**
 * What the store knows of the holders of a key; empty when it is free. The key belongs to the tenant in context. Asks
 * once, for `attemptTimeout` at most: `ProviderFailed` when the store refuses, `OutcomeUnknown` when it does not answer.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Locking.inspect("importer").pipe(
 *   Effect.map((holders) => holders.map((holder) => holder.mode)),
 *   Locking.withLock("importer")
 * )
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // [ 'exclusive' ]
 * ```
 *
 * @since 0.1.0
 * @category operating
 */
export const inspect = (
  key: LockKey.Input
): Effect.Effect<ReadonlyArray<Holder>, LockError.InvalidKey | AdminError, Locking> =>
  Effect.flatMap(Locking, (locking) => locking.inspect(key))

/**
 * Every key of the namespace that is held now, with its holders, of all tenants; with a filter those that it names. Fails
 * as `inspect` does.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.all([Locking.list(), Locking.list({ prefix: "invoice/" })]).pipe(
 *   Effect.map(([all, invoices]) => [all.length, invoices.map(({ key }) => key)]),
 *   Locking.withLocks(["account/1", "invoice/7"])
 * )
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // [ 2, [ 'invoice/7' ] ]
 * ```
 *
 * @since 0.1.0
 * @category operating
 */
export const list = (filter?: ListFilter): Effect.Effect<ReadonlyArray<HeldKey>, AdminError, Locking> =>
  Effect.flatMap(Locking, (locking) => locking.list(filter))

/**
 * Deposes the holders of a key, and answers who they were. They learn it as `LeaseLost` with reason `revoked`; what
 * they still write is for the fence to refuse. Fails as `inspect` does; after `OutcomeUnknown` they may be deposed.
 * Some stores have to ask the holder (PostgreSQL), who may not answer: then `hard` ends the holder's session, and what
 * else that session held is in `others`.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const program = Effect.flip(Locking.withLock(Effect.zipRight(Locking.forceRelease("stuck"), Effect.sleep("1 minute")), "stuck"))
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then((error) => {
 *   console.log(error._tag) // LeaseLost
 * })
 * ```
 *
 * @since 0.1.0
 * @category operating
 */
export const forceRelease = (
  key: LockKey.Input,
  options?: ForceReleaseOptions
): Effect.Effect<Deposed, LockError.InvalidKey | AdminError, Locking> =>
  Effect.flatMap(Locking, (locking) => locking.forceRelease(key, options))

/**
 * What an operator should know of the deployment: what makes locks unsafe there, with the remedy. A layer with
 * `start: "strict"` does not start where there is any. Fails as `inspect` does.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const report = Effect.flatMap(
 *   Locking.check,
 *   Effect.forEach(({ code, fix, message, severity }) => Effect.log(`${severity} ${code}: ${message}. ${fix}`))
 * )
 * ```
 *
 * @since 0.1.0
 * @category operating
 */
export const check: Effect.Effect<ReadonlyArray<Finding>, AdminError, Locking> = Effect.flatMap(
  Locking,
  (locking) => locking.check
)

/**
 * What happens in the layer, as a stream: the last 1 024 events that its reader has not taken yet. Subscribed when the
 * stream runs; ends with the layer. An effect, because the module of streams is loaded on demand.
 *
 * @example
 * ```ts
 * import { Effect, Stream } from "effect"
 * import { Locking } from "effect-locking"
 *
 * const losses = Locking.events.pipe(
 *   Stream.unwrap,
 *   Stream.filter((event) => event._tag === "Lost"),
 *   Stream.runForEach((event) => Effect.logWarning("lost a lease", event.keyHash))
 * )
 * ```
 *
 * @since 0.1.0
 * @category observing
 */
export const events: Effect.Effect<Stream.Stream<LockEvent>, never, Locking> = Effect.flatMap(
  Locking,
  (locking) => locking.events
)
