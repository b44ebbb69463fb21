/** Makes a failing world small: fewer events, fewer faults, simpler operations, and no more of the schedule than matters. */
import { type Case, runCase, sameFailure } from "./failure.js"
import type { Operation, Plan } from "./plan.js"

export interface Shrunk {
  readonly case: Case
  readonly runs: number
  /** Non-default choices of the schedule before and after. */
  readonly choices: readonly [before: number, after: number]
}

export const shrink = (failing: Case): Shrunk => {
  const first = runCase(failing)
  let runs = 1
  const fails = (candidate: Case) => {
    runs++
    return sameFailure(first, runCase(candidate))
  }

  let best: Case = { ...failing, choices: undefined }
  /** Keeps a smaller plan if it fails under one of a handful of schedules: the old one no longer fits it. */
  const accept = (plan: Plan): boolean => {
    for (const seed of [best.seed, 1, 2, 3, 4, 5, 6, 7, 8]) {
      const candidate = { ...best, plan, seed }
      if (fails(candidate)) {
        best = candidate
        return true
      }
    }
    return false
  }
  // a case with fixed choices may fail by those alone
  if (failing.choices !== undefined && !fails(best)) {
    return { case: failing, runs, choices: [failing.choices.length, failing.choices.length] }
  }

  dropping(best.plan.chaos, (chaos) => accept({ ...best.plan, chaos }))
  dropping(best.plan.operations, (operations) => accept({ ...best.plan, operations }))
  for (const fault of Object.keys(best.plan.faults) as Array<keyof Plan["faults"]>) {
    if (best.plan.faults[fault] !== 0 && fault !== "delay" && fault !== "lateBy") {
      accept({ ...best.plan, faults: { ...best.plan.faults, [fault]: 0 } })
    }
  }
  for (let i = 0; i < best.plan.operations.length; i++) {
    for (const change of simpler) {
      const operation = { ...best.plan.operations[i], ...change }
      if (JSON.stringify(operation) === JSON.stringify(best.plan.operations[i])) continue
      accept({ ...best.plan, operations: best.plan.operations.with(i, operation) })
    }
  }

  const drawn = runCase(best).decisions
  const choices = dropping(drawn, (some) => fails({ ...best, choices: some }))
  return { case: { ...best, choices }, runs, choices: [drawn.length, choices.length] }
}

const simpler: ReadonlyArray<Partial<Operation>> = [
  { exit: "ok" },
  { api: "useLock" },
  { mode: "exclusive" },
  { finalMs: 0 },
  { steps: 1 },
  { stepMs: 0 },
  { at: 0 },
  { ttl: 600 },
  { maxHold: null },
  { autoRenew: true },
  { interruptAt: null },
  { interruptStep: null },
  { wait: "forever" }
]

/** Leaves out ever smaller stretches as long as `fails` says that what is left still does. */
const dropping = <A>(all: ReadonlyArray<A>, fails: (some: ReadonlyArray<A>) => boolean): ReadonlyArray<A> => {
  let kept = all
  for (let size = Math.max(1, kept.length >> 1); size >= 1 && kept.length > 0; size >>= 1) {
    for (let i = 0; i < kept.length;) {
      const some = kept.toSpliced(i, size)
      if (fails(some)) kept = some
      else i += size
    }
  }
  return kept
}
