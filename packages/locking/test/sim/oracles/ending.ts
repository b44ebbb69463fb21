import * as Cause from "effect/Cause"
import * as Exit from "effect/Exit"
import type { Facts, GrantRecord, Holding, Run } from "../facts.js"
import type { Oracle, Violate } from "../oracle.js"
import { describe, failureTag, isInterruption } from "../outcome.js"
import { isCalm } from "../plan.js"

/** Whether the loss of this lease interrupts what runs under it. */
const isGuarded = ({ gaveBack, operation }: Run): boolean =>
  operation.api !== "acquire" && operation.api !== "tryAcquire" && !gaveBack

/** I8: a lease is given back when its section is over with its finalizers, not before; and then it is given back. */
export const release = (facts: Facts, violate: Violate): Oracle => {
  const { plan, store } = facts
  const givenUp: Oracle["released"] = (process, claim) => {
    for (const { grant, invalid, name, run } of facts.holdings) {
      if (grant?.token !== claim.token || run.node.process !== process || run.gaveBack) continue
      // closing does not wait for ever
      if (invalid === undefined && run.node.state === "up" && run.phase === "holding" && run.section !== "left") {
        violate(`${name} was given back while its section went on`)
      }
    }
  }
  return {
    released: givenUp,
    offered: givenUp,
    idle: () => {
      for (const key of facts.grants.keys()) {
        for (const grant of facts.grantsOf(key)) {
          // when a row ends cannot be told by a clock that jumps
          if (grant.process?.dead || plan.profile === "clock") continue
          if (grant.ended === undefined) violate(`${key} is still held by ${grant.token} after everything is over`)
          else if (grant.ended.by === "time" && isQuiet(facts) && !mayLapse(facts, grant)) {
            violate(`${key} was not given back by ${grant.token}: it lapsed`)
          }
        }
      }
      if (isCalm(plan.profile) && store.sizes().rows > 0) violate(`${store.sizes().rows} rows are left`)
    }
  }
}

/** Every message arrived in time and nobody died: what is left behind is a leak. */
const isQuiet = ({ network, nodes, plan }: Facts): boolean =>
  network.lost === 0 && network.duplicated === 0 && plan.faults.reset === 0 && plan.faults.late === 0 &&
  nodes.every((node) => !node.process.dead) && (plan.script === undefined || isCalm(plan.profile)) &&
  (isCalm(plan.profile) || plan.profile === "lossy" || plan.profile === "chaos") &&
  plan.chaos.every((event) => event.kind === "force release")

/** Whoever held it may have had it end by its own clock, which leaves the row to its ttl. */
const mayLapse = ({ runs }: Facts, grant: GrantRecord): boolean =>
  runs.some(({ holdings, operation }) =>
    holdings.some((holding) => holding.grant === grant) &&
    (!operation.autoRenew || operation.maxHold !== null || operation.api === "renewing")
  )

/** I9: whatever interrupted whom, nothing is left behind: no interest at the store, no fiber, no timer. */
export const nothingLeft = (facts: Facts, violate: Violate): Oracle => ({
  renewed: (process) => {
    const node = facts.nodes.find((node) => node.process === process)
    if (node?.state === "closed") violate(`${process.name} is closed and renews`)
  },
  idle: () => {
    const { interests } = facts.store.sizes()
    // withdrawing is tried once: what the store refuses fades there by itself
    if (isQuiet(facts) && facts.plan.faults.refuse === 0 && interests > 0) {
      violate(`${interests} interests are left at the store`)
    }
    for (const { idleFibers, process, state } of facts.nodes) {
      if (process.dead || state !== "up") continue
      const more = process.fibers.size - idleFibers
      // the timer's fiber sleeps on until the last deadline that was cancelled
      if (more > 1) violate(`${process.name} has ${more} more fibers than at its start`)
    }
  },
  closed: () => {
    for (const { process } of facts.nodes) {
      if (process.dead) continue
      if (process.fibers.size > 0) violate(`${process.name} is closed with ${process.fibers.size} fibers`)
      const timers = facts.kernel.pendingTimers(process)
      if (timers > 0) violate(`${process.name} is closed with ${timers} timers`)
    }
  }
})

