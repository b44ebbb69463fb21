/**
 * Events for whoever listens. Nobody listening costs nothing; a slow listener loses the oldest ones, which are counted,
 * and never the end.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { Happening, LockEvent } from "../LockEvent.js"
import { fromCallback } from "./compat.js"

const capacity = 1024

/** The next event, or `None` as the failure of the end. */
type Take = Effect.Effect<LockEvent, Option.Option<never>>

interface Listener {
  readonly buffer: Array<LockEvent>
  wake: (() => void) | undefined
}

export interface Events {
  readonly emit: (happening: () => Happening) => void
  readonly subscribe: Effect.Effect<Take, never, Scope.Scope>
  readonly close: Effect.Effect<void>
}

/** `onDrop` is told of each event that a slow listener lost. */
export const make = (backend: string, wallNow: () => number, onDrop: () => void): Events => {
  const listeners = new Set<Listener>()
  let isClosed = false

  const offer = (listener: Listener, event: LockEvent) => {
    listener.buffer.push(event)
    listener.wake?.()
    if (listener.buffer.length <= capacity) return
    listener.buffer.shift()
    onDrop()
  }

  // an event leaves the buffer only for somebody who has it: a wait that is interrupted takes none
  const takeFrom = (listener: Listener): Take =>
    Effect.suspend(() => {
      const event = listener.buffer.shift()
      if (event !== undefined) return Effect.succeed(event)
      if (isClosed) return Effect.fail(Option.none())
      return Effect.flatMap(
        fromCallback<void>((resume) => {
          listener.wake = () => {
            listener.wake = undefined
            resume(Effect.void)
          }
        }),
        () => takeFrom(listener)
      )
    })

  return {
    emit(happening) {
      if (listeners.size === 0 || isClosed) return
      const event: LockEvent = { backend, at: wallNow(), ...happening() }
      for (const listener of listeners) offer(listener, event)
    },
    subscribe: Effect.map(
      Effect.acquireRelease(
        Effect.sync(() => {
          const listener: Listener = { buffer: [], wake: undefined }
          listeners.add(listener)
          return listener
        }),
        (listener) => Effect.sync(() => listeners.delete(listener))
      ),
      takeFrom
    ),
    close: Effect.sync(() => {
      isClosed = true
      for (const { wake } of listeners) wake?.()
    })
  }
}
