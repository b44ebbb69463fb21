import type { KernelOptions } from "./kernel.js"
import type { Plan } from "./plan.js"
import { runWorld, type Verdict } from "./world.js"

/** All that it takes to see one world again. */
export interface Case {
  readonly plan: Plan
  readonly seed: number
  /** How the schedule is drawn, where that is not dealt by the seed. */
  readonly schedule?: Pick<KernelOptions, "preemption" | "timeSlip" | "strategy"> | undefined
  /** The choices of the schedule that are not the default; missing: all are drawn. */
  readonly choices?: ReadonlyArray<readonly [decision: number, choice: number]> | undefined
}

export const runCase = ({ choices, plan, schedule, seed }: Case, record = false): Verdict =>
  runWorld(plan, seed, { ...schedule, choices: choices && new Map(choices), record })

/** The invariants that were violated. */
export const ids = (verdict: Verdict): ReadonlySet<string> =>
  new Set(verdict.violations.map((text) => text.slice(0, text.indexOf(" "))))

export const sameFailure = (a: Verdict, b: Verdict): boolean => {
  const others = ids(b)
  return [...ids(a)].some((id) => others.has(id))
}
