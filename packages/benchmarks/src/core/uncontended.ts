/**
 * One caller, one key, the memory layer: what the lock itself costs beside Effect's own semaphore.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import type { Benchmark } from "../figure.js"
import { Locking, MemoryStore } from "../library.js"
import { interleave, ratio, repeat, type Rounds, startTimer, type Time, typical } from "../measure.js"

const memory = (tracing: "off" | "all") =>
  Effect.flatMap(
    Effect.flatMap(MemoryStore.make, MemoryStore.driver),
    (driver) => Locking.make(driver, { tracing, backend: tracing })
  )

/** Batches that take about as long as one another, with several collections of garbage in each. */
const batch = (effect: Effect.Effect<unknown, unknown>, millis: number) => {
  let times = 100
  return async (): Promise<Time> => {
    const time = startTimer()
    await repeat(effect, times)
    const { cpu, wall } = time()
    const each = { cpu: cpu / times, wall: wall / times }
    times = Math.max(100, Math.round(millis * 1000 / each.cpu))
    return each
  }
}

export const uncontended: Benchmark = async ({ seconds }) => {
  const scope = Effect.runSync(Scope.make())
  const off = Effect.runSync(Scope.extend(memory("off"), scope))
  const all = Effect.runSync(Scope.extend(memory("all"), scope))
  const body = Effect.sync(() => {})
  const millis = Math.min(80, seconds * 1000 / 40)
  const rounds = await interleave({
    semaphore: batch(Effect.unsafeMakeSemaphore(1).withPermits(1)(body), millis),
    child: batch(Effect.flatMap(Effect.fork(body), Fiber.join), millis),
    spans: batch(Effect.withSpan(Effect.withSpan(body, "acquire"), "hold"), millis),
    off: batch(off.withLock(body, "k"), millis),
    all: batch(all.withLock(body, "k"), millis)
  }, seconds)
  return [
    {
      name: "withLock: rate, as a part of Semaphore(1).withPermits",
      value: ratio(rounds, "semaphore", "off", "wall"),
      unit: "",
      target: { atLeast: 0.2 },
      note:
        `${
          beside(rounds, "off")
        }. The section has a fiber of its own, the price of interrupting it; a bare fork and join ` +
        `takes ${micros(rounds, "child")}`
    },
    {
      name: "withLock with spans for all: rate, as a part of the same",
      value: ratio(rounds, "semaphore", "all", "wall"),
      unit: "",
      target: { atLeast: 0.1 },
      note: `${beside(rounds, "all")}. Two bare spans take ${micros(rounds, "spans")}`
    }
  ]
}

type Cases = Rounds<"semaphore" | "child" | "spans" | "off" | "all">

const micros = (rounds: Cases, name: keyof Cases[number]): string => `${typical(rounds, name).toFixed(1)} µs`

const beside = (rounds: Cases, name: "off" | "all"): string =>
  `${micros(rounds, name)} beside ${micros(rounds, "semaphore")} of processor time, a rate of ${
    ratio(rounds, "semaphore", name).toFixed(2)
  }`
