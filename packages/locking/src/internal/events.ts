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
  /** `undefined` marks the end. */
  readonly subscribe: Effect.Effect<Queue.Dequeue<LockEvent | undefined>, never, Scope.Scope>
  readonly close: Effect.Effect<void>
}

/** `onDrop` is told of each event that a slow listener lost. */
export const make = (backend: string, wallNow: () => number, onDrop: () => void): Events => {
  const listeners = new Set<Queue.Queue<LockEvent | undefined>>()
  let isClosed = false
  const offer = (queue: Queue.Queue<LockEvent | undefined>, event: LockEvent | undefined) => {
    if (Option.getOrElse(queue.unsafeSize(), () => 0) >= capacity) onDrop()
    queue.unsafeOffer(event)
  }
  return {
    emit(happening) {
      if (listeners.size === 0) return
      const event: LockEvent = { backend, at: wallNow(), ...happening() }
      for (const queue of listeners) offer(queue, event)
    },
    subscribe: Effect.acquireRelease(
      Effect.tap(
        Queue.sliding<LockEvent | undefined>(capacity),
        (queue) => Effect.sync(() => isClosed ? offer(queue, undefined) : listeners.add(queue))
      ),
      (queue) => Effect.suspend(() => (listeners.delete(queue), Queue.shutdown(queue)))
    ),
    close: Effect.sync(() => {
      isClosed = true
      for (const queue of listeners) offer(queue, undefined)
      listeners.clear()
    })
  }
}
