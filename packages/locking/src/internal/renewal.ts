/**
 * Renewals confirm; they never take a lost grant back. All grants of the layer that are due go to the store together.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { Renewal } from "../LockDriver.js"
import type { LeaseLost } from "../LockError.js"
import * as calls from "./calls.js"
import { fromCallback, zipRight } from "./compat.js"
import { type Core, grantsOf, type HeldGrant, type Hold, type RenewalUnderWay } from "./core.js"
import * as holds from "./hold.js"
import { lose } from "./loss.js"
import { sometimes } from "./probes.js"
import * as trust from "./pure/trust.js"
import * as records from "./record.js"
import { about, leaseLost, logNow } from "./report.js"
import * as tracing from "./tracing.js"

/** How often the log repeats that renewals get no answer. */
const troubleEvery = 10_000

/** The clock runs beside everything else: it alone ends a lease whose renewals hang. */
export const watch = (core: Core, held: HeldGrant): void => {
  if (held.trust._tag !== "Held") return
  held.trustDeadline = core.timer.add(held.trust.until, () => {
    if (held.trust._tag !== "Held") return
    if (held.trust.until > core.timer.now()) return watch(core, held)
    runOut(core, held)
  })
}

const runOut = (core: Core, held: HeldGrant): void => {
  sometimes("local deadline passed")
  lose(core, held, wantsRenewal(held) ? "unconfirmed" : "expired")
}

const wantsRenewal = (held: HeldGrant): boolean => {
  // readers who are not renewed end by their own clock, beside others who are
  for (const hold of held.holds) {
    // and what a closing layer waits for keeps its lock
    const isRunning = hold.state === "held" || hold.reason === "closed"
    if (isRunning && hold.joined === undefined && (hold.call.autoRenew || held.mode === "shared")) return true
  }
  return false
}

export const schedule = (core: Core, held: HeldGrant): void => {
  if (core.isOver || held.trust._tag !== "Held" || held.trust.renewAt === Infinity) return
  core.timer.cancel(held.renewDeadline)
  held.renewDeadline = core.timer.add(held.trust.renewAt, () => renewDue(core))
}

/** The grants that are due now or soon go to the store together, and so come due together from then on. */
const renewDue = (core: Core): void => {
  const now = core.timer.now()
  const batch: Array<HeldGrant> = []
  for (const held of grantsOf(core)) {
    if (held.trust._tag !== "Held" || held.renewal !== undefined) continue
    if (held.trust.renewAt > now + held.ttl / 12) continue
    if (wantsRenewal(held)) batch.push(held)
  }
  renewTogether(core, batch)
}

/** What gives its attempts more or less time goes by itself, so that it costs nobody else a lease. */
const renewTogether = (core: Core, all: ReadonlyArray<HeldGrant>): void => {
  const batches = new Map<number, Array<HeldGrant>>()
  for (const held of all) {
    const batch = batches.get(held.call.attemptTimeout)
    if (batch === undefined) batches.set(held.call.attemptTimeout, [held])
    else batch.push(held)
  }
  for (const batch of batches.values()) core.fork(renew(core, batch))
}

/** Confirms grants of one attempt timeout; never takes one back. Ends within it. */
const renew = (core: Core, batch: ReadonlyArray<HeldGrant>): Effect.Effect<void> =>
  Effect.uninterruptible(Effect.suspend(() => {
    const start = core.timer.now()
    const limit = batch[0]!.call.attemptTimeout
    const underWay: RenewalUnderWay = { onDone: [] }
    for (const held of batch) {
      core.timer.cancel(held.renewDeadline)
      held.renewal = underWay
    }
    const call = () => core.driver.renew(batch.map((held) => held.grant))
    const asked = calls.ask(core, call, start + limit, calls.noRestore)
    return Effect.flatMap(
      tracing.renewing(core, batch[0]!.grant, asked),
      (exit) =>
        Effect.map(core.random.next, (jitter) => {
          const answers = exit !== undefined && Exit.isSuccess(exit) && Array.isArray(exit.value) ? exit.value : []
          const answerTo = (i: number): Renewal => answers[i] ?? { _tag: "Unknown" }
          batch.forEach((held, i) => {
            held.renewal = undefined
            answered(core, held, start, answerTo(i), jitter)
          })
          trouble(core, batch.filter((_, i) => answerTo(i)._tag === "Unknown"))
          for (const tell of underWay.onDone) tell()
        })
    )
  }))

