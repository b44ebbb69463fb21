/**
 * The store that one connection leads to: a server, or a cluster.
 */
import type { Holder, LockMode, LossReason, Released } from "effect-locking/LockDriver"
import { all, type Answer, type Ask, every, isFailure, map, worst } from "./ask.js"
import { type Connection, type Reply, synchronise } from "./connection.js"
import { late, unintelligible } from "./errors.js"
import * as holder from "./holder.js"
import { tagOf } from "./records.js"
import * as scripts from "./scripts.js"
import {
  type Acquired,
  type Attempt,
  type Owned,
  type Renewed,
  type Request,
  type Store,
  worstReleased
} from "./store.js"

/** Records of one script that renews: it must not keep the server from others for long. */
const batchSize = 100

/** How often an attempt is repeated because the server's clock was not where it was thought to be. */
const clockTries = 2

/** A server that a quorum asks can grant under a fence that the others grant under, too. */
export interface Server extends Store {
  readonly acquireAs: (request: Request, attempt: Attempt, proposal: number) => Ask<Acquired>
  /** Gives up what was granted to a vote that was lost; its place stays, and so does what a later one was granted. */
  readonly takeBack: (records: ReadonlyArray<string>, token: string, round: number) => Ask<Released>
  /** `false`: the token does not hold the records any more. */
  readonly raise: (records: ReadonlyArray<string>, token: string, fences: ReadonlyArray<bigint>) => Ask<boolean>
}

export interface Settings {
  /** For how long a fence is remembered after its lease, in milliseconds. */
  readonly retention: number
  /** How long a waiter in fair mode counts after its last sign of life, in milliseconds. */
  readonly fairPatience: number
}

const letters: Readonly<Record<LockMode, string>> = { exclusive: "E", shared: "S" }

/** As the scripts have it: whether order was asked for, and whether other records were. */
const orderOf = ({ fair, hasOthers, records }: Request): string =>
  fair ? "1" : hasOthers || records.length > 1 ? "2" : "0"

const modeOf = ({ mode, permits }: Request): string => permits === undefined ? letters[mode] : `P${permits.count}`

const unknown = { _tag: "Unknown" } as const

/** What a script answered, and when by the server's clock. */
interface Told {
  readonly at: number
  readonly fields: ReadonlyArray<string>
}

