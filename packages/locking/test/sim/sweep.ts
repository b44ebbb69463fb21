/**
 * Every single fault of a small scenario:
 * S1 interrupts each call at each step of its fibers;
 * S2 lets each call time out at each instant at which something happens, in many orders;
 * S3 loses, doubles or delays each single message;
 * S4 kills, pauses, cuts off or shuts each node at each instant, and lets an administrator or the store take the keys.
 */
import { type Case, runCase } from "./failure.js"
import type { ScriptedFault } from "./network.js"
import { type Chaos, chaos, isCalm, type Plan } from "./plan.js"
import { scenarios } from "./scenarios.js"
import type { Verdict } from "./world.js"

export type Series = "S1" | "S2" | "S3" | "S4"

export interface Variant {
  readonly scenario: string
  readonly series: Series
  readonly what: string
  readonly case: Case
}

export interface SweepOptions {
  readonly scenarios?: ReadonlyArray<string> | undefined
  readonly series?: ReadonlyArray<Series> | undefined
  /** Schedules per variant. */
  readonly seeds: number
  /** Schedules per coincidence of S2, which need many orders. */
  readonly orders: number
  /** Only every n-th variant, another one for each seed base. */
  readonly every?: number | undefined
  readonly base?: number | undefined
}

const schedule = { strategy: "random", preemption: 0.02, timeSlip: 0 } as const

/** Runs until `onVerdict` wants no more. */
export const sweep = (
  options: SweepOptions,
  onVerdict: (variant: Variant, verdict: Verdict) => boolean
): void => {
  const { base = 0, every = 1 } = options
  let n = base
  for (const scenario of options.scenarios ?? Object.keys(scenarios)) {
    const plan = scenarios[scenario]
    if (plan === undefined) throw new Error(`no scenario "${scenario}": ${Object.keys(scenarios).join(", ")}`)
    for (let seed = 1; seed <= options.seeds; seed++) {
      for (const { orders, plan: faulty, series, what } of variants(plan, base + seed, options)) {
        if (n++ % every !== 0) continue
        for (let order = 0; order < orders; order++) {
          const variant = {
            scenario,
            series,
            what,
            case: { plan: faulty, seed: (base + seed) * 1000 + order, schedule }
          }
          if (!onVerdict(variant, runCase(variant.case))) return
        }
      }
    }
  }
}

interface Fault {
  readonly series: Series
  readonly what: string
  readonly plan: Plan
  readonly orders: number
}

function* variants(plan: Plan, seed: number, options: SweepOptions): Generator<Fault> {
  const plain = runCase({ plan, seed: seed * 1000, schedule })
  const wanted = (series: Series) => options.series === undefined || options.series.includes(series)
  yield { series: "S1", what: "no fault", plan, orders: 4 }
  if (wanted("S1")) yield* interruptions(plan, seed, plain)
  if (wanted("S2")) yield* timeouts(plan, plain, options.orders)
  if (wanted("S3")) yield* messages(plan, plain)
  if (wanted("S4")) yield* accidents(plan, plain)
}

const longestCall = 200

function* interruptions(plan: Plan, seed: number, plain: Verdict): Generator<Fault> {
  for (let i = 0; i < plan.operations.length; i++) {
    for (let n = 1; n <= longestCall; n++) {
      const cut = withOperation(plan, i, { interruptStep: n })
      // the call was over before its n-th step
      if (runCase({ plan: cut, seed: seed * 1000, schedule }).fingerprint === plain.fingerprint) break
      yield { series: "S1", what: `interrupt op${i} at its step ${n}`, plan: cut, orders: 1 }
    }
  }
}

function* timeouts(plan: Plan, plain: Verdict, orders: number): Generator<Fault> {
  for (let i = 0; i < plan.operations.length; i++) {
    for (const at of plain.instants) {
      const wait = at - plan.operations[i].at
      if (wait < 0) continue
      yield { series: "S2", what: `op${i} times out at ${at}`, plan: withOperation(plan, i, { wait }), orders }
    }
  }
}

function* messages(plan: Plan, plain: Verdict): Generator<Fault> {
  const faults: ReadonlyArray<ScriptedFault> = [
    "lose request",
    "lose reply",
    "reset",
    "duplicate",
    "late request",
    "late reply"
  ]
  for (let message = 0; message < plain.messages; message++) {
    for (const fault of faults) {
      // only what gets lost needs the safety nets
      const losing = fault.startsWith("lose") || fault === "reset"
      const profile = losing ? lossy(plan).profile : plan.profile
      const by = fault === "duplicate" ? 5 : 90
      yield {
        series: "S3",
        what: `${fault} of message ${message}`,
        plan: { ...plan, profile, script: { message, fault, by } },
        orders: 1
      }
    }
  }
}

function* accidents(plan: Plan, plain: Verdict): Generator<Fault> {
  const keys = [...new Set(plan.operations.flatMap((operation) => operation.keys))]
  for (const at of plain.instants) {
    for (let node = 0; node < plan.nodes; node++) {
      const happen = (base: Plan, event: Pick<Chaos, "kind"> & Partial<Chaos>): Fault => ({
        series: "S4",
        what: `${event.kind} n${node} at ${at}${event.ms ? ` for ${event.ms}` : ""}`,
        plan: { ...base, chaos: [...base.chaos, chaos({ at, node, ...event })] },
        orders: 1
      })
      yield happen(withProfile(plan, "chaos"), { kind: "kill" })
      yield happen(lossy(plan), { kind: "shutdown" })
      for (const ms of [50, 700]) {
        yield happen(withProfile(plan, "chaos"), { kind: "pause", ms })
        yield happen(withProfile(plan, "chaos"), { kind: "partition", ms })
      }
      if (node > 0) continue
      yield happen(withProfile(plan, "amnesia"), { kind: "forget rows", ms: 10_000 })
      yield happen(withProfile(plan, "amnesia"), { kind: "forget all" })
      for (const key of keys) yield happen(lossy(plan), { kind: "force release", key })
    }
  }
}

const withOperation = (plan: Plan, i: number, change: Partial<Plan["operations"][number]>): Plan => ({
  ...plan,
  operations: plan.operations.with(i, { ...plan.operations[i], ...change })
})

const withProfile = (plan: Plan, profile: Plan["profile"]): Plan => ({ ...plan, profile })

const lossy = (plan: Plan): Plan => isCalm(plan.profile) ? withProfile(plan, "lossy") : plan
