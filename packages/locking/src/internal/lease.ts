/**
 * The public face of a hold, for one of its keys.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { NodeInspectSymbol } from "effect/Inspectable"
import { type Lease, TypeId } from "../Lease.js"
import * as claims from "./claims.js"
import { withFiber } from "./compat.js"
import type { Hold } from "./core.js"
import * as grants from "./grants.js"
import * as holds from "./hold.js"
import * as release from "./release.js"
import * as section from "./section.js"
import * as shutdown from "./shutdown.js"

class LeaseImpl implements Lease<any> {
  readonly [TypeId]: TypeId = TypeId

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
    return grants.renewNow(this.hold)
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
      const claim: claims.Claim = { parent: claims.of(fiber), hold, leases: leasesOf(hold), over: false }
      return Effect.ensuring(
        Effect.provideService(effect, claims.ClaimRef, claim),
        Effect.sync(() => {
          claim.over = true
        })
      )
    })
  }
  [NodeInspectSymbol]() {
    return this.toJSON()
  }
  toJSON() {
    return { _id: "Lease", backend: this.backend, mode: this.mode, fence: String(this.fence) }
  }
}

/** One lease per key, in canonical order. */
export const leasesOf = (hold: Hold): ReadonlyArray<Lease> => hold.keys.map((_, index) => new LeaseImpl(hold, index))

/** When it may no longer be believed: monotonic milliseconds, -Infinity when it is over. */
export const unsafeValidUntil = (lease: Lease): number => holds.validUntil((lease as LeaseImpl).hold)
