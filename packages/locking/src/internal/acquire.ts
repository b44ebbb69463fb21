/**
 * From a request to holds: re-entry, the turn in this process, the contest at the store. Runs in an uninterruptible
 * region and restores interruption round its waits only, so that what was granted always has an owner.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as LockError from "../LockError.js"
import type { Restore } from "./calls.js"
import * as claims from "./claims.js"
import { contend } from "./contender.js"
import type { Core, HeldGrant, Hold, KeyRecord, Request, Waiter } from "./core.js"
import * as grants from "./grants.js"
import * as holds from "./hold.js"
import { sometimes } from "./probes.js"
import * as trust from "./pure/trust.js"
import * as records from "./record.js"
import * as release from "./release.js"
import { exclusionId, holderOf, keyHash, refuse } from "./report.js"
import * as waiting from "./waiting.js"

type Failure = Exclude<LockError.AcquireError, LockError.InvalidOptions | LockError.InvalidKey>

/** All keys of the request, or none. */
export const acquire = (
  core: Core,
  request: Request,
  claim: claims.Claim | undefined,
  restore: Restore
): Effect.Effect<ReadonlyArray<Hold>, Failure> =>
  request.keys.length === 1
    ? Effect.map(acquireOne(core, request, claim, restore), (hold) => [hold])
    : request.call.mode === "exclusive"
    ? Effect.map(acquireTogether(core, request, claim, restore), (hold) => [hold])
    // readers share the grants of single keys with other readers here, so they take them one by one
    : acquireInTurn(core, request, claim, restore, [])

const acquireInTurn = (
  core: Core,
  request: Request,
  claim: claims.Claim | undefined,
  restore: Restore,
  taken: ReadonlyArray<Hold>
): Effect.Effect<ReadonlyArray<Hold>, Failure> =>
  taken.length === request.keys.length ? Effect.succeed(taken) : Effect.flatMap(
    Effect.onError(
      acquireOne(core, { ...request, keys: [request.keys[taken.length]!] }, claim, restore),
      () => release.endAll(taken)
    ),
    (hold) => acquireInTurn(core, request, claim, restore, [...taken, hold])
  )

const acquireTogether = (
  core: Core,
  request: Request,
  claim: claims.Claim | undefined,
  restore: Restore
): Effect.Effect<Hold, Failure> =>
  Effect.suspend(() => {
    for (const key of request.keys) {
      if (isReentry(core, request, claims.find(claim, core, key))) return reentry(core, request)
    }
    const ids = [...new Set(request.keys.map((key) => exclusionId(core, key)))].sort()
    const owned: Array<KeyRecord> = []
    const takeNext: Effect.Effect<Hold, Failure> = Effect.suspend(() => {
      if (owned.length === ids.length) {
        return Effect.map(contend(core, request, owned, restore), (held) => openFirst(core, held, request))
      }
      const record = recordOf(core, ids[owned.length]!)
      return Effect.flatMap(
        Effect.onError(record === undefined ? keyLimit(core) : takeTurn(core, record, request, restore), () =>
          Effect.sync(() => {
            for (const record of owned) {
              records.stepDown(core, record, request)
            }
          })),
        () => {
          owned.push(record!)
          return takeNext
        }
      )
    })
    return admitted(core) ?? takeNext
  })

const acquireOne = (
  core: Core,
  request: Request,
  claim: claims.Claim | undefined,
  restore: Restore
): Effect.Effect<Hold, Failure> =>
  Effect.suspend(() => {
    const key = request.keys[0]!
    const owner = claim === undefined ? undefined : claims.find(claim, core, key)
    if (owner !== undefined && request.call.reentrant !== "wait") {
      return isReentry(core, request, owner) ? reentry(core, request) : join(core, request, owner, claim, restore)
    }
    const refused = admitted(core)
    if (refused !== undefined) return refused
    const record = recordOf(core, exclusionId(core, key))
    if (record === undefined) return keyLimit(core)
    const entered = records.enter(core, record, request)
    if (entered === "turn") return contendAlone(core, record, request, restore)
    if (entered !== undefined) return Effect.succeed(entered)
    return Effect.flatMap(
      wait(core, record, request, restore),
      (turn) => turn === "turn" ? contendAlone(core, record, request, restore) : Effect.succeed(turn)
    )
  })

const contendAlone = (core: Core, record: KeyRecord, request: Request, restore: Restore) =>
  Effect.map(contend(core, request, [record], restore), (held) => openFirst(core, held, request))

const openFirst = (core: Core, held: HeldGrant, request: Request): Hold => {
  const hold = holds.open(core, held, request)
  // readers who came meanwhile join
  for (const record of held.records) records.settle(core, record)
  return hold
}

