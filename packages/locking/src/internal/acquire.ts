/**
 * From a request to holds: re-entry, the turn in this process, the contest at the store. Runs in an uninterruptible
 * region and restores interruption round its waits only, so that what was granted always has an owner.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as LockError from "../LockError.js"
import { Joiner, type Restore, sleep } from "./calls.js"
import * as claims from "./claims.js"
import { fromCallback, zipRight } from "./compat.js"
import { contend } from "./contender.js"
import { Activity, begin, type Core, finish, type Hold, type KeyRecord, type Request, type Waiter } from "./core.js"
import * as holds from "./hold.js"
import { sometimes } from "./probes.js"
import { compareIds } from "./pure/keyEncoding.js"
import * as records from "./record.js"
import * as release from "./release.js"
import { confirm } from "./renewal.js"
import { exclusionId, holderOf, keyHash, refuse } from "./report.js"
import * as tracing from "./tracing.js"
import * as waiting from "./waiting.js"

type Failure = Exclude<LockError.AcquireError, LockError.InvalidOptions | LockError.InvalidKey>

/** All keys of the request, or none. */
export const acquire = (
  core: Core,
  request: Request,
  claim: claims.Claim | undefined,
  restore: Restore
): Effect.Effect<Hold, Failure> => {
  const inherited = inheritedBy(core, request, claim)
  if (inherited === "reentry") {
    return refuse(core, new LockError.LockReentry({ backend: core.settings.backend, keyHash: keyHash(request) }))
  }
  if (inherited !== undefined) return join(core, request, inherited, claim, restore)
  if (core.closed) return refuse(core, new LockError.LockingClosed({ backend: core.settings.backend }))
  if (core.driver.capabilities.remote && core.attempting + core.waiters.size > core.settings.maxWaiters) {
    return queueFull(core)
  }
  if (request.call.fair) return takeInOrder(core, request, restore)
  if (request.keys.length > 1) return takeTogether(core, request, restore)
  const record = recordOf(core, exclusionId(core, request.keys[0]!))
  if (record === undefined) return keyLimit(core)
  return take(core, record, request, records.enter(core, record, request), restore)
}

/** The turns at all keys, in one order for everybody, then one contest for all of them. */
const takeTogether = (core: Core, request: Request, restore: Restore): Effect.Effect<Hold, Failure> => {
  const ids = [...new Set(request.keys.map((key) => exclusionId(core, key)))].sort(compareIds)
  const owned: Array<KeyRecord> = []
  const stepDown = Effect.sync(() => {
    for (const record of owned) records.stepDown(core, record, request)
  })
  const takeNext: Effect.Effect<Hold, Failure> = Effect.suspend(() => {
    if (owned.length === ids.length) return contend(core, request, owned, restore)
    const record = recordOf(core, ids[owned.length]!)
    if (record === undefined) return zipRight(stepDown, keyLimit(core))
    return Effect.flatMap(Effect.onError(takeTurn(core, record, request, restore), () => stepDown), () => {
      owned.push(record)
      return takeNext
    })
  })
  return takeNext
}

/** The store keeps the order, of this process's callers as of all others. */
const takeInOrder = (core: Core, request: Request, restore: Restore): Effect.Effect<Hold, Failure> => {
  const owned: Array<KeyRecord> = []
  for (const key of request.keys) {
    const record = records.makeInOrder(core, exclusionId(core, key))
    if (record === undefined) {
      for (const one of owned) records.settle(core, one)
      return keyLimit(core)
    }
    owned.push(record)
  }
  return contend(core, request, owned, restore)
}

/** Goes on from what the key's record said. */
const take = (
  core: Core,
  record: KeyRecord,
  request: Request,
  turn: ReturnType<typeof records.enter>,
  restore: Restore
): Effect.Effect<Hold, Failure> => {
  switch (turn) {
    case "turn":
      return contend(core, request, [record], restore)
    case "ask":
      return askToJoin(core, record, request, restore)
    case undefined:
      return tracing.waiting(
        core,
        request,
        record.grants[0]?.holds.first?.value.trace,
        Effect.flatMap(wait(core, record, request, restore), (turn) => take(core, record, request, turn, restore))
      )
    default:
      return Effect.succeed(turn)
  }
}

const queueFull = (core: Core) =>
  refuse(core, new LockError.QueueFull({ backend: core.settings.backend, limit: core.settings.maxWaiters }))

const keyLimit = (core: Core) => {
  sometimes("limit reached")
  return refuse(core, new LockError.KeyLimit({ backend: core.settings.backend, limit: core.settings.maxKeys }))
}

const recordOf = (core: Core, id: string): KeyRecord | undefined =>
  core.records.get(id) ?? (records.hasRoom(core, id) ? records.make(core, id) : undefined)

/** The turn at one of several keys, or at a claim. */
const takeTurn = (
  core: Core,
  record: KeyRecord,
  request: Request,
  restore: Restore
): Effect.Effect<unknown, Failure> =>
  records.enter(core, record, request) === "turn" ? Effect.void : wait(core, record, request, restore)

const wait = (
  core: Core,
  record: KeyRecord,
  request: Request,
  restore: Restore,
  atHead = false
): Effect.Effect<"turn" | "ask" | Hold, Failure> => {
  if (!request.waiting) return refuse(core, busy(core, record, request))
  if (waiting.isFull(core, request)) return queueFull(core)
  waiting.add(core, request)
  const waiter = records.queue(core, record, request, atHead)
  records.settle(core, record)
  return park(core, waiter, restore)
}

