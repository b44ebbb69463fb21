/**
 * One caller, one key, the memory layer: what the lock itself costs beside Effect's own semaphore.
 */
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { Locking, MemoryStore } from "./library.js"
import { compare, type Figure } from "./measure.js"

const memory = (tracing: "off" | "all") =>
  Effect.flatMap(
    Effect.flatMap(MemoryStore.make, MemoryStore.driver),
    (driver) => Locking.make(driver, { tracing, backend: tracing })
  )

export const uncontended = async (seconds: number): Promise<ReadonlyArray<Figure>> => {
  const scope = Effect.runSync(Scope.make())
  const off = Effect.runSync(Scope.extend(memory("off"), scope))
  const all = Effect.runSync(Scope.extend(memory("all"), scope))
  const body = Effect.sync(() => {})
  const best = await compare({
    semaphore: Effect.unsafeMakeSemaphore(1).withPermits(1)(body),
    child: Effect.flatMap(Effect.fork(body), Fiber.join),
    off: off.withLock(body, "k"),
    all: all.withLock(body, "k")
  }, seconds)
  return [
    {
      name: "withLock, as a part of Semaphore(1).withPermits",
      value: best.semaphore / best.off,
      unit: "of its rate",
      target: { atLeast: 0.2 },
      note: `${best.off.toFixed(2)} µs; a section in a child fiber, the price of interrupting it, costs ${
        best.child.toFixed(2)
      } µs by itself`
    },
    {
      name: "withLock with spans for all, as a part of the same",
      value: best.semaphore / best.all,
      unit: "of its rate",
      target: { atLeast: 0.1 }
    }
  ]
}
