/**
 * What happened in a run of several processes, as events with times of one clock: CLOCK_MONOTONIC, which all processes
 * of a host share. Workers write events as JSON lines; `decode` reads them back, and `OverlapOracle` judges them.
 *
 * @since 0.1.0
 */
import type { LockMode } from "effect-locking/LockDriver"

/**
 * Microseconds of the monotonic clock of the host, the same for all its processes.
 *
 * @since 0.1.0
 * @category time
 */
export const now = (): number => Number(process.hrtime.bigint() / 1_000n)

/**
 * A call begins. `id` is unique in the history. `ttl` in microseconds, missing for a lock without end.
 *
 * @since 0.1.0
 * @category models
 */
export type Invoke =
  & {
    readonly _tag: "invoke"
    readonly id: string
    readonly at: number
    readonly process: string
    readonly key: string
  }
  & (
    | { readonly call: "acquire"; readonly mode: LockMode; readonly ttl?: number | undefined }
    | { readonly call: "renew"; readonly fence: bigint; readonly ttl?: number | undefined }
    | { readonly call: "release"; readonly fence: bigint }
  )

/**
 * A call ends. `ok`: granted, with its fence; extended; given up. `busy`: an attempt found it held. `fail`: provably
 * nothing was granted; the lock was not ours any more. `info`: nobody knows.
 *
 * @since 0.1.0
 * @category models
 */
export interface Return {
  readonly _tag: "ok" | "busy" | "fail" | "info"
  readonly id: string
  readonly at: number
  readonly fence?: bigint | undefined
}

/**
 * For this time a holder believed, by its own clock, that the lock was its own: from the grant to the end of the section
 * or of its trust, whichever came first. Several windows of one fence count as one: a holder that may be killed
 * writes them as it goes.
 *
 * @since 0.1.0
 * @category models
 */
export interface Window {
  readonly _tag: "window"
  readonly process: string
  readonly key: string
  readonly mode: LockMode
  readonly fence: bigint
  readonly from: number
  readonly until: number
}

/**
 * A write to a resource that checks fences. `until` is missing, and the outcome `unknown`, when it was not answered.
 *
 * @since 0.1.0
 * @category models
 */
export interface Write {
  readonly _tag: "write"
  readonly process: string
  readonly resource: string
  readonly fence: bigint
  readonly from: number
  readonly until?: number | undefined
  readonly outcome: "accepted" | "refused" | "unknown"
}

/**
 * @since 0.1.0
 * @category models
 */
export type Event = Invoke | Return | Window | Write

const tags: ReadonlySet<unknown> = new Set<Event["_tag"]>(["invoke", "ok", "busy", "fail", "info", "window", "write"])

/**
 * The events among the values that workers have written; fences come as decimal strings there.
 *
 * @example
 * ```ts
 * import { History } from "@effect-locking/testing"
 * import { deepStrictEqual } from "node:assert"
 *
 * const written = [{ _tag: "ok", id: "a1", at: 17, fence: "1024" }, { ready: true }]
 *
 * deepStrictEqual(History.decode(written), [{ _tag: "ok", id: "a1", at: 17, fence: 1024n }])
 * ```
 *
 * @since 0.1.0
 * @category decoding
 */
export const decode = (values: Iterable<unknown>): ReadonlyArray<Event> => {
  const events: Array<Event> = []
  for (const value of values) {
    if (typeof value !== "object" || value === null || !("_tag" in value) || !tags.has(value._tag)) continue
    const fence = "fence" in value && typeof value.fence === "string" ? { fence: BigInt(value.fence) } : {}
    events.push({ ...value, ...fence } as Event)
  }
  return events
}
