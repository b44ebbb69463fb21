/**
 * What this session holds, as far as the server has answered. The session's locks are re-entrant, so it is here that one
 * process excludes itself; and it is against these books that a session is put right after a failed statement.
 */
import type { LockMode, LockRequest } from "effect-locking/LockDriver"
import { Dictionary } from "./pure/dictionary.js"
import type { LockIds, Pair } from "./pure/lockId.js"
import { Row } from "./queue.js"
import { Action } from "./sql.js"

export class Owned {
  constructor(
    readonly token: string,
    readonly request: LockRequest,
    readonly ids: ReadonlyArray<LockIds>,
    readonly fences: ReadonlyArray<bigint>,
    /** Wall-clock milliseconds of this process. */
    readonly since: number
  ) {}
}

/** How a lock is held, and by whom here: tokens are new with every grant, so nothing is kept by them. */
class Held {
  readonly owners: Array<Owned> = []

  constructor(readonly mode: LockMode) {}
}

/** Somebody here waits for a key. */
export interface Interest {
  readonly ids: LockIds
  readonly waiters: Map<object, Waiter>
  /** The server knows. */
  registered: boolean
  /** It keeps readers elsewhere back. */
  hasIntent: boolean
}

export interface Waiter {
  readonly mode: LockMode
  readonly wake: () => void
  /** It tries on a connection of its own, so this session has to give way to it as to another process. */
  readonly isBeside?: true
}

export const hasWriter = ({ waiters }: Interest): boolean => {
  for (const { mode } of waiters.values()) if (mode === "exclusive") return true
  return false
}

const hasBeside = ({ waiters }: Interest): boolean => {
  for (const { isBeside } of waiters.values()) if (isBeside === true) return true
  return false
}

export class Books {
  /** By lock. Readers share one at the server. */
  locks = new Dictionary<Held>()
  readonly interests = new Map<string, Interest>()

  /** What a token owns of locks that it asked for together. */
  ownedBy(token: string, [first]: ReadonlyArray<LockIds>): Owned | undefined {
    return this.locks.get(first!.lock)?.owners.find((owned) => owned.token === token)
  }

  get owned(): ReadonlyArray<Owned> {
    return [...new Set(this.locks.values().flatMap(({ owners }) => owners))]
  }

  own(owned: Owned): void {
    for (const { lock } of owned.ids) {
      let held = this.locks.get(lock)
      if (held === undefined) this.locks.set(lock, held = new Held(owned.request.mode))
      held.owners.push(owned)
    }
  }

  /** What has to be unlocked at the server, or be asked for again where nobody waits for it. */
  disown(owned: Owned, exclusive: Action = Action.unlock): ReadonlyArray<Row> {
    const action = owned.request.mode === "shared" ? Action.unlockShared : exclusive
    const rows: Array<Row> = []
    for (const ids of owned.ids) {
      const { owners } = this.locks.get(ids.lock)!
      owners.splice(owners.indexOf(owned), 1)
      if (owners.length > 0) continue
      this.locks.delete(ids.lock)
      rows.push(new Row(action, ids))
    }
    return rows
  }

  isOpenTo(ids: LockIds, mode: LockMode): boolean {
    if (mode === "shared" && this.isWantedBeside(ids)) return false
    const lock = this.locks.get(ids.lock)
    return lock === undefined || (mode === "shared" && lock.mode === "shared")
  }

  /** A transaction of this process waits for it, of which the server does not tell the session that registered it. */
  isWantedBeside({ lock }: LockIds): boolean {
    const interest = this.interests.get(lock)
    return interest !== undefined && hasBeside(interest)
  }

  shares(ids: LockIds): boolean {
    return this.locks.get(ids.lock)?.mode === "shared"
  }

  interestIn(ids: LockIds): Interest {
    let interest = this.interests.get(ids.lock)
    if (interest === undefined) {
      interest = { ids, waiters: new Map(), registered: false, hasIntent: false }
      this.interests.set(ids.lock, interest)
    }
    return interest
  }

  /** Entries in the lock table of the server. */
  get size(): number {
    let size = this.locks.size
    for (const { hasIntent, registered } of this.interests.values()) size += (registered ? 1 : 0) + (hasIntent ? 1 : 0)
    return size
  }

  wake(lock: string): void {
    const interest = this.interests.get(lock)
    if (interest === undefined) return
    for (const { wake } of interest.waiters.values()) wake()
  }

  wakeAll(): void {
    for (const lock of this.interests.keys()) this.wake(lock)
  }

  /** The session is gone, and with it whatever it held. Those who wait go on waiting. */
  forget(): ReadonlyArray<Owned> {
    const lost = this.owned
    this.locks = new Dictionary()
    for (const [lock, interest] of this.interests) {
      interest.registered = false
      interest.hasIntent = false
      // its withdrawal was on its way
      if (interest.waiters.size === 0) this.interests.delete(lock)
    }
    return lost
  }

  /** Everything that the server should name as ours: as `ownLocks` names it. */
  expected(): Set<string> {
    const all = new Set<string>()
    for (const lock of this.locks.keys()) all.add(nameOf(lock, this.locks.get(lock)!.mode))
    for (const { hasIntent, ids, registered } of this.interests.values()) {
      if (registered) all.add(nameOf(pairName(ids.interest), "shared"))
      if (hasIntent) all.add(nameOf(pairName(ids.intent), "exclusive"))
    }
    return all
  }
}

const nameOf = (id: string, mode: LockMode): string => `${id} ${mode === "shared" ? "ShareLock" : "ExclusiveLock"}`

const pairName = ([high, low]: Pair): string => `${high},${low}`

/** How a lock that a row takes is named, and the row that gives it up. */
export const undoOf = ({ action, ids }: Row): readonly [name: string, undo: Row] | undefined => {
  switch (action) {
    case Action.lock:
      return [nameOf(ids.lock, "exclusive"), { action: Action.undo, ids }]
    case Action.offer:
    case Action.unlock:
      return [nameOf(ids.lock, "exclusive"), { action: Action.unlock, ids }]
    case Action.lockShared:
      return [nameOf(ids.lock, "shared"), { action: Action.undoShared, ids }]
    case Action.unlockShared:
      return [nameOf(ids.lock, "shared"), { action: Action.unlockShared, ids }]
    case Action.interest:
    case Action.withdrawInterest:
      return [nameOf(pairName(ids.interest), "shared"), { action: Action.withdrawInterest, ids }]
    case Action.intent:
      return [nameOf(pairName(ids.intent), "exclusive"), { action: Action.dropIntent, ids }]
    case Action.withdrawIntent:
    case Action.dropIntent:
      return [nameOf(pairName(ids.intent), "exclusive"), { action: Action.withdrawIntent, ids }]
    default:
      return undefined
  }
}
