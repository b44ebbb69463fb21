/**
 * The end of a hold: its grant goes to the next one here, or back to the store.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { DriverError, Grant, Released } from "../LockDriver.js"
import * as calls from "./calls.js"
import { zipRight } from "./compat.js"
import { Activity, begin, type Core, finish, type HeldGrant, type Hold, noteIdle } from "./core.js"
import { abandon } from "./giveback.js"
import { adopt, hasFences } from "./grant.js"
import * as holds from "./hold.js"
import { detach, lose, meet } from "./loss.js"
import { sometimes } from "./probes.js"
import * as trust from "./pure/trust.js"
import * as records from "./record.js"
import { renewalEnded } from "./renewal.js"
import { about, keyHash, logNow } from "./report.js"

/**
 * Ends a hold, after everything that ran under it has ended. Answers whether this call gave it up. Cannot fail, and
 * takes no longer than one attempt, whatever the store does; what it could not give back goes on in the background. To be
 * run in an uninterruptible region.
 */
export const end = (hold: Hold): Effect.Effect<boolean> =>
  Effect.suspend(() => {
    if (hold.isClosed) return Effect.succeed(false)
    const { core, held } = hold
    const now = core.timer.now()
    const gaveUp = holds.close(hold, now)
    if (hold.joined !== undefined) records.stepDown(core, hold.joined.turns, hold.joined.request)
    if (held.holds.size === 0 && held.trust._tag === "Held") {
      if (!trust.isTrusted(held.trust, now)) lose(core, held, "expired")
      else if (held.grant.keys.length > 1 || !records.handOver(core, held)) return giveBack(core, held, gaveUp, now)
    } else if (held.holds.size === 0 && held.giveBack) {
      abandon(core, held.grant, held.unansweredUntil, now + held.ttl)
    }
    noteIdle(core)
    return Effect.succeed(gaveUp)
  })

/**
 * Back to the store, which may leave it here for the first in line. Ends with the answer that it was given.
 */
const giveBack = <A>(core: Core, held: HeldGrant, answer: A, now: number): Effect.Effect<A> => {
  const { driver } = core
  const limit = held.call.attemptTimeout
  const isOffered = driver.offer !== undefined && held.mode === "exclusive" && held.grant.keys.length === 1 &&
    records.heirOf(held) !== undefined
  const lapsesAt = isOffered
    ? now + limit + held.ttl
    : held.trust._tag === "Held"
    ? held.trust.until + trust.margin(held.ttl)
    : now
  const joiner = new calls.Joiner()
  const activity = new Activity("background", () => {}, () => joiner.resume?.())
  begin(core, activity)
  held.trust = trust.released
  detach(core, held)
  for (const record of held.records) record.releasing++
  const tell = <S>(call: () => Effect.Effect<S, DriverError>) =>
    calls.ask(
      core,
      // a release and a renewal never cross
      held.renewal === undefined ? call : () => zipRight(renewalEnded(held), Effect.suspend(call)),
      now + limit,
      calls.noRestore,
      joiner
    )
  const end = (said: Released | undefined): A => {
    released(core, held, said, lapsesAt)
    finish(core, activity)
    return answer
  }
  const release = Effect.map(tell(() => driver.release(held.grant)), (exit) => end(saidBy(exit)))
  if (!isOffered) return release
  return Effect.flatMap(tell(() => driver.offer!(held.grant)), (exit) => {
    const said = saidBy(exit)
    if (!isGrant(said)) return Effect.succeed(end(said))
    if (!passOn(core, held, said, now)) {
      sometimes("offer answered after the heir had left")
      return release
    }
    finish(core, activity)
    return Effect.succeed(answer)
  })
}

const saidBy = <S>(exit: Exit.Exit<S, unknown> | undefined): S | undefined =>
  exit !== undefined && Exit.isSuccess(exit) ? exit.value : undefined

const isGrant = (said: Grant | Released | undefined): said is Grant =>
  typeof said === "object" && said?._tag === "Grant"

/** Nobody waits elsewhere: the first in line here has what the store granted anew. */
const passOn = (core: Core, held: HeldGrant, grant: Grant, start: number): boolean => {
  const heir = records.heirOf(held)
  const now = core.timer.now()
  const isUsable = hasFences(grant) && trust.isTrusted(trust.granted(start, Duration.toMillis(grant.ttl)), now)
  if (core.closed || heir === undefined || !isUsable) return false
  sometimes("offered to nobody")
  for (const record of held.records) record.releasing--
  const next = adopt(core, grant, start, heir.request, held.records, now, held.unansweredUntil)
  records.inherit(core, heir, holds.open(core, next, heir.request, now))
  meet(core, next)
  return true
}

const released = (
  core: Core,
  held: HeldGrant,
  answer: Released | undefined,
  lapsesAt: number
): void => {
  if (answer === undefined) {
    sometimes("release outcome unknown")
    core.instruments.releaseFailed(1)
    core.events.emit(() => ({ _tag: "ReleaseFailed", keyHash: keyHash(held.grant) }))
    logNow(
      core,
      "Warning",
      "RELEASE_UNANSWERED",
      "A release was not answered; it is repeated in the background",
      about(core, held.grant)
    )
    abandon(core, held.grant, held.unansweredUntil, lapsesAt)
  } else if (held.unansweredUntil > core.timer.now()) {
    // an attempt that nobody answered may still act, and would grant to a holder who is gone
    abandon(core, held.grant, held.unansweredUntil, held.unansweredUntil + held.ttl)
  }
  if (answer === "gone" || answer === "lapsed") {
    logNow(
      core,
      "Warning",
      "RELEASE_LATE",
      "The store had given up a lock before its section ended",
      about(core, held.grant)
    )
  }
  // of several keys nobody says which one they wait for
  const othersWait = answer === "woke" && held.grant.keys.length === 1
  for (const record of held.records) {
    record.releasing--
    records.settle(core, record, othersWait)
  }
}
