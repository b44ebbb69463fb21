/**
 * The driver over a store: what a request is at Redis, and who is told what.
 */
import type {
  Busy,
  Capabilities,
  Claim,
  Contention,
  DriverError,
  Finding,
  Grant,
  HeldKey,
  LockDriver,
  LockRequest,
  LossReason,
  OwnerToken
} from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
// eslint-disable-next-line no-restricted-syntax -- a seeded source would name two processes alike
import { randomUUID } from "node:crypto"
import { type Ask, isFailure, map, toEffect } from "./ask.js"
import type { Channels, Listener } from "./channels.js"
import * as holder from "./holder.js"
import { depositionsOf, permitsOf, recordOf } from "./records.js"
import { fenceBlock } from "./scripts.js"
import type { Acquired, Attempt, Request, Store } from "./store.js"

const capabilities: Capabilities = {
  modes: ["exclusive", "shared"],
  fair: true,
  permits: true,
  push: true,
  expiry: "server",
  remote: true,
  ttl: { default: Duration.seconds(15), min: Duration.millis(100), infinite: false }
}

export interface Parts {
  readonly store: Store
  readonly channels: Channels
  /** What stands before every name. */
  readonly prefix: string
  readonly capabilities?: Partial<Capabilities>
  readonly ready: Effect.Effect<void, DriverError>
  readonly list: (namespace: string) => Effect.Effect<ReadonlyArray<HeldKey>, DriverError>
  readonly check: Effect.Effect<ReadonlyArray<Finding>, DriverError>
}

export const make = (parts: Parts): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Queue.unbounded<{ readonly token: OwnerToken; readonly reason: LossReason }>(),
      Queue.shutdown
    ),
    (losses): LockDriver => {
      const { channels, prefix, store } = parts
      const { offer } = store
      const recordsOf = ({ keys, permits }: Pick<Claim, "keys" | "permits">) =>
        keys.map((key) => (permits === undefined ? recordOf : permitsOf)(prefix, key))
      const onDeposed: Listener = (token) => {
        if (token !== "") losses.unsafeOffer({ token, reason: "revoked" })
      }
      const namespaces = new Set<string>()
      // whoever holds something wants to hear at once that it was taken away; a renewal tells it, too
      const hear = (namespace: string) => {
        if (namespaces.has(namespace)) return
        namespaces.add(namespace)
        channels.listen([depositionsOf(prefix, namespace)], onDeposed)(() => {})
      }
      return {
        name: "redis",
        capabilities: { ...capabilities, ...parts.capabilities },
        ready: parts.ready,
        contend: (request) => {
          hear(request.keys[0]!.namespace)
          return new RedisContention(store, channels, request, recordsOf(request))
        },
        renew: (grants) =>
          toEffect(store.renew(
            grants.map((grant) => ({
              records: recordsOf(grant),
              token: grant.token,
              ttl: Duration.toMillis(grant.ttl)
            }))
          )),
        release: (claim) => toEffect(store.release(recordsOf(claim), claim.token)),
        offer: offer && ((grant) =>
          toEffect(map(
            offer(
              { records: recordsOf(grant), token: grant.token, ttl: Duration.toMillis(grant.ttl) },
              grant.fences[0]!
            ),
            (answer) => typeof answer === "string" ? answer : { ...grant, fences: answer.fences }
          ))),
        losses,
        inspect: (key) => toEffect(store.inspect(recordOf(prefix, key))),
        list: parts.list,
        forceRelease: (key) =>
          toEffect(map(
            store.depose(recordOf(prefix, key), depositionsOf(prefix, key.namespace)),
            (holders) => ({ holders, others: [] })
          )),
        check: parts.check
      }
    }
  )

class RedisContention implements Contention {
  private readonly wanted: Request
  /**
   * The name under which it waits: that of its first attempt, which a release takes away as well, or one of its own where
   * it armed before it asked.
   */
  private waiter = ""
  private listener: Listener | undefined = undefined
  /** The store may have a place for it. */
  private hasPlace = false

  constructor(
    private readonly store: Store,
    private readonly channels: Channels,
    private readonly request: LockRequest,
    private readonly records: ReadonlyArray<string>
  ) {
    this.wanted = {
      records,
      mode: request.mode,
      ttl: Duration.toMillis(request.ttl),
      holder: holder.encode(request.holder),
      fair: request.fair,
      permits: request.permits
    }
  }

  attempt({ left, token }: { readonly token: OwnerToken; readonly left: Duration.Duration }) {
    return toEffect<Grant | Busy>((done) => {
      if (this.waiter === "") this.waiter = token
      // arrival counts from the first attempt where order was asked for, and from the subscription elsewhere
      const waits = this.request.waiting && (this.request.fair || this.listener !== undefined)
      if (waits) this.hasPlace = true
      const attempt: Attempt = { token, left: Duration.toMillis(left), waiter: waits ? this.waiter : "" }
      map(this.store.acquire(this.wanted, attempt), (answer) => this.answerOf(token, answer))(done)
    })
  }

  private answerOf(token: OwnerToken, answer: Acquired): Grant | Busy {
    if (answer._tag === "Refused") {
      const { endsIn, holder } = answer
      return { _tag: "Busy", holder, endsIn: endsIn === undefined ? undefined : Duration.millis(endsIn) }
    }
    this.hasPlace = false
    const { keys, mode, permits, ttl } = this.request
    return { _tag: "Grant", token, keys, mode, permits, fences: answer.fences, block: fenceBlock, ttl }
  }

  arm(wake: () => void): Effect.Effect<void, DriverError> {
    return Effect.suspend(() => {
      this.disarm()
      this.listener = (message) => {
        if (message === "" || message === this.waiter) wake()
      }
      const listening = this.channels.listen(this.records, this.listener)
      const { store } = this
      if (this.waiter !== "" || store.enlist === undefined) return Effect.asVoid(toEffect(listening))
      // who has not asked yet lets others go first, and has its turn after them
      this.waiter = randomUUID()
      const enlisting: Ask<true> = (done) =>
        listening((answer) => {
          if (isFailure(answer)) return done(answer)
          this.hasPlace = true
          store.enlist!(this.wanted, this.waiter)((isFree) => {
            // without a place it polls
            done(true)
            if (isFree === true) wake()
          })
        })
      return Effect.asVoid(toEffect(enlisting))
    })
  }

  private disarm(): void {
    if (this.listener !== undefined) this.channels.leave(this.records, this.listener)
  }

  get withdraw(): Effect.Effect<void, DriverError> {
    return Effect.suspend(() => {
      this.disarm()
      return this.hasPlace ? Effect.asVoid(toEffect(this.store.withdraw(this.records, this.waiter))) : Effect.void
    })
  }
}
