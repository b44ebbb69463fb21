import type { LockDriver } from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import type { DriverUnderTest } from "../../LockDriverSuite.js"
import type { Need } from "./world.js"

/** Why a case cannot be run over a driver; nothing when it can. */
export const missing = (
  needs: ReadonlyArray<Need>,
  { faults = {}, storeView = {} }: DriverUnderTest,
  { capabilities, offer }: LockDriver
): string | undefined => {
  const ways: Record<Need, readonly [has: boolean, otherwise: string]> = {
    "shared mode": [capabilities.modes.includes("shared"), "it has no shared mode"],
    fair: [capabilities.fair, "it keeps no order across processes"],
    permits: [capabilities.permits === true, "it counts no permits"],
    offers: [offer !== undefined, "it offers nothing"],
    push: [capabilities.push, "it does not push"],
    "expiry by the server": [capabilities.expiry === "server", "its store ends no grant by its ttl"],
    "expiry by the session": [capabilities.expiry === "session", "its grants do not end with a session"],
    "an end of grants": [capabilities.expiry !== "none", "its grants have no end"],
    "leases without end": [capabilities.ttl.infinite, "it has no grants without end"],
    "a shortest ttl": [Duration.greaterThan(capabilities.ttl.min, Duration.millis(1)), "no ttl is too short for it"],
    ...ofOption("storeView.grants", storeView.grants),
    ...ofOption("storeView.interests", storeView.interests),
    ...ofOption("faults.dropConnections", faults.dropConnections),
    ...ofOption("faults.loseNextReply", faults.loseNextReply),
    ...ofOption("faults.stall", faults.stall),
    ...ofOption("faults.restart", faults.restart)
  }
  const lacking = needs.map((need) => ways[need]).filter(([has]) => !has)
  return lacking.length === 0 ? undefined : lacking.map(([, otherwise]) => otherwise).join(", ")
}

const ofOption = <Name extends Need>(name: Name, value: unknown) =>
  ({ [name]: [value !== undefined, `there is no \`${name}\``] }) as unknown as Record<Name, readonly [boolean, string]>
