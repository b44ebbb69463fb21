/**
 * The state of one layer, and the words for it. The other modules of the engine work on this; none keeps state of its
 * own.
 *
 * A *grant* is what this process owns at the store, a *hold* what one caller owns of it (its public face is the lease).
 * An exclusive grant has one hold at a time, a shared one as many as there are readers who joined it.
 */
import type * as Deferred from "effect/Deferred"
import type * as Random from "effect/Random"
import type { Busy, DriverError, Grant, LockDriver, LockMode, LossReason } from "../LockDriver.js"
import type { LeaseLost, LeaseLostReason } from "../LockError.js"
import type { ResolvedKey } from "../LockKey.js"
import type { Fork } from "./compat.js"
import type { Events } from "./events.js"
import type { Instruments } from "./instruments.js"
import type { CallOptions, Settings } from "./options.js"
import type { Deadline } from "./pure/deadlines.js"
import type { Dictionary } from "./pure/dictionary.js"
import { Fifo, type Member } from "./pure/fifo.js"
import type { Trust } from "./pure/trust.js"
import type { Tenancy } from "./tenancy.js"
import type { Timer } from "./timer.js"

export interface Core {
  readonly driver: LockDriver
  readonly settings: Settings
  readonly defaults: CallOptions
  readonly timer: Timer
  /** The layer's own, whoever calls: two runs of one test spread their pauses alike. */
  readonly random: Random.Random
  readonly fork: Fork
  /** For calls to the driver. */
  readonly forkCall: Fork
  readonly events: Events
  readonly instruments: Instruments
  /** One per key that somebody here holds, waits for or gives back. */
  readonly records: Dictionary<KeyRecord>
  /** Callers by key where the store keeps their order: each has a record of its own, which counts with the others'. */
  readonly inOrder: Dictionary<number>
  readonly holds: Fifo<Hold>
  readonly activities: Fifo<Activity>
  /** Callers who wait for somebody else's release. */
  readonly waiters: Fifo<Request>
  /** Losses of grants that nobody had adopted yet, by token: their answer was on its way. */
  readonly earlyLosses: Map<string, LossReason>
  /** Callers whose first attempt is on its way over the network. */
  attempting: number
  /** Tokens are the prefix, unique per layer, and a count. */
  readonly tokenPrefix: string
  tokens: number
  readonly tenancy: Tenancy
  /** Until when a failed renewal is not reported again; zero while renewals are answered. */
  renewalTrouble: number
  closed: boolean
  /** The close ran out of time: what cannot be given back at once is left to its ttl. */
  isOver: boolean
  /** What could not be given back since the layer began to close, and what came of the last one. */
  notGivenBack: number
  notGivenBackCause: unknown
  onIdle: (() => void) | undefined
}

/** Something in progress beside the holds, which the close of the layer ends and waits for. */
export class Activity {
  place: Member<Activity> | undefined = undefined

  constructor(
    readonly kind: "acquire" | "section" | "background",
    readonly end: () => void,
    /** Out of time: nobody waits for it any more. */
    readonly abort: () => void = () => {}
  ) {}
}

/**
 * One call for one or several keys.
 *
 * A class, and so is whatever else each lock makes: V8 takes literals of one place that it saw survive into the old
 * generation from then on, and everything that they reach with them, which costs more than the lock.
 */
export class Request {
  /** Monotonic milliseconds. */
  readonly deadline: number
  /** The process gave the key to others and lets them go first. */
  standBack = false
  /** What the store said last, for the error of a wait that ends without a grant. */
  last: Busy | DriverError | "no answer" | undefined = undefined
  lastAt = 0
  /** Its place among the waiters. */
  place: Member<Request> | undefined = undefined
  isTraced = false

  constructor(
    readonly keys: ReadonlyArray<ResolvedKey>,
    readonly call: CallOptions,
    /** `false`: one attempt. */
    readonly waiting: boolean,
    /** Monotonic milliseconds. */
    readonly startedAt: number,
    /** The span under which the caller asks. */
    readonly trace: string | undefined
  ) {
    this.deadline = startedAt + call.waitTimeout
  }
}

/** A key in this process: who owns it, who talks to the store for it, who waits behind. */
export class KeyRecord {
  readonly queue = new Fifo<Waiter>()
  /** One where it is exclusive; readers may have several, as those who read other keys with it have one of their own. */
  readonly grants: Array<HeldGrant> = []
  contender: Request | undefined = undefined
  /** Releases on their way to the store. */
  releasing = 0
  /** It is one of `inOrder`. */
  isInOrder = false

  constructor(readonly id: string) {}
}