export const make = (connection: Connection, settings: Settings): Server => {
  const { isCluster, now, observe, run, serverNow } = connection
  const keep = String(settings.retention)
  const patienceOf = ({ fair }: Request) => String(fair ? settings.fairPatience : scripts.patience)

  /** A script of a cluster may only touch what lies in one slot. */
  const inSlots = (records: ReadonlyArray<string>): ReadonlyArray<ReadonlyArray<string>> =>
    isCluster && records.some((record) => tagOf(record) !== tagOf(records[0]!))
      ? records.map((record) => [record])
      : [records]

  const ask = (script: scripts.Script, records: ReadonlyArray<string>, args: ReadonlyArray<string>): Ask<Told> =>
    map(run(script, records, args), (reply): Answer<Told> => {
      if (typeof reply === "string") return unintelligible(script.name)
      const at = Number(reply[0])
      if (!(at > 0)) return unintelligible(script.name)
      observe(at)
      return { at, fields: reply.slice(1) }
    })

  const acquireInSlot = (request: Request, attempt: Attempt, proposal: number): Ask<Acquired> => (done) => {
    const { records } = request
    const deadline = now() + attempt.left
    const send = (tries: number): void => {
      const left = deadline - now()
      if (left <= 0) return done(late)
      const serverTime = serverNow()
      if (serverTime === undefined) {
        return synchronise(connection, records[0]!)((answer) => isFailure(answer) ? done(answer) : send(tries))
      }
      ask(scripts.acquire, records, [
        modeOf(request),
        attempt.token,
        String(request.ttl),
        keep,
        request.holder,
        String(Math.floor(serverTime + left)),
        attempt.waiter,
        orderOf(request),
        patienceOf(request),
        String(proposal),
        String(request.permits?.limit ?? 0),
        String(attempt.round ?? 0),
        ...attempt.behind
      ])((told) => {
        if (isFailure(told)) return done(told)
        const [verdict, ...rest] = told.fields
        // it came too late, or the server's clock is not where it was thought to be; it has told where it is
        if (verdict === "late") return tries < clockTries ? send(tries + 1) : done(late)
        done(
          verdict === "granted" && rest.length === records.length
            ? { _tag: "Granted", fences: rest.map(BigInt) }
            : verdict === "busy"
            ? refused(rest, told.at)
            : unintelligible("acquire")
        )
      })
    }
    send(1)
  }

  const giveUp = (records: ReadonlyArray<string>, token: string, what: string): Ask<Released> =>
    map(
      every(
        inSlots(records).map((slot) =>
          map(
            run(scripts.release, slot, [token, what]),
            (reply) => isReleased(reply) ? reply : unintelligible("release")
          )
        )
      ),
      worstReleased
    )

  const acquireAs: Server["acquireAs"] = (request, attempt, proposal) => {
    const slots = inSlots(request.records)
    if (slots.length === 1) return acquireInSlot(request, attempt, proposal)
    // one by one, in the order that everybody keeps to; what was granted goes back when a later one is refused
    return (done) => {
      const deadline = now() + attempt.left
      const fences: Array<bigint> = []
      const next = (i: number): void => {
        if (i === slots.length) return done({ _tag: "Granted", fences })
        const here = { ...attempt, left: Math.max(0, deadline - now()) }
        acquireInSlot({ ...request, records: slots[i]!, hasOthers: true }, here, proposal)((answer) => {
          if (isFailure(answer) || answer._tag === "Refused") return giveBack(i, answer)
          for (const fence of answer.fences) fences.push(fence)
          next(i + 1)
        })
      }
      const giveBack = (count: number, answer: Answer<Acquired>): void => {
        if (count === 0) return done(answer)
        giveUp(slots.slice(0, count).flat(), attempt.token, "keep")((released) =>
          done(worst([answer, released].filter(isFailure)) ?? answer)
        )
      }
      next(0)
    }
  }

  const renewBatch = (batch: ReadonlyArray<Owned>): Ask<ReadonlyArray<Renewed>> =>
    map(
      ask(
        scripts.renew,
        batch.flatMap(({ records }) => records),
        [keep, ...batch.flatMap(({ records, token, ttl }) => [token, String(ttl), String(records.length)])]
      ),
      ({ fields }) => fields.length === batch.length ? fields.map(renewed) : unintelligible("renew")
    )

  const toHolders = ({ fields }: Told): ReadonlyArray<Holder> => {
    const holders: Array<Holder> = []
    for (let i = 0; i + 6 <= fields.length; i += 6) holders.push(holder.parse(fields.slice(i, i + 6)))
    return holders
  }

  return {
    acquire: (request, attempt) => acquireAs(request, attempt, 0),
    acquireAs,
    keepsPlaces: true,
    renew: (grants) => {
      const parts = grants.flatMap((grant, of) => inSlots(grant.records).map((records) => ({ ...grant, records, of })))
      const batches = inBatches(parts, isCluster ? ({ records }) => tagOf(records[0]!) : () => "")
      return map(all(batches.map(renewBatch)), (answers) => {
        const found = grants.map((): Array<Renewed | typeof unknown> => [])
        answers.forEach((answer, i) =>
          batches[i]!.forEach(({ of }, j) => found[of]!.push(isFailure(answer) ? unknown : answer[j]!))
        )
        return found.map(together)
      })
    },
    release: (records, token) => giveUp(records, token, "leave"),
    takeBack: (records, token, round) => giveUp(records, token, String(round)),
    offer: ({ records, token, ttl }, fence) =>
      map(run(scripts.offer, records, [token, "leave", String(fence), String(ttl), keep]), (reply) =>
        isReleased(reply)
          ? reply
          : Array.isArray(reply) && reply.length === 1
          ? { _tag: "Granted", fences: [BigInt(reply[0])] }
          : unintelligible("offer")),
    enlist: (request, waiter) =>
      map(
        every(
          inSlots(request.records).map((slot) =>
            run(scripts.enlist, slot, [
              waiter,
              modeOf(request),
              orderOf(request),
              patienceOf(request),
              keep
            ])
          )
        ),
        (replies) => replies.every((reply) => reply === "free")
      ),
    withdraw: (records, waiter) =>
      map(every(inSlots(records).map((slot) => run(scripts.withdraw, slot, [waiter]))), () => true as const),
    inspect: (record) => map(ask(scripts.inspect, [record], []), toHolders),
    depose: (record, channel) => map(ask(scripts.depose, [record], [channel]), toHolders),
    raise: (records, token, fences) =>
      map(ask(scripts.raise, records, [token, ...fences.map(String)]), ({ fields }) => fields[0] === "raised")
  }
}

const refused = ([missing = "", ...fields]: ReadonlyArray<string>, at: number): Acquired => {
  const found = fields.length < 6 ? undefined : holder.parse(fields)
  return {
    _tag: "Refused",
    holder: found,
    endsIn: found === undefined ? undefined : Math.max(0, found.until! - at),
    missing: missing.split(" ")
  }
}

const renewed = (word: string): Renewed =>
  word === "confirmed" || word === "contended"
    ? { _tag: "Confirmed", contended: word === "contended" }
    : { _tag: "Lost", reason: word as LossReason }

/** Of the parts of one grant: lost is lost, and what is not known of one is not known of all. */
const together = (parts: ReadonlyArray<Renewed | typeof unknown>): Renewed | typeof unknown =>
  parts.find(({ _tag }) => _tag === "Lost") ??
    parts.find(({ _tag }) => _tag === "Unknown") ??
    parts.find((part) => part._tag === "Confirmed" && part.contended) ?? parts[0]!

const isReleased = (reply: Reply): reply is Released =>
  reply === "released" || reply === "woke" || reply === "lapsed" || reply === "gone"

/** By place, and not too large. */
const inBatches = <A extends Owned>(
  grants: ReadonlyArray<A>,
  placeOf: (grant: A) => string
): ReadonlyArray<ReadonlyArray<A>> => {
  const full: Array<Array<A>> = []
  const open = new Map<string, { readonly batch: Array<A>; size: number }>()
  for (const grant of grants) {
    const place = placeOf(grant)
    let found = open.get(place)
    if (found === undefined || found.size + grant.records.length > batchSize) {
      found = { batch: [], size: 0 }
      open.set(place, found)
      full.push(found.batch)
    }
    found.batch.push(grant)
    found.size += grant.records.length
  }
  return full
}
