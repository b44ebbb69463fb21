import type { Facts, Holding, Run } from "../facts.js"
import type { Oracle, Violate } from "../oracle.js"

/** Holders may overlap where the store forgets or its clock jumps: they then see their leases in any order. */
const mayOverlap = ({ plan }: Facts): boolean => plan.profile === "amnesia" || plan.profile === "clock"

/** I2: fences grow strictly per key, from grant to grant at the store and from lease to lease of writers. */
export const growingFences = (facts: Facts, violate: Violate): Oracle => {
  const lastOfStore = new Map<string, bigint>()
  const lastOfWriters = new Map<string, Holding>()
  return {
    changed: (change, grant) => {
      if (change.kind !== "granted" || grant === undefined) return
      const last = lastOfStore.get(grant.key) ?? 0n
      if (grant.firstFence <= last) {
        violate(`the store granted ${grant.key} with fence ${grant.firstFence} after ${last}`)
      }
      lastOfStore.set(grant.key, grant.lastFence)
    },
    entered: (run) => {
      if (mayOverlap(facts)) return
      for (const holding of run.holdings) {
        // a lease that ended before its section could begin is late in order, not in truth
        if (holding.mode !== "exclusive" || !holding.valid || holding.deposed) continue
        const last = lastOfWriters.get(holding.key)
        if (last !== undefined && holding.fence <= last.fence) {
          violate(`${holding.name} of ${holding.key} does not exceed ${last.name}`)
        }
        lastOfWriters.set(holding.key, holding)
      }
    }
  }
}

/**
 * I3: a resource that checks fences never accepts the write of an older grant after that of a newer one, however late
 * the write comes; and it refuses no writer who holds the key.
 */
export const guardedResource = (facts: Facts, violate: Violate): Oracle => {
  const { kernel } = facts
  const dice = kernel.stream("writes")
  const accepted = new Map<string, Holding>()

  const write = (holding: Holding, atOnce: boolean) => {
    const last = accepted.get(holding.key)
    if (last !== undefined && holding.fence < last.fence) {
      if (atOnce && holding.valid && !holding.deposed && !mayOverlap(facts)) {
        violate(`the write of ${holding.name} was refused: ${last.name} came first`)
      }
      return
    }
    if (last !== undefined && isOlder(holding, last)) {
      violate(`the resource accepted the write of ${holding.name} after the newer one of ${last.name}`)
    }
    accepted.set(holding.key, holding)
  }

  return {
    stepped: (run: Run) => {
      for (const holding of run.holdings) {
        if (holding.mode !== "exclusive" || run.gaveBack) continue
        write(holding, true)
        if (dice.chance(0.2)) kernel.at(kernel.now + dice.next() * 1000, undefined, () => write(holding, false))
      }
    }
  }
}

/** By the order in which the store granted; within one grant by the order in which it was handed on. */
const isOlder = (a: Holding, b: Holding): boolean => {
  if (a.grant === undefined || b.grant === undefined) return false
  return a.grant === b.grant ? a.fence < b.fence : a.grant.sequence < b.grant.sequence
}