const answered = (core: Core, held: HeldGrant, start: number, answer: Renewal, jitter: number): void => {
  if (held.trust._tag !== "Held") return
  // what was not valid for a moment does not come back
  if (core.timer.now() >= held.trust.until) return runOut(core, held)
  switch (answer._tag) {
    case "Confirmed":
      core.instruments.renewed.confirmed(1)
      held.confirmations++
      held.trust = trust.confirmed(held.trust, start, held.ttl)
      schedule(core, held)
      held.yielding = held.mode === "shared" && answer.contended
      if (answer.contended) return
      held.handovers = 0
      held.handoversSince = core.timer.now()
      for (const record of held.records) records.settle(core, record)
      return
    case "Lost":
      core.instruments.renewed.lost(1)
      sometimes("renewal refused")
      return lose(core, held, answer.reason)
    default:
      core.instruments.renewed.unknown(1)
      sometimes("renewal unanswered, retried")
      held.trust = trust.unanswered(held.trust, core.timer.now(), jitter)
      return schedule(core, held)
  }
}

const trouble = (core: Core, unanswered: ReadonlyArray<HeldGrant>): void => {
  const now = core.timer.now()
  const [first] = unanswered
  if (first !== undefined) {
    if (now < core.renewalTrouble) return
    core.renewalTrouble = now + troubleEvery
    core.events.emit(() => ({ _tag: "RenewalFailed", grants: unanswered.length }))
    logNow(core, "Warning", "RENEWAL_FAILED", "Renewals were not answered; trying again", {
      ...about(core, first.grant),
      locks: unanswered.length
    })
  } else if (core.renewalTrouble > 0) {
    core.renewalTrouble = 0
    core.events.emit(() => ({ _tag: "Recovered" }))
    logNow(core, "Info", "RENEWAL_RECOVERED", "Renewals are answered again", { session: core.settings.session })
  }
}

/** Every lease is confirmed at once: somebody moved the wall clock, and servers may have seen it too. */
export const renewAll = (core: Core): void => {
  renewTogether(
    core,
    grantsOf(core).filter((held) => held.ttl !== Infinity && held.renewal === undefined && wantsRenewal(held))
  )
}

/** Ends when the renewal that is on its way is in the books. */
export const renewalEnded = (held: HeldGrant): Effect.Effect<void> =>
  fromCallback((resume) => {
    const { renewal } = held
    if (renewal === undefined) resume(Effect.void)
    else renewal.onDone.push(() => resume(Effect.void))
  })

/**
 * Renews one grant now, in a fiber of the layer: an interrupted caller must not leave a renewal that nobody finishes.
 */
const renewOne = (core: Core, held: HeldGrant): Effect.Effect<void> =>
  fromCallback((resume) => core.fork(renew(core, [held])).addObserver(() => resume(Effect.void)))

/** Asks the store whether others wait, so that `yielding` can be believed. No answer counts as yes. */
export const confirm = (core: Core, held: HeldGrant): Effect.Effect<void> =>
  Effect.suspend(() => {
    const confirmations = held.confirmations
    return Effect.map(held.renewal === undefined ? renewOne(core, held) : renewalEnded(held), () => {
      if (held.confirmations === confirmations) held.yielding = true
    })
  })

/** Asks the store until it answers or the lease is lost. */
export const renewNow = (hold: Hold): Effect.Effect<void, LeaseLost> =>
  Effect.suspend(() => {
    const { core, held } = hold
    if (hold.state !== "held") return Effect.fail(leaseLost(hold))
    if (held.renewal !== undefined) return zipRight(renewalEnded(held), renewNow(hold))
    const start = core.timer.now()
    const confirmations = held.confirmations
    return Effect.flatMap(renewOne(core, held), () => {
      if (hold.state !== "held") return Effect.fail(leaseLost(hold))
      if (held.confirmations === confirmations) return zipRight(Effect.sleep(100), renewNow(hold))
      holds.extend(hold, trust.trustedUntil(start, hold.call.ttl))
      return Effect.void
    })
  })
