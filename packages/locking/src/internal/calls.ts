/**
 * Calls to a driver. One that crosses a network may hang or be slow to interrupt, so it runs by callback or in a
 * fiber of its own, and only the join is bounded; what nobody waits for any more is abandoned without waiting for that.
 * One that stays in the process runs inline.
 *
 * What a wait has set up is undone outside of the interruptible part: an interrupt that falls between the registration
 * of an `Effect.async` and its canceller would skip a canceller.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { Callback, type Register } from "./callback.js"
import { attempt, fromCallback, interruptNow, isExit } from "./compat.js"
import type { Core } from "./core.js"

export type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** For waits that nothing may cut short but their bound. */
export const noRestore: Restore = (effect) => effect

/** Where a wait can be ended from outside. */
export class Joiner {
  resume: (() => void) | undefined = undefined
}

const never = (): boolean => false
const nothing = (): void => {}

/** A driver call that is joined from the side. */
export class Call<A, E> {
  exit: Exit.Exit<A, E> | undefined = undefined
  onExit: (() => void) | undefined = undefined
  /** How to abandon what it waits for now. */
  private abandonStep: (() => void) | undefined = undefined
  private isAbandoned = false

  constructor(private readonly core: Core) {}

  proceed(effect: Effect.Effect<A, E>): void {
    if (isExit(effect)) return this.end(effect)
    if (effect instanceof Callback) return this.register(effect.register)
    const fiber = this.core.forkCall(effect)
    this.abandonStep = () => interruptNow(fiber)
    fiber.addObserver((exit) => this.end(exit))
  }

  /** Sends word that nobody waits for it, without waiting for the effect of that. */
  abandon(): void {
    if (this.exit !== undefined) return
    this.isAbandoned = true
    this.abandonStep?.()
  }

  private register(register: Register<A, E>): void {
    let isOver = false
    const began = attempt(() =>
      register((next) => {
        // nobody waits for what would go on
        if (isOver || this.isAbandoned) return
        isOver = true
        this.proceed(next)
      })
    )
    if (isOver) return
    if (Exit.isSuccess(began)) this.abandonStep = began.value ?? undefined
    else this.end(Exit.failCause(began.cause))
  }

  private end(exit: Exit.Exit<A, E>): void {
    this.exit = exit
    this.onExit?.()
  }
}

const start = <A, E>(core: Core, effect: () => Effect.Effect<A, E>): Call<A, E> => {
  const call = new Call<A, E>(core)
  const began = attempt(effect)
  call.proceed(Exit.isSuccess(began) ? began.value : Exit.failCause(began.cause))
  return call
}

/**
 * Waits until then, or until the joiner is resumed, and not at all when `isOver` says so: what comes before there is
 * anything to resume is seen there. `end` undoes what was set up for the wait, and makes its result; after an interrupt
 * `interrupted` follows. To be run in an uninterruptible region.
 */
const wait = <A>(
  core: Core,
  until: number,
  restore: Restore,
  joiner: Joiner,
  isOver: () => boolean,
  end: () => A,
  interrupted: () => void
): Effect.Effect<A> => {
  if (isOver()) return Effect.succeed(end())
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
  // `onInterrupt` means the same where nothing else can fail, and takes three times the steps
  return Effect.matchCauseEffect(
    restore(fromCallback<void>((callback) => {
      if (isAwake) callback(Effect.void)
      else resume = callback
    })),
    {
      onFailure: (cause) => {
        clear()
        end()
        interrupted()
        return Effect.failCause(cause)
      },
      onSuccess: () => Effect.succeed(end())
    }
  )
}

/** Sleeps as `wait` waits. */
export const sleep = (
  core: Core,
  until: number,
  restore: Restore,
  joiner: Joiner,
  isOver = never,
  interrupted = nothing
): Effect.Effect<void> => Effect.suspend(() => wait(core, until, restore, joiner, isOver, nothing, interrupted))

/** Asks, and waits as `wait` does for the answer; `undefined` when it did not come. To be run in an uninterruptible region. */
export const ask = <A, E>(
  core: Core,
  effect: () => Effect.Effect<A, E>,
  until: number,
  restore: Restore,
  joiner = new Joiner(),
  isOver = never,
  interrupted = nothing
): Effect.Effect<Exit.Exit<A, E> | undefined> =>
  core.driver.capabilities.remote
    ? Effect.suspend(() => {
      const call = start(core, effect)
      call.onExit = () => joiner.resume?.()
      const end = () => {
        call.onExit = undefined
        call.abandon()
        return call.exit
      }
      return wait(core, until, restore, joiner, () => call.exit !== undefined || isOver(), end, interrupted)
    })
    : Effect.exit(Effect.suspend(effect))

/** The same from a region that is interruptible. */
export const askFreely = <A, E>(core: Core, effect: () => Effect.Effect<A, E>, limit: number) =>
  Effect.uninterruptibleMask((restore) => ask(core, effect, core.timer.now() + limit, restore))
