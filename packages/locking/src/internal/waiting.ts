/**
 * Who waits for somebody else's release, for the limit and the gauges.
 */
import type { Core, Request } from "./core.js"
import { sometimes } from "./probes.js"
import { keyHash } from "./report.js"

/** Whether there is no room for one more. A caller that waits already needs none. */
export const isFull = (core: Core, request: Request): boolean => {
  if (request.place?.isIn === true || core.waiters.size < core.settings.maxWaiters) return false
  sometimes("limit reached")
  return true
}

export const add = (core: Core, request: Request): void => {
  if (request.place?.isIn === true) return
  request.place = core.waiters.push(request)
  core.events.emit(() => ({ _tag: "Waiting", keyHash: keyHash(request), mode: request.call.mode }))
  measure(core)
}

export const remove = (core: Core, request: Request): void => {
  if (core.waiters.remove(request.place)) measure(core)
}

const measure = (core: Core): void => {
  const oldest = core.waiters.first?.value
  core.instruments.waiters(core.waiters.size)
  const { timer } = core
  core.instruments.oldestWait(
    oldest === undefined ? 0 : (timer.wallNow() - (timer.now() - oldest.startedAt)) / 1000
  )
}
