/**
 * What is locked: a string. It belongs to the tenant in context, if there is one, unless it is marked as common to the
 * whole platform; the three scopes never meet, whatever the strings are.
 *
 * Keys, tenants and namespaces follow one rule for all stores: they are not empty, well-formed Unicode, free of U+0000
 * and at most `maxKeyBytes` (1 024) bytes long in UTF-8. They are compared exactly, without any normalisation: `"é"`
 * in one code point and `"é"` in two are different keys. What is refused fails `InvalidKey` before the store is asked.
 *
 * @since 0.1.0
 */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import { hasProperty } from "effect/Predicate"
import * as compat from "./internal/compat.js"
import * as keyEncoding from "./internal/pure/keyEncoding.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId: TypeId = "~effect-locking/LockKey"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = "~effect-locking/LockKey"

/**
 * A key with its scope: `none` belongs to the tenant in context, if there is one; `platform` belongs to nobody.
 *
 * @since 0.1.0
 * @category models
 */
export interface LockKey {
  readonly [TypeId]: TypeId
  readonly scope: "none" | "platform"
  readonly name: string
}

/**
 * What operations take as a key: a plain string is the same as `make` of it.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = string | LockKey

/**
 * A key as drivers see it: checked, and with its namespace and tenant.
 *
 * @since 0.1.0
 * @category models
 */
export interface ResolvedKey {
  readonly namespace: string
  /** `none`: no tenant was in context, which is a scope of its own. */
  readonly scope: "none" | "tenant" | "platform"
  /** Present exactly when the scope is `tenant`. */
  readonly tenant: string | undefined
  readonly key: string
  /** One string for all of it, equal for equal keys only and the same in every release. */
  readonly id: string
}

const of = (scope: "none" | "platform", name: string): LockKey => ({ [TypeId]: TypeId, scope, name })

/**
 * A key that belongs to the tenant in context, as a plain string does.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { LockKey, Locking } from "effect-locking"
 *
 * const invoice = (id: number) => LockKey.make(`invoice:${id}`)
 *
 * const program = Effect.succeed("paid").pipe(Locking.withLock(invoice(42)))
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // paid
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (name: string): LockKey => of("none", name)

/**
 * A key that all tenants share: it is the same inside and outside of any tenant, and never equal to a tenant's key of
 * the same name.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { LockKey, Locking } from "effect-locking"
 *
 * // one at a time for the whole platform, even though a tenant is in context
 * const program = Effect.log("in the section").pipe(
 *   Locking.withLock(LockKey.platform("nightly")),
 *   LockKey.withTenant("acme")
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const platform = (name: string): LockKey => of("platform", name)

/**
 * Whether a value was made by `make` or `platform`.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { LockKey } from "effect-locking"
 *
 * strictEqual(LockKey.isLockKey(LockKey.make("orders:42")), true)
 * strictEqual(LockKey.isLockKey("orders:42"), false)
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const isLockKey = (u: unknown): u is LockKey => hasProperty(u, TypeId)

/**
 * Identifies the reference `Tenant`.
 *
 * @since 0.1.0
 * @category tenancy
 */
export interface Tenant {
  readonly _: unique symbol
}

/**
 * The tenant that keys belong to. It travels with the flow of the code, into forked fibers too; `undefined`, the
 * default, means that there is none. Set it with `withTenant`, read it with `currentTenant`; as a layer it serves a whole
 * program.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect, Layer } from "effect"
 * import { LockKey } from "effect-locking"
 *
 * const program = Effect.provide(LockKey.currentTenant, Layer.succeed(LockKey.Tenant, "acme"))
 *
 * strictEqual(Effect.runSync(program), "acme")
 * ```
 *
 * @since 0.1.0
 * @category tenancy
 */
export const Tenant: Context.Reference<Tenant, string | undefined> = compat.reference<string | undefined, Tenant>(
  "effect-locking/LockKey/Tenant",
  () => undefined
)

/**
 * The tenant in context, `undefined` where there is none.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { Effect } from "effect"
 * import { LockKey } from "effect-locking"
 *
 * const program = LockKey.currentTenant.pipe(LockKey.withTenant("acme"))
 *
 * strictEqual(Effect.runSync(program), "acme")
 * strictEqual(Effect.runSync(LockKey.currentTenant), undefined)
 * ```
 *
 * @since 0.1.0
 * @category tenancy
 */
export const currentTenant: Effect.Effect<string | undefined> = Tenant

/**
 * Runs an effect for a tenant: the keys that it locks belong to that tenant, unless they are marked with `platform`.
 * The innermost tenant counts. A name that no key could have is refused when a lock is asked for, with `InvalidKey`.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { LockKey, Locking } from "effect-locking"
 *
 * const save = Effect.log("saved").pipe(Locking.withLock("settings"))
 *
 * // these two do not exclude each other
 * const program = Effect.all([
 *   LockKey.withTenant(save, "acme"),
 *   save.pipe(LockKey.withTenant("globex"))
 * ])
 * ```
 *
 * @since 0.1.0
 * @category tenancy
 */
export const withTenant: {
  (tenant: string): <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  <A, E, R>(self: Effect.Effect<A, E, R>, tenant: string): Effect.Effect<A, E, R>
} = dual(
  2,
  <A, E, R>(self: Effect.Effect<A, E, R>, tenant: string): Effect.Effect<A, E, R> =>
    Effect.provideService(self, Tenant, tenant) as Effect.Effect<A, E, R>
)

/**
 * What stands for a key in errors, logs, spans and metrics: 12 hexadecimal characters that are the same in every process.
 * It correlates and does not anonymise: whoever can guess the key can compute it.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { LockKey, Locking } from "effect-locking"
 *
 * // which lock does the log speak of?
 * const program = Effect.map(Locking.resolveKey("orders"), LockKey.shortHash)
 *
 * Effect.runPromise(Effect.provide(program, Locking.layerMemory)).then(console.log) // 22f86e4bb000
 * ```
 *
 * @since 0.1.0
 * @category destructors
 */
export const shortHash = (key: ResolvedKey): string => keyEncoding.shortHash(key.id)
