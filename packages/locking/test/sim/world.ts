/** One world: a plan and a seed make a verdict. */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import { Entropy } from "../../src/internal/entropy.js"
import { type Probe, probes } from "../../src/internal/probes.js"
import type * as Lease from "../../src/Lease.js"
import * as Locking from "../../src/Locking.js"
import * as Driver from "./driver.js"
import { Facts, Holding, type Node, type Run, Stopwatch } from "./facts.js"
import { withoutRealTime } from "./guard.js"
import { watchAll } from "./invariants.js"
import { Kernel, type KernelOptions, type Process } from "./kernel.js"
import { Network } from "./network.js"
import type { Oracle } from "./oracle.js"
import { describe, failureTag } from "./outcome.js"
import { type Chaos, isCalm, type Operation, type Plan } from "./plan.js"
import { Prng } from "./prng.js"
import { call, type SectionWatcher } from "./section.js"
import { fenceBlock, Store } from "./store.js"

/** No plan lasts longer, unless something hangs. */
const timeLimit = 120_000

/** What is left to the background is over after that: releases that are repeated until the ttl, interest that fades. */
const settling = 5000

export interface Verdict {
  readonly violations: ReadonlyArray<string>
  readonly probes: ReadonlySet<Probe>
  readonly fingerprint: number
  readonly steps: number
  readonly virtualMs: number
  /** The trace, when it was asked for. */
  readonly lines: ReadonlyArray<string>
  /** The choices of the schedule that were not the default. */
  readonly decisions: Kernel["decisions"]
  /** How many messages there were, and the instants at which something happened, from the start of the plan. */
  readonly messages: number
  readonly instants: ReadonlyArray<number>
  /** How the calls ended, by tag. */
  readonly outcomes: ReadonlyMap<string, number>
}

/** How a schedule is drawn for a seed, when nothing else is said. */
const dealt = (seed: number): KernelOptions => {
  const dice = new Prng(`schedule/${seed}`)
  return {
    seed,
    preemption: dice.pick([0, 0.01, 0.1]),
    timeSlip: dice.pick([0, 0, 0.02]),
    strategy: dice.pick(["random", "random", "priority", "fifo"]),
    maxSteps: 200_000
  }
}

export const runWorld = (plan: Plan, seed: number, options: Partial<KernelOptions> = {}): Verdict => {
  const world = new World(plan, { ...dealt(seed), ...options })
  const before = { ...probes }
  probes.current = (probe) => world.probes.add(probe)
  probes.safetyNets = !isCalm(plan.profile)
  try {
    return withoutRealTime(() => world.run())
  } finally {
    Object.assign(probes, before)
  }
}

class World {
  readonly probes = new Set<Probe>()
  private readonly kernel: Kernel
  private readonly facts: Facts
  private readonly violations: Array<string> = []
  private readonly reported = new Set<string>()
  private readonly outcomes = new Map<string, number>()
  private readonly oracles: ReadonlyArray<Oracle>
  private readonly tickers: ReadonlyArray<() => void>
  private begunAt = 0

  constructor(private readonly plan: Plan, options: KernelOptions) {
    const kernel = new Kernel(options)
    const dice = kernel.stream("clocks")
    const rate = () => 1 + (dice.next() * 2 - 1) * plan.drift / 1e6
    const server = kernel.process("store", { offset: 7_000_000, rate: rate() })
    const store = new Store(server, plan.store)
    const network = new Network(kernel, server, plan.faults, plan.script)
    const facts = new Facts(plan, kernel, network, store)
    this.kernel = kernel
    this.facts = facts
    this.oracles = watchAll(facts, (text) => this.violate(text))
    this.tickers = this.oracles.flatMap((oracle) => oracle.ticked === undefined ? [] : [oracle.ticked])
    store.onChange = (change) => {
      const grant = facts.record(change, fenceBlock)
      for (const oracle of this.oracles) oracle.changed?.(change, grant)
    }
    kernel.afterStep = () => this.tick()
    for (let index = 0; index < plan.nodes; index++) {
      facts.nodes.push(this.startNode(index, kernel.process(`n${index}`, { offset: dice.int(1e9), rate: rate() })))
    }
  }

  run(): Verdict {
    try {
      if (this.start()) this.play()
    } catch (error) {
      this.violate(`crash ${error instanceof Error ? error.stack : String(error)}`)
    }
    const { kernel } = this
    return {
      violations: this.violations,
      probes: this.probes,
      fingerprint: kernel.fingerprint,
      steps: kernel.steps,
      virtualMs: kernel.now,
      lines: kernel.lines,
      decisions: kernel.decisions,
      messages: this.facts.network.messages,
      instants: [...kernel.instants].filter((at) => at >= this.begunAt).map((at) => at - this.begunAt),
      outcomes: this.outcomes
    }
  }

