/**
 * From what the store granted to what this process owns.
 */
import * as Duration from "effect/Duration"
import type { Grant } from "../LockDriver.js"
import type { Core, HeldGrant, KeyRecord, Request } from "./core.js"
import { Fifo } from "./pure/fifo.js"
import * as trust from "./pure/trust.js"
import * as renewal from "./renewal.js"

export const adopt = (
  core: Core,
  grant: Grant,
  attemptStart: number,
  request: Request,
  owned: ReadonlyArray<KeyRecord>,
  now: number,
  unansweredUntil: number
): HeldGrant => {
  const ttl = Duration.toMillis(grant.ttl)
  const held: HeldGrant = {
    grant,
    mode: grant.mode,
    ttl,
    call: request.call,
    records: owned,
    holds: new Fifo(),
    trust: trust.granted(attemptStart, ttl),
    fencesUsed: 0,
    handovers: 0,
    handoversSince: now,
    yielding: false,
    confirmations: 0,
    renewal: undefined,
    trustDeadline: undefined,
    renewDeadline: undefined,
    unansweredUntil,
    giveBack: false
  }
  for (const record of owned) {
    record.contender = undefined
    record.grants.push(held)
  }
  if (ttl !== Infinity) {
    renewal.watch(core, held)
    renewal.schedule(core, held)
  }
  return held
}
