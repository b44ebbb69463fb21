/**
 * Calls to a driver. One that crosses a network may hang or be slow to interrupt, so it runs in a fiber of its own and
 * only the join is bounded; what nobody waits for any more is interrupted without waiting for that. One that stays in
 * the process runs inline.
 */
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import { interruptNow } from "./compat.js"
import type { Call, Core } from "./core.js"

export type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** For waits inside finalizers and background fibers. */
export const noRestore: Restore = (effect) => effect

/** Where the join can be ended from outside. */
export interface Joiner {
  resume: (() => void) | undefined
}

export const start = <A, E>(core: Core, effect: Effect.Effect<A, E>): Call<A, E> => {
  const fiber = core.fork(Effect.withTracerEnabled(effect, false))
  const call: Call<A, E> = { fiber, exit: undefined, onExit: new Set() }
  fiber.addObserver((exit) => {
    call.exit = exit
    for (const tell of call.onExit) tell()
  })
  return call
}

/** Ends when the call has, whoever waits for its answer. */
export const ended = (call: Call<any, any>): Effect.Effect<void> =>
  Effect.async((resume) => {
    if (call.exit !== undefined) return resume(Effect.void)
    const done = () => resume(Effect.void)
    call.onExit.add(done)
    return Effect.sync(() => call.onExit.delete(done))
  })

/** The answer, or `undefined` once `until` has come or the joiner was resumed. */
export const join = <A, E>(
  core: Core,
  call: Call<A, E>,
  until: number,
  restore: Restore,
  joiner?: Joiner
): Effect.Effect<Exit.Exit<A, E> | undefined> =>
  Effect.suspend(() =>
    call.exit !== undefined
      ? Effect.succeed(call.exit)
      : Effect.onInterrupt(
        restore(Effect.async<Exit.Exit<A, E> | undefined>((resume) => {
          const done = () => {
            core.timer.cancel(deadline)
            if (joiner !== undefined) joiner.resume = undefined
            call.onExit.delete(done)
            if (call.exit === undefined) interruptNow(call.fiber)
            resume(Effect.succeed(call.exit))
          }
          const deadline = core.timer.add(until, done)
          if (joiner !== undefined) joiner.resume = done
          call.onExit.add(done)
          return Effect.sync(() => {
            core.timer.cancel(deadline)
            if (joiner !== undefined) joiner.resume = undefined
            call.onExit.delete(done)
          })
        })),
        () => Effect.sync(() => interruptNow(call.fiber))
      )
  )

/** Starts and joins. */
export const ask = <A, E>(
  core: Core,
  effect: Effect.Effect<A, E>,
  until: number,
  restore: Restore,
  joiner?: Joiner
): Effect.Effect<Exit.Exit<A, E> | undefined> =>
  core.driver.capabilities.remote
    ? Effect.suspend(() => join(core, start(core, effect), until, restore, joiner))
    : Effect.exit(effect)

/** Sleeps until then, or until the joiner is resumed. */
export const sleep = (core: Core, until: number, restore: Restore, joiner: Joiner): Effect.Effect<void> =>
  restore(Effect.async<void>((resume) => {
    const done = () => {
      core.timer.cancel(deadline)
      joiner.resume = undefined
      resume(Effect.void)
    }
    const deadline = core.timer.add(until, done)
    joiner.resume = done
    return Effect.sync(() => {
      core.timer.cancel(deadline)
      joiner.resume = undefined
    })
  }))
