/**
 * The turns at one key inside this process: who contends for it at the store, who inherits a grant, who waits. All of
 * it is synchronous, so no interruption can fall between a decision and its bookkeeping.
 */
import {
  begin,
  type Core,
  finish,
  type HeldGrant,
  type Hold,
  KeyRecord,
  type Request,
  type Signal,
  Waiter
} from "./core.js"
import * as holds from "./hold.js"
import { sometimes } from "./probes.js"
import { isFresh } from "./pure/trust.js"

/** Leases handed on in a row take at most this long, whatever their number. */
const handoverSpan = 50

/** A record that no key has: for those who join one hold. */
export const apart = (): KeyRecord => new KeyRecord("")

/** Whether there is room for a key. One that is there already, in whatever order, needs none. */
export const hasRoom = (core: Core, id: string): boolean => {
  const { inOrder, records, settings: { maxKeys } } = core
  if (records.size + inOrder.size < maxKeys || records.get(id) !== undefined || inOrder.get(id) !== undefined) {
    return true
  }
  return records.size + inOrder.keys().filter((key) => records.get(key) === undefined).length < maxKeys
}

/** A record for one of those whose order the store keeps; nothing where there is no room for its key. */
export const makeInOrder = (core: Core, id: string): KeyRecord | undefined => {
  const others = core.inOrder.get(id) ?? 0
  if (!hasRoom(core, id)) return undefined
  core.inOrder.set(id, others + 1)
  const record = new KeyRecord(id)
  record.isInOrder = true
  return record
}

export const make = (core: Core, id: string): KeyRecord => {
  const record = new KeyRecord(id)
  core.records.set(id, record)
  return record
}

const isAlike = (held: HeldGrant, request: Request): boolean =>
  request.keys.length === 1 && held.grant.keys.length === 1 && held.grant.keys[0]!.id === request.keys[0]!.id &&
  request.call.mode === held.mode

/** Whether a request may be served from a grant that was made for another. */
const fits = (core: Core, held: HeldGrant, request: Request): boolean =>
  isAlike(held, request) && isFresh(held.trust, core.timer.now(), held.ttl)

const withinTurn = (core: Core, held: HeldGrant, most: number): boolean =>
  held.handovers < most && core.timer.now() - held.handoversSince <= handoverSpan

/** Whether the grant, were it made for this request, would be the same. */
const isSame = (held: HeldGrant, request: Request): boolean =>
  isAlike(held, request) && request.call.ttl === held.call.ttl && request.call.metadata === held.call.metadata &&
  (held.ttl === Infinity || request.call.autoRenew)

/** Whether the grant may be passed on without a word from the store. */
const hasTurns = (core: Core, held: HeldGrant): boolean =>
  isFresh(held.trust, core.timer.now(), held.ttl) && !held.yielding && held.fencesUsed < held.grant.block &&
  withinTurn(core, held, core.settings.maxHandovers)

const share = (core: Core, held: HeldGrant, request: Request): Hold => {
  held.handovers++
  return holds.open(core, held, request, core.timer.now())
}

/**
 * What the first in line may do: go to the store, join a grant, ask the store whether more readers may join that grant,
 * or nothing yet.
 */
const opening = (core: Core, record: KeyRecord, request: Request): "turn" | "ask" | HeldGrant | undefined => {
  const { contender } = record
  if (record.grants.length === 0) return contender === undefined && record.releasing === 0 ? "turn" : undefined
  if (request.call.mode === "exclusive" || (contender !== undefined && contender.call.mode === "exclusive")) {
    return undefined
  }
  for (const held of record.grants) {
    if (held.mode === "exclusive") return undefined
    if (!fits(core, held, request)) continue
    if (held.yielding) continue
    if (withinTurn(core, held, Math.max(1, core.settings.maxHandovers))) return held
    return contender === undefined ? "ask" : undefined
  }
  // readers here, but none with a grant to share: one more goes to the store, which lets waiting writers go first
  return contender === undefined && record.releasing === 0 ? "turn" : undefined
}

