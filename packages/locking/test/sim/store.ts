/**
 * The store's process: the pure model behind a clock of its own, plus what a real server adds to it. It refuses attempts
 * that come too late and tokens that were given up, forgets on demand, and reports every change of a row to whoever
 * watches. The only module that knows the model's calls.
 */
import {
  fenceBlock,
  type Granted,
  Interest,
  interestWindow,
  type Refused,
  type StoreGrant,
  StoreModel,
  type StoreRenewal,
  type StoreRequest
} from "../../src/internal/pure/storeModel.js"
import type { Claim, LockMode, OwnerToken, Released } from "../../src/LockDriver.js"
import type { ResolvedKey } from "../../src/LockKey.js"
import type { Process } from "./kernel.js"

export { fenceBlock, interestWindow }
export type { Refused, StoreGrant, StoreRenewal, StoreRequest }

/** What a token owns of a key at one instant. `until` is the store's time. */
export interface Row {
  readonly token: OwnerToken
  readonly mode: LockMode
  readonly fence: bigint
  readonly until: number
}

export type StoreCall = "attempt" | "renew" | "release" | "offer" | "force" | "forget"

/** A row appeared, got another end, or went away, because of a call in the name of `caller`. */
export interface StoreChange {
  readonly kind: "granted" | "extended" | "removed"
  readonly call: StoreCall
  readonly caller: OwnerToken | undefined
  readonly key: ResolvedKey
  readonly row: Row
}

export interface StoreSettings {
  /** A released token never gets a grant again, however late its attempt arrives. */
  readonly bars: boolean
}

export type AttemptAnswer =
  | { readonly _tag: "Granted"; readonly fences: ReadonlyArray<number> }
  | Refused
  | { readonly _tag: "TooLate" }
  | { readonly _tag: "Finished" }

export class Store {
  /** Hears every change of a row. */
  onChange: (change: StoreChange) => void = () => {}
  private model = new StoreModel()
  /** Keys that were ever asked for. */
  private readonly keys = new Map<string, ResolvedKey>()
  private readonly interests = new Map<string, Interest>()
  private readonly withdrawn = new Set<string>()
  private readonly barred = new Set<OwnerToken>()

  constructor(readonly process: Process, private readonly settings: StoreSettings) {}

  get now(): number {
    return this.process.wallNow
  }

  attempt(
    request: StoreRequest,
    token: OwnerToken,
    interestId: string,
    notAfter: number | undefined
  ): AttemptAnswer {
    if (notAfter !== undefined && this.now > notAfter) return { _tag: "TooLate" }
    if (this.barred.has(token)) return { _tag: "Finished" }
    for (const key of request.keys) this.keys.set(key.id, key)
    return this.watched(
      "attempt",
      token,
      request.keys,
      () => this.model.acquire(this.now, token, request, this.interests.get(interestId))
    )
  }

  renew(claim: Claim, ttl: number): StoreRenewal {
    return this.watched("renew", claim.token, claim.keys, () => this.model.renew(this.now, claim, ttl))
  }

  release(claim: Claim): Released {
    if (this.settings.bars) this.barred.add(claim.token)
    return this.watched("release", claim.token, claim.keys, () => this.model.release(this.now, claim))
  }

  offer(claim: Claim, fence: number, ttl: number): Granted | Released {
    if (this.settings.bars && this.barred.has(claim.token)) return "gone"
    return this.watched("offer", claim.token, claim.keys, () => this.model.offer(this.now, claim, fence, ttl))
  }

  forceRelease(key: ResolvedKey): ReadonlyArray<StoreGrant> {
    return this.watched("force", undefined, [key], () => this.model.forceRelease(this.now, key.id))
  }

  inspect(key: ResolvedKey): ReadonlyArray<StoreGrant> {
    return this.model.inspect(this.now, key.id)
  }

  list(namespace: string): ReturnType<StoreModel["list"]> {
    return this.model.list(this.now, namespace)
  }

  /** Interest is known by an id of the waiter, because its messages may come twice or in any order. */
  arm(interestId: string, request: StoreRequest, wake: () => void): void {
    if (this.withdrawn.has(interestId)) return
    let interest = this.interests.get(interestId)
    if (interest === undefined) {
      interest = new Interest(request)
      this.interests.set(interestId, interest)
    }
    for (const key of request.keys) this.keys.set(key.id, key)
    this.model.arm(this.now, interest, wake)
  }

  withdraw(interestId: string): void {
    this.withdrawn.add(interestId)
    const interest = this.interests.get(interestId)
    if (interest === undefined) return
    this.interests.delete(interestId)
    this.model.withdraw(interest)
  }

  /** The server forgets the rows that are younger than `age`: the tail that a replica had not got. */
  forgetRows(age: number): void {
    for (const key of this.keys.values()) {
      const young = this.inspect(key).some((grant) => grant.since >= this.now - age)
      if (young) this.watched("forget", undefined, [key], () => this.model.forget(this.now, key.id))
    }
    this.barred.clear()
  }

  /** The server starts anew with nothing. */
  forgetAll(): void {
    this.forgetRows(Infinity)
    this.model = new StoreModel()
    this.interests.clear()
  }

  /** A key that was asked for. */
  keyNamed(name: string): ResolvedKey | undefined {
    return [...this.keys.values()].find((key) => key.key === name)
  }

  /** Rows that have not ended by the store's clock. */
  rows(id: string): ReadonlyArray<Row> {
    return this.model.inspect(this.now, id).map(toRow)
  }

  /** Everything in memory that a client put there. */
  sizes(): { readonly rows: number; readonly interests: number } {
    const { grants, interests } = this.model.sizes()
    return { rows: grants, interests }
  }

  private watched<A>(
    call: StoreCall,
    caller: OwnerToken | undefined,
    keys: ReadonlyArray<ResolvedKey>,
    act: () => A
  ): A {
    const before = keys.map((key) => this.rows(key.id))
    const result = act()
    keys.forEach((key, i) => {
      const after = this.rows(key.id)
      for (const row of before[i]) {
        if (!after.some((other) => isSame(other, row))) this.report("removed", call, caller, key, row)
      }
      for (const row of after) {
        const old = before[i].find((other) => isSame(other, row))
        if (old === undefined) this.report("granted", call, caller, key, row)
        else if (old.until !== row.until) this.report("extended", call, caller, key, row)
      }
    })
    return result
  }

  private report(
    kind: StoreChange["kind"],
    call: StoreCall,
    caller: OwnerToken | undefined,
    key: ResolvedKey,
    row: Row
  ): void {
    this.onChange({ kind, call, caller, key, row })
  }
}

/** Another fence makes it another grant. */
const isSame = (a: Row, b: Row): boolean => a.token === b.token && a.fence === b.fence

const toRow = (grant: StoreGrant): Row => ({
  token: grant.token,
  mode: grant.request.mode,
  fence: BigInt(grant.fence),
  until: grant.until
})
