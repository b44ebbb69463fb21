/**
 * The end of a layer: nobody enters, everybody inside is interrupted and awaited, what is held goes back, and none of
 * it takes longer than `shutdownTimeout`, whatever the store does.
 */
import * as Effect from "effect/Effect"
import * as LockError from "../LockError.js"
import { catchAllCause, fromCallback, zipRight } from "./compat.js"
import { type Core, grantsOf, isIdle } from "./core.js"
import { background } from "./giveback.js"
import * as holds from "./hold.js"
import { detach } from "./loss.js"
import { sometimes } from "./probes.js"
import * as release from "./release.js"
import { log } from "./report.js"

export const close = (core: Core): Effect.Effect<void> =>
  catchAllCause(
    closing(core),
    // the layers below must close, and whoever waits for the last event
    (cause) => zipRight(log(core, "Error", "LOCK_CLOSE_FAILED", "Closing failed"), Effect.logDebug(cause))
  )

const closing = (core: Core): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (core.closed) return Effect.void
    core.closed = true
    const deadline = core.timer.now() + core.settings.shutdownTimeout
    if (core.waiters.size > 0) sometimes("shutdown with waiters")
    if (core.holds.size > 0) sometimes("shutdown with holders")
    for (const activity of core.activities) activity.end()
    for (const hold of core.holds) {
      holds.lose(hold, "closed")
      giveBackIfUnused(core, hold)
    }
    return Effect.flatMap(idle(core, deadline), () => leftovers(core))
  })

/** A lease of a scope that may outlive the layer goes back once nothing runs under it. */
export const giveBackIfUnused = (core: Core, hold: Parameters<typeof holds.lose>[0]): void => {
  if (core.closed && hold.isScoped && hold.sections.length === 0) {
    // an interrupt between the call and the wait for it would leave the call to nobody
    background(core, Effect.uninterruptible(release.end(hold)))
  }
}

/** Looks again once woken: what ended last may have begun something in the same step, such as a withdrawal. */
const idle = (core: Core, deadline: number): Effect.Effect<void> =>
  Effect.suspend(() =>
    isIdle(core) || core.timer.now() >= deadline
      ? Effect.void
      : zipRight(untilIdle(core, deadline), idle(core, deadline))
  )

const untilIdle = (core: Core, deadline: number): Effect.Effect<void> =>
  fromCallback((resume) => {
    const done = () => {
      core.timer.cancel(timer)
      core.onIdle = undefined
      resume(Effect.void)
    }
    core.onIdle = done
    const timer = core.timer.add(deadline, done)
  })

/** Out of time. What the store ends by itself is left to its ttl; a session that ends takes its locks with it. */
const leftovers = (core: Core): Effect.Effect<void> =>
  Effect.suspend(() => {
    core.isOver = true
    const sections = [...core.holds].filter((hold) => hold.sections.length > 0).length
    const left = core.activities.size + grantsOf(core).length
    for (const hold of core.holds) hold.endedAt = core.timer.now()
    for (const held of grantsOf(core)) detach(core, held)
    for (const activity of core.activities) activity.abort()
    core.timer.trim()
    if (left === 0 && sections === 0) return unanswered(core)
    const error = new LockError.CleanupTimeout({ backend: core.settings.backend, sections, grants: left })
    core.events.emit(() => ({ _tag: "CleanupTimeout", sections, grants: left }))
    return zipRight(log(core, "Error", error.code, error.message), unanswered(core))
  })

/** In time, but the store did not take everything. */
const unanswered = (core: Core): Effect.Effect<void> => {
  const { notGivenBack: failed, notGivenBackCause: cause, settings: { backend } } = core
  if (failed === 0) return Effect.void
  const error = new LockError.CleanupFailed({ backend, failed, cause })
  core.events.emit(() => ({ _tag: "CleanupFailed", failed }))
  return log(core, "Error", error.code, error.message)
}
