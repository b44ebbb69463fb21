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
  Holder,
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
import { Lines, type Member } from "./line.js"
import { depositionsOf, permitsOf, recordOf } from "./records.js"
import { fenceBlock, readers } from "./scripts.js"
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

/** Who polls less often than this gives its signs of life without asking. In milliseconds. */
const signsOfLife = 500

export interface Parts {
  readonly store: Store
  readonly channels: Channels
  /** What stands before every name. */
  readonly prefix: string
  readonly capabilities?: Partial<Capabilities>
  /** How long a place in the order of arrival is kept without a sign of life, in milliseconds. */
  readonly fairPatience: number
  /** How often those who wait are looked after; never, where wake-ups have to be seen by themselves. */
  readonly beat?: number | undefined
  readonly ready: Effect.Effect<void, DriverError>
  readonly list: (namespace: string) => Effect.Effect<ReadonlyArray<HeldKey>, DriverError>
  readonly check: Effect.Effect<ReadonlyArray<Finding>, DriverError>
}

export const make = (parts: Parts): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.gen(function*() {
    const losses = yield* Effect.acquireRelease(
      Queue.unbounded<{ readonly token: OwnerToken; readonly reason: LossReason }>(),
      Queue.shutdown
    )
    const clock = yield* Effect.clock
    const { beat = signsOfLife, channels, prefix, store } = parts
    const { offer } = store
    const waiting = new Set<RedisContention>()
    const environment: Environment = {
      store,
      channels,
      lines: new Lines(),
      waiting,
      fairPatience: parts.fairPatience,
      beat,
      now: () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
    }
    const tend = Effect.sync(() => {
      for (const one of [...waiting]) one.tend()
    })
    yield* Effect.forkScoped(Effect.forever(Effect.delay(tend, beat)))
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
        return new RedisContention(environment, request, recordsOf(request))
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
  })

/** What the contentions of one process share. */
interface Environment {
  readonly store: Store
  readonly channels: Channels
  readonly lines: Lines
  /** Those who are armed. */
  readonly waiting: Set<RedisContention>
  readonly fairPatience: number
  readonly beat: number
  /** Monotonic milliseconds. */
  readonly now: () => number
}

class RedisContention implements Contention, Member {
  private readonly wanted: Request
  /**
   * The name under which it waits: that of its first attempt, which a release takes away as well, or one of its own where
   * it armed before it asked.
   */
  waiter = ""
  /** It has a place in a line that is kept for it. */
  seenAt = -Infinity
  /** The server has refused it since it armed, since it was woken, and since an attempt without an answer. */
  private isPatient = false
  private isWoken = false
  private askedAt = 0
  private holder: Holder | undefined = undefined
  private listener: Listener | undefined = undefined
  /** The store may have a place for it. */
  private hasPlace = false

  constructor(
    private readonly environment: Environment,
    private readonly request: LockRequest,
    private readonly records: ReadonlyArray<string>
  ) {
    this.wanted = {
      records,
      mode: request.mode,
      ttl: Duration.toMillis(request.ttl),
      holder: holder.encode(request.holder),
      fair: request.fair,
      hasOthers: false,
      permits: request.permits
    }
  }

  attempt({ left, token }: { readonly token: OwnerToken; readonly left: Duration.Duration }) {
    const { lines, now, store } = this.environment
    return toEffect<Grant | Busy>((done) => {
      if (this.waiter === "") this.waiter = token
      // arrival counts from the first attempt where order was asked for, and from the subscription elsewhere
      const waits = this.request.waiting && (this.request.fair || this.listener !== undefined)
      if (waits) this.hasPlace = true
      if (this.mayWait()) return done({ _tag: "Busy", holder: this.holder })
      const behind = waits && this.isInLine ? lines.behind(this.records[0]!, this) : []
      this.isPatient = false
      this.isWoken = false
      this.askedAt = now()
      const attempt: Attempt = {
        token,
        left: Duration.toMillis(left),
        waiter: waits ? this.waiter : "",
        behind: behind.map(({ waiter }) => waiter)
      }
      map(store.acquire(this.wanted, attempt), (answer) => {
        if (answer._tag === "Refused") {
          const at = now()
          this.isPatient = this.listener !== undefined && !this.isWoken
          this.holder = answer.holder
          for (const one of [this, ...behind]) one.seenAt = answer.missing.includes(one.waiter) ? -Infinity : at
        }
        return this.answerOf(token, answer)
      })(done)
    })
  }

  private get isInLine(): boolean {
    return this.request.fair && this.records.length === 1 && this.environment.store.keepsPlaces
  }

  /** Somebody before it here asks for both. */
  private mayWait(): boolean {
    const { fairPatience, lines, now } = this.environment
    return this.isInLine && this.isPatient && !lines.isFirst(this.records[0]!, this) &&
      now() - this.seenAt < fairPatience / 2
  }

  private answerOf(token: OwnerToken, answer: Acquired): Grant | Busy {
    if (answer._tag === "Refused") {
      const { endsIn, holder } = answer
      return { _tag: "Busy", holder, endsIn: endsIn === undefined ? undefined : Duration.millis(endsIn) }
    }
    this.leave()
    const { keys, mode, permits, ttl } = this.request
    return { _tag: "Grant", token, keys, mode, permits, fences: answer.fences, block: fenceBlock, ttl }
  }

  arm(wake: () => void): Effect.Effect<void, DriverError> {
    return Effect.suspend(() => {
      this.disarm()
      if (this.isInLine) this.environment.lines.join(this.records[0]!, this)
      this.isPatient = false
      this.listener = (message) => {
        if (!this.isMeant(message)) return
        this.isPatient = false
        this.isWoken = true
        wake()
      }
      const { channels, waiting } = this.environment
      waiting.add(this)
      const listening = channels.listen(this.records, this.listener)
      if (this.waiter !== "") return Effect.asVoid(toEffect(listening))
      // who has not asked yet lets others go first, and has its turn after them
      this.waiter = randomUUID()
      const enlisting: Ask<true> = (done) =>
        listening((answer) => {
          if (isFailure(answer)) return done(answer)
          // without a place it polls
          this.enlist(() => done(true))
        })
      return Effect.asVoid(toEffect(enlisting))
    })
  }

  private isMeant(message: string): boolean {
    const { mode, permits } = this.request
    return message === "" || message === this.waiter ||
      message === readers && mode === "shared" && permits === undefined
  }

  /** Gives a sign of life, where the engine has given none for long. */
  tend(): void {
    const { beat, now } = this.environment
    if (!this.isInLine && now() - this.askedAt >= beat) this.enlist(() => {})
  }

  private enlist(done: () => void): void {
    const { now, store } = this.environment
    // it has withdrawn meanwhile
    if (this.listener === undefined) return done()
    this.hasPlace = true
    this.askedAt = now()
    store.enlist(this.wanted, this.waiter)((isFree) => {
      done()
      if (isFree === true) this.listener?.("")
    })
  }

  private disarm(): void {
    if (this.listener === undefined) return
    this.environment.channels.leave(this.records, this.listener)
    this.environment.waiting.delete(this)
    this.listener = undefined
  }

  private leave(): void {
    this.hasPlace = false
    this.environment.waiting.delete(this)
    if (this.isInLine) this.environment.lines.leave(this.records[0]!, this)
  }

  get withdraw(): Effect.Effect<void, DriverError> {
    return Effect.suspend(() => {
      this.disarm()
      const { hasPlace, records, waiter } = this
      this.leave()
      return hasPlace ? Effect.asVoid(toEffect(this.environment.store.withdraw(records, waiter))) : Effect.void
    })
  }
}