  private violate(text: string): void {
    if (this.reported.has(text)) return
    this.reported.add(text)
    this.kernel.trace(`VIOLATION ${text}`)
    if (this.violations.length < 10) this.violations.push(`${text} [at ${this.kernel.now.toFixed(1)} ms]`)
  }

  // --- phases

  /** Builds the layers, undisturbed. */
  private start(): boolean {
    const { facts, kernel } = this
    const end = kernel.drive(() => facts.nodes.every((node) => node.state === "up"))
    if (end !== "done") {
      this.violate(`I4 the layers do not stand: ${end}`)
      return false
    }
    this.driveFor(5)
    for (const node of facts.nodes) node.idleFibers = node.process.fibers.size
    this.begunAt = kernel.now
    facts.network.begin()
    return true
  }

  private play(): void {
    const { facts, kernel, plan } = this
    plan.operations.forEach((operation, i) => this.schedule(operation, i))
    for (const event of plan.chaos) kernel.at(this.begunAt + event.at, undefined, () => this.cause(event))
    let late = false
    const inTime = kernel.at(kernel.now + timeLimit, undefined, () => {
      late = true
    })
    const alive = () => facts.runs.filter((run) => run.phase !== "over" && !run.node.process.dead)
    const end = kernel.drive(() => late || alive().length === 0)
    if (end !== "done" || late) {
      const left = alive().map((run) => `${run.name} (${run.phase})`).join(", ")
      const stuck = alive().every((run) => run.phase === "waiting")
      return this.violate(`${stuck ? "I6" : "I4"} ${late ? "no end" : end} with ${left}`)
    }
    inTime()
    this.driveFor(settling)
    for (const oracle of this.oracles) oracle.idle?.()
    for (const node of facts.nodes) this.shut(node)
    if (kernel.drive(() => false) === "step-limit") return this.violate("I9 something goes on for ever")
    for (const node of facts.nodes) {
      if (node.state !== "closed" && !node.process.dead) this.violate(`I4 ${node.process.name} does not close`)
    }
    for (const oracle of this.oracles) oracle.closed?.()
  }

  private driveFor(ms: number): void {
    let over = false
    this.kernel.at(this.kernel.now + ms, undefined, () => {
      over = true
    })
    this.kernel.drive(() => over)
  }

  /** Sees at once which leases are no longer valid, then asks the oracles. */
  private tick(): void {
    const { holdings } = this.facts
    for (const holding of holdings) {
      if (holding.invalid === undefined && !holding.valid) holding.invalid = new Stopwatch(holding.run.node.process)
      else if (holding.invalid !== undefined && holding.valid) this.revive(holding, holding.invalid.elapsed)
    }
    for (const ticker of this.tickers) ticker()
  }

  private revive(holding: Holding, after: number): void {
    holding.invalid = undefined
    // a deadline is noticed at the next whole millisecond
    if (after > 1) this.violate(`I10 ${holding.name} was over for ${after.toFixed(1)} ms and is valid again`)
  }

  // --- nodes

  private startNode(index: number, process: Process): Node {
    const { facts, plan } = this
    const closing = Deferred.unsafeMake<void>(FiberId.none)
    const node: Node = {
      index,
      process,
      locking: undefined,
      state: "starting",
      close: () => Deferred.unsafeDone(closing, Exit.void),
      closing: undefined,
      idleFibers: 0
    }
    const watcher: Driver.CallWatcher = {
      attempt: (of, token) => {
        facts.owners.set(token, of)
        for (const oracle of this.oracles) oracle.attempted?.(of, token)
      },
      release: (of, claim) => {
        for (const oracle of this.oracles) oracle.released?.(of, claim)
      },
      offer: (of, claim) => {
        for (const oracle of this.oracles) oracle.offered?.(of, claim)
      },
      renew: (of) => {
        for (const oracle of this.oracles) oracle.renewed?.(of)
      }
    }
    const main = Effect.scoped(Effect.gen(function*() {
      const driver = yield* Driver.make(process, facts.network, facts.store, plan.store, watcher)
      node.locking = yield* Locking.make(driver, { ...plan.layer, holdWarning: 5000, tracing: "off" })
      node.state = "up"
      yield* Deferred.await(closing)
    }))
    process.run(Effect.provideService(main, Entropy, () => process.name), (exit) => {
      node.state = "closed"
      if (Exit.isFailure(exit)) this.violate(`I4 the layer of ${process.name} failed: ${describe(exit)}`)
      for (const oracle of this.oracles) oracle.shut?.(node)
    })
    return node
  }

  private shut(node: Node): void {
    if (node.state !== "up" || node.process.dead) return
    node.state = "closing"
    node.closing = new Stopwatch(node.process)
    node.close()
  }

