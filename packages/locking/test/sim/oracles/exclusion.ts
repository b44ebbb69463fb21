import type { Facts, Holding } from "../facts.js"
import type { Oracle, Violate } from "../oracle.js"

/** I1: at no instant may a writer and anybody else both believe to hold one key, nor believe it without a row. */
export const exclusion = (facts: Facts, violate: Violate): Oracle => {
  const { kernel, store } = facts
  let seenAt = -1
  let seenChanges = -1

  const apart = (valid: ReadonlyArray<Holding>) => {
    for (let i = 0; i < valid.length; i++) {
      for (let j = 0; j < i; j++) {
        const a = valid[i]
        const b = valid[j]
        if (a.key === b.key && (a.mode === "exclusive" || b.mode === "exclusive")) {
          violate(`${a.name} and ${b.name} both hold ${a.key} validly`)
        }
      }
    }
  }

  const backed = (holding: Holding) => {
    const { grant, key, name } = holding
    if (grant === undefined) return violate(`${name} holds ${key} under a number that the store never granted`)
    if (!store.rows(grant.keyId).some((row) => row.token === grant.token)) {
      violate(`${name} holds ${key} validly without a row`)
    }
  }

  return {
    ticked: () => {
      const valid = facts.holdings.filter((holding) => holding.valid && !holding.deposed)
      if (valid.length > 1) apart(valid)
      if (kernel.now === seenAt && facts.changes === seenChanges) return
      seenAt = kernel.now
      seenChanges = facts.changes
      for (const holding of valid) backed(holding)
    }
  }
}
