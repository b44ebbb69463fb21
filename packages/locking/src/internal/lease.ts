/**
 * The public face of a hold, for one of its keys.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Lease } from "../Lease.js"
import { InvalidKey, type LeaseLost } from "../LockError.js"
import * as LockKey from "../LockKey.js"
import * as claims from "./claims.js"
import { withFiber } from "./compat.js"
import type { Hold } from "./core.js"
import * as holds from "./hold.js"
import { resolveKey } from "./keys.js"
import * as release from "./release.js"
import { renewNow } from "./renewal.js"
import { leaseLost } from "./report.js"
import * as section from "./section.js"
import * as shutdown from "./shutdown.js"

export const TypeId = "~effect-locking/Lease"

const inspect = Symbol.for("nodejs.util.inspect.custom")

class LeaseImpl implements Lease<any> {
  readonly [TypeId] = TypeId

  constructor(readonly hold: Hold, readonly index: number) {}

  get key() {
    return this.hold.keys[this.index]!.key
  }
  get mode() {
    return this.hold.held.mode
  }
  get backend() {
    return this.hold.core.settings.backend
  }
  get fence(): any {
    return this.hold.fences[this.index]
  }
  get ttl() {
    return Duration.millis(Math.min(this.hold.held.ttl, this.hold.call.ttl))
  }
  get acquiredAt() {
    return this.hold.acquiredAt
  }
  get waited() {
    return Duration.millis(this.hold.waited)
  }
  get isValid(): Effect.Effect<boolean> {
    return Effect.sync(() => this.hold.core.timer.now() < unsafeValidUntil(this))
  }
  get remaining(): Effect.Effect<Duration.Duration> {
    return Effect.sync(() => Duration.millis(Math.max(0, unsafeValidUntil(this) - this.hold.core.timer.now())))
  }
  get renew() {
    return renewNow(this.hold)
  }
  get release() {
    return Effect.uninterruptible(release.end(this.hold))
  }
  get lost() {
    return holds.awaitLoss(this.hold)
  }
  guard<A, E, R>(effect: Effect.Effect<A, E, R>) {
    const { hold } = this
    return Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(section.run(hold, effect, restore), (exit) => {
        shutdown.giveBackIfUnused(hold.core, hold)
        return exit
      })
    )
  }
  provide<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return withFiber((fiber) => {
      const { hold } = this
      const claim = new claims.Claim(claims.of(fiber), hold)
      return Effect.ensuring(
        Effect.provideService(effect, claims.ClaimRef, claim),
        Effect.sync(() => {
          claim.hold = undefined
        })
      )
    })
  }
  [inspect]() {
    return this.toJSON()
  }
  toJSON() {
    return { _id: "Lease", backend: this.backend, mode: this.mode, fence: String(this.fence) }
  }
}

/** One lease per key, in canonical order. */
export const leasesOf = (hold: Hold): ReadonlyArray<Lease<any>> => hold.keys.map((_, index) => leaseOf(hold, index))

export const leaseOf = (hold: Hold, index: number): Lease<any> => new LeaseImpl(hold, index)

/** When it may no longer be believed: monotonic milliseconds, -Infinity when it is over. */
export const unsafeValidUntil = (lease: Lease): number => holds.validUntil((lease as LeaseImpl).hold)

/** The lease of the innermost claim that is not given back. */
export const current: Effect.Effect<Option.Option<Lease>> = Effect.map(claims.ClaimRef, (from) => {
  for (let claim = from; claim !== undefined; claim = claim.parent) {
    if (claim.hold !== undefined && claim.hold.state !== "released") {
      return Option.some(leaseOf(claim.hold, claim.hold.keys.length - 1))
    }
  }
  return Option.none()
})

/** The lease of a key, for code that must run under it. */
export const assertHeld = (input: LockKey.Input): Effect.Effect<Lease, LeaseLost> =>
  Effect.flatMap(Effect.all([claims.ClaimRef, LockKey.Tenant]), ([from, tenant]) => {
    for (let claim = from; claim !== undefined; claim = claim.parent) {
      const { hold } = claim
      if (hold === undefined || hold.state === "released") continue
      const key = resolveKey(input, hold.core.settings, tenant)
      const index = key instanceof InvalidKey ? -1 : hold.keys.findIndex((_) => _.id === key.id)
      if (index < 0) continue
      return hold.state === "lost" ? Effect.fail(leaseLost(hold)) : Effect.succeed(leaseOf(hold, index))
    }
    return Effect.die(new Error("Lease.assertHeld: this code must run under its lock, and does not"))
  })
