/**
 * Calls to a driver. One that crosses a network may hang or be slow to interrupt, so it runs in a fiber of its own and
 * only the join is bounded; what nobody waits for any more is interrupted without waiting for that. One that stays in
 * the process runs inline.
 *
 * What a wait has set up is undone outside of the interruptible part: an interrupt that falls between the registration
 * of an `Effect.async` and its canceller would skip a canceller.
 */
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import { interruptNow } from "./compat.js"
import type { Call, Core } from "./core.js"

export type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** For waits that nothing may cut short but their bound. */
export const noRestore: Restore = (effect) => effect

/** Where a wait can be ended from outside. */
export interface Joiner {
  resume: (() => void) | undefined
}

const never = (): boolean => false

export const start = <A, E>(core: Core, effect: Effect.Effect<A, E>): Call<A, E> => {
  const fiber = core.forkCall(effect)
  const call: Call<A, E> = { fiber, exit: undefined, onExit: undefined }
  fiber.addObserver((exit) => {
    call.exit = exit
    call.onExit?.()
  })
  return call
}

/**
 * Sleeps until then, or until the joiner is resumed, and not at all when `isOver` says so: what comes before there is
 * anything to resume is seen there. To be run in an uninterruptible region.
 */
export const sleep = (
  core: Core,
  until: number,
  restore: Restore,
  joiner: Joiner,
  isOver = never
): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (isOver()) return Effect.void
    let resume: ((effect: Effect.Effect<void>) => void) | undefined
    let isAwake = false
    const clear = () => {
      core.timer.cancel(deadline)
      joiner.resume = undefined
    }
    const wake = () => {
      isAwake = true
      clear()
      resume?.(Effect.void)
    }
    const deadline = core.timer.add(until, wake)
    joiner.resume = wake
    return Effect.onInterrupt(
      restore(Effect.async<void>((callback) => {
        if (isAwake) callback(Effect.void)
        else resume = callback
      })),
      () => Effect.sync(clear)
    )
  })

/** The answer, or `undefined` once `until` has come or the joiner was resumed. To be run in an uninterruptible region. */
export const join = <A, E>(
  core: Core,
  call: Call<A, E>,
  until: number,
  restore: Restore,
  joiner: Joiner = { resume: undefined },
  isOver = never
): Effect.Effect<Exit.Exit<A, E> | undefined> =>
  Effect.suspend(() => {
    call.onExit = () => joiner.resume?.()
    const leave = Effect.sync(() => {
      call.onExit = undefined
      if (call.exit === undefined) interruptNow(call.fiber)
      return call.exit
    })
    const isAnswered = () => call.exit !== undefined || isOver()
    return Effect.zipRight(Effect.onInterrupt(sleep(core, until, restore, joiner, isAnswered), () => leave), leave)
  })

/** Starts and joins. To be run in an uninterruptible region. */
export const ask = <A, E>(
  core: Core,
  effect: () => Effect.Effect<A, E>,
  until: number,
  restore: Restore,
  joiner?: Joiner,
  isOver?: () => boolean
): Effect.Effect<Exit.Exit<A, E> | undefined> =>
  core.driver.capabilities.remote
    ? Effect.suspend(() => join(core, start(core, Effect.suspend(effect)), until, restore, joiner, isOver))
    : Effect.exit(Effect.suspend(effect))

/** The same from a region that is interruptible. */
export const askFreely = <A, E>(core: Core, effect: () => Effect.Effect<A, E>, limit: number) =>
  Effect.uninterruptibleMask((restore) => ask(core, effect, core.timer.now() + limit, restore))
