/**
 * What a lock store does, as a plain state machine: no clock of its own, no effects, the same answers for the same
 * calls. The memory driver serves it, and the simulator's store server is checked against nothing else.
 *
 * Every call brings `now`, the store's time in milliseconds since the epoch; one base for expiry, fences and what
 * people see. It may run backwards, as a server's clock does when it is set: grants then last longer, and fences rise
 * all the same.
 */
import type { Claim, LockMode, LossReason, OwnerToken, Released } from "../../LockDriver.js"
import type { ResolvedKey } from "../../LockKey.js"
import { Dictionary } from "./dictionary.js"

/** Fences that belong to one grant, so that leases handed over inside a process have numbers of their own. */
export const fenceBlock = 8

/** How long a waiter counts as waiting after its last sign of life, in milliseconds. */
export const interestWindow = 2_000

/** A waiter polls at least every 75 s; one that was silent for longer is gone and need not be woken any more. */
const interestRetention = 120_000

const maxDeposed = 1_024

/** What stays the same over the attempts of one wait. */
export interface StoreRequest {
  /** In canonical order, without duplicates, at least one. */
  readonly keys: ReadonlyArray<ResolvedKey>
  readonly mode: LockMode
  /** Milliseconds, may be infinite. */
  readonly ttl: number
  readonly session: string
  readonly metadata: Readonly<Record<string, string>>
  /** Called when an administrator takes a grant of this request away. */
  readonly onDeposed?: ((token: OwnerToken) => void) | undefined
}

/** One key owned by one token. */
export interface StoreGrant {
  readonly token: OwnerToken
  readonly request: StoreRequest
  /** The first of its block. */
  readonly fence: number
  readonly since: number
  readonly until: number
}

export interface Granted {
  readonly _tag: "Granted"
  readonly fences: ReadonlyArray<number>
}

export interface Refused {
  readonly _tag: "Refused"
  readonly key: ResolvedKey
  /** Of the grants in the way the one that ends last; missing where only a waiting writer is in the way. */
  readonly holder: StoreGrant | undefined
  /** Missing when that grant has no end. */
  readonly endsIn: number | undefined
}

export type StoreRenewal =
  | { readonly _tag: "Confirmed"; readonly contended: boolean }
  | { readonly _tag: "Lost"; readonly reason: LossReason }

/** Somebody who may wait for the keys of a request. Known by identity; `arm` registers it. */
export class Interest {
  state: "new" | "armed" | "withdrawn" = "new"
  /** Place in the order of arrival; 0: not registered. */
  arrival = 0
  lastSeen = 0
  wake: () => void = noop

  constructor(readonly request: StoreRequest) {}
}

interface MutableGrant extends StoreGrant {
  fence: number
  since: number
  until: number
}

const noop = () => {}

/** Exists while somebody holds the key or waits for it. */
class Row {
  readonly grants: Array<MutableGrant> = []
  interests: Set<Interest> | undefined = undefined

  constructor(readonly key: ResolvedKey) {}
}

export class StoreModel {
  private readonly rows = new Dictionary<Row>()
  /** Until when the holders that were deposed could still ask. */
  private readonly deposed = new Map<OwnerToken, number>()
  private lastFence = 0
  private lastArrival = 0
  private sweepAt = 64

  /**
   * Grants all keys or none. A repeated call that finds its own grant extends it and answers the same fences. Whoever
   * is granted waits no longer; who is refused and armed waits on, and has given a sign of life.
   */
  acquire(now: number, token: OwnerToken, request: StoreRequest, interest?: Interest): Granted | Refused {
    const { keys } = request
    for (let i = 0; i < keys.length; i++) {
      const row = this.rows.get(keys[i]!.id)
      const refused = row === undefined ? undefined : refusal(now, row, token, request.mode, interest)
      if (refused !== undefined) {
        if (interest?.state === "armed") this.register(now, interest)
        return refused
      }
    }
    const fences: Array<number> = []
    for (let i = 0; i < keys.length; i++) fences.push(this.grant(now, keys[i]!, token, request))
    if (interest !== undefined && interest.arrival > 0) this.unregister(interest)
    if (this.deposed.size > 0) this.deposed.delete(token)
    return { _tag: "Granted", fences }
  }

  /** Extends the grant by `ttl` from now, all keys or none. What has ended stays ended. */
  renew(now: number, claim: Claim, ttl: number): StoreRenewal {
    let contended = false
    let taken = false
    let owned = 0
    for (const key of claim.keys) {
      const row = this.rows.get(key.id)
      if (row === undefined) continue
      for (const grant of row.grants) {
        if (grant.until <= now) {
          // whoever was told that it has lapsed must not get it back from a clock that is set back
          if (grant.token === claim.token) grant.until = -Infinity
          continue
        }
        if (grant.token === claim.token) owned++
        else if (claim.mode === "exclusive" || grant.request.mode === "exclusive") taken = true
      }
      if (row.interests !== undefined && hasLive(row.interests, now)) contended = true
    }
    if (owned < claim.keys.length) {
      const revoked = (this.deposed.get(claim.token) ?? now) > now
      return revoked ? lostRevoked : taken ? lostTaken : lostExpired
    }
    for (const key of claim.keys) {
      ownGrant(this.rows.get(key.id)!, claim.token)!.until = now + ttl
    }
    return contended ? confirmedContended : confirmed
  }

