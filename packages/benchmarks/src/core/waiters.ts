/**
 * Callers who wait, set up so that all of them do before anybody may go.
 */
import * as Effect from "effect/Effect"
import { kept, Locking, MemoryStore, waitersOf } from "../library.js"
import { startTimer, type Time } from "../measure.js"

const patient = { waitTimeout: Number.POSITIVE_INFINITY }

export interface Crowd {
  readonly waiters: number
  readonly keys: number
  /** How often each of them takes its lock. */
  readonly turns?: number
}

export interface Outcome {
  /** From the release of the keys until the last one has ended. */
  readonly time: Time
  /** Of memory, by waiter, its fiber included. */
  readonly bytes: number
  /** What the layer keeps after all that. */
  readonly left: number
}

const times = (count: number) => Array.from({ length: count }, (_, i) => i)

const heap = (): number => {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

export const drain = ({ keys, turns = 1, waiters }: Crowd): Effect.Effect<Outcome> =>
  Effect.scoped(Effect.gen(function*() {
    const locking = yield* Locking.make(yield* MemoryStore.driver(yield* MemoryStore.make), {
      maxWaiters: 100_000,
      tracing: "off"
    })
    const gates = yield* Effect.forEach(times(keys), (key) => locking.acquire(`k${key}`))
    const before = heap()
    const callers = yield* Effect.forEach(
      times(waiters),
      (i) => Effect.fork(Effect.repeatN(locking.withLock(Effect.void, `k${i % keys}`, patient), turns - 1))
    )
    while (waitersOf(locking) < waiters) yield* Effect.sleep(5)
    const bytes = (heap() - before) / waiters
    const timer = startTimer()
    for (const gate of gates) yield* gate.release
    for (const caller of callers) yield* caller.await
    return { time: timer(), bytes, left: kept(locking) }
  })).pipe(Effect.orDie)
