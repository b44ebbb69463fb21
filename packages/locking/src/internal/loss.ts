/**
 * The end of a grant that nobody gave up: by the clock, by a refused renewal, by the driver's own word.
 */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type { LossReason } from "../LockDriver.js"
import type { LeaseLostReason } from "../LockError.js"
import { type Core, grantsOf, type HeldGrant, noteIdle } from "./core.js"
import { abandon } from "./giveback.js"
import * as holds from "./hold.js"
import * as trust from "./pure/trust.js"
import * as records from "./record.js"

/** The process does not own it any more, as far as it may believe. */
export const lose = (core: Core, held: HeldGrant, reason: LeaseLostReason): void => {
  if (held.trust._tag !== "Held") return
  held.trust = trust.lost
  detach(core, held)
  for (const hold of held.holds) holds.lose(hold, reason)
  const byOwnClock = reason === "unconfirmed" || reason === "expired"
  // a session's lock does not end by itself: unlocking it now is what makes the lease end
  if (byOwnClock && core.driver.capabilities.expiry === "session") abandon(core, held.grant, 0, Infinity)
  // the store may keep what was not confirmed, and the other keys of which one was lost
  else held.giveBack = reason === "unconfirmed" || (held.grant.keys.length > 1 && reason !== "session-ended")
  for (const record of held.records) records.settle(core, record)
  noteIdle(core)
}

/** Takes the grant out of the books, before its release or after its loss. */
export const detach = (core: Core, held: HeldGrant): void => {
  core.timer.cancel(held.trustDeadline)
  core.timer.cancel(held.renewDeadline)
  for (const { grants } of held.records) {
    const index = grants.indexOf(held)
    if (index >= 0) grants.splice(index, 1)
  }
}

/** Grants that the driver itself knows to be lost. */
export const listen = (core: Core): Effect.Effect<void> =>
  Effect.forever(Effect.map(Queue.take(core.driver.losses), ({ reason, token }) => {
    const lost = grantsOf(core).filter(({ grant }) => grant.token === token)
    for (const held of lost) lose(core, held, reason)
    if (lost.length === 0) remember(core, token, reason)
  }))

/** So many answers may be overtaken by the word that what they grant is lost. */
const mostRemembered = 64

const remember = (core: Core, token: string, reason: LossReason): void => {
  core.earlyLosses.set(token, reason)
  if (core.earlyLosses.size > mostRemembered) core.earlyLosses.delete(core.earlyLosses.keys().next().value!)
}

/** Of a grant that is adopted now, the driver may have told the loss before its answer was heard. */
export const meet = (core: Core, held: HeldGrant): void => {
  const reason = core.earlyLosses.get(held.grant.token)
  if (reason === undefined) return
  core.earlyLosses.delete(held.grant.token)
  lose(core, held, reason)
}
