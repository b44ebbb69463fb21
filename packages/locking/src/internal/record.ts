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
  type KeyRecord,
  type Request,
  type Signal,
  type Waiter
} from "./core.js"
import * as holds from "./hold.js"
import { sometimes } from "./probes.js"
import { Fifo } from "./pure/fifo.js"
import { isFresh } from "./pure/trust.js"

/** Leases handed on in a row take at most this long, whatever their number. */
const handoverSpan = 50

/** A record that no key has: for those who join one hold. */
export const apart = (id = ""): KeyRecord => ({
  id,
  queue: new Fifo(),
  grant: undefined,
  contender: undefined,
  releasing: false
})

export const make = (core: Core, id: string): KeyRecord => {
  const record = apart(id)
  core.records.set(id, record)
  return record
}

const isFree = (record: KeyRecord): boolean =>
  record.grant === undefined && record.contender === undefined && !record.releasing && record.queue.first === undefined

/** Whether a request may be served from a grant that was made for another. */
const fits = (core: Core, held: HeldGrant, request: Request): boolean =>
  request.keys.length === 1 && held.records.length === 1 && request.call.mode === held.mode &&
  isFresh(held.trust, core.timer.now(), held.ttl)

const withinTurn = (core: Core, held: HeldGrant): boolean =>
  held.handovers < core.settings.maxHandovers && core.timer.now() - held.handoversSince <= handoverSpan

/** Whether a reader may join the readers inside: yes, no, or after the store was asked whether others wait. */
const mayJoin = (core: Core, held: HeldGrant, request: Request): boolean | "ask" =>
  held.mode === "shared" && fits(core, held, request) && !held.yielding &&
  (withinTurn(core, held) || "ask")

/** Whether a release may pass the grant on to this request instead. */
export const mayInherit = (core: Core, held: HeldGrant, request: Request): boolean =>
  fits(core, held, request) && request.call.ttl === held.call.ttl && !held.yielding &&
  (held.ttl === Infinity || request.call.autoRenew) && request.call.metadata === held.call.metadata &&
  held.fencesUsed < held.grant.block && withinTurn(core, held)

const share = (core: Core, held: HeldGrant, request: Request): Hold => {
  held.handovers++
  return holds.open(core, held, request, core.timer.now())
}

/**
 * The request comes to the key: its turn at the store, the turn to ask whether more readers may join, a hold, or
 * `undefined` for "not now".
 */
export const enter = (core: Core, record: KeyRecord, request: Request): "turn" | "ask" | Hold | undefined => {
  if (isFree(record)) {
    record.contender = request
    return "turn"
  }
  const held = record.grant
  if (held === undefined || record.queue.first !== undefined || record.contender !== undefined) return undefined
  const join = mayJoin(core, held, request)
  if (join === false) return undefined
  if (join === "ask") {
    record.contender = request
    return join
  }
  sometimes("reader joined")
  return share(core, held, request)
}

/** The store was asked: a reader joins if it may, and is no contender any more. */
export const joinIfAllowed = (core: Core, record: KeyRecord, request: Request): Hold | undefined => {
  record.contender = undefined
  const held = record.grant
  return held !== undefined && mayJoin(core, held, request) === true ? share(core, held, request) : undefined
}

/** Queues a request, at the head if it was there already. */
export const queue = (core: Core, record: KeyRecord, request: Request, atHead: boolean): Waiter => {
  const waiter: Waiter = {
    request,
    record,
    activity: { kind: "acquire", end: () => signal(core, waiter, "closed"), abort: () => {} },
    member: undefined,
    deadline: undefined,
    signal: undefined,
    resume: undefined
  }
  begin(core, waiter.activity)
  waiter.member = atHead ? record.queue.pushFirst(waiter) : record.queue.push(waiter)
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
  waiter.record.queue.remove(waiter.member!)
  core.timer.cancel(waiter.deadline)
  finish(core, waiter.activity)
  waiter.resume?.()
  return true
}

/** Something changed at the key: serves the head of the queue, and drops a record that nobody uses. */
export const settle = (core: Core, record: KeyRecord, othersWait = false): void => {
  for (;;) {
    const head = record.queue.first?.value
    if (head === undefined) {
      if (isFree(record) && core.records.get(record.id) === record) core.records.delete(record.id)
      return
    }
    if (record.contender !== undefined || record.releasing) return
    const held = record.grant
    if (held === undefined) {
      record.contender = head.request
      head.request.standBack = othersWait
      signal(core, head, "turn")
      return
    }
    const join = mayJoin(core, held, head.request)
    if (join === false) return
    if (join === "ask") {
      record.contender = head.request
      signal(core, head, "ask")
      return
    }
    signal(core, head, share(core, held, head.request))
  }
}

/** Passes the grant on to the head of the queue, under the next number of its block. */
export const handOver = (core: Core, held: HeldGrant): boolean => {
  const record = held.records[0]!
  const head = record.queue.first?.value
  if (head === undefined || !mayInherit(core, held, head.request)) return false
  sometimes("handed over")
  signal(core, head, share(core, held, head.request))
  settle(core, record)
  return true
}

/** The contender leaves; the key goes on without it. */
export const stepDown = (core: Core, record: KeyRecord, request: Request, othersWait = false): void => {
  if (record.contender === request) record.contender = undefined
  settle(core, record, othersWait)
}
