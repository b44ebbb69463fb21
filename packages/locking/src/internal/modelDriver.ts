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
import { currentClock } from "./compat.js"
import { shortHash } from "./pure/keyEncoding.js"
import type { Refused, StoreGrant, StoreRequest } from "./pure/storeModel.js"
import { fenceBlock, Interest, type StoreModel } from "./pure/storeModel.js"

/** Milliseconds since the epoch that no setting of the clock moves: deadlines and fences have one base. */
export const storeTime: Effect.Effect<() => number> = Effect.map(
  currentClock,
  (clock: Clock.Clock) => () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
)

/** One process at a store in memory. */
export const make = (options: {
  readonly name: string
  readonly capabilities: Capabilities
  readonly model: StoreModel
  readonly now: () => number
  /** Whether notices of the store reach this process now. */
  readonly reached?: () => boolean
}): Effect.Effect<LockDriver, never, Scope.Scope> => {
  const { capabilities, model, name, now, reached = () => true } = options
  return Effect.map(
    Effect.acquireRelease(
      Queue.unbounded<{ readonly token: OwnerToken; readonly reason: LossReason }>(),
      Queue.shutdown
    ),
    (losses): LockDriver => {
      const onDeposed = (token: OwnerToken) => {
        if (reached()) losses.unsafeOffer({ token, reason: "revoked" })
      }
      return {
        name,
        capabilities,
        ready: Effect.void,
        contend: (request) => new ModelContention(model, now, request, onDeposed),
        renew: (grants) =>
          Effect.sync(() => {
            const at = now()
            return grants.map((grant): Renewal => model.renew(at, grant, Duration.toMillis(grant.ttl)))
          }),
        release: (claim) => Effect.sync(() => model.release(now(), claim)),
        offer: (grant) =>
          Effect.sync(() => {
            const answer = model.offer(now(), grant, Number(grant.fences[0]), Duration.toMillis(grant.ttl))
            if (typeof answer === "string") return answer
            const { keys, mode, token, ttl } = grant
            return new ModelGrant(token, keys, mode, answer.fences.map(BigInt), ttl)
          }),
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
        forceRelease: (key) =>
          Effect.sync(() => ({ holders: model.forceRelease(now(), key.id).map(toHolder), others: [] }))
      }
    }
  )
}

class ModelGrant implements Grant {
  readonly _tag = "Grant"
  readonly block = fenceBlock

  constructor(
    readonly token: OwnerToken,
    readonly keys: Grant["keys"],
    readonly mode: Grant["mode"],
    readonly fences: Grant["fences"],
    readonly ttl: Duration.Duration
  ) {}
}

/** Made for every lock that is taken: methods cost less than closures, and only who waits makes an interest. */
class ModelContention implements Contention {
  private readonly stored: StoreRequest
  private interest: Interest | undefined = undefined

  constructor(
    private readonly model: StoreModel,
    private readonly now: () => number,
    private readonly request: LockRequest,
    onDeposed: (token: OwnerToken) => void
  ) {
    this.stored = {
      keys: request.keys,
      mode: request.mode,
      ttl: Duration.toMillis(request.ttl),
      session: request.holder.session,
      metadata: request.holder.metadata,
      onDeposed
    }
  }

  attempt({ token }: { readonly token: OwnerToken }): Effect.Effect<Grant | Busy> {
    return Effect.sync(() => {
      const answer = this.model.acquire(this.now(), token, this.stored, this.interest)
      if (answer._tag === "Refused") return toBusy(answer)
      const { keys, mode, ttl } = this.request
      return new ModelGrant(token, keys, mode, answer.fences.map(BigInt), ttl)
    })
  }

  arm(wake: () => void): Effect.Effect<void> {
    return Effect.sync(() => {
      this.interest ??= new Interest(this.stored)
      this.model.arm(this.now(), this.interest, wake)
    })
  }

  get withdraw(): Effect.Effect<void> {
    return Effect.sync(() => {
      if (this.interest !== undefined) this.model.withdraw(this.interest)
    })
  }
}

const toBusy = (refused: Refused): Busy => ({
  _tag: "Busy",
  holder: refused.holder === undefined ? undefined : toHolder(refused.holder),
  endsIn: refused.endsIn === undefined ? undefined : Duration.millis(refused.endsIn)
})

export const toHolder = (grant: StoreGrant): Holder => ({
  mode: grant.request.mode,
  fence: BigInt(grant.fence),
  token: grant.token,
  since: grant.since,
  until: grant.until === Infinity ? undefined : grant.until,
  session: grant.request.session,
  metadata: grant.request.metadata
})
