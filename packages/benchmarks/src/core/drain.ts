/**
 * Ten thousand callers on a thousand keys: what one of them costs must not grow with their number.
 */
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Scheduler from "effect/Scheduler"
import type { Benchmark } from "../figure.js"
import { type Crowd, drain } from "./waiters.js"

class CountingScheduler extends Scheduler.MixedScheduler {
  tasks = 0
  override scheduleTask(task: Scheduler.Task, priority: number, fiber?: Fiber.RuntimeFiber<unknown, unknown>): void {
    this.tasks++
    super.scheduleTask(task, priority, fiber)
  }
}

const counted = async (crowd: Crowd) => {
  const scheduler = new CountingScheduler(2048)
  const outcome = await Effect.runPromise(Effect.withScheduler(drain(crowd), scheduler))
  return { ...outcome, tasks: scheduler.tasks / crowd.waiters }
}

/** The dearest beside the cheapest. */
const spread = (values: ReadonlyArray<number>): number => Math.max(...values) / Math.min(...values)

const list = (values: ReadonlyArray<string>): string => `${values.slice(0, -1).join(", ")} and ${values.at(-1)}`

export const draining: Benchmark = async () => {
  await counted({ waiters: 1000, keys: 100 })
  const outcomes = []
  for (const waiters of [2500, 5000, 10_000]) outcomes.push(await counted({ waiters, keys: 1000 }))
  const last = outcomes.at(-1)!
  return [
    {
      name: "scheduler tasks per waiter, over 2 500, 5 000 and 10 000 waiters on 1 000 keys",
      value: spread(outcomes.map(({ tasks }) => tasks)),
      unit: "times",
      target: { atMost: 1.2 },
      note: `${list(outcomes.map(({ tasks }) => tasks.toFixed(2)))} tasks; ${
        list(outcomes.map(({ time }, i) => (time.cpu / [2500, 5000, 10_000][i]!).toFixed(0)))
      } µs of processor time, each in its first turn`
    },
    {
      name: "memory per waiter, over the same",
      value: spread(outcomes.map(({ bytes }) => bytes)),
      unit: "times",
      target: { atMost: 1.2 },
      note: `${list(outcomes.map(({ bytes }) => (bytes / 1024).toFixed(2)))} KiB, the waiter's fiber included`
    },
    { name: "left in the layer after 10 000 waiters", value: last.left, unit: "entries", target: { atMost: 0 } }
  ]
}
