/** The promises by their ids, where each of them holds, and who watches it. */
import type { Facts } from "./facts.js"
import type { Oracle, Violate } from "./oracle.js"
import { bodysOwnEnd, nothingLeft, ownership, promptLoss, release } from "./oracles/ending.js"
import { exclusion } from "./oracles/exclusion.js"
import { growingFences, guardedResource } from "./oracles/fencing.js"
import { boundedMemory } from "./oracles/limits.js"
import { arrivalOrder, boundedWait, freeKeysMove, oneAnswer } from "./oracles/waiting.js"
import type { Profile } from "./plan.js"

export interface Invariant {
  readonly id: string
  readonly promise: string
  /** Profiles in which it is not promised. */
  readonly notIn: ReadonlyArray<Profile>
  readonly watch: (facts: Facts, violate: Violate) => Oracle
}

export const invariants: ReadonlyArray<Invariant> = [
  {
    id: "I1",
    promise: "A writer and anybody else never hold one key at once, as far as they may believe.",
    notIn: ["amnesia", "clock"],
    watch: exclusion
  },
  {
    id: "I2",
    promise: "Fences grow strictly per key in the order of grants.",
    // the fence is made of the store's clock, so it grows over lost rows too
    notIn: [],
    watch: growingFences
  },
  {
    id: "I3",
    promise: "A resource guarded by the fence accepts no older write after a newer one, and refuses no holder.",
    notIn: [],
    watch: guardedResource
  },
  {
    id: "I4",
    promise: "A call ends within its wait and one call to the store.",
    notIn: [],
    watch: boundedWait
  },
  { id: "I5", promise: "Who is told a time-out got no lease.", notIn: [], watch: oneAnswer },
  {
    id: "I6",
    promise: "A free key does not stay free while somebody waits.",
    // when a key became free cannot be told by a clock that jumps
    notIn: ["clock"],
    watch: freeKeysMove
  },
  { id: "I7", promise: "Waiters of one process are served in the order of arrival.", notIn: [], watch: arrivalOrder },
  { id: "I8", promise: "Every end of a section gives its lease back, and none before.", notIn: [], watch: release },
  { id: "I9", promise: "Nothing is left behind by anybody's interruption.", notIn: [], watch: nothingLeft },
  {
    id: "I10",
    promise: "A section is interrupted at once when its lease is lost, and only then.",
    notIn: [],
    watch: promptLoss
  },
  {
    id: "I11",
    promise: "Nobody ends, extends or takes back what is not his.",
    notIn: [],
    watch: ownership
  },
  {
    id: "I12",
    promise: "An idle engine keeps nothing, a busy one no more than its limits.",
    notIn: [],
    watch: boundedMemory
  },
  { id: "I13", promise: "The body's own end is the caller's answer.", notIn: [], watch: bodysOwnEnd }
]

/** Every oracle of the promises that hold in this world. Violations begin with the id. */
export const watchAll = (facts: Facts, violate: Violate): ReadonlyArray<Oracle> =>
  invariants
    .filter(({ notIn }) => !notIn.includes(facts.plan.profile))
    .map(({ id, watch }) => watch(facts, (text) => violate(`${id} ${text}`)))
