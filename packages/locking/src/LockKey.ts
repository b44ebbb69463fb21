/**
 * What is locked: a string, which belongs to the tenant in context if there is one, or a key that is marked as common
 * to the whole platform.
 *
 * @since 0.1.0
 */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { dual } from "effect/Function"
import { hasProperty } from "effect/Predicate"
import * as compat from "./internal/compat.js"

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
 * A key with its scope: `none` belongs to the tenant in context, if any; `platform` to nobody.
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
 * What operations accept as a key.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = string | LockKey

/**
 * A key as drivers see it: checked, with its namespace and tenant.
 *
 * @since 0.1.0
 * @category models
 */
export interface ResolvedKey {
  readonly namespace: string
  readonly scope: "none" | "tenant" | "platform"
  readonly tenant: string | undefined
  readonly key: string
  /** One string for all of it, equal for equal keys only. */
  readonly id: string
}

const of = (scope: "none" | "platform", name: string): LockKey => ({ [TypeId]: TypeId, scope, name })

/**
 * A key that belongs to the tenant in context, as a plain string does.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (name: string): LockKey => of("none", name)

/**
 * A key that is the same for every tenant and outside of any.
 *
 * @since 0.1.0
 * @category constructors
 */
export const platform = (name: string): LockKey => of("platform", name)

/**
 * @since 0.1.0
 * @category guards
 */
export const isLockKey = (u: unknown): u is LockKey => hasProperty(u, TypeId)

/**
 * @since 0.1.0
 * @category tenancy
 */
export interface Tenant {
  readonly _: unique symbol
}

/**
 * The tenant that keys belong to: a reference that travels with the flow of the code, `undefined` by default.
 *
 * @since 0.1.0
 * @category tenancy
 */
export const Tenant: Context.Reference<Tenant, string | undefined> = compat.reference<string | undefined>(
  "effect-locking/LockKey/Tenant",
  () => undefined
) as any

/**
 * @since 0.1.0
 * @category tenancy
 */
export const currentTenant: Effect.Effect<string | undefined> = Tenant as any

/**
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
