/**
 * What happens in one world, as data: so it can be generated, printed, stored, replayed and shrunk. All times are
 * milliseconds after the layers stand.
 */
import type { LockMode } from "../../src/LockDriver.js"
import { type Faults, noFaults, type Script } from "./network.js"

/**
 * What can go wrong in a world. `calm`: only delays and reordering. `grid`: the same with all times multiples of 10 ms, so
 * that events coincide. `lossy`: messages get lost, doubled and late, clocks drift within the bound. `chaos`: lossy, and
 * processes pause, die and are cut off. `amnesia`: the store forgets. `clock`: clocks jump and drift beyond the bound.
 */
export type Profile = "calm" | "grid" | "lossy" | "chaos" | "amnesia" | "clock"

/** The public function that an operation goes through. */
export type Api =
  | "useLock"
  | "withLock"
  /** `useLocks` with all keys of the operation. */
  | "useLocks"
  | "withLockIfAvailable"
  /** In a scope, without a guard: loss is only told. */
  | "tryAcquire"
  | "acquire"
  /** In a scope, with the body under `lease.guard`. */
  | "guard"
  /** `useLock` within `useLock` of the same key, joined. */
  | "nested"
  /** `useLock` whose body gives the lease back halfway. */
  | "early"
  /** `useLock` whose body renews by hand. */
  | "renewing"

export interface Operation {
  readonly node: number
  readonly at: number
  readonly api: Api
  /** One, or more with `useLocks`. */
  readonly keys: ReadonlyArray<string>
  readonly mode: LockMode
  readonly ttl: number | "forever"
  readonly wait: number | "forever"
  /** The section does so many steps and sleeps after each. */
  readonly steps: number
  readonly stepMs: number
  /** How long the section's own finalizer takes. */
  readonly finalMs: number
  readonly exit: "ok" | "fail" | "die"
  /** Interrupts the caller so long after its start. */
  readonly interruptAt: number | null
  /** Interrupts the caller when a task of its fibers is scheduled for the n-th time. */
  readonly interruptStep: number | null
  readonly maxHold: number | null
  readonly autoRenew: boolean
}

export type ChaosKind =
  | "pause"
  | "kill"
  | "partition"
  | "shutdown"
  | "wall clock jump"
  | "server pause"
  | "server clock jump"
  /** The server forgets the rows younger than `ms`. */
  | "forget rows"
  | "forget all"
  /** An administrator deposes the holders of `key`. */
  | "force release"

export interface Chaos {
  readonly at: number
  readonly kind: ChaosKind
  readonly node: number
  /** How long it lasts, or how far a clock jumps. */
  readonly ms: number
  readonly key: string
}

export interface Plan {
  readonly profile: Profile
  readonly nodes: number
  readonly operations: ReadonlyArray<Operation>
  readonly chaos: ReadonlyArray<Chaos>
  readonly faults: Faults
  readonly script?: Script | undefined
  /** Each clock runs at most so many parts per million wrong. */
  readonly drift: number
  readonly store: {
    /** A released token gets no grant any more. */
    readonly bars: boolean
    /** The store refuses attempts whose caller has given up. */
    readonly notAfter: boolean
    readonly arming: "each" | "first"
  }
  readonly layer: {
    readonly pollInterval: number
    readonly maxHandovers: number
    readonly maxWaiters: number
    readonly shutdownTimeout: number
  }
}

export const operation = (fields: Partial<Operation> = {}): Operation => ({
  node: 0,
  at: 0,
  api: "useLock",
  keys: ["k"],
  mode: "exclusive",
  ttl: 600,
  wait: "forever",
  steps: 1,
  stepMs: 30,
  finalMs: 0,
  exit: "ok",
  interruptAt: null,
  interruptStep: null,
  maxHold: null,
  autoRenew: true,
  ...fields
})

export const chaos = (fields: Partial<Chaos> & Pick<Chaos, "kind">): Chaos => ({
  at: 0,
  node: 0,
  ms: 0,
  key: "k",
  ...fields
})

export const plan = (operations: ReadonlyArray<Operation>, fields: Partial<Plan> = {}): Plan => ({
  profile: "grid",
  nodes: 2,
  operations,
  chaos: [],
  faults: noFaults,
  drift: 0,
  store: { bars: true, notAfter: true, arming: "each" },
  layer: { pollInterval: 200, maxHandovers: 4, maxWaiters: 100, shutdownTimeout: 1000 },
  ...fields
})

/** Nothing gets lost: what wakes a waiter is enough, and the engine runs without its safety nets. */
export const isCalm = (profile: Profile): boolean => profile === "calm" || profile === "grid"

/** The limit of one driver call: the engine's default for this ttl. */
export const attemptTimeout = (ttl: Operation["ttl"]): number => ttl === "forever" ? 2000 : Math.min(ttl / 3, 2000)
