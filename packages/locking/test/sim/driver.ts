/**
 * One process's driver for the simulated store: each call is an exchange of messages that never answers when one of them
 * got lost. It is to the engine what a driver for a real server is, so it bounds nothing and repeats nothing.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import {
  type Busy,
  type Capabilities,
  type Claim,
  type Contention,
  DriverError,
  type Grant,
  type HeldKey,
  type Holder,
  type LockDriver,
  type LockRequest,
  type LossReason,
  type OwnerToken,
  type Renewal
} from "../../src/LockDriver.js"
import type { Process } from "./kernel.js"
import type { Network, Reply } from "./network.js"
import {
  type AttemptAnswer,
  fenceBlock,
  type Refused,
  type Store,
  type StoreGrant,
  type StoreRequest
} from "./store.js"

export const capabilities: Capabilities = {
  modes: ["exclusive", "shared"],
  fair: false,
  push: true,
  expiry: "server",
  remote: true,
  ttl: { default: Duration.millis(600), min: Duration.millis(1), infinite: true }
}

export interface DriverSettings {
  /** Attempts tell the store when their answer stops being of use. */
  readonly notAfter: boolean
  /** Whether each arming asks the store, or only the first one of a contention. */
  readonly arming: "each" | "first"
}

/** What a watcher hears of the calls of one process, when they are made. */
export interface CallWatcher {
  readonly attempt: (process: Process, token: OwnerToken) => void
  readonly release: (process: Process, claim: Claim) => void
  readonly offer: (process: Process, claim: Claim) => void
  readonly renew: (process: Process) => void
}

export const make = (
  process: Process,
  network: Network,
  store: Store,
  settings: DriverSettings,
  watcher: CallWatcher
): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Queue.unbounded<{ readonly token: OwnerToken; readonly reason: LossReason }>(),
      Queue.shutdown
    ),
    (losses): LockDriver => {
      const serverTime = new ServerTime(process)
      let contentions = 0

      const call = <A>(label: string, execute: () => A): Effect.Effect<A, DriverError> =>
        Effect.async((resume) => {
          let waiting = true
          let stamp: number | undefined
          const run = () => {
            stamp ??= store.now
            return execute()
          }
          network.exchange(process, `${process.name} ${label}`, run, (reply) => {
            if (reply._tag === "Answer" && stamp !== undefined) serverTime.learn(stamp)
            if (!waiting) return
            waiting = false
            resume(toEffect(reply))
          })
          return Effect.sync(() => {
            waiting = false
          })
        })

      const onDeposed = (token: OwnerToken) =>
        network.note(process, `${token} was deposed`, () => {
          losses.unsafeOffer({ token, reason: "revoked" })
        })

      const contention = (request: LockRequest): Contention => {
        const id = `${process.name}:${contentions++}`
        const stored: StoreRequest = {
          keys: request.keys,
          mode: request.mode,
          ttl: Duration.toMillis(request.ttl),
          session: request.holder.session,
          metadata: request.holder.metadata,
          onDeposed
        }
        const names = request.keys.map((key) => key.key).join("+")
        let wake: () => void = () => {}
        let armed = false
        const arm = Effect.map(
          call(`arm ${names}`, () =>
            store.arm(id, stored, () => network.note(process, `${names} may be free`, () => wake()))),
          () => {
            armed = true
          }
        )
        return {
          attempt: ({ left, token }) =>
            Effect.suspend(() => {
              watcher.attempt(process, token)
              const notAfter = settings.notAfter ? serverTime.after(Duration.toMillis(left)) : undefined
              return Effect.flatMap(
                call(`attempt ${names} ${token}`, () =>
                  store.attempt(stored, token, id, notAfter)),
                (answer) => {
                  // a grant ends the store's interest in us
                  if (answer._tag === "Granted") armed = false
                  if (answer._tag === "TooLate") network.trouble(process)
                  return toAnswer(request, token, answer)
                }
              )
            }),
          arm: (next) =>
            Effect.suspend(() => {
              wake = next
              return armed && settings.arming === "first" ? Effect.void : arm
            }),
          withdraw: call(`withdraw ${id}`, () => store.withdraw(id))
        }
      }

      return {
        name: "simulated",
        capabilities,
        ready: call("ready", () => undefined),
        contend: contention,
        renew: (grants) =>
          Effect.suspend(() => {
            watcher.renew(process)
            return call(`renew ${grants.map((grant) => grant.token).join(" ")}`, () =>
              grants.map((grant): Renewal => store.renew(grant, Duration.toMillis(grant.ttl))))
          }),
        release: (claim) =>
          Effect.suspend(() => {
            watcher.release(process, claim)
            return call(`release ${claim.token}`, () => store.release(claim))
          }),
        offer: (grant) =>
          Effect.suspend(() => {
            watcher.offer(process, grant)
            return Effect.map(
              call(`offer ${grant.token}`, () =>
                store.offer(grant, Number(grant.fences[0]), Duration.toMillis(grant.ttl))),
              (answer) =>
                typeof answer === "string" ? answer : { ...grant, fences: answer.fences.map(BigInt) }
            )
          }),
        losses,
        inspect: (key) =>
          call(`inspect ${key.key}`, () => store.inspect(key).map(toHolder)),
        list: (namespace) =>
          call("list", () =>
            store.list(namespace).map(({ holders, key }): HeldKey => ({
              namespace: key.namespace,
              scope: key.scope,
              tenant: key.tenant,
              key: key.key,
              hash: key.id,
              holders: holders.map(toHolder)
            }))),
        forceRelease: (key) =>
          call(`force ${key.key}`, () => ({ holders: store.forceRelease(key).map(toHolder), others: [] }))
      }
    }
  )

/** A careful estimate of the store's clock: it is later than the last answer says, never earlier. */
class ServerTime {
  private stamp: number | undefined
  private heardAt = 0

  constructor(private readonly process: Process) {}

  learn(stamp: number): void {
    this.stamp = stamp
    this.heardAt = this.process.monotonicNow
  }

  /** The store's time in `ms`, unless nothing is known of it. */
  after(ms: number): number | undefined {
    return this.stamp === undefined ? undefined : this.stamp + this.process.monotonicNow - this.heardAt + ms
  }
}

const toEffect = <A>(reply: Reply<A>): Effect.Effect<A, DriverError> => {
  switch (reply._tag) {
    case "Answer":
      return Effect.succeed(reply.value)
    case "Refused":
      return Effect.fail(new DriverError({ executed: "no", message: "the store is overloaded" }))
    case "Reset":
      return Effect.fail(new DriverError({ executed: "unknown", message: "the connection was reset" }))
  }
}

const toAnswer = (
  request: LockRequest,
  token: OwnerToken,
  answer: AttemptAnswer
): Effect.Effect<Grant | Busy, DriverError> => {
  switch (answer._tag) {
    case "Granted":
      return Effect.succeed({
        _tag: "Grant",
        token,
        keys: request.keys,
        mode: request.mode,
        fences: answer.fences.map(BigInt),
        block: fenceBlock,
        ttl: request.ttl
      })
    case "Refused":
      return Effect.succeed(toBusy(answer))
    case "TooLate":
      return Effect.fail(new DriverError({ executed: "no", message: "the attempt came too late" }))
    case "Finished":
      return Effect.fail(new DriverError({ executed: "no", message: "the token was given up" }))
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
