/** Random worlds for a time. */
import type { Probe } from "../../src/internal/probes.js"
import type { Case } from "./failure.js"
import { generate } from "./generate.js"
import type { Profile } from "./plan.js"
import { runWorld, type Verdict } from "./world.js"

/** What a search has seen so far. */
export class Tally {
  worlds = 0
  steps = 0
  virtualMs = 0
  readonly probes = new Map<Probe, number>()
  readonly outcomes = new Map<string, number>()

  add(verdict: Verdict): void {
    this.worlds++
    this.steps += verdict.steps
    this.virtualMs += verdict.virtualMs
    for (const probe of verdict.probes) this.probes.set(probe, (this.probes.get(probe) ?? 0) + 1)
    for (const [tag, n] of verdict.outcomes) this.outcomes.set(tag, (this.outcomes.get(tag) ?? 0) + n)
  }
}

/** Runs the seeds from `base` on until the time is over or a world fails, which it answers. */
export const swarm = (options: {
  readonly base: number
  readonly seconds: number
  readonly worlds?: number | undefined
  readonly profile?: Profile | undefined
  readonly tally: Tally
  readonly onWorld?: () => void
}): { readonly case: Case; readonly verdict: Verdict } | undefined => {
  const { base, onWorld, profile, seconds, tally, worlds = Infinity } = options
  const end = performance.now() + seconds * 1000
  for (let seed = base; performance.now() < end && seed < base + worlds; seed++) {
    const plan = generate(seed, profile)
    const verdict = runWorld(plan, seed)
    tally.add(verdict)
    if (verdict.violations.length > 0) return { case: { plan, seed }, verdict }
    onWorld?.()
  }
  return undefined
}
