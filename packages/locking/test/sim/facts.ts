/** What is known of a world while it runs. The oracles read it; only the world and the sections write it. */
import type * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import { unsafeValidUntil } from "../../src/internal/lease.js"
import type * as Lease from "../../src/Lease.js"
import type { LockMode, OwnerToken } from "../../src/LockDriver.js"
import type { Locking } from "../../src/Locking.js"
import type { Kernel, Process } from "./kernel.js"
import type { Network } from "./network.js"
import type { Operation, Plan } from "./plan.js"
import type { Store, StoreCall, StoreChange } from "./store.js"

export interface Node {
  readonly index: number
  readonly process: Process
  locking: Locking | undefined
  state: "starting" | "up" | "closing" | "closed"
  /** Begins to close the layer. */
  close: () => void
  /** Since the close began. */
  closing: Stopwatch | undefined
  /** Fibers of the layer when it stood and nothing was asked of it. */
  idleFibers: number
}

/** One operation under way. */
export interface Run {
  readonly operation: Operation
  readonly name: string
  readonly node: Node
  phase: "planned" | "waiting" | "holding" | "over"
  /** `finalizing`: only the section's own finalizer is left. */
  section: "none" | "running" | "finalizing" | "left"
  fiber: Fiber.RuntimeFiber<unknown, unknown> | undefined
  /** Since the call. */
  waiting: Stopwatch
  /** When it got its leases, or learned that it gets none. */
  answeredAt: number | undefined
  endedAt: number | undefined
  /** Since the section was left. */
  leaving: Stopwatch | undefined
  /** Since somebody interrupted the caller. */
  interrupted: Stopwatch | undefined
  holdings: ReadonlyArray<Holding>
  /** The body gave its lease back before its end. */
  gaveBack: boolean
  /** How the body itself ended. */
  bodyExit: Exit.Exit<unknown, unknown> | undefined
  exit: Exit.Exit<unknown, unknown> | undefined
}

/** Measures what a process could have used: not the time in which it was paused or its fibers were kept waiting. */
export class Stopwatch {
  readonly startedAt: number
  private readonly slipped: number

  constructor(private readonly process: Process) {
    this.startedAt = process.kernel.now
    this.slipped = process.kernel.slipped
  }

  /** Milliseconds by the world's clock. */
  get elapsed(): number {
    return this.process.awakeSince(this.startedAt) - (this.process.kernel.slipped - this.slipped)
  }
}

/** A lease in somebody's hand. */
export class Holding {
  readonly key: string
  readonly mode: LockMode
  readonly fence: bigint
  /** Running since the lease was first seen to be no longer valid. */
  invalid: Stopwatch | undefined

  constructor(readonly run: Run, readonly lease: Lease.Lease, readonly grant: GrantRecord | undefined) {
    this.key = lease.key
    this.mode = lease.mode
    this.fence = lease.fence
  }

  get name(): string {
    return `${this.run.name} fence ${this.fence}`
  }

  /** An administrator took the key away: its holder learns of that by a notice or its next renewal, not at once. */
  get deposed(): boolean {
    return this.grant?.ended?.by === "force"
  }

  /** Whether its holder may believe in it at this instant. */
  get valid(): boolean {
    const { process } = this.run.node
    return !process.dead && process.monotonicNow < unsafeValidUntil(this.lease)
  }
}

/** A grant that the store made: one token, one key. */
export interface GrantRecord {
  readonly sequence: number
  readonly key: string
  readonly keyId: string
  readonly token: OwnerToken
  readonly mode: LockMode
  readonly process: Process | undefined
  readonly at: number
  readonly firstFence: bigint
  readonly lastFence: bigint
  /** By the store's clock. */
  until: number
  ended: { readonly at: number; readonly by: StoreCall | "time" } | undefined
}

export class Facts {
  readonly nodes: Array<Node> = []
  readonly runs: Array<Run> = []
  /** The leases that sections and scopes hold or held; those that ended are dropped now and then. */
  holdings: Array<Holding> = []
  readonly grants = new Map<string, Array<GrantRecord>>()
  readonly owners = new Map<OwnerToken, Process>()
  /** Grows whenever a row changes. */
  changes = 0
  private sequence = 0

  constructor(
    readonly plan: Plan,
    readonly kernel: Kernel,
    readonly network: Network,
    readonly store: Store
  ) {}

  /** Every grant of a key in order, each with what is known of its end. */
  grantsOf(key: string): ReadonlyArray<GrantRecord> {
    const grants = this.grants.get(key) ?? []
    this.lapse(grants)
    return grants
  }

  /** The latest grant whose block has this number. */
  grantOf(key: string, fence: bigint, process: Process): GrantRecord | undefined {
    return this.grantsOf(key).findLast((grant) =>
      grant.firstFence <= fence && fence <= grant.lastFence && grant.process === process
    )
  }

  /** Keeps the record of grants. Answers the one that the change is about, if it is known. */
  record(change: StoreChange, block: number): GrantRecord | undefined {
    this.changes++
    const key = change.key.key
    const { row } = change
    const { now } = this.kernel
    let grants = this.grants.get(key)
    if (grants === undefined) {
      grants = []
      this.grants.set(key, grants)
    }
    this.lapse(grants)
    if (change.kind === "granted") {
      const grant: GrantRecord = {
        sequence: this.sequence++,
        key,
        keyId: change.key.id,
        token: row.token,
        mode: row.mode,
        process: this.owners.get(row.token),
        at: now,
        firstFence: row.fence,
        lastFence: row.fence + BigInt(block - 1),
        until: row.until,
        ended: undefined
      }
      grants.push(grant)
      return grant
    }
    const grant = grants.findLast((other) => other.token === row.token && other.ended === undefined)
    if (grant === undefined) return undefined
    if (change.kind === "extended") grant.until = row.until
    else grant.ended = { at: now, by: change.call }
    return grant
  }

  /** Since when nobody has held the key, `but` for one; `undefined` while somebody does. */
  freeSince(key: string, but?: GrantRecord): number | undefined {
    const grants = this.grantsOf(key)
    let since = 0
    for (const grant of grants) {
      if (grant === but) continue
      if (grant.ended === undefined) return undefined
      since = Math.max(since, grant.ended.at)
    }
    return since
  }

  /** The time of rows that are over by the store's clock is over. */
  private lapse(grants: ReadonlyArray<GrantRecord>): void {
    for (const grant of grants) {
      const over = this.store.now - grant.until
      if (grant.ended === undefined && over >= 0) {
        grant.ended = { at: Math.max(grant.at, this.kernel.now - over), by: "time" }
      }
    }
  }
}