const park = (core: Core, waiter: Waiter, restore: Restore): Effect.Effect<"turn" | "ask" | Hold, Failure> =>
  Effect.matchCauseEffect(
    restore(fromCallback<void>((resume) => {
      if (waiter.signal !== undefined) return resume(Effect.void)
      waiter.resume = () => resume(Effect.void)
    })),
    {
      onFailure: (cause) => zipRight(desert(core, waiter), Effect.failCause(cause)),
      onSuccess: () => {
        const { record, request, signal } = waiter
        waiting.remove(core, request)
        if (signal === "timeout") return refuse(core, busy(core, record, request))
        if (signal === "closed") return refuse(core, new LockError.LockingClosed({ backend: core.settings.backend }))
        return Effect.succeed(signal!)
      }
    }
  )

/** An interrupted waiter loses nobody's place: what it was given meanwhile goes on to the next. */
const desert = (core: Core, waiter: Waiter): Effect.Effect<unknown> =>
  Effect.suspend(() => {
    const { record, request } = waiter
    core.instruments.acquired.interrupted(1)
    waiting.remove(core, request)
    if (records.signal(core, waiter, "closed")) {
      sometimes("interrupt while queued")
      records.settle(core, record)
      return Effect.void
    }
    const { signal } = waiter
    if (signal === "turn" || signal === "ask") {
      records.stepDown(core, record, request)
      return Effect.void
    }
    if (typeof signal !== "object") return Effect.void
    sometimes("interrupt after grant")
    return release.end(signal)
  })

/** Enough readers joined without a word from the store: whether more may depends on who waits elsewhere. */
const askToJoin = (core: Core, record: KeyRecord, request: Request, restore: Restore): Effect.Effect<Hold, Failure> => {
  const shared = record.grants.find((held) => held.mode === "shared" && held.grant.keys.length === 1)
  if (shared === undefined) return rejoin(core, record, request, restore)
  const joiner = new Joiner()
  const activity = new Activity("acquire", () => joiner.resume?.())
  begin(core, activity)
  // the answer is everybody's: it goes into the books even when this caller has left
  let isAnswered = false
  core.fork(confirm(core, shared)).addObserver(() => {
    isAnswered = true
    joiner.resume?.()
  })
  const limit = core.timer.now() + request.call.attemptTimeout
  const until = request.waiting ? Math.min(request.deadline, limit) : limit
  return Effect.flatMap(
    sleep(core, until, restore, joiner, () => isAnswered, () => {
      finish(core, activity)
      core.instruments.acquired.interrupted(1)
      records.stepDown(core, record, request)
    }),
    () => {
      finish(core, activity)
      return rejoin(core, record, request, restore)
    }
  )
}

const rejoin = (core: Core, record: KeyRecord, request: Request, restore: Restore): Effect.Effect<Hold, Failure> => {
  if (core.closed) {
    records.stepDown(core, record, request)
    return refuse(core, new LockError.LockingClosed({ backend: core.settings.backend }))
  }
  const hold = records.joinIfAllowed(core, record, request)
  if (hold !== undefined || !request.waiting || core.timer.now() >= request.deadline) {
    records.settle(core, record)
    return hold === undefined ? refuse(core, busy(core, record, request)) : Effect.succeed(hold)
  }
  return Effect.flatMap(
    wait(core, record, request, restore, true),
    (turn) => take(core, record, request, turn, restore)
  )
}

/** The error of a caller that found the key taken in this process, or waited behind somebody here. */
const busy = (core: Core, record: KeyRecord, request: Request): Failure => {
  const { backend } = core.settings
  const last = record.grants.length === 0 ? record.contender?.last : undefined
  request.last = last
  // nobody could have had it: the store gave no answer to the one who asked for all
  if (request.waiting && last !== undefined && (last === "no answer" || last._tag !== "Busy")) {
    const cause = last === "no answer" ? undefined : last.cause ?? last
    return new LockError.ProviderFailed({ backend, keyHash: keyHash(request), cause })
  }
  const waited = Duration.millis(core.timer.now() - request.startedAt)
  const fields = { backend, keyHash: keyHash(request), waited, holder: holderOf(core, request) }
  return request.waiting
    ? new LockError.WaitTimeout({ ...fields, waitTimeout: Duration.millis(request.call.waitTimeout) })
    : new LockError.LockBusy(fields)
}

/** The lease that this flow holds and the request may join, or the mistake of asking for what it cannot have. */
const inheritedBy = (
  core: Core,
  request: Request,
  claim: claims.Claim | undefined
): claims.Claim | "reentry" | undefined => {
  if (claim === undefined || request.call.reentrant === "wait") return undefined
  const owners = request.keys.map((key) => claims.find(claim, core, key))
  const owner = owners.find((_) => _ !== undefined)
  if (owner === undefined) return undefined
  // the rest of several keys cannot be had out of order, and a reader cannot become a writer by asking again
  return request.call.reentrant === true && owners.every((_) => _ === owner) &&
      !(request.call.mode === "exclusive" && owner.hold!.held.mode === "shared")
    ? owner
    : "reentry"
}

/** Joins the lease that this flow holds, behind siblings who did. */
const join = (
  core: Core,
  request: Request,
  owner: claims.Claim,
  claim: claims.Claim | undefined,
  restore: Restore
): Effect.Effect<Hold, Failure> => {
  const hold = owner.hold!
  const turns = hold.turns ??= records.apart()
  return Effect.flatMap(takeTurn(core, turns, request, restore), () => {
    if (hold.state === "held" && owner.hold === hold) {
      return Effect.succeed(holds.open(core, hold.held, request, core.timer.now(), { hold, turns, request }))
    }
    // the section ended while this one waited: it is a stranger now
    records.stepDown(core, turns, request)
    return acquire(core, request, claim, restore)
  })
}
