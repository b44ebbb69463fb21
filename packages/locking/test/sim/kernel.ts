/**
 * The deterministic kernel: one seed, one execution. A simulated process is an Effect scheduler, clock and random source
 * of its own; the kernel decides which of the runnable tasks comes next and moves the virtual time when none is left.
 * A world runs inside one synchronous call, so no microtask and no real timer takes part.
 */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Runtime from "effect/Runtime"
import type * as Scheduler from "effect/Scheduler"
import * as Supervisor from "effect/Supervisor"
import { DueHeap } from "./heap.js"
import { hash32, mix32, Prng } from "./prng.js"

type AnyFiber = Fiber.RuntimeFiber<any, any>

export interface KernelOptions {
  readonly seed: number
  /** Probability of a yield before any operation of a fiber. */
  readonly preemption: number
  /** Probability that a timer at most 5 ms away fires although fibers are runnable: a slow CPU. */
  readonly timeSlip: number
  /** How the next task is chosen: any; the oldest; by priorities per process that are rarely drawn anew. */
  readonly strategy: "random" | "fifo" | "priority"
  readonly maxSteps: number
  /** Replays a schedule: decision number to choice; every other decision takes the default. */
  readonly choices?: ReadonlyMap<number, number> | undefined
  readonly record?: boolean | undefined
}

/** Why a drive ended. */
export type DriveEnd = "done" | "deadlock" | "step-limit"

interface Task {
  readonly at: number
  readonly order: number
  readonly process: Process | undefined
  readonly run: () => void
  cancelled: boolean
}

/** A task that asks for so many operations without an end never gives the processor back. */
const longestTask = 100_000

/** Takes back something that was planned for later. */
export type Cancel = () => void

export class Kernel {
  /** Virtual milliseconds since the world began. */
  now = 0
  steps = 0
  /** Hash over every choice and every trace line: two runs are the same run when it is the same. */
  fingerprint = 0
  /** Milliseconds by which runnable fibers were kept waiting while time went on. */
  slipped = 0
  readonly processes: Array<Process> = []
  readonly lines: Array<string> = []
  /** The choices that were not the default, as pairs of decision number and choice. */
  readonly decisions: Array<readonly [decision: number, choice: number]> = []
  /** Every instant at which a timer fired. */
  readonly instants = new Set<number>()
  /** Looks at the world after every step. */
  afterStep: () => void = () => {}
  /** Operations of fibers in this step. */
  private operations = 0
  private order = 0
  private decision = 0
  private runnable: Array<Task> = []
  private readonly timers = new DueHeap<Task>()
  private readonly dice: Prng
  private readonly priorities = new Map<Process | undefined, number>()

  constructor(readonly options: KernelOptions) {
    this.dice = this.stream("schedule")
  }

  stream(name: string): Prng {
    return new Prng(`${this.options.seed}/${name}`)
  }

  process(name: string, clock?: ClockSettings): Process {
    const process = new Process(this, name, clock)
    this.processes.push(process)
    return process
  }

  trace(line: string): void {
    this.fingerprint = mix32(this.fingerprint, hash32(line))
    if (this.options.record) this.lines.push(`${this.now.toFixed(1).padStart(9)} ${line}`)
  }

  /** Plans `run` for an instant. It belongs to a process, with which it waits or dies, or to the world. */
  at(at: number, process: Process | undefined, run: () => void): Cancel {
    const task: Task = { at, order: this.order++, process, run, cancelled: false }
    this.timers.push(task)
    return () => {
      task.cancelled = true
    }
  }

  enqueue(process: Process, run: () => void): void {
    this.runnable.push({ at: this.now, order: this.order++, process, run, cancelled: false })
  }

  /** Whether the fiber that runs is to be preempted before its next operation. */
  preempts(): boolean {
    if (this.operations++ > longestTask) throw new Error("a fiber runs for ever and gives nobody else a turn")
    const { preemption } = this.options
    return preemption > 0 && this.choose(2, () => this.dice.chance(preemption) ? 1 : 0) === 1
  }

  /** Runs until `done`, or until nothing can ever happen again. */
  drive(done: () => boolean): DriveEnd {
    while (!done()) {
      if (this.steps++ >= this.options.maxSteps) return "step-limit"
      if (!this.step()) return "deadlock"
      this.afterStep()
    }
    return "done"
  }

  pendingTimers(process: Process): number {
    return this.timers.count((task) => task.process === process && !task.cancelled)
  }

