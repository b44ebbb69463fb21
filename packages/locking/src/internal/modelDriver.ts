import type * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import type {
  Busy,
  Capabilities,
  Contention,
  Grant,
  HeldKey,
  Holder,
  LockDriver,
  LockRequest,
  LossReason,
  OwnerToken,
  Renewal
} from "../LockDriver.js"
import { shortHash } from "./pure/keyEncoding.js"
import type { Refused, StoreGrant, StoreRequest } from "./pure/storeModel.js"
import { fenceBlock, Interest, type StoreModel } from "./pure/storeModel.js"

/** Milliseconds since the epoch that no setting of the clock moves: deadlines and fences have one base. */
export const storeTime: Effect.Effect<() => number> = Effect.map(
  Effect.clock,
  (clock: Clock.Clock) => () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
)

/** One process at a store in memory. */
export const make = (options: {
  readonly name: string
  readonly capabilities: Capabilities
  readonly model: StoreModel
  readonly now: () => number
}): Effect.Effect<LockDriver, never, Scope.Scope> => {
  const { capabilities, model, name, now } = options
  return Effect.map(
    Effect.acquireRelease(
      Queue.unbounded<{ readonly token: OwnerToken; readonly reason: LossReason }>(),
      Queue.shutdown
    ),
    (losses): LockDriver => {
      const onDeposed = (token: OwnerToken) => {
        losses.unsafeOffer({ token, reason: "revoked" })
      }
      return {
        name,
        capabilities,
        ready: Effect.void,
        contend: (request) => contention(model, now, request, onDeposed),
        renew: (grants) =>
          Effect.sync(() => {
            const at = now()
            return grants.map((grant): Renewal => model.renew(at, grant, Duration.toMillis(grant.ttl)))
          }),
        release: (claim) => Effect.sync(() => model.release(now(), claim)),
        losses,
        inspect: (key) => Effect.sync(() => model.inspect(now(), key.id).map(toHolder)),
        list: (namespace) =>
          Effect.sync(() =>
            model.list(now(), namespace).map(({ holders, key }): HeldKey => ({
              namespace: key.namespace,
              scope: key.scope,
              tenant: key.tenant,
              key: key.key,
              hash: shortHash(key.id),
              holders: holders.map(toHolder)
            }))
          ),
        forceRelease: (key) => Effect.sync(() => model.forceRelease(now(), key.id).map(toHolder))
      }
    }
  )
}

const contention = (
  model: StoreModel,
  now: () => number,
  request: LockRequest,
  onDeposed: (token: OwnerToken) => void
): Contention => {
  const stored: StoreRequest = {
    keys: request.keys,
    mode: request.mode,
    ttl: Duration.toMillis(request.ttl),
    session: request.holder.session,
    metadata: request.holder.metadata,
    onDeposed
  }
  const interest = new Interest(stored)
  return {
    attempt: ({ token }) =>
      Effect.sync((): Grant | Busy => {
        const answer = model.acquire(now(), token, stored, interest)
        return answer._tag === "Granted"
          ? {
            _tag: "Grant",
            token,
            keys: request.keys,
            mode: request.mode,
            fences: answer.fences.map(BigInt),
            block: fenceBlock,
            ttl: request.ttl
          }
          : toBusy(answer)
      }),
    arm: (wake) => Effect.sync(() => model.arm(now(), interest, wake)),
    withdraw: Effect.sync(() => model.withdraw(interest))
  }
}

const toBusy = (refused: Refused): Busy => ({
  _tag: "Busy",
  holder: refused.holder === undefined ? undefined : toHolder(refused.holder),
  endsIn: refused.endsIn === undefined ? undefined : Duration.millis(refused.endsIn)
})

const toHolder = (grant: StoreGrant): Holder => ({
  mode: grant.request.mode,
  fence: BigInt(grant.fence),
  token: grant.token,
  since: grant.since,
  until: grant.until === Infinity ? undefined : grant.until,
  session: grant.request.session,
  metadata: grant.request.metadata
})
