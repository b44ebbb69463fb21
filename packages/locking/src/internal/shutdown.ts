/**
 * The end of a layer: nobody enters, everybody inside is interrupted and awaited, what is held goes back, and none of
 * it takes longer than `shutdownTimeout`, whatever the store does.
 */
import * as Effect from "effect/Effect"
import * as LockError from "../LockError.js"
import type { Core } from "./core.js"
import * as grants from "./grants.js"
import * as holds from "./hold.js"
import { sometimes } from "./probes.js"
import * as release from "./release.js"
import { log } from "./report.js"

export const close = (core: Core): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (core.closed) return Effect.void
    core.closed = true
    const deadline = core.timer.now() + core.settings.shutdownTimeout
    if (core.waiters.size > 0) sometimes("shutdown with waiters")
    if (core.holds.size > 0) sometimes("shutdown with holders")
    for (const activity of [...core.activities]) activity.end()
    for (const hold of [...core.holds]) {
      const isLease = hold.onLost.size === 0
      holds.lose(hold, "closed")
      // a lease that no section of ours runs under has nothing to wait for
      if (isLease) grants.background(core, release.end(hold))
    }
    return Effect.flatMap(idle(core, deadline), () => leftovers(core))
  })

const idle = (core: Core, deadline: number): Effect.Effect<void> =>
  Effect.async((resume) => {
    if (core.activities.size === 0) return resume(Effect.void)
    const done = () => {
      core.timer.cancel(timer)
      core.onIdle = undefined
      resume(Effect.void)
    }
    const timer = core.timer.add(deadline, done)
    core.onIdle = done
  })

/** Out of time. What the store ends by itself is left to its ttl; a session that ends takes its locks with it. */
const leftovers = (core: Core): Effect.Effect<void> =>
  Effect.suspend(() => {
    const sections = [...core.activities].filter((activity) => activity.kind === "section").length
    const left = core.activities.size
    const failed = core.grants.size
    for (const held of [...core.grants.values()]) grants.detach(core, held)
    for (const activity of [...core.activities]) activity.abort()
    core.timer.trim()
    if (left > 0) {
      const error = new LockError.CleanupTimeout({ backend: core.settings.backend, sections, grants: left - sections })
      core.events.emit(() => ({ _tag: "CleanupTimeout", sections, grants: left - sections }))
      return log(core, "Error", error.code, error.message)
    }
    if (failed > 0) {
      const error = new LockError.CleanupFailed({ backend: core.settings.backend, failed })
      core.events.emit(() => ({ _tag: "CleanupFailed", failed }))
      return log(core, "Error", error.code, error.message)
    }
    return Effect.void
  })