  /** Gives up what the token owns of these keys and wakes who waits for them. The worst of the keys is the answer. */
  release(now: number, claim: Claim): Released {
    const { keys, token } = claim
    let woken: Set<Interest> | undefined
    let owned = 0
    let lapsed = false
    let woke = false
    for (let i = 0; i < keys.length; i++) {
      const row = this.rows.get(keys[i]!.id)
      const grant = row === undefined ? undefined : ownGrant(row, token)
      if (grant === undefined) continue
      owned++
      if (grant.until <= now) lapsed = true
      row!.grants.splice(row!.grants.indexOf(grant), 1)
      if (row!.interests !== undefined) {
        if (hasLive(row!.interests, now)) woke = true
        woken = union(woken, row!.interests)
      } else if (row!.grants.length === 0) this.rows.delete(row!.key.id)
    }
    if (this.deposed.size > 0) this.deposed.delete(token)
    if (woken !== undefined) wakeAll(woken)
    return owned < keys.length ? "gone" : lapsed ? "lapsed" : woke ? "woke" : "released"
  }

  /** Granted anew where nobody waits, and released where somebody does. A repeated call answers what the first one did. */
  offer(now: number, claim: Claim, fence: number, ttl: number): Granted | Released {
    const row = this.rows.get(claim.keys[0]!.id)
    const grant = row === undefined ? undefined : ownGrant(row, claim.token)
    if (grant === undefined || grant.until <= now) return this.release(now, claim)
    if (grant.fence === fence) {
      if (row!.interests !== undefined && hasLive(row!.interests, now)) return this.release(now, claim)
      grant.fence = this.nextFence(now)
      grant.since = now
      grant.until = now + ttl
    }
    return { _tag: "Granted", fences: [grant.fence] }
  }

  /** From now on what frees one of the keys calls `wake`, until the waiter withdraws; too late after that. */
  arm(now: number, interest: Interest, wake: () => void): void {
    if (interest.state === "withdrawn") return
    interest.state = "armed"
    interest.wake = wake
    this.register(now, interest)
  }

  /** The waiter gives up, for good. Readers that waited behind a writer are woken. */
  withdraw(interest: Interest): void {
    interest.state = "withdrawn"
    if (interest.arrival === 0) return
    const readers = new Set<Interest>()
    if (interest.request.mode === "exclusive") {
      for (const key of interest.request.keys) {
        for (const other of this.rows.get(key.id)?.interests ?? []) {
          if (other.request.mode === "shared") readers.add(other)
        }
      }
    }
    this.unregister(interest)
    wakeAll(readers)
  }

  /** Takes a key from its holders, who learn `revoked`; answers who they were. Their other keys stay theirs. */
  forceRelease(now: number, id: string): ReadonlyArray<StoreGrant> {
    const ended = this.end(now, id)
    for (const { request, token, until } of ended.grants) {
      this.deposed.delete(token)
      this.deposed.set(token, until)
      if (this.deposed.size > maxDeposed) this.deposed.delete(this.deposed.keys().next().value!)
      request.onDeposed?.(token)
    }
    wakeAll(ended.interests)
    return ended.grants
  }

  /** Ends the grants of a key as if the store had forgotten them; their holders are not told. */
  forget(now: number, id: string): ReadonlyArray<StoreGrant> {
    const ended = this.end(now, id)
    wakeAll(ended.interests)
    return ended.grants
  }

  inspect(now: number, id: string): ReadonlyArray<StoreGrant> {
    return this.rows.get(id)?.grants.filter((grant) => grant.until > now) ?? []
  }

  /** Of one namespace, or of all. */
  list(
    now: number,
    namespace?: string
  ): ReadonlyArray<{ readonly key: ResolvedKey; readonly holders: ReadonlyArray<StoreGrant> }> {
    const held: Array<{ readonly key: ResolvedKey; readonly holders: ReadonlyArray<StoreGrant> }> = []
    for (const { key } of this.rows.values()) {
      if (namespace !== undefined && key.namespace !== namespace) continue
      const holders = this.inspect(now, key.id)
      if (holders.length > 0) held.push({ key, holders })
    }
    return held
  }

  /** Drops what has ended and nobody came back for. Runs by itself as the store grows. */
  sweep(now: number): void {
    for (const row of this.rows.values()) {
      dropLapsed(row, now)
      for (const interest of row.interests ?? []) {
        if (interest.lastSeen + interestRetention <= now) this.unregister(interest)
      }
      this.dropIfIdle(row)
    }
    for (const [token, until] of this.deposed) {
      if (until <= now) this.deposed.delete(token)
    }
  }

  /** For tests: what is in memory. */
  sizes(): { readonly keys: number; readonly grants: number; readonly interests: number; readonly deposed: number } {
    const interests = new Set<Interest>()
    let grants = 0
    for (const row of this.rows.values()) {
      grants += row.grants.length
      for (const interest of row.interests ?? []) interests.add(interest)
    }
    return { keys: this.rows.size, grants, interests: interests.size, deposed: this.deposed.size }
  }

