import type { Facts, GrantRecord, Run } from "../facts.js"
import type { Oracle, Violate } from "../oracle.js"
import { failureTag } from "../outcome.js"
import { attemptTimeout, isCalm, type Operation } from "../plan.js"
import { interestWindow } from "../store.js"

/** How long the engine pauses after failures at most. */
const longestPause = 1000

/** Rounding of timers, and what a caller pays besides waiting. */
const slack = 5

const neverWaits = ({ api, wait }: Operation): boolean =>
  api === "tryAcquire" || api === "withLockIfAvailable" || wait === 0

/** What the caller's own clock makes of the world's milliseconds at worst. */
const stretch = (facts: Facts): number => 1 + 2 * facts.plan.drift / 1e6

const longestAttempt = ({ plan }: Facts): number =>
  Math.max(...plan.operations.map((operation) => attemptTimeout(operation.ttl)))

/** I4: a call that may not wait longer ends, with a lease or without, within its wait and one call to the store. */
export const boundedWait = (facts: Facts, violate: Violate): Oracle => {
  const times = stretch(facts)
  /** A grant may have been made for another caller here, with a longer limit. */
  const release = longestAttempt(facts) * times + slack

  const check = (run: Run) => {
    const { operation } = run
    if (run.interrupted !== undefined) return
    const wait = neverWaits(operation) ? 0 : operation.wait
    if (wait === "forever") return
    const limit = (wait + attemptTimeout(operation.ttl)) * times + slack
    const waited = run.waiting.elapsed
    if (waited > limit) {
      violate(`${run.name} was answered after ${waited.toFixed(1)} ms, its limit was ${limit.toFixed(1)}`)
    }
  }

  return {
    entered: check,
    ended: (run) => {
      const { interrupted, leaving, name, operation, section } = run
      if (section === "none") check(run)
      // what it was given in that moment is given back first
      const cut = section === "none" ? interrupted?.elapsed ?? 0 : 0
      if (cut > release * operation.keys.length) violate(`${name} ended ${cut.toFixed(1)} ms after its interruption`)
      const left = leaving?.elapsed ?? 0
      if (left > release * operation.keys.length) violate(`${name} ended ${left.toFixed(1)} ms after its section`)
    },
    shut: ({ closing, process }) => {
      const limit = facts.plan.layer.shutdownTimeout * times + slack
      const elapsed = closing?.elapsed ?? 0
      if (elapsed > limit) violate(`${process.name} took ${elapsed.toFixed(1)} ms to close, its limit is ${limit}`)
    }
  }
}

/** I5: who is told a time-out got no lease, and nobody is told so before the time. */
export const oneAnswer = (facts: Facts, violate: Violate): Oracle => {
  const refusals = new Set([
    "LockBusy",
    "WaitTimeout",
    "QueueFull",
    "KeyLimit",
    "LockReentry",
    "InvalidKey",
    "InvalidOptions"
  ])
  return {
    entered: (run) => {
      if (run.phase === "over") violate(`${run.name} got a lease after its end`)
    },
    ended: (run) => {
      const tag = failureTag(run.exit)
      if (tag === undefined) return
      if (refusals.has(tag) && run.section !== "none") violate(`${run.name} got a lease and was told ${tag}`)
      if (tag === "InvalidKey" || tag === "InvalidOptions") violate(`${run.name} was refused as ${tag}`)
      if (tag === "WaitTimeout") {
        const { wait } = run.operation
        const { elapsed } = run.waiting
        // what did not count for the watch counted for the caller's clock
        const real = facts.kernel.now - run.waiting.startedAt
        if (wait === "forever" || real * stretch(facts) < wait - 1) {
          violate(`${run.name} was told WaitTimeout after ${elapsed.toFixed(1)} ms of ${wait}`)
        }
      }
    }
  }
}

/**
 * Who wants several keys waits for the second with the first in hand as far as his process goes, and stands before
 * readers of the first at the store.
 */
const isInTheWay = (other: Run, run: Run, since: number): boolean =>
  other.operation.keys.length > 1 && other.operation.keys.includes(run.operation.keys[0]) &&
  (other.answeredAt ?? Infinity) >= since

