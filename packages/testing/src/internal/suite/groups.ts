/** All cases, in the order in which they run. */
import { capabilities } from "./cases/capabilities.js"
import { faults } from "./cases/faults.js"
import { fences } from "./cases/fences.js"
import { grants } from "./cases/grants.js"
import { inspection } from "./cases/inspection.js"
import { interruption } from "./cases/interruption.js"
import { keys } from "./cases/keys.js"
import { leases } from "./cases/leases.js"
import { limits } from "./cases/limits.js"
import { sharedModes } from "./cases/modes.js"
import { order } from "./cases/order.js"
import { permits } from "./cases/permits.js"
import { releases } from "./cases/release.js"
import { shutdown } from "./cases/shutdown.js"
import { waiting } from "./cases/waiting.js"
import type { Group } from "./world.js"

export const groups: ReadonlyArray<Group> = [
  capabilities,
  grants,
  sharedModes,
  waiting,
  order,
  permits,
  leases,
  fences,
  limits,
  interruption,
  releases,
  inspection,
  keys,
  faults,
  shutdown
]
