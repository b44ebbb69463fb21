/**
 * Locks within one process: the same engine as over a server, on a store in memory.
 *
 * @since 0.1.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as modelDriver from "./internal/modelDriver.js"
import { StoreModel } from "./internal/pure/storeModel.js"
import type { Capabilities, LockDriver } from "./LockDriver.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: TypeId = "~effect-locking/MemoryStore"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = "~effect-locking/MemoryStore"

/**
 * A store in memory. Every driver made from it is a process of its own there, so several `Locking` layers over one
 * store exclude each other as several machines over one server do.
 *
 * @since 0.1.0
 * @category models
 */
export interface MemoryStore {
  readonly [TypeId]: TypeId
}

class MemoryStoreImpl implements MemoryStore {
  readonly [TypeId]: TypeId = TypeId
  readonly model = new StoreModel()
}

/**
 * Makes an empty store. Nothing outside of the process sees it, and it ends with the process.
 *
 * Its memory grows with what is held and waited for, not with the keys ever used.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking, MemoryStore } from "effect-locking"
 *
 * const program = Effect.gen(function*() {
 *   const store = yield* MemoryStore.make
 *   const locking = yield* Locking.make(yield* MemoryStore.driver(store))
 *   return yield* locking.withLock(Effect.succeed("done"), "report")
 * })
 *
 * Effect.runPromise(Effect.scoped(program)).then(console.log) // done
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<MemoryStore> = Effect.sync(() => new MemoryStoreImpl())

const capabilities: Capabilities = {
  modes: ["exclusive", "shared"],
  fair: false,
  push: true,
  expiry: "server",
  remote: false,
  ttl: { default: Duration.infinity, min: Duration.millis(1), infinite: true }
}

/**
 * One process at a store. Closing the scope ends its notices of lost grants; it gives nothing back.
 *
 * The clock in context counts, read once: its monotonic side, as milliseconds since the epoch. `since` and `until` of
 * a holder and the clock's part of a fence have the same base, so a clock that is set while the program runs moves
 * none of them. All drivers of a store should be made under one clock.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { Locking, MemoryStore } from "effect-locking"
 *
 * const program = Effect.gen(function*() {
 *   const store = yield* MemoryStore.make
 *   const one = yield* Locking.make(yield* MemoryStore.driver(store))
 *   const two = yield* Locking.make(yield* MemoryStore.driver(store))
 *   return yield* one.withLock(two.withLockIfAvailable(Effect.void, "report"), "report")
 * })
 *
 * Effect.runPromise(Effect.scoped(program)).then(console.log)
 * // { _id: 'Option', _tag: 'None' }
 * ```
 *
 * @since 0.1.0
 * @category drivers
 */
export const driver = (store: MemoryStore): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.flatMap(
    modelDriver.storeTime,
    (now) => modelDriver.make({ name: "memory", capabilities, model: (store as MemoryStoreImpl).model, now })
  )