  private step(): boolean {
    const ready = this.ready()
    if (ready.length === 0) return this.advance()
    if (this.slips()) {
      const before = this.now
      this.advance()
      this.slipped += this.now - before
      return true
    }
    const index = ready.length === 1 ? 0 : this.choose(ready.length, () => this.roll(ready))
    const task = ready[index]
    this.runnable.splice(ready === this.runnable ? index : this.runnable.indexOf(task), 1)
    this.operations = 0
    if (!task.cancelled) task.run()
    return true
  }

  /** The tasks that may run now: those of dead processes are dropped, those of paused ones stay. */
  private ready(): Array<Task> {
    if (!this.processes.some((process) => process.dead || process.paused)) return this.runnable
    this.runnable = this.runnable.filter((task) => !task.process?.dead)
    return this.runnable.filter((task) => !task.process?.paused)
  }

  private slips(): boolean {
    const { timeSlip } = this.options
    if (timeSlip === 0) return false
    const next = this.nextTimer()
    return next !== undefined && next.at <= this.now + 5 &&
      this.choose(2, () => this.dice.chance(timeSlip) ? 1 : 0) === 1
  }

  /** Moves time to the next timer. All that is due then becomes runnable together, so that coincidences interleave. */
  private advance(): boolean {
    let task = this.nextTimer()
    if (task === undefined) return false
    this.now = Math.max(this.now, task.at)
    this.instants.add(this.now)
    while (task !== undefined && task.at <= this.now) {
      this.runnable.push(this.timers.pop()!)
      task = this.nextTimer()
    }
    return true
  }

  /** The first timer that will fire: those before it that will not are dropped. */
  private nextTimer(): Task | undefined {
    let task = this.timers.first
    while (task !== undefined && (task.cancelled || task.process?.dead)) {
      this.timers.pop()
      task = this.timers.first
    }
    return task
  }

  /** One of `n` ways to go on. 0 is the default: first in, first out, no preemption, no slip. */
  private choose(n: number, roll: () => number): number {
    const decision = this.decision++
    const forced = this.options.choices
    const choice = forced === undefined ? roll() : (forced.get(decision) ?? 0) % n
    if (choice !== 0) this.decisions.push([decision, choice])
    this.fingerprint = mix32(this.fingerprint, choice + 1)
    return choice
  }

  private roll(ready: ReadonlyArray<Task>): number {
    switch (this.options.strategy) {
      case "fifo":
        return 0
      case "random":
        return this.dice.int(ready.length)
      case "priority": {
        let best = 0
        let highest = -1
        for (let i = 0; i < ready.length; i++) {
          const process = ready[i].process
          let priority = this.priorities.get(process)
          if (priority === undefined || this.dice.chance(0.02)) {
            priority = this.dice.next()
            this.priorities.set(process, priority)
          }
          if (priority > highest) {
            highest = priority
            best = i
          }
        }
        return best
      }
    }
  }
}

export interface ClockSettings {
  /** What the process's clocks showed when the world began. */
  readonly offset?: number
  /** How fast they run: 1.001 is 1000 ppm fast. */
  readonly rate?: number
}

/** Something that happens when the n-th task of a family of fibers is about to run. */
interface ResumptionHook {
  left: number
  readonly run: () => void
}

/** One simulated operating-system process. */
export class Process implements Scheduler.Scheduler {
  dead = false
  readonly random: Random.Random
  readonly clock: Clock.Clock
  /** The fibers that are alive. */
  readonly fibers = new Set<AnyFiber>()
  private pausedUntil = -Infinity
  private readonly pauses: Array<{ readonly from: number; readonly until: number }> = []
  private wallJump = 0
  private readonly offset: number
  private readonly rate: number
  private readonly yielding = new WeakSet<AnyFiber>()
  private readonly hooks = new WeakMap<AnyFiber, ResumptionHook>()
  private readonly supervisor: Supervisor.Supervisor<void>

  constructor(readonly kernel: Kernel, readonly name: string, clock: ClockSettings = {}) {
    this.offset = clock.offset ?? 0
    this.rate = clock.rate ?? 1
    this.random = Random.make(`${kernel.options.seed}/${name}`)
    this.clock = new ProcessClock(this)
    this.supervisor = new Census(this.fibers, (parent, child) => {
      const hook = this.hooks.get(parent)
      if (hook !== undefined) this.hooks.set(child, hook)
    })
  }

  // --- what Effect asks of a scheduler

  shouldYield(fiber: AnyFiber): number | false {
    // a yield costs some ten more operations, each of which asks again: no new yield while one unwinds
    if (this.yielding.has(fiber)) {
      if (fiber.currentOpCount <= 11) return false
      this.yielding.delete(fiber)
    }
    if (!this.kernel.preempts() && fiber.currentOpCount <= 2048) return false
    this.yielding.add(fiber)
    return 0
  }