/**
 * Why a waiter was woken: it is its turn at the store, or to ask whether more readers may join; it owns the key; its
 * time or the layer is over.
 */
export type Signal = "turn" | "ask" | Hold | "timeout" | "closed"

export class Waiter {
  readonly activity: Activity
  place: Member<Waiter> | undefined = undefined
  deadline: Deadline | undefined = undefined
  signal: Signal | undefined = undefined
  resume: (() => void) | undefined = undefined

  constructor(readonly request: Request, readonly record: KeyRecord, onClose: (waiter: Waiter) => void) {
    this.activity = new Activity("acquire", () => onClose(this))
  }
}

/** A renewal on its way to the store, until its answer is in the books. */
export interface RenewalUnderWay {
  readonly onDone: Array<() => void>
}

export class HeldGrant {
  readonly mode: LockMode
  readonly holds = new Fifo<Hold>()
  /** Numbers of the block in use. */
  fencesUsed = 0
  /** Leases of this grant after its first one, since the store was last asked. */
  handovers = 0
  /** Somebody waits elsewhere: no more readers join. */
  yielding = false
  /** Renewals that the store has answered with yes. */
  confirmations = 0
  renewal: RenewalUnderWay | undefined = undefined
  trustDeadline: Deadline | undefined = undefined
  renewDeadline: Deadline | undefined = undefined
  /** Its renewals were not answered: the store may keep it for longer than we believe it. */
  giveBack = false

  constructor(
    readonly grant: Grant,
    /** Milliseconds. */
    readonly ttl: number,
    /** Of the call that it was made for. */
    readonly call: CallOptions,
    readonly records: ReadonlyArray<KeyRecord>,
    public trust: Trust,
    public handoversSince: number,
    /** Until when an attempt that was never answered may still act at the store. */
    readonly unansweredUntil: number
  ) {
    this.mode = grant.mode
  }
}

/** A hold that joined another by re-entry, in its turn. */
export interface Joined {
  readonly hold: Hold
  readonly turns: KeyRecord
  readonly request: Request
}

export class Hold {
  readonly keys: ReadonlyArray<ResolvedKey>
  readonly call: CallOptions
  readonly waited: number
  readonly trace: string | undefined
  readonly isTraced: boolean
  /** Those who join this one enter one at a time. */
  turns: KeyRecord | undefined = undefined
  state: "held" | "lost" | "released" = "held"
  isClosed = false
  reason: LeaseLostReason | undefined = undefined
  /** When its loss was told, and when its grant was no longer there for what still runs. */
  lostAt = 0
  endedAt = 0
  /** A scope gives it back, so the close of the layer must. */
  isScoped = false
  /** What runs under it, to be told of the loss. */
  readonly sections: Array<() => void> = []
  lostSignal: Deferred.Deferred<never, LeaseLost> | undefined = undefined
  endDeadline: Deadline | undefined = undefined
  warningDeadline: Deadline | undefined = undefined
  place: Member<Hold> | undefined = undefined
  placeInGrant: Member<Hold> | undefined = undefined

  constructor(
    readonly core: Core,
    readonly held: HeldGrant,
    request: Request,
    /** One per key. */
    readonly fences: ReadonlyArray<bigint>,
    /** Monotonic, and wall-clock for people. */
    readonly grantedAt: number,
    readonly acquiredAt: number,
    /** When it ends although its grant goes on. */
    public endsAt: number,
    readonly joined: Joined | undefined
  ) {
    this.keys = request.keys
    this.call = request.call
    this.waited = grantedAt - request.startedAt
    this.trace = request.trace
    this.isTraced = request.isTraced
  }
}

export const begin = (core: Core, activity: Activity): void => {
  activity.place = core.activities.push(activity)
}

export const finish = (core: Core, activity: Activity): void => {
  if (core.activities.remove(activity.place)) noteIdle(core)
}

export const isIdle = (core: Core): boolean => core.activities.size === 0 && core.holds.size === 0

/** For whoever took the last thing away. */
export const noteIdle = (core: Core): void => {
  if (core.onIdle !== undefined && isIdle(core)) core.onIdle()
}

/** Every grant that somebody holds a lease of, once. */
export const grantsOf = (core: Core): ReadonlyArray<HeldGrant> => {
  const grants: Array<HeldGrant> = []
  for (let place = core.holds.first; place !== undefined; place = place.next) {
    const { held } = place.value
    if (held.trust._tag === "Held" && held.holds.first?.value === place.value) grants.push(held)
  }
  return grants
}

export const nextToken = (core: Core): string => core.tokenPrefix + (core.tokens++).toString(36)