/** I10: a lease that is lost interrupts its section within a millisecond; one that nothing can take is not lost. */
export const promptLoss = (facts: Facts, violate: Violate): Oracle => {
  const reported = new Set<Holding>()
  return {
    ticked: () => {
      for (const holding of facts.holdings) {
        const { invalid, name, run } = holding
        if (invalid === undefined || run.section !== "running" || run.phase !== "holding" || !isGuarded(run)) continue
        if (run.node.process.dead || run.node.state !== "up" || reported.has(holding)) continue
        if (invalid.elapsed > 2) {
          reported.add(holding)
          violate(`${name} lost its lease ${invalid.elapsed.toFixed(1)} ms ago and its section goes on`)
        }
      }
    },
    ended: (run) => {
      if (failureTag(run.exit) !== "LeaseLost") return
      const { nodes, plan } = facts
      const endless = run.operation.maxHold === null && run.operation.autoRenew
      const undisturbed = isCalm(plan.profile) && plan.chaos.length === 0 && nodes.every((node) => node.state === "up")
      if (endless && undisturbed) violate(`${run.name} lost a lease that nothing could take: ${describe(run.exit!)}`)
    }
  }
}

/** I11: nobody ends or extends what another owns, renewal takes nothing back, and who gave up asks no more. */
export const ownership = (_facts: Facts, violate: Violate): Oracle => {
  const given = new Set<string>()
  return {
    attempted: (process, token) => {
      if (given.has(token)) violate(`${process.name} uses ${token} again, which it gave up`)
    },
    released: (_, claim) => {
      given.add(claim.token)
    },
    changed: ({ call, caller, key, kind, row }) => {
      if (call === "force" || call === "forget") return
      if (row.token !== caller) violate(`${call} of ${caller} ${kind} the row of ${row.token} on ${key.key}`)
      if (kind === "granted" && call !== "attempt" && call !== "offer") {
        violate(`${call} of ${caller} took ${key.key} back`)
      }
    }
  }
}

/** I13: the body's own end is the caller's answer, but for the loss of the lease and the caller's own interruption. */
export const bodysOwnEnd = (_facts: Facts, violate: Violate): Oracle => ({
  ended: (run) => {
    const { bodyExit, exit, name } = run
    if (exit === undefined) return
    const tag = failureTag(exit)
    if (bodyExit === undefined) {
      if (Exit.isFailure(exit) && [...Cause.defects(exit.cause)].length > 0) violate(`${name} died: ${describe(exit)}`)
      return
    }
    const wrong = () => violate(`${name}'s body ended with ${describe(bodyExit)}, the call with ${describe(exit)}`)
    if (run.interrupted !== undefined || isInterruption(bodyExit)) {
      // the loss, the caller or the close of the layer: all may be told
      if (tag !== undefined && tag !== "LeaseLost" && tag !== "LockingClosed" && tag !== "Boom") wrong()
      return
    }
    const lost = tag === "LeaseLost" && run.holdings.some((holding) => holding.invalid !== undefined)
    if (Exit.isSuccess(bodyExit)) {
      if (Exit.isFailure(exit) && !lost) wrong()
      return
    }
    // a fiber that is interrupted during its finalizers may lose what it had failed with: that is how Effect ends fibers
    if (lost) return
    const told = Exit.isFailure(exit) ? [...Cause.failures(exit.cause), ...Cause.defects(exit.cause)] : []
    const own = [...Cause.failures(bodyExit.cause), ...Cause.defects(bodyExit.cause)]
    if (!own.every((error) => told.includes(error))) wrong()
  }
})