/** The request comes to the key: a turn, a hold, or `undefined` for "not now". */
export const enter = (core: Core, record: KeyRecord, request: Request): "turn" | "ask" | Hold | undefined => {
  if (record.queue.first !== undefined) return undefined
  const found = opening(core, record, request)
  if (found === undefined) return undefined
  if (found === "turn" || found === "ask") {
    record.contender = request
    return found
  }
  sometimes("reader joined")
  return share(core, found, request)
}

/** The store was asked: a reader joins if it may, and is no contender any more. */
export const joinIfAllowed = (core: Core, record: KeyRecord, request: Request): Hold | undefined => {
  record.contender = undefined
  const found = opening(core, record, request)
  return typeof found === "object" ? share(core, found, request) : undefined
}

/** Queues a request, at the head if it was there already. */
export const queue = (core: Core, record: KeyRecord, request: Request, atHead: boolean): Waiter => {
  const waiter = new Waiter(request, record, (waiter) => signal(core, waiter, "closed"))
  begin(core, waiter.activity)
  waiter.place = atHead ? record.queue.pushFirst(waiter) : record.queue.push(waiter)
  waiter.deadline = core.timer.add(request.deadline, () => {
    if (!signal(core, waiter, "timeout")) return
    sometimes("time-out while queued")
    settle(core, record)
  })
  return waiter
}

/** Wakes a waiter, once: whoever comes first decides. */
export const signal = (core: Core, waiter: Waiter, value: Signal): boolean => {
  if (waiter.signal !== undefined) return false
  waiter.signal = value
  waiter.record.queue.remove(waiter.place)
  core.timer.cancel(waiter.deadline)
  finish(core, waiter.activity)
  waiter.resume?.()
  return true
}

/** Something changed at the key: serves the head of the queue, and drops a record that nobody uses. */
export const settle = (core: Core, record: KeyRecord, othersWait = false): void => {
  for (let head = record.queue.first; head !== undefined; head = record.queue.first) {
    const waiter = head.value
    const found = opening(core, record, waiter.request)
    if (found === undefined) return
    if (found === "turn" || found === "ask") {
      record.contender = waiter.request
      // a reader is in nobody's way: who waits elsewhere shares with it, or is preferred by the store
      waiter.request.standBack = othersWait && waiter.request.call.mode === "exclusive"
      signal(core, waiter, found)
    } else {
      signal(core, waiter, share(core, found, waiter.request))
    }
  }
  if (record.grants.length === 0 && record.contender === undefined && record.releasing === 0) drop(core, record)
}

const drop = (core: Core, record: KeyRecord): void => {
  if (core.records.get(record.id) === record) core.records.delete(record.id)
  if (!record.isInOrder) return
  record.isInOrder = false
  const others = core.inOrder.get(record.id)! - 1
  if (others === 0) core.inOrder.delete(record.id)
  else core.inOrder.set(record.id, others)
}

/** The first in line here, if a grant for one key may become its own. */
export const heirOf = (held: HeldGrant): Waiter | undefined => {
  const record = held.records[0]!
  const head = record.queue.first?.value
  return head !== undefined && record.contender === undefined && isSame(held, head.request) ? head : undefined
}

/** Passes the grant on to the head of the queue, under the next number of its block. */
export const handOver = (core: Core, held: HeldGrant): boolean => {
  const heir = heirOf(held)
  if (heir === undefined || !hasTurns(core, held)) return false
  sometimes("handed over")
  inherit(core, heir, share(core, held, heir.request))
  return true
}

export const inherit = (core: Core, heir: Waiter, hold: Hold): void => {
  signal(core, heir, hold)
  settle(core, heir.record)
}

/** The contender leaves; the key goes on without it. */
export const stepDown = (core: Core, record: KeyRecord, request: Request): void => {
  if (record.contender === request) record.contender = undefined
  settle(core, record)
}
