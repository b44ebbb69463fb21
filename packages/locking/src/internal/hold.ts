/**
 * The life of a hold: opened on a grant, perhaps lost, closed once.
 */
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { LeaseLostReason } from "../LockError.js"
import { deferred, deferredDone, interrupted } from "./compat.js"
import { type Core, type HeldGrant, Hold, type Joined, type Request } from "./core.js"
import { trustedUntil } from "./pure/trust.js"
import { about, keyHash, leaseLost, logNow, readable } from "./report.js"

/** How long a section may take to end after its loss before somebody is told that it still runs. */
const overrunPatience = 1000

const fencesFor = (held: HeldGrant, request: Request, joined: Joined | undefined): ReadonlyArray<bigint> => {
  if (joined !== undefined) {
    const { fences, keys } = joined.hold
    return request.keys.map((key) => fences[keys.findIndex((_) => _.id === key.id)]!)
  }
  // a reader's number is for diagnosis, so readers beyond the block share its first one
  const offset = held.fencesUsed < held.grant.block ? held.fencesUsed++ : 0
  return offset === 0 ? held.grant.fences : held.grant.fences.map((fence) => fence + BigInt(offset))
}

export const open = (
  core: Core,
  held: HeldGrant,
  request: Request,
  now: number,
  joined?: Joined | undefined
): Hold => {
  const { call } = request
  // one that is not renewed ends with the trust it came with, or counts its own time beside readers who are renewed
  const ownEnd = call.autoRenew || joined !== undefined || held.trust._tag !== "Held"
    ? Infinity
    : held.fencesUsed === 0
    ? held.trust.until
    : trustedUntil(now, call.ttl)
  const hold = new Hold(
    core,
    held,
    request,
    fencesFor(held, request, joined),
    now,
    core.timer.wallNow(),
    Math.min(ownEnd, now + call.maxHold),
    joined
  )
  hold.placeInGrant = held.holds.push(hold)
  hold.place = core.holds.push(hold)
  if (hold.endsAt !== Infinity) endAt(hold)
  if (core.settings.holdWarning !== Infinity) {
    hold.warningDeadline = core.timer.add(now + core.settings.holdWarning, () => warn(hold))
  }
  core.instruments.acquired.granted(1)
  core.instruments.wait(hold.waited / 1000)
  core.instruments.leases(core.holds.size)
  core.events.emit(() => ({
    _tag: "Granted",
    keyHash: keyHash(hold),
    mode: held.mode,
    fence: hold.fences[0]!,
    waited: Duration.millis(hold.waited)
  }))
  return hold
}

const endAt = (hold: Hold): void => {
  hold.endDeadline = hold.core.timer.add(
    hold.endsAt,
    () => lose(hold, hold.endsAt === hold.grantedAt + hold.call.maxHold ? "max-hold" : "expired")
  )
}

/** One that is not renewed in the background was renewed by hand. */
export const extend = (hold: Hold, until: number): void => {
  if (hold.call.autoRenew || hold.state !== "held" || hold.joined !== undefined) return
  if (hold.core.timer.now() >= hold.endsAt) return lose(hold, "expired")
  hold.core.timer.cancel(hold.endDeadline)
  hold.endsAt = Math.min(Math.max(hold.endsAt, until), hold.grantedAt + hold.call.maxHold)
  endAt(hold)
}

const warn = (hold: Hold): void => {
  const { core } = hold
  const millis = core.timer.now() - hold.grantedAt
  const held = Duration.millis(millis)
  core.instruments.longHold(1)
  core.events.emit(() => ({ _tag: "LongHold", keyHash: keyHash(hold), fence: hold.fences[0]!, held }))
  logNow(core, "Warning", "LOCK_LONG_HOLD", `A lock is held for ${readable(millis)}`, about(core, hold))
}

const settleDeadlines = (hold: Hold): void => {
  hold.core.timer.cancel(hold.endDeadline)
  hold.core.timer.cancel(hold.warningDeadline)
}

/** The holder may not believe it any more: everything that runs under it is told. The grant is not touched. */
export const lose = (hold: Hold, reason: LeaseLostReason): void => {
  if (hold.state !== "held") return
  const { core } = hold
  hold.state = "lost"
  hold.reason = reason
  hold.lostAt = core.timer.now()
  // a layer that closes keeps the lock under what still runs
  hold.endedAt = reason === "closed" ? Infinity : hold.lostAt
  settleDeadlines(hold)
  core.instruments.lost[reason](1)
  core.events.emit(() => ({ _tag: "Lost", keyHash: keyHash(hold), fence: hold.fences[0]!, reason }))
  if (hold.lostSignal !== undefined) deferredDone(hold.lostSignal, Exit.fail(leaseLost(hold)))
  for (const tell of hold.sections) tell()
  loseJoined(hold, reason)
  if (reason !== "closed") {
    logNow(core, "Warning", "LEASE_LOST", `A lease was lost: ${reason}`, {
      ...about(core, hold),
      reason
    })
  }
  if (hold.sections.length > 0 && reason !== "closed") {
    hold.warningDeadline = core.timer.add(hold.lostAt + overrunPatience, () => overran(hold, false))
  }
}

/** A section went on after the loss of its lease. */
export const overran = (hold: Hold, ended: boolean): void => {
  const { core } = hold
  const millis = core.timer.now() - hold.endedAt
  const overrun = Duration.millis(millis)
  core.instruments.overran(ended ? 1 : 0)
  core.events.emit(() => ({ _tag: "Overrun", keyHash: keyHash(hold), fence: hold.fences[0]!, overrun, ended }))
  logNow(
    core,
    "Warning",
    "LEASE_OVERRUN",
    ended
      ? `A section ended ${readable(millis)} after its lease`
      : `A section still runs although its lease ended ${readable(millis)} ago`,
    about(core, hold)
  )
}

/** Takes the hold off its grant. Whether it was still held. */
export const close = (hold: Hold, now: number): boolean => {
  const { core, held } = hold
  hold.isClosed = true
  settleDeadlines(hold)
  held.holds.remove(hold.placeInGrant)
  core.holds.remove(hold.place)
  core.instruments.leases(core.holds.size)
  core.instruments.hold((now - hold.grantedAt) / 1000)
  const wasHeld = hold.state === "held"
  if (wasHeld) {
    hold.state = "released"
    if (hold.lostSignal !== undefined) deferredDone(hold.lostSignal, interrupted)
    core.events.emit(() => ({
      _tag: "Released",
      keyHash: keyHash(hold),
      fence: hold.fences[0]!,
      held: Duration.millis(now - hold.grantedAt)
    }))
  }
  // what joined it by re-entry and outlives it is on its own
  if (held.holds.size > 0) loseJoined(hold, "closed")
  return wasHeld
}

const loseJoined = (hold: Hold, reason: LeaseLostReason): void => {
  for (const other of hold.held.holds) if (other.joined?.hold === hold) lose(other, reason)
}

/** Fails once lost, interrupted once released. */
export const awaitLoss = (hold: Hold): Effect.Effect<never, ReturnType<typeof leaseLost>> =>
  Effect.suspend(() => {
    if (hold.state === "lost") return Effect.fail(leaseLost(hold))
    if (hold.state === "released") return Effect.interrupt
    hold.lostSignal ??= deferred()
    return Deferred.await(hold.lostSignal)
  })

/** When it may no longer be believed, in monotonic milliseconds. */
export const validUntil = (hold: Hold): number =>
  hold.state !== "held" || hold.held.trust._tag !== "Held" ? -Infinity : Math.min(hold.held.trust.until, hold.endsAt)