  private grant(now: number, key: ResolvedKey, token: OwnerToken, request: StoreRequest): number {
    const row = this.row(now, key)
    const until = now + request.ttl
    dropLapsed(row, now)
    const own = ownGrant(row, token)
    if (own !== undefined) {
      if (until > own.until) own.until = until
      return own.fence
    }
    const fence = this.nextFence(now)
    row.grants.push({ token, request, fence, since: now, until })
    return fence
  }

  /** The clock's part lets them rise over a store that was lost, the counter's over a clock that was set back. */
  private nextFence(now: number): number {
    const fence = Math.max(this.lastFence + 1, Math.floor(now * 1_000))
    this.lastFence = fence + fenceBlock - 1
    return fence
  }

  private row(now: number, key: ResolvedKey): Row {
    let row = this.rows.get(key.id)
    if (row === undefined) {
      // keys that nobody asks for again would stay for ever
      if (this.rows.size >= this.sweepAt) {
        this.sweep(now)
        this.sweepAt = Math.max(64, 2 * this.rows.size)
      }
      row = new Row(key)
      this.rows.set(key.id, row)
    }
    return row
  }

  private end(now: number, id: string) {
    const grants = this.inspect(now, id)
    const row = this.rows.get(id)
    const interests = new Set(row?.interests)
    if (row !== undefined) {
      row.grants.length = 0
      this.dropIfIdle(row)
    }
    return { grants, interests }
  }

  private register(now: number, interest: Interest): void {
    interest.lastSeen = now
    if (interest.arrival > 0) return
    interest.arrival = ++this.lastArrival
    for (const key of interest.request.keys) {
      const row = this.row(now, key)
      row.interests = (row.interests ?? new Set()).add(interest)
    }
  }

  private unregister(interest: Interest): void {
    interest.arrival = 0
    for (const key of interest.request.keys) {
      const row = this.rows.get(key.id)
      if (row?.interests === undefined) continue
      row.interests.delete(interest)
      if (row.interests.size === 0) row.interests = undefined
      this.dropIfIdle(row)
    }
  }

  private dropIfIdle(row: Row): void {
    if (row.grants.length === 0 && row.interests === undefined) this.rows.delete(row.key.id)
  }
}

const confirmed: StoreRenewal = { _tag: "Confirmed", contended: false }
const confirmedContended: StoreRenewal = { _tag: "Confirmed", contended: true }
const lostRevoked: StoreRenewal = { _tag: "Lost", reason: "revoked" }
const lostTaken: StoreRenewal = { _tag: "Lost", reason: "taken" }
const lostExpired: StoreRenewal = { _tag: "Lost", reason: "expired" }

const refusal = (
  now: number,
  row: Row,
  token: OwnerToken,
  mode: LockMode,
  interest: Interest | undefined
): Refused | undefined => {
  let last: StoreGrant | undefined
  let inTheWay = false
  for (const grant of row.grants) {
    if (grant.until <= now) continue
    // its own grant from before: whoever could be in its way is not there
    if (grant.token === token && grant.request.mode === mode) return undefined
    if (mode === "exclusive" || grant.request.mode === "exclusive") inTheWay = true
    if (last === undefined || grant.until > last.until) last = grant
  }
  if (!inTheWay && !(mode === "shared" && row.interests !== undefined && writerWaits(row.interests, now, interest))) {
    return undefined
  }
  return {
    _tag: "Refused",
    key: row.key,
    holder: last,
    endsIn: last === undefined || last.until === Infinity ? undefined : last.until - now
  }
}

// a sign of life in the future is one from before the clock was set back
const isLive = (interest: Interest, now: number): boolean => Math.abs(now - interest.lastSeen) < interestWindow

const hasLive = (interests: Set<Interest>, now: number): boolean => {
  for (const interest of interests) if (isLive(interest, now)) return true
  return false
}

/** Whether a writer waits that came before this reader. */
const writerWaits = (interests: Set<Interest>, now: number, reader: Interest | undefined): boolean => {
  const arrival = reader === undefined || reader.arrival === 0 ? Infinity : reader.arrival
  for (const other of interests) {
    if (other.request.mode === "exclusive" && other.arrival < arrival && isLive(other, now)) return true
  }
  return false
}

const ownGrant = (row: Row, token: OwnerToken): MutableGrant | undefined => {
  for (const grant of row.grants) if (grant.token === token) return grant
  return undefined
}

const dropLapsed = (row: Row, now: number): void => {
  let kept = 0
  for (const grant of row.grants) if (grant.until > now) row.grants[kept++] = grant
  row.grants.length = kept
}

const union = (all: Set<Interest> | undefined, more: Set<Interest>): Set<Interest> => {
  const result = all ?? new Set<Interest>()
  for (const interest of more) result.add(interest)
  return result
}

/** In the order of arrival. Called when the state has changed: a wake-up may come back with a call at once. */
const wakeAll = (interests: Set<Interest>): void => {
  for (const interest of interests) interest.wake()
}