  scheduleTask(task: () => void, _priority: number, fiber?: AnyFiber): void {
    const hook = fiber && this.hooks.get(fiber)
    if (hook && --hook.left === 0) hook.run()
    this.kernel.enqueue(this, task)
  }

  // --- what can happen to a process

  get paused(): boolean {
    return this.pausedUntil > this.kernel.now
  }

  /** SIGSTOP, or a long garbage collection: its tasks and timers wait. */
  pause(ms: number): void {
    const { now } = this.kernel
    const until = Math.max(this.pausedUntil, now + ms)
    this.pauses.push({ from: Math.max(this.pausedUntil, now), until })
    this.pausedUntil = until
    this.kernel.at(until, undefined, () => {})
  }

  /** SIGKILL: no finalizer ever runs. */
  kill(): void {
    this.dead = true
  }

  /** Sets the wall clock; the monotonic one goes on. */
  jumpWallClock(ms: number): void {
    this.wallJump += ms
  }

  /** Milliseconds since then in which this process could run. */
  awakeSince(from: number): number {
    const { now } = this.kernel
    return this.pauses.reduce(
      (awake, pause) => awake - Math.max(0, Math.min(now, pause.until) - Math.max(from, pause.from)),
      now - from
    )
  }

  get monotonicNow(): number {
    return this.offset + this.kernel.now * this.rate
  }

  get wallNow(): number {
    return this.monotonicNow + this.wallJump
  }

  /** The kernel's time after so many milliseconds of this process's clock. */
  after(ms: number): number {
    return this.kernel.now + ms / this.rate
  }

  /** Plans `run` for a time of this process's own clock. Like the platform's timers it never fires beyond 31 bits. */
  timer(ms: number, run: () => void): Cancel {
    return Number.isFinite(ms) && ms < 2 ** 31 ? this.kernel.at(this.after(Math.max(0, ms)), this, run) : () => {}
  }

  /** Starts a fiber of this process. All that it starts, also from a captured runtime, belongs to the process. */
  run<A, E>(effect: Effect.Effect<A, E>, onExit?: (exit: Exit.Exit<A, E>) => void): Fiber.RuntimeFiber<A, E> {
    const provided = effect.pipe(
      Effect.withClock(this.clock),
      Effect.withRandom(this.random),
      Effect.supervised(this.supervisor),
      Logger.withMinimumLogLevel(LogLevel.None),
      Effect.withScheduler(this)
    )
    const fiber = Runtime.runFork(Runtime.defaultRuntime)(provided, { scheduler: this, immediate: false })
    if (onExit !== undefined) fiber.addObserver(onExit)
    return fiber
  }

  /** Calls `run` when a task of `fiber`, or of a fiber below it, is scheduled for the n-th time. */
  onResumption(fiber: AnyFiber, n: number, run: () => void): void {
    this.hooks.set(fiber, { left: n, run })
  }
}

class ProcessClock implements Clock.Clock {
  readonly [Clock.ClockTypeId]: Clock.ClockTypeId = Clock.ClockTypeId
  readonly currentTimeMillis = Effect.sync(() => this.unsafeCurrentTimeMillis())
  readonly currentTimeNanos = Effect.sync(() => this.unsafeCurrentTimeNanos())

  constructor(private readonly process: Process) {}

  unsafeCurrentTimeMillis(): number {
    return Math.floor(this.process.wallNow)
  }

  unsafeCurrentTimeNanos(): bigint {
    return BigInt(Math.floor(this.process.monotonicNow * 1e6))
  }

  sleep(duration: Duration.Duration): Effect.Effect<void> {
    return Effect.async<void>((resume) => {
      const cancel = this.process.timer(Duration.toMillis(duration), () => resume(Effect.void))
      return Effect.sync(cancel)
    })
  }
}

/** Counts fibers exactly. */
class Census extends Supervisor.AbstractSupervisor<void> {
  constructor(
    private readonly live: Set<AnyFiber>,
    private readonly born: (parent: AnyFiber, child: AnyFiber) => void
  ) {
    super()
  }

  override get value(): Effect.Effect<void> {
    return Effect.void
  }

  override onStart<A, E, R>(
    _context: Context.Context<R>,
    _effect: Effect.Effect<A, E, R>,
    parent: Option.Option<AnyFiber>,
    fiber: Fiber.RuntimeFiber<A, E>
  ): void {
    this.live.add(fiber)
    // a section is no child of its caller, in whose step it begins
    const starter = Option.orElse(parent, Fiber.getCurrentFiber)
    if (Option.isSome(starter)) this.born(starter.value, fiber)
  }

  override onEnd<A, E>(_exit: Exit.Exit<A, E>, fiber: Fiber.RuntimeFiber<A, E>): void {
    this.live.delete(fiber)
  }
}