  // --- operations

  private schedule(operation: Operation, index: number): void {
    const { facts, kernel } = this
    const node = facts.nodes[operation.node % facts.nodes.length]
    const run: Run = {
      operation,
      name: `op${index}@${node.process.name}`,
      node,
      phase: "planned",
      section: "none",
      fiber: undefined,
      waiting: new Stopwatch(node.process),
      answeredAt: undefined,
      endedAt: undefined,
      leaving: undefined,
      interrupted: undefined,
      holdings: [],
      gaveBack: false,
      bodyExit: undefined,
      exit: undefined
    }
    facts.runs.push(run)
    kernel.at(this.begunAt + operation.at, node.process, () => this.begin(run))
  }

  private begin(run: Run): void {
    const { kernel } = this
    const { name, node, operation } = run
    const { process } = node
    kernel.trace(`${name} ${operation.api} ${operation.keys.join("+")} ${operation.mode} wait ${operation.wait}`)
    const started = Effect.sync(() => {
      run.phase = "waiting"
      run.waiting = new Stopwatch(process)
    })
    const fiber = process.run(
      Effect.zipRight(started, Effect.suspend(() => call(node.locking!, run, this.sections))),
      (exit) => this.end(run, exit)
    )
    run.fiber = fiber
    const interrupt = () => {
      if (run.phase === "over") return
      kernel.trace(`${name} is interrupted`)
      run.interrupted ??= new Stopwatch(process)
      fiber.unsafeInterruptAsFork(fiber.id())
    }
    if (operation.interruptStep !== null) process.onResumption(fiber, operation.interruptStep, interrupt)
    if (operation.interruptAt !== null) kernel.at(kernel.now + operation.interruptAt, process, interrupt)
  }

  private end(run: Run, exit: Exit.Exit<unknown, unknown>): void {
    run.exit = exit
    run.answeredAt ??= this.kernel.now
    run.endedAt = this.kernel.now
    const outcome = Exit.isSuccess(exit) ? "ok" : failureTag(exit) ?? "interrupted or died"
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1)
    this.kernel.trace(`${run.name} ends: ${describe(exit)}`)
    for (const oracle of this.oracles) oracle.ended?.(run)
    run.phase = "over"
    this.facts.holdings = this.facts.holdings.filter((holding) => holding.run !== run)
  }

  private readonly sections: SectionWatcher = {
    entered: (run: Run, leases: ReadonlyArray<Lease.Lease>) => {
      const { process } = run.node
      run.holdings = leases.map((lease) => new Holding(run, lease, this.facts.grantOf(lease.key, lease.fence, process)))
      this.kernel.trace(`${run.name} holds ${run.holdings.map(({ fence, key }) => `${key} fence ${fence}`).join(", ")}`)
      run.section = "running"
      run.answeredAt = this.kernel.now
      // a lease that ended before anybody saw it
      for (const holding of run.holdings) if (!holding.valid) holding.invalid = new Stopwatch(process)
      for (const oracle of this.oracles) oracle.entered?.(run)
      run.phase = "holding"
      for (const holding of run.holdings) this.facts.holdings.push(holding)
    },
    stepped: (run) => {
      for (const oracle of this.oracles) oracle.stepped?.(run)
    },
    finalizing: (run) => {
      run.section = "finalizing"
    },
    left: (run) => {
      run.section = "left"
      run.leaving = new Stopwatch(run.node.process)
      this.kernel.trace(`${run.name} leaves its section`)
      for (const oracle of this.oracles) oracle.left?.(run)
    },
    wrong: (run, text) => this.violate(`I2 ${run.name} ${text}`)
  }

  // --- chaos

  private cause(event: Chaos): void {
    const { facts, kernel } = this
    const node = facts.nodes[event.node % facts.nodes.length]
    const { process } = node
    kernel.trace(`CHAOS ${event.kind} ${process.name} ${event.key} ${event.ms}`)
    switch (event.kind) {
      case "pause":
        return process.pause(event.ms)
      case "kill":
        return process.kill()
      case "partition":
        return facts.network.cut(process, event.ms)
      case "shutdown":
        return this.shut(node)
      case "wall clock jump":
        return process.jumpWallClock(event.ms)
      case "server pause":
        return facts.store.process.pause(event.ms)
      case "server clock jump":
        return facts.store.process.jumpWallClock(event.ms)
      case "forget rows":
        return facts.store.forgetRows(event.ms)
      case "forget all":
        // no server starts in no time
        facts.store.process.pause(5)
        return facts.store.forgetAll()
      case "force release": {
        const key = facts.store.keyNamed(event.key)
        if (key !== undefined) facts.store.forceRelease(key)
        return
      }
    }
  }
}
