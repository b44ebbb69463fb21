/**
 * What operators see: logs and events, with hashes for keys.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as LockError from "../LockError.js"

import type { Core, Hold, Request } from "./core.js"
import type { Outcome } from "./instruments.js"
import { shortHash } from "./pure/keyEncoding.js"
import { isTrusted } from "./pure/trust.js"

/** The hash of the key, or of the first one of several. */
export const keyHash = (of: { readonly keys: ReadonlyArray<{ readonly id: string }> }): string =>
  shortHash(of.keys[0]!.id)

/** What a log line says of a lock, or of the first one of several. */
export const about = (core: Core, of: Parameters<typeof keyHash>[0]) => ({
  lock: keyHash(of),
  session: core.settings.session
})

export const log = (
  core: Core,
  level: "Debug" | "Info" | "Warning" | "Error",
  code: string,
  message: string,
  fields: Readonly<Record<string, unknown>> = {}
): Effect.Effect<void> =>
  Effect.annotateLogs(
    level === "Debug"
      ? Effect.logDebug(message)
      : level === "Info"
      ? Effect.logInfo(message)
      : level === "Warning"
      ? Effect.logWarning(message)
      : Effect.logError(message),
    { backend: core.settings.backend, code, ...fields }
  )

export const logNow = (...args: Parameters<typeof log>): void => {
  args[0].fork(log(...args))
}

/** For people: whole milliseconds. */
export const readable = (millis: number): string => Duration.format(Duration.millis(Math.round(millis)))

export const leaseLost = (hold: Hold): LockError.LeaseLost =>
  new LockError.LeaseLost({
    backend: hold.core.settings.backend,
    keyHash: keyHash(hold),
    fence: hold.fences[0]!,
    reason: hold.reason ?? "closed",
    overrun: Duration.millis(Math.max(0, hold.core.timer.now() - hold.endedAt))
  })

/** What this process knows of whoever holds the key, for the error of a caller who did not get it. */
export const holderOf = (core: Core, request: Request): LockError.HolderSummary | undefined => {
  const now = core.timer.now()
  for (const key of request.keys) {
    const held = core.records.get(exclusionId(core, key))?.grants[0]
    if (held !== undefined && isTrusted(held.trust, now)) {
      const hold = held.holds.first?.value
      return {
        keyHash: shortHash(key.id),
        mode: held.mode,
        fence: hold?.fences[0],
        since: hold?.acquiredAt,
        endsIn: held.trust._tag === "Held" && held.trust.until !== Infinity
          ? Duration.millis(held.trust.until - now)
          : undefined,
        session: core.settings.session,
        local: true
      }
    }
  }
  const last = request.last
  if (last === undefined || last === "no answer" || last._tag !== "Busy") return undefined
  return {
    keyHash: keyHash(request),
    mode: last.holder?.mode ?? "exclusive",
    fence: last.holder?.fence,
    since: last.holder?.since,
    endsIn: last.endsIn === undefined
      ? undefined
      : Duration.millis(Math.max(0, Duration.toMillis(last.endsIn) - (now - request.lastAt))),
    session: last.holder?.session,
    local: false
  }
}

/** Under which name this process excludes itself from a key. */
export const exclusionId = (core: Core, key: Request["keys"][number]): string =>
  core.driver.exclusionId === undefined ? key.id : core.driver.exclusionId(key)

const outcomeOf: Readonly<Record<LockError.AcquireError["_tag"], Outcome>> = {
  InvalidOptions: "failed",
  InvalidKey: "failed",
  LockBusy: "busy",
  WaitTimeout: "timeout",
  QueueFull: "limit",
  KeyLimit: "limit",
  LockReentry: "reentry",
  LockingClosed: "closed",
  ProviderFailed: "failed",
  OutcomeUnknown: "unknown"
}

/** A call ends without a lease. */
export const refuse = <E extends LockError.AcquireError>(core: Core, error: E): Effect.Effect<never, E> => {
  core.instruments.acquired[outcomeOf[error._tag]](1)
  return Effect.fail(error)
}
