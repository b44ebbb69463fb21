/**
 * What a flow of code holds travels with it, into child fibers and time-outs, but not past the end of the section: a
 * claim that is over counts for nobody.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Lease } from "../Lease.js"
import { InvalidKey, type LeaseLost } from "../LockError.js"
import * as LockKey from "../LockKey.js"
import { contextOf, reference, type RuntimeFiber } from "./compat.js"
import type { Core, Hold } from "./core.js"
import { resolveKey } from "./keys.js"
import { leaseLost } from "./report.js"

export interface Claim {
  readonly parent: Claim | undefined
  readonly hold: Hold
  readonly leases: ReadonlyArray<Lease>
  over: boolean
}

export const ClaimRef = reference<Claim | undefined>("effect-locking/Claim", () => undefined)

export const of = (fiber: RuntimeFiber<any, any>): Claim | undefined => Context.get(contextOf(fiber), ClaimRef)

/** The innermost hold of the key that this flow of code has. */
export const find = (from: Claim | undefined, core: Core, key: LockKey.ResolvedKey): Claim | undefined => {
  for (let claim = from; claim !== undefined; claim = claim.parent) {
    const { hold } = claim
    if (claim.over || hold.state !== "held" || hold.core !== core) continue
    if (hold.keys.some((_) => _.id === key.id)) return claim
  }
  return undefined
}

export const current: Effect.Effect<Option.Option<Lease>> = Effect.map(ClaimRef, (from) => {
  for (let claim = from; claim !== undefined; claim = claim.parent) {
    if (!claim.over && claim.hold.state !== "released") {
      return Option.fromNullable(claim.leases[claim.leases.length - 1])
    }
  }
  return Option.none()
})

export const assertHeld = (input: LockKey.Input): Effect.Effect<Lease, LeaseLost> =>
  Effect.flatMap(Effect.all([ClaimRef, LockKey.Tenant]), ([from, tenant]) => {
    for (let claim = from; claim !== undefined; claim = claim.parent) {
      const { hold } = claim
      if (claim.over || hold.state === "released") continue
      const key = resolveKey(input, hold.core.settings, tenant)
      const index = key instanceof InvalidKey ? -1 : hold.keys.findIndex((_) => _.id === key.id)
      if (index < 0) continue
      return hold.state === "lost" ? Effect.fail(leaseLost(hold)) : Effect.succeed(claim.leases[index]!)
    }
    return Effect.dieMessage("Lease.assertHeld: this code must run under its lock, and does not")
  })
