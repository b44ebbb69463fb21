import type { Capabilities } from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import type { DriverUnderTest } from "../../LockDriverSuite.js"
import type { Need } from "./world.js"

/** Why a case cannot be run over a driver; nothing when it can. */
export const missing = (
  needs: ReadonlyArray<Need>,
  { faults = {}, storeView = {} }: DriverUnderTest,
  capabilities: Capabilities
): string | undefined => {
  const has: Record<Need, boolean> = {
    "shared mode": capabilities.modes.includes("shared"),
    push: capabilities.push,
    "expiry by the server": capabilities.expiry === "server",
    "expiry by the session": capabilities.expiry === "session",
    "an end of grants": capabilities.expiry !== "none",
    "leases without end": capabilities.ttl.infinite,
    "a shortest ttl": Duration.greaterThan(capabilities.ttl.min, Duration.millis(1)),
    "storeView.grants": storeView.grants !== undefined,
    "storeView.interests": storeView.interests !== undefined,
    "faults.dropConnections": faults.dropConnections !== undefined,
    "faults.loseNextReply": faults.loseNextReply !== undefined,
    "faults.stall": faults.stall !== undefined,
    "faults.restart": faults.restart !== undefined
  }
  const lacking = needs.filter((need) => !has[need])
  return lacking.length === 0 ? undefined : `has no ${lacking.join(", ")}`
}
