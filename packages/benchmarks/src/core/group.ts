/**
 * What needs nothing but the library itself.
 */
import type { Group } from "../figure.js"
import { draining } from "./drain.js"
import { handover } from "./handover.js"
import { importing } from "./importing.js"
import { renewals } from "./renewals.js"
import { uncontended } from "./uncontended.js"

export const core: Group = { uncontended, drain: draining, handover, importing, renewals }
