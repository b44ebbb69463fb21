/**
 * What needs a Redis server, which is started for it and thrown away.
 */
import type { Group } from "../figure.js"
import { held } from "./held.js"
import { joined, uncontended, waiting } from "./pairs.js"
import { contended, handoff } from "./processes.js"

export const redis: Group = { pair: uncontended, joined, waiting, contended, handoff, held }
