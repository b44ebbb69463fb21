/**
 * The search from the command line.
 *
 *   pnpm sim --seconds 45          random worlds, after the regressions; fails when a probe was never reached
 *   pnpm sim --seed N              one world again, with its trace
 *   pnpm sim --sweep               every single fault of every scenario
 *   pnpm sim --scenario NAME       the same for one
 *   pnpm sim --regression NAME     one stored world, with its trace
 *
 * More: --base N (first seed), --worlds N (at most), --profile NAME, --series S1,S3, --seeds N and --orders N (of the
 * sweep), --patience N (a sweep gives up after so many seconds of processor time), --no-shrink, --quiet.
 */
import { parseArgs } from "node:util"
import type { Probe } from "../../src/internal/probes.js"
import { missingProbes, requiredProbes } from "./coverage.js"
import { type Case, ids, runCase } from "./failure.js"
import { generate } from "./generate.js"
import type { Profile } from "./plan.js"
import * as Regressions from "./regressions.js"
import { shrink } from "./shrink.js"
import { swarm, Tally } from "./swarm.js"
import { type Series, sweep, type Variant } from "./sweep.js"
import type { Verdict } from "./world.js"

const { values: args } = parseArgs({
  options: {
    seconds: { type: "string" },
    seed: { type: "string" },
    sweep: { type: "boolean", default: false },
    scenario: { type: "string", multiple: true },
    series: { type: "string" },
    regression: { type: "string" },
    base: { type: "string" },
    worlds: { type: "string" },
    profile: { type: "string" },
    seeds: { type: "string", default: "1" },
    orders: { type: "string", default: "12" },
    patience: { type: "string", default: "Infinity" },
    shrink: { type: "boolean", default: true },
    quiet: { type: "boolean", default: false }
  },
  allowNegative: true
})

const startedAt = performance.now()
const tally = new Tally()
let saidAt = startedAt

const seconds = () => ((performance.now() - startedAt) / 1000).toFixed(1)

const progress = (what: string) => {
  if (args.quiet || performance.now() - saidAt < 5000) return
  saidAt = performance.now()
  console.log(`${seconds().padStart(7)} s  ${what}: ${tally.worlds} worlds, ${tally.probes.size} probes`)
}

const count = (map: ReadonlyMap<string, number>) =>
  [...map].sort(([a], [b]) => a < b ? -1 : 1).map(([name, n]) => `${name} ${n}`).join(", ")

const processorSeconds = () => {
  const { system, user } = process.cpuUsage()
  return (user + system) / 1e6
}

const summarize = (seeds: string) => {
  const cpuSeconds = processorSeconds()
  console.log(
    `${tally.worlds} worlds (${seeds}), ${tally.steps} steps, ${Math.round(tally.virtualMs / 1000)} virtual seconds ` +
      `in ${seconds()} s (${Math.round(tally.worlds / cpuSeconds)} worlds per CPU second)`
  )
  if (args.quiet) return
  console.log(`outcomes: ${count(tally.outcomes)}`)
  console.log(`probes ${tally.probes.size} of ${requiredProbes.length}: ${count(tally.probes)}`)
}

/** Prints a failing world, small if possible, keeps it as a regression, and ends the program. */
const fail = (what: string, found: Case, verdict: Verdict, replay: string): never => {
  console.log(`FAILED ${what}`)
  for (const violation of verdict.violations) console.log(`  ${violation}`)
  console.log(`replay identical: ${runCase(found).fingerprint === verdict.fingerprint}; again by: ${replay}`)
  if (args.shrink) {
    const small = shrink(found)
    const again = runCase(small.case, true)
    console.log(
      `shrunk in ${small.runs} runs: ${found.plan.operations.length} → ${small.case.plan.operations.length} operations, ` +
        `${small.choices[0]} → ${small.choices[1]} choices of the schedule`
    )
    print(small.case, again)
    const id = [...ids(again)][0] ?? "unknown"
    const file = Regressions.save(`${id}-${found.seed}`, small.case, again.violations[0] ?? verdict.violations[0])
    console.log(`kept as ${file}`)
  }
  process.exit(1)
}