/** When the last section of this process under the key was over: the store may have forgotten or ended its row before. */
const releasedHere = ({ runs }: Facts, { node, operation }: Run): number =>
  runs.reduce(
    (last, other) =>
      other.node === node && other.section !== "none" && other.operation.keys.includes(operation.keys[0])
        ? Math.max(last, other.endedAt ?? Infinity)
        : last,
    0
  )

/** I6: a waiter gets a free key at the speed of the network where nothing is lost, else at the speed of the poll. */
export const freeKeysMove = (facts: Facts, violate: Violate): Oracle => {
  const { kernel, network, plan, store } = facts
  const { delay, jitter, lateBy } = plan.faults
  // busy answer, arming, its answer, attempt; then one more round by a wake-up that came at the wrong time
  const rounds = 8 * (delay + jitter) + 2 * slack + (plan.script?.by ?? 0)
  const call = longestAttempt(facts)
  // standing back for other processes lasts a poll at most, also when nobody comes
  const poll = 1.25 * plan.layer.pollInterval

  // readers, and who queues behind them, stay behind a writer for as long as the store thinks that he still waits
  const ghosts = plan.operations.some((operation) => operation.mode === "shared") ? interestWindow : 0

  /** The key of `run` was free until now, but for the grant that was made at this instant. */
  const check = (run: Run, made: GrantRecord | undefined) => {
    const { keys } = run.operation
    if (run.phase !== "waiting" || run.interrupted !== undefined || keys.length !== 1) return
    if (run.node.process.dead || run.node.state !== "up" || (made !== undefined && made.key !== keys[0])) return
    const since = facts.freeSince(keys[0], made)
    if (since === undefined) return
    const from = Math.max(since, run.waiting.startedAt, releasedHere(facts, run))
    if (facts.runs.some((other) => isInTheWay(other, run, from))) return
    const serverPaused = kernel.now - from - store.process.awakeSince(from)
    const idle = run.node.process.awakeSince(from) - serverPaused
    const troubles = isCalm(plan.profile) ? 0 : network.troubles(run.node.process, from - call - longestPause)
    const nets = isCalm(plan.profile) ? 0 : poll + ghosts + troubles * (call + longestPause + lateBy)
    const limit = rounds + kernel.slipped + (plan.nodes > 1 ? poll : 0) + nets
    if (idle > limit) {
      violate(
        `${keys[0]} was free for ${idle.toFixed(1)} ms while ${run.name} waited; the limit is ${limit.toFixed(1)}`
      )
    }
  }

  return {
    changed: (change, grant) => {
      if (change.kind !== "granted" || grant === undefined) return
      for (const run of facts.runs) check(run, grant)
    },
    ended: (run) => {
      if (failureTag(run.exit) === "WaitTimeout") check(run, undefined)
    }
  }
}

/** I7: the waiters of one process get a key in the order in which they came. */
export const arrivalOrder = (facts: Facts, violate: Violate): Oracle => {
  const { kernel } = facts

  /** Whether `first` surely joined the queue before `second` was called, and is surely still in it. */
  const isAhead = (first: Run, second: Run): boolean => {
    if (first === second || first.node !== second.node || first.phase !== "waiting") return false
    if (first.interrupted !== undefined || neverWaits(first.operation)) return false
    if (first.operation.keys.length !== 1 || first.operation.keys[0] !== second.operation.keys[0]) return false
    if (first.operation.mode === "shared" && second.operation.mode === "shared") return false
    const { wait } = first.operation
    // one that is about to time out may have left already
    if (wait !== "forever" && (kernel.now - first.waiting.startedAt) * stretch(facts) + slack >= wait) return false
    return first.waiting.elapsed - second.waiting.elapsed >= slack
  }

  return {
    entered: (run) => {
      if (run.operation.keys.length !== 1 || run.operation.api === "useLocks") return
      const passed = facts.runs.find((other) => isAhead(other, run))
      if (passed !== undefined) {
        violate(`${run.name} got ${run.operation.keys[0]} before ${passed.name}, which came first`)
      }
    }
  }
}
