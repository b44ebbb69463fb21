import type { Claim, OwnerToken } from "../../src/LockDriver.js"
import type { GrantRecord, Node, Run } from "./facts.js"
import type { Process } from "./kernel.js"
import type { StoreChange } from "./store.js"

/** Watches one promise. Every part is called at the instant at which the thing happens. */
export interface Oracle {
  /** A row of the store changed. */
  readonly changed?: (change: StoreChange, grant: GrantRecord | undefined) => void
  /** A process sends an attempt, gives a token up, or renews what it has. */
  readonly attempted?: (process: Process, token: OwnerToken) => void
  readonly released?: (process: Process, claim: Claim) => void
  /** It offers its grant to others, and gives it up where they want it. */
  readonly offered?: (process: Process, claim: Claim) => void
  readonly renewed?: (process: Process) => void
  /** A section begins, acts, and is left. */
  readonly entered?: (run: Run) => void
  readonly stepped?: (run: Run) => void
  readonly left?: (run: Run) => void
  /** The call is over. */
  readonly ended?: (run: Run) => void
  /** The layer of a node has closed. */
  readonly shut?: (node: Node) => void
  /** After every step of the kernel. */
  readonly ticked?: () => void
  /** All calls are over and what they left to the background had its time. */
  readonly idle?: () => void
  /** All layers are closed and nothing can happen any more. */
  readonly closed?: () => void
}

/** Reports a violation. */
export type Violate = (text: string) => void