const admitted = (core: Core): Effect.Effect<never, Failure> | undefined =>
  core.closed
    ? refuse(core, new LockError.LockingClosed({ backend: core.settings.backend }))
    : core.driver.capabilities.remote && core.waiters.size > core.settings.maxWaiters
    ? queueFull(core)
    : undefined

const queueFull = (core: Core) =>
  refuse(core, new LockError.QueueFull({ backend: core.settings.backend, limit: core.settings.maxWaiters }))

const keyLimit = (core: Core) =>
  refuse(core, new LockError.KeyLimit({ backend: core.settings.backend, limit: core.settings.maxKeys }))

const recordOf = (core: Core, id: string): KeyRecord | undefined => {
  const record = core.records.get(id)
  if (record !== undefined) return record
  if (core.records.size < core.settings.maxKeys) return records.make(core, id)
  sometimes("limit reached")
  return undefined
}

/** The turn at one of several keys; a grant that others could share is not enough for it. */
const takeTurn = (
  core: Core,
  record: KeyRecord,
  request: Request,
  restore: Restore
): Effect.Effect<unknown, Failure> =>
  Effect.suspend(() =>
    records.enter(core, record, request) === "turn" ? Effect.void : wait(core, record, request, restore)
  )

const wait = (
  core: Core,
  record: KeyRecord,
  request: Request,
  restore: Restore
): Effect.Effect<"turn" | Hold, Failure> => {
  if (!request.waiting) return refuse(core, busy(core, record, request))
  if (waiting.isFull(core, request)) return queueFull(core)
  waiting.add(core, request)
  return park(core, records.queue(core, record, request), restore)
}

const park = (core: Core, waiter: Waiter, restore: Restore): Effect.Effect<"turn" | Hold, Failure> =>
  Effect.flatMap(
    Effect.onInterrupt(
      restore(Effect.async<void>((resume) => {
        if (waiter.signal !== undefined) return resume(Effect.void)
        waiter.resume = () => resume(Effect.void)
      })),
      () => desert(core, waiter)
    ),
    () => {
      const { record, request, signal } = waiter
      waiter.resume = undefined
      if (signal === "ask") return askToJoin(core, waiter, restore)
      waiting.remove(core, request)
      if (signal === "timeout") return refuse(core, busy(core, record, request))
      if (signal === "closed") return refuse(core, new LockError.LockingClosed({ backend: core.settings.backend }))
      return Effect.succeed(signal!)
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
const askToJoin = (core: Core, waiter: Waiter, restore: Restore): Effect.Effect<"turn" | Hold, Failure> =>
  Effect.suspend(() => {
    const { record } = waiter
    const held = record.grant
    if (held === undefined) return Effect.succeed("turn" as const)
    return Effect.flatMap(
      Effect.onInterrupt(restore(grants.confirm(core, held)), () => desert(core, waiter)),
      () => {
        if (record.grant === undefined) return Effect.succeed("turn" as const)
        record.contender = undefined
        records.requeue(core, waiter)
        records.settle(core, record)
        return park(core, waiter, restore)
      }
    )
  })

/** The error of a caller that found the key taken in this process, or waited behind somebody here. */
const busy = (core: Core, record: KeyRecord, request: Request): Failure => {
  const { backend } = core.settings
  const last = record.grant === undefined ? record.contender?.last : undefined
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

type Owner = { readonly claim: claims.Claim; readonly hold: Hold }

const isReentry = (core: Core, request: Request, owner: Owner | undefined): boolean => {
  if (owner === undefined || request.call.reentrant === "wait") return false
  // a reader cannot become a writer by asking again
  return request.call.reentrant === false || request.keys.length > 1 ||
    (request.call.mode === "exclusive" && owner.hold.held.mode === "shared") ||
    !trust.isTrusted(owner.hold.held.trust, core.timer.now())
}

const reentry = (core: Core, request: Request) =>
  refuse(core, new LockError.LockReentry({ backend: core.settings.backend, keyHash: keyHash(request) }))

/** Joins the lease that this flow holds, behind siblings who did. */
const join = (
  core: Core,
  request: Request,
  owner: Owner,
  claim: claims.Claim | undefined,
  restore: Restore
): Effect.Effect<Hold, Failure> => {
  const { hold } = owner
  const turns = owner.claim.turns
  const enter = Effect.suspend(() =>
    records.enter(core, turns, request) === "turn" ? Effect.void : wait(core, turns, request, restore)
  )
  return Effect.flatMap(enter, () => {
    if (hold.state === "held" && !owner.claim.over) {
      return Effect.succeed(holds.open(core, hold.held, request, { hold, turns, request }))
    }
    // the section ended while this one waited: it is a stranger now
    records.stepDown(core, turns, request)
    return acquireOne(core, request, claim, restore)
  })
}
