/**
 * How much a layer keeps at this moment: what must be zero when nobody holds or waits.
 */
import { type Core, grantsOf } from "./core.js"

export const cores = new WeakMap<object, Core>()

export const sizes = (locking: object) => {
  const core = cores.get(locking)!
  return {
    records: core.records.size + core.inOrder.size,
    grants: grantsOf(core).length,
    leases: core.holds.size,
    waiters: core.waiters.size,
    sections: [...core.holds].filter((hold) => hold.sections.length > 0).length,
    activities: core.activities.size,
    timers: core.timer.size()
  }
}
