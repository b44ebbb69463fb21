import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Random from "effect/Random"
import * as Runtime from "effect/Runtime"
import { withoutRealTime } from "./guard.js"
import { Kernel, type KernelOptions, type Process } from "./kernel.js"

const quiet: KernelOptions = { seed: 1, preemption: 0, timeSlip: 0, strategy: "fifo", maxSteps: 10_000 }

const simulate = <A>(
  effect: (process: Process, kernel: Kernel) => Effect.Effect<A>,
  options: Partial<KernelOptions> = {},
  play: (process: Process, kernel: Kernel, fiber: Fiber.RuntimeFiber<A>) => void = () => {}
) =>
  withoutRealTime(() => {
    const kernel = new Kernel({ ...quiet, ...options })
    const process = kernel.process("n", { offset: 1000, rate: 1 })
    let exit: Exit.Exit<A> | undefined
    const fiber = process.run(effect(process, kernel), (end) => {
      exit = end
    })
    play(process, kernel, fiber)
    const end = kernel.drive(() => exit !== undefined)
    return { end, exit, kernel, process }
  })

const workload = Effect.gen(function*() {
  const seen: Array<number> = []
  const worker = (n: number) =>
    Effect.gen(function*() {
      for (let i = 0; i < 5; i++) {
        yield* Effect.sleep(yield* Random.nextIntBetween(0, 4))
        seen.push(n)
      }
    })
  const fibers = yield* Effect.forEach([1, 2, 3, 4], (n) => Effect.fork(worker(n)))
  yield* Effect.forEach(fibers, Fiber.join)
  return seen.join("")
})

describe("the kernel", () => {
  it("gives one execution per seed, and others for other seeds", () => {
    const search = { preemption: 0.1, strategy: "random", timeSlip: 0.02 } as const
    const runs = [1, 2, 1, 3, 2].map((seed) => simulate(() => workload, { ...search, seed }))
    const prints = runs.map(({ kernel }) => kernel.fingerprint)
    assert.strictEqual(prints[0], prints[2])
    assert.strictEqual(prints[1], prints[4])
    assert.strictEqual(new Set(prints).size, 3)
    assert.deepStrictEqual(runs[0].exit, runs[2].exit)
  })

  it("replays a schedule from its choices", () => {
    const first = simulate(() => workload, { preemption: 0.1, strategy: "random", seed: 5 })
    const choices = new Map(first.kernel.decisions)
    assert.isAbove(choices.size, 0)
    const again = simulate(() => workload, { preemption: 0.1, strategy: "random", seed: 5, choices })
    assert.strictEqual(again.kernel.fingerprint, first.kernel.fingerprint)
  })

  it("moves time only when nothing can run, and at once", () => {
    const { exit, kernel } = simulate(() => Effect.zipRight(Effect.sleep("10 days"), Clock.currentTimeMillis))
    assert.deepStrictEqual(exit, Exit.succeed(1000 + 864_000_000))
    assert.strictEqual(kernel.now, 864_000_000)
  })

  it("lets clocks run differently, and wall clocks jump alone", () => {
    withoutRealTime(() => {
      const kernel = new Kernel(quiet)
      const fast = kernel.process("fast", { rate: 2 })
      let wokenAt = -1
      fast.run(Effect.sleep(100), () => {
        wokenAt = kernel.now
      })
      kernel.drive(() => wokenAt >= 0)
      assert.strictEqual(wokenAt, 50)
      fast.jumpWallClock(-30)
      assert.strictEqual(fast.wallNow, 70)
      assert.strictEqual(fast.monotonicNow, 100)
    })
  })

  it("holds up a paused process with its timers, and counts its time awake", () => {
    const { kernel, process } = simulate(() => Effect.sleep(100), {}, (process, kernel) => {
      kernel.at(50, undefined, () => process.pause(200))
    })
    assert.strictEqual(kernel.now, 250)
    assert.strictEqual(process.awakeSince(0), 50)
    assert.strictEqual(process.awakeSince(100), 0)
  })

  it("runs nothing of a dead process, not even finalizers", () => {
    let finalized = false
    const { end } = simulate(
      () =>
        Effect.ensuring(
          Effect.sleep(100),
          Effect.sync(() => {
            finalized = true
          })
        ),
      {},
      (process, kernel) => {
        kernel.at(50, undefined, () => process.kill())
      }
    )
    assert.strictEqual(end, "deadlock")
    assert.isFalse(finalized)
  })

  it("takes fibers of a captured runtime along", () => {
    const { end, kernel, process } = simulate(() =>
      Effect.flatMap(Effect.runtime<never>(), (runtime) =>
        Effect.async<number>((resume) => {
          Runtime.runFork(runtime)(Effect.zipRight(
            Effect.sleep(5),
            Effect.sync(() => resume(Effect.succeed(1)))
          ))
        }))
    )
    assert.strictEqual(end, "done")
    assert.strictEqual(kernel.now, 5)
    kernel.drive(() => false)
    assert.strictEqual(process.fibers.size, 0)
  })

  it("calls a hook before the n-th resumption of a fiber or one below it", () => {
    const stepsBefore = (n: number) => {
      let steps = 0
      const step = Effect.zipRight(
        Effect.yieldNow(),
        Effect.sync(() => {
          steps++
        })
      )
      simulate(
        () => Effect.forEach([1, 2, 3, 4], () => step, { discard: true }),
        {},
        (process, _, fiber) => process.onResumption(fiber, n, () => fiber.unsafeInterruptAsFork(fiber.id()))
      )
      return steps
    }
    assert.deepStrictEqual([1, 2, 3].map(stepsBefore), [0, 1, 2])
  })

  it("lets things of one instant happen in any order", () => {
    const order = (seed: number) =>
      simulate(() =>
        Effect.gen(function*() {
          const winner = yield* Deferred.make<string>()
          yield* Effect.fork(Effect.delay(Deferred.succeed(winner, "a"), 10))
          yield* Effect.fork(Effect.delay(Deferred.succeed(winner, "b"), 10))
          return yield* Deferred.await(winner)
        }), { seed, strategy: "random" }).exit
    const winners = new Set(Array.from({ length: 20 }, (_, seed) => JSON.stringify(order(seed))))
    assert.strictEqual(winners.size, 2)
  })

  it("forbids real time", () => {
    const { exit } = simulate(() => Effect.sync(() => setTimeout(() => {}, 1)) as Effect.Effect<unknown>)
    assert.isTrue(exit !== undefined && Exit.isFailure(exit))
    assert.match(Cause.pretty((exit as Exit.Failure<unknown, never>).cause), /setTimeout called inside the simulation/)
  })

  it("shows what nobody will ever wake as a deadlock", () => {
    const { end } = simulate(() => Effect.flatMap(Deferred.make<void>(), Deferred.await))
    assert.strictEqual(end, "deadlock")
  })
})
