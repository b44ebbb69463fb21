/**
 * Many callers in one process: what a waiter costs must not grow with the number of waiters.
 */
import * as Effect from "effect/Effect"
import * as Scheduler from "effect/Scheduler"
import { Locking, MemoryStore, sizes } from "./library.js"
import { cpuMicros, type Figure } from "./measure.js"

class CountingScheduler implements Scheduler.Scheduler {
  tasks = 0
  private readonly inner = new Scheduler.MixedScheduler(2048)
  readonly shouldYield = this.inner.shouldYield
  scheduleTask(task: () => void, priority: number): void {
    this.tasks++
    this.inner.scheduleTask(task, priority)
  }
}

const patient = { waitTimeout: Number.POSITIVE_INFINITY }

/** `waiters` callers over `keys` keys, each key held until all of them wait. */
const drain = (waiters: number, keys: number) =>
  Effect.scoped(Effect.gen(function*() {
    const locking = yield* Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make), {
      maxWaiters: 100_000,
      tracing: "off"
    })
    const before = heap()
    const gates = yield* Effect.forEach(Array.from({ length: keys }, (_, i) => i), (i) => locking.acquire(`k${i}`))
    const callers = yield* Effect.forEach(
      Array.from({ length: waiters }, (_, i) => i),
      (i) => Effect.fork(locking.withLock(Effect.void, `k${i % keys}`, patient))
    )
    while (sizes(locking)["waiters"]! < waiters) yield* Effect.sleep(20)
    const bytes = (heap() - before) / waiters
    const cpu = process.cpuUsage()
    for (const gate of gates) yield* gate.release
    for (const caller of callers) yield* caller.await
    const { system, user } = process.cpuUsage(cpu)
    const left = Object.values(sizes(locking)).reduce((sum, size) => sum + size, 0)
    return { bytes, left, micros: (system + user) / waiters }
  }))

const heap = (): number => {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

const counted = async (waiters: number, keys: number) => {
  const scheduler = new CountingScheduler()
  const result = await Effect.runPromise(Effect.withScheduler(drain(waiters, keys), scheduler))
  return { ...result, tasks: scheduler.tasks / waiters }
}

export const contended = async (): Promise<ReadonlyArray<Figure>> => {
  await cpuMicros(() => counted(1000, 100))
  const small = await counted(2500, 1000)
  const large = await counted(10_000, 1000)
  const micros: Array<number> = []
  for (const waiters of [10, 100, 1000]) {
    let best = Infinity
    for (let round = 0; round < 15; round++) {
      best = Math.min(best, (await Effect.runPromise(drain(waiters, 1))).micros)
    }
    micros.push(best)
  }
  return [
    {
      name: "scheduler tasks per waiter, 10 000 beside 2 500 on 1 000 keys",
      value: large.tasks / small.tasks,
      unit: "times",
      target: { atMost: 1.2 },
      note: `${large.tasks.toFixed(1)} tasks per waiter`
    },
    {
      name: "memory per waiter, 10 000 beside 2 500",
      value: large.bytes / small.bytes,
      unit: "times",
      target: { atMost: 1.2 },
      note: `${(large.bytes / 1024).toFixed(1)} KiB per waiter, its fiber included`
    },
    { name: "left after 10 000 waiters", value: large.left, unit: "entries", target: { atMost: 0 } },
    {
      name: "a hand-over between local waiters, 1 000 beside the dearer of 10 and 100",
      value: micros[2]! / Math.max(micros[0]!, micros[1]!),
      unit: "times",
      target: { atMost: 1.5 },
      note: `${micros.map((_) => _.toFixed(1)).join(", ")} µs at 10, 100 and 1 000 waiters`
    }
  ]
}
