/**
 * Events for whoever listens. Nobody listening costs nothing; a slow listener loses the oldest ones, and is told how
 * many.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import type { Happening, LockEvent } from "../LockEvent.js"

const capacity = 1024

export interface Events {
  readonly emit: (happening: () => Happening) => void
  readonly subscribe: Effect.Effect<Queue.Dequeue<LockEvent>, never, Scope.Scope>
  /** Events that slow listeners lost. */
  readonly dropped: () => number
  readonly close: Effect.Effect<void>
}

export const make = (backend: string, wallNow: () => number): Events => {
  const listeners = new Set<Queue.Queue<LockEvent>>()
  let dropped = 0
  return {
    emit(happening) {
      if (listeners.size === 0) return
      const event: LockEvent = { backend, at: wallNow(), ...happening() }
      for (const queue of listeners) {
        if (Option.getOrElse(queue.unsafeSize(), () => 0) >= capacity) dropped++
        queue.unsafeOffer(event)
      }
    },
    subscribe: Effect.acquireRelease(
      Effect.tap(Queue.sliding<LockEvent>(capacity), (queue) => Effect.sync(() => listeners.add(queue))),
      (queue) => Effect.suspend(() => (listeners.delete(queue), Queue.shutdown(queue)))
    ),
    dropped: () => dropped,
    close: Effect.suspend(() => {
      const open = [...listeners]
      listeners.clear()
      return Effect.forEach(open, Queue.shutdown, { discard: true })
    })
  }
}
