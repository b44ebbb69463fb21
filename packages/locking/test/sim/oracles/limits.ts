import { sizes } from "../../../src/internal/sizes.js"
import type { Facts } from "../facts.js"
import type { Oracle, Violate } from "../oracle.js"

/** I12: what the engine keeps is bounded by what is held and waited for, and nothing when nobody wants anything. */
export const boundedMemory = (facts: Facts, violate: Violate): Oracle => ({
  ticked: () => {
    // a free key can be asked for even where nobody may wait
    const limit = facts.plan.layer.maxWaiters + 1
    for (const { locking, process } of facts.nodes) {
      if (locking === undefined || process.dead) continue
      const { waiters } = sizes(locking)
      if (waiters > limit) violate(`${process.name} has ${waiters} waiters, ${limit} are allowed`)
    }
  },
  idle: () => {
    for (const { locking, process, state } of facts.nodes) {
      // what a closed layer keeps goes with it
      if (locking === undefined || process.dead || state !== "up") continue
      const left = Object.entries(sizes(locking)).filter(([, size]) => size > 0)
      if (left.length > 0) {
        violate(`${process.name} is idle and keeps ${left.map(([name, n]) => `${n} ${name}`).join(", ")}`)
      }
    }
  }
})
