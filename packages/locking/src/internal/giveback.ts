/**
 * What the store may keep although nobody here holds it goes back in the background, where nobody waits for it.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { Claim, DriverError } from "../LockDriver.js"
import * as calls from "./calls.js"
import { interruptNow, zipRight } from "./compat.js"
import { Activity, begin, type Core, finish } from "./core.js"
import { sometimes } from "./probes.js"
import { about, log } from "./report.js"

/** Work of the layer's own that its close waits for, as long as it may. */
export const background = (core: Core, effect: Effect.Effect<unknown>): void => {
  const fiber = core.fork(effect)
  const activity = new Activity("background", () => {}, () => interruptNow(fiber))
  begin(core, activity)
  fiber.addObserver(() => finish(core, activity))
}

/** The close of the layer tells. */
const noteNotGivenBack = (core: Core, exit: Exit.Exit<unknown, DriverError> | undefined): void => {
  core.notGivenBack++
  if (exit === undefined || Exit.isSuccess(exit) || exit.cause._tag !== "Fail") return
  core.notGivenBackCause = exit.cause.error.cause ?? exit.cause.error
}

/**
 * Gives back by its token whatever the store may have granted or may still grant, in the background: at once, once more
 * when no attempt can act any more (`lastAct`), and again until an answer comes or it has lapsed anyway (`lapsesAt`).
 */
export const abandon = (core: Core, claim: Claim, lastAct: number, lapsesAt: number): void => {
  const attempt = (tries: number): Effect.Effect<void> =>
    Effect.suspend(() => {
      const start = core.timer.now()
      return Effect.flatMap(
        calls.askFreely(core, () => core.driver.release(claim), core.defaults.attemptTimeout),
        (exit) => {
          const now = core.timer.now()
          if (exit !== undefined && Exit.isSuccess(exit)) {
            return start >= lastAct ? Effect.void : zipRight(Effect.sleep(lastAct - now), attempt(0))
          }
          sometimes("undo refused")
          if (now >= lapsesAt || core.isOver) {
            if (core.closed) noteNotGivenBack(core, exit)
            return log(core, "Warning", "RELEASE_FAILED", "A lock could not be given back", about(core, claim))
          }
          return zipRight(Effect.sleep(Math.min(1000, 25 * 2 ** tries)), attempt(tries + 1))
        }
      )
    })
  background(core, attempt(0))
}
