/**
 * The critical section runs in a child fiber, which the loss of a lease interrupts; the caller's own interruption
 * reaches the child by itself, as it reaches every child. Never ends before the child has ended, finalizers included.
 */
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Tracer from "effect/Tracer"
import type { LeaseLost } from "../LockError.js"
import type { Restore } from "./calls.js"
import * as claims from "./claims.js"
import {
  fork,
  hasChanges,
  inheritFrom,
  interruptNow,
  isInterrupted,
  type RuntimeFiber,
  stateOf,
  withFiber
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
  Effect.flatMap(
    fork(claim === undefined ? restore(body) : Effect.zipRight(claims.put(claim, span), restore(body))),
    (child) =>
      withFiber((parent) => {
        const begunWith = stateOf(child)
        const interrupt = () => interruptNow(child)
        if (hold.state === "lost") {
          sometimes("lost before the body started")
          interrupt()
        }
        // an interrupt that came before the fork is not passed on to children by itself
        if (isInterrupted(parent)) interrupt()
        hold.sections.push(interrupt)
        return Effect.flatMap(
          Effect.async<Exit.Exit<A, E>>((resume) => child.addObserver((exit) => resume(Effect.succeed(exit)))),
          (exit) => {
            hold.sections.splice(hold.sections.indexOf(interrupt), 1)
            const judged = judge(exit, hold, parent)
            return hasChanges(child, begunWith) ? Effect.as(inheritFrom(child, parent), judged) : Effect.succeed(judged)
          }
        )
      })
  )

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
