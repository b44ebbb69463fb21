/**
 * From what the store granted to what this process owns.
 */
import * as Duration from "effect/Duration"
import type { Grant } from "../LockDriver.js"
import { type Core, HeldGrant, type KeyRecord, type Request } from "./core.js"
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
  const held = new HeldGrant(
    grant,
    ttl,
    request.call,
    owned,
    trust.granted(attemptStart, ttl),
    now,
    unansweredUntil
  )
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

/** What the contract of drivers asks of a grant. */
export const hasFences = ({ fences, keys }: Grant): boolean =>
  fences.length === keys.length && fences.every((fence) => typeof fence === "bigint" && fence > 0n)
