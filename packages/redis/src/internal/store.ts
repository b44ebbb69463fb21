/**
 * What can be asked of a store: one server, a cluster, or a quorum of servers. Records go by their names.
 */
import type { Holder, LockMode, LossReason, OwnerToken, Permits, Released } from "effect-locking/LockDriver"
import type { Ask } from "./ask.js"

export interface Request {
  /** In canonical order. */
  readonly records: ReadonlyArray<string>
  readonly mode: LockMode
  /** Milliseconds. */
  readonly ttl: number
  /** What the holder says of itself, as JSON. */
  readonly holder: string
  readonly fair: boolean
  /** Of more records than these, which are what one slot of a cluster has of them. */
  readonly hasOthers: boolean
  readonly permits: Permits | undefined
}

export interface Attempt {
  readonly token: OwnerToken
  /** For how many milliseconds from now the caller waits for the answer. */
  readonly left: number
  /** Under which name to wait where it is refused; empty: not at all. */
  readonly waiter: string
  /** Others of this process behind it, whose places it keeps. Of one record, and only where the store does that. */
  readonly behind: ReadonlyArray<string>
  /** Of a vote. */
  readonly round?: number
}

export interface Granted {
  readonly _tag: "Granted"
  /** The first of each record's block. */
  readonly fences: ReadonlyArray<bigint>
}

export interface Refused {
  readonly _tag: "Refused"
  /** Of those in the way the one that ends last; missing where only others that wait are in the way. */
  readonly holder: Holder | undefined
  /** Milliseconds. */
  readonly endsIn: number | undefined
  /** Those behind it who have no place any more. */
  readonly missing: ReadonlyArray<string>
}

export type Acquired = Granted | Refused

export type Renewed =
  | { readonly _tag: "Confirmed"; readonly contended: boolean }
  | { readonly _tag: "Lost"; readonly reason: LossReason }

export interface Owned {
  readonly records: ReadonlyArray<string>
  readonly token: OwnerToken
  /** Milliseconds. */
  readonly ttl: number
}

export interface Store {
  /** All records or none. */
  readonly acquire: (request: Request, attempt: Attempt) => Ask<Acquired>
  /** Whether an attempt can keep the places of others. */
  readonly keepsPlaces: boolean
  /** In the same order; `Unknown` where it is not known. */
  readonly renew: (grants: ReadonlyArray<Owned>) => Ask<ReadonlyArray<Renewed | { readonly _tag: "Unknown" }>>
  readonly release: (records: ReadonlyArray<string>, token: OwnerToken) => Ask<Released>
  /** Granted anew where nobody waits. Where it is missing, whoever wants that releases and asks again. */
  readonly offer?: (owned: Owned, fence: bigint) => Ask<Granted | Released>
  /** A place without an attempt, or a sign of life: whether it is worth asking for the records. */
  readonly enlist: (request: Request, waiter: string) => Ask<boolean>
  readonly withdraw: (records: ReadonlyArray<string>, waiter: string) => Ask<true>
  readonly inspect: (record: string) => Ask<ReadonlyArray<Holder>>
  /** Takes a record from its holders, who hear of it on the channel, and answers who they were. */
  readonly depose: (record: string, channel: string) => Ask<ReadonlyArray<Holder>>
}

const worstFirst: ReadonlyArray<Released> = ["gone", "lapsed", "woke", "released"]

/** The worst of the records is the answer. */
export const worstReleased = (answers: ReadonlyArray<Released>): Released =>
  worstFirst.find((answer) => answers.includes(answer)) ?? "released"
