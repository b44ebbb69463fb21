/**
 * The critical section runs in a fiber of its own, which the loss of a lease interrupts, and the interrupt of its caller
 * as well. Never ends before that fiber has ended, finalizers included.
 *
 * The fiber begins within the step of its caller and is no child of it: a turn of the scheduler and the books of parent
 * and child would cost more than the lock.
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Tracer from "effect/Tracer"
import type { LeaseLost } from "../LockError.js"
import type { Restore } from "./calls.js"
import * as claims from "./claims.js"
import {
  catchAllCause,
  contextOf,
  type FiberState,
  fork,
  fromCallback,
  givesInterruption,
  hasChanges,
  inheritFrom,
  interruptAs,
  interruptNow,
  isInterrupted,
  type RuntimeFiber,
  setContext,
  starting,
  stateOf,
  withFiber,
  zipRight
} from "./compat.js"
import type { Hold } from "./core.js"
import * as holds from "./hold.js"
import { sometimes } from "./probes.js"
import { leaseLost } from "./report.js"

/** An end this soon after the loss is not worth a report. */
const promptly = 10

/** Runs a body under a hold, with a claim and a span in its context where they are given. To be run in an uninterruptible region. */
export const run = <A, E, R>(
  hold: Hold,
  body: Effect.Effect<A, E, R>,
  restore: Restore,
  claim?: claims.Claim | undefined,
  span?: Tracer.Span | undefined
): Effect.Effect<Exit.Exit<A, E | LeaseLost>, never, R> =>
  starting((caller, start) => {
    const context = claim === undefined ? contextOf(caller) : claims.within(contextOf(caller), claim, span)
    const isOver = () => hold.state === "lost" || isInterrupted(caller)
    let fiber: RuntimeFiber<any, any> | undefined
    let begunWith: FiberState | undefined
    const interrupt = () => {
      if (fiber !== undefined) interruptNow(fiber)
    }
    const section = withFiber<A, E, R>((self) => {
      fiber = self
      begunWith ??= stateOf(self)
      return restore(body)
    })
    const leave = (exit: Exit.Exit<A, E>) => {
      hold.sections.splice(hold.sections.indexOf(interrupt), 1)
      const judged = judge(exit, hold, caller)
      return hasChanges(fiber!, begunWith!) ? Effect.as(inheritFrom(fiber!, caller), judged) : Effect.succeed(judged)
    }
    const follow = (started: RuntimeFiber<A, E>) => {
      const exit = started.unsafePoll()
      if (exit !== null) return leave(exit)
      fiber = started
      // what came before it was known
      if (isOver()) interrupt()
      return Effect.flatMap(end(started, caller, restore), leave)
    }
    if (hold.state === "lost") sometimes("lost before the body started")
    hold.sections.push(interrupt)
    return givesInterruption(restore)
      ? follow(start(section, context as Context.Context<R>, !isOver(), (state) => begunWith = state))
      // a child is told of an interrupt that its parent may not act on yet
      : Effect.flatMap(fork(zipRight(setContext(context), section)), follow)
  })

/** The end of a fiber, which an interrupt of its caller only hastens. */
const end = <A, E>(
  fiber: RuntimeFiber<A, E>,
  caller: RuntimeFiber<any, any>,
  restore: Restore
): Effect.Effect<Exit.Exit<A, E>> => {
  const ended = fromCallback<Exit.Exit<A, E>>((resume) => fiber.addObserver((exit) => resume(Effect.succeed(exit))))
  return catchAllCause(restore(ended), () => {
    interruptAs(fiber, caller)
    return ended
  })
}

const judge = <A, E>(
  exit: Exit.Exit<A, E>,
  hold: Hold,
  parent: RuntimeFiber<any, any>
): Exit.Exit<A, E | LeaseLost> => {
  if (hold.state !== "lost") return exit
  const error = leaseLost(hold)
  if (Duration.toMillis(error.overrun) >= promptly) holds.overran(hold, true)
  // the caller's own interruption wins over all
  if (isInterrupted(parent)) return exit
  if (Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause)) return Exit.fail(error)
  const own = Cause.filter(exit.cause, (cause) => cause._tag !== "Interrupt")
  return Exit.failCause(Cause.sequential(own, Cause.fail(error)))
}
