/** What a driver brings to the demo over processes: a server of its own, locks on it, and accounts that it judges. */
import { Data, type Effect, type Scope } from "effect"
import type { Fence, LockError, Locking } from "effect-locking"
import type { Balances } from "../ledger.js"

/** The driver cannot be shown on this machine; the message says what would help. */
export class Unavailable extends Data.TaggedError("Unavailable")<{ readonly message: string }> {}

export interface Backend {
  readonly name: string
  /** What runs the server, and where fences are kept. */
  readonly server: string
  readonly fences: string
  /** A server that is thrown away with the scope: its address. */
  readonly start: Effect.Effect<string, Unavailable, Scope.Scope>
  /** A process's connection to it. */
  readonly bank: (url: string) => Effect.Effect<Bank, never, Scope.Scope>
  /** The locks of a process. */
  readonly locking: (
    url: string,
    options: { readonly session: string; readonly ttl: number }
  ) => Effect.Effect<Locking.Locking, LockError.StartError, Scope.Scope>
}

/** A balance that was read, and what is to be written over it. */
export interface Change {
  readonly account: string
  readonly read: number
  readonly balance: number
  /** With it, the write is refused once a later holder has written. */
  readonly fence?: Fence.Fence | undefined
}

export interface Bank {
  /** The accounts anew, and nothing else. */
  readonly open: (balances: Balances) => Effect.Effect<void>
  readonly read: (account: string) => Effect.Effect<number>
  /** In one transaction. Answers whether it undid what others had written since it was read. */
  readonly write: (changes: ReadonlyArray<Change>) => Effect.Effect<boolean, LockError.StaleFence>
  readonly verdict: Effect.Effect<Verdict>
}

/** What the server itself says about what was written. */
export interface Verdict {
  readonly balances: Balances
  /** Writes that undid what others had written in between, and what that comes to. */
  readonly overwritten: number
  readonly overwrittenSum: number
  /** Whether the fences of every account rise in the order in which it was written. */
  readonly fencesRise: boolean
}