const print = ({ plan, seed }: Case, verdict: Verdict) => {
  const { operations, ...rest } = plan
  console.log(`seed ${seed} ${JSON.stringify(rest)}`)
  for (const operation of operations) console.log(`  ${JSON.stringify(operation)}`)
  for (const line of verdict.lines) console.log(`    ${line}`)
  for (const violation of verdict.violations) console.log(`  ${violation}`)
}

const replay = (found: Case) => {
  const verdict = runCase(found, true)
  print(found, verdict)
  const identical = runCase(found).fingerprint === verdict.fingerprint
  console.log(`${verdict.violations.length} violations; replay identical: ${identical}`)
  process.exit(verdict.violations.length === 0 && identical ? 0 : 1)
}

const replayRegressions = () => {
  for (const regression of Regressions.load()) {
    const verdict = runCase(regression)
    tally.add(verdict)
    if (verdict.violations.length === 0) continue
    console.log(`FAILED regression ${regression.name}: ${verdict.violations.join("; ")}`)
    console.log(`again by: pnpm sim --regression ${regression.name}`)
    process.exit(1)
  }
}

const runSweep = (onVerdict: () => boolean = () => true) => {
  const onEach = (variant: Variant, verdict: Verdict) => {
    tally.add(verdict)
    progress(`sweep of "${variant.scenario}"`)
    if (verdict.violations.length > 0) {
      const name = `"${variant.scenario}", ${variant.series}: ${variant.what}, seed ${variant.case.seed}`
      fail(name, variant.case, verdict, `pnpm sim --scenario "${variant.scenario}" --series ${variant.series}`)
    }
    return onVerdict()
  }
  sweep({
    scenarios: args.scenario,
    series: args.series?.split(",") as ReadonlyArray<Series> | undefined,
    seeds: Number(args.seeds),
    orders: Number(args.orders)
  }, onEach)
}

const reportMissing = (missing: ReadonlyArray<Probe>) => {
  if (missing.length === 0) return
  console.log(`FAILED: never reached ${missing.join(", ")}`)
  process.exit(1)
}

const search = () => {
  const base = args.base === undefined ? Date.now() % 1_000_000_000 : Number(args.base)
  console.log(`seeds from ${base}`)
  replayRegressions()
  const found = swarm({
    base,
    seconds: Number(args.seconds ?? 45),
    worlds: args.worlds === undefined ? undefined : Number(args.worlds),
    profile: args.profile as Profile | undefined,
    tally,
    onWorld: () => progress("swarm")
  })
  if (found !== undefined) {
    summarize(`seeds ${base} to ${found.case.seed}`)
    const profile = args.profile === undefined ? "" : ` --profile ${args.profile}`
    fail(
      `seed ${found.case.seed} (${found.case.plan.profile})`,
      found.case,
      found.verdict,
      `pnpm sim --seed ${found.case.seed}${profile}`
    )
  }
  const seeds = `seeds ${base} to ${base + tally.worlds - 1}`
  // what dice did not find, faults at every place may
  const isWhole = args.profile === undefined
  if (isWhole && missingProbes(tally.probes).length > 0) runSweep(() => missingProbes(tally.probes).length > 0)
  summarize(seeds)
  if (isWhole) reportMissing(missingProbes(tally.probes))
}

if (args.regression !== undefined) {
  const regression = Regressions.load().find(({ name }) => name === args.regression)
  if (regression === undefined) throw new Error(`no regression "${args.regression}"`)
  replay(regression)
} else if (args.seed !== undefined) {
  const seed = Number(args.seed)
  replay({ plan: generate(seed, args.profile as Profile | undefined), seed })
} else if (args.sweep || args.scenario !== undefined) {
  const patience = Number(args.patience)
  runSweep(() => processorSeconds() < patience)
  summarize("sweep")
} else search()
