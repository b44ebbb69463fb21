/**
 * Judges a history: what no lock may do, and what a lock that is one must be able to explain. It believes nobody's
 * word on exclusion; it compares times.
 *
 * @since 0.1.0
 */
import type { Event, Invoke, Return, Window, Write } from "./History.js"
import * as lockModel from "./internal/lockModel.js"
import * as Linearizability from "./Linearizability.js"

/**
 * One thing that must not be. `what` names the rule:
 *
 * - `overlap`: two holders of one key at once, of which not both were readers
 * - `fence`: a later grant has a fence that is not larger
 * - `stale-write`: a resource took an older fence after a newer one
 * - `lock`, `register`: no order of the calls explains their answers
 * - `undecided`: the search for such an order was given up
 * - `history`: the history itself makes no sense
 *
 * @since 0.1.0
 * @category models
 */
export interface Violation {
  readonly what: "overlap" | "fence" | "stale-write" | "lock" | "register" | "undecided" | "history"
  /** The key or resource. */
  readonly of: string
  readonly message: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Verdict {
  readonly violations: ReadonlyArray<Violation>
  /** A run in which nothing happened shows nothing: compare these with what you expect. */
  readonly counts: {
    readonly grants: number
    readonly busy: number
    readonly unknown: number
    readonly windows: number
    readonly accepted: number
    readonly refused: number
  }
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Microseconds by which the store may end a lease before its holder's time is up. Default 0. */
  readonly tolerance?: number | undefined
  /** The store may end a lease at any time (its session was killed, it has forgotten). Default `false`. */
  readonly endsEarly?: boolean | undefined
  /** An attempt may be told busy when nobody holds the lock, because others wait for it. Default `false`. */
  readonly spuriousBusy?: boolean | undefined
  /** Limit of each search. Default 2 000 000. */
  readonly maxSteps?: number | undefined
}

const groupBy = <A>(values: ReadonlyArray<A>, nameOf: (value: A) => string): ReadonlyArray<[string, Array<A>]> => {
  const groups = new Map<string, Array<A>>()
  for (const value of values) {
    const group = groups.get(nameOf(value))
    if (group === undefined) groups.set(nameOf(value), [value])
    else group.push(value)
  }
  return [...groups]
}

const millis = (micros: number): string => `${(micros / 1_000).toFixed(3)} ms`

const callsOf = (
  history: ReadonlyArray<Event>,
  violate: (violation: Violation) => void
): ReadonlyArray<lockModel.Call> => {
  const calls = new Map<string, { readonly invoke: Invoke; answer: Return | undefined }>()
  for (const event of history) {
    if (event._tag !== "invoke") continue
    if (calls.has(event.id)) violate({ what: "history", of: event.key, message: `two calls have the id ${event.id}` })
    calls.set(event.id, { invoke: event, answer: undefined })
  }
  for (const event of history) {
    if (event._tag === "invoke" || event._tag === "window" || event._tag === "write") continue
    const call = calls.get(event.id)
    if (call === undefined) {
      violate({ what: "history", of: "?", message: `the answer ${event.id} has no call` })
    } else if (call.answer !== undefined || event.at < call.invoke.at) {
      violate({ what: "history", of: call.invoke.key, message: `the call ${event.id} ends twice, or before it begins` })
    } else if (event._tag === "ok" && call.invoke.call === "acquire" && event.fence === undefined) {
      violate({ what: "history", of: call.invoke.key, message: `the grant ${event.id} has no fence` })
    } else call.answer = event
  }
  return [...calls.values()]
}

/** One window for each fence, from its first beginning to its last end. */
const merged = (windows: ReadonlyArray<Window>): ReadonlyArray<Window> =>
  groupBy(windows, ({ fence, key }) => `${fence}/${key}`).map(([, parts]) => ({
    ...parts[0]!,
    from: Math.min(...parts.map(({ from }) => from)),
    until: Math.max(...parts.map(({ until }) => until))
  }))

/** Windows of one key that share more than an instant, of which not both are readers'. */
const overlaps = (windows: ReadonlyArray<Window>): ReadonlyArray<readonly [Window, Window]> => {
  const found: Array<readonly [Window, Window]> = []
  let open: Array<Window> = []
  for (const window of [...windows].sort((a, b) => a.from - b.from)) {
    open = open.filter((other) => other.until > window.from)
    if (window.until <= window.from) continue
    for (const other of open) {
      if (other.mode === "exclusive" || window.mode === "exclusive") found.push([other, window])
    }
    open.push(window)
  }
  return found
}

interface Stamped {
  readonly fence: bigint
  readonly from: number
  readonly until: number
  readonly strict: boolean
  readonly name: string
}

/** Of two that did not overlap in time, the later one must not have the smaller fence; `strict` ones not the same. */
const backwards = (stamped: ReadonlyArray<Stamped>): ReadonlyArray<readonly [Stamped, Stamped]> => {
  const found: Array<readonly [Stamped, Stamped]> = []
  const byEnd = [...stamped].sort((a, b) => a.until - b.until)
  let at = 0
  let highest: Stamped | undefined
  for (const later of [...stamped].sort((a, b) => a.from - b.from)) {
    for (; at < byEnd.length && byEnd[at]!.until < later.from; at++) {
      const ended = byEnd[at]!
      if (
        highest === undefined || ended.fence > highest.fence ||
        (ended.fence === highest.fence && ended.strict)
      ) highest = ended
    }
    if (highest === undefined || highest.fence < later.fence) continue
    if (highest.fence > later.fence || highest.strict || later.strict) found.push([highest, later])
  }
  return found
}

/**
 * Judges a history of any number of keys, resources and processes.
 *
 * @example
 * ```ts
 * import { type History, OverlapOracle } from "@effect-locking/testing"
 * import { deepStrictEqual } from "node:assert"
 *
 * const window = (process: string, fence: bigint, from: number, until: number): History.Window => ({
 *   _tag: "window", process, key: "k", mode: "exclusive", fence, from, until
 * })
 * const { violations } = OverlapOracle.judge([window("a", 1n, 0, 20), window("b", 9n, 15, 30)])
 *
 * deepStrictEqual(violations.map(({ what }) => what), ["overlap"])
 * ```
 *
 * @since 0.1.0
 * @category judging
 */
export const judge = (history: ReadonlyArray<Event>, options: Options = {}): Verdict => {
  const violations: Array<Violation> = []
  const violate = (violation: Violation) => void violations.push(violation)
  const calls = callsOf(history, violate)
  const windows = history.filter((event) => event._tag === "window")
  const writes = history.filter((event) => event._tag === "write")
  const grants = calls.filter(({ answer, invoke }) => invoke.call === "acquire" && answer?._tag === "ok")

  for (const [key, ofKey] of groupBy(windows, ({ key }) => key)) {
    for (const [a, b] of overlaps(merged(ofKey))) {
      const both = millis(Math.min(a.until, b.until) - b.from)
      violate({
        what: "overlap",
        of: key,
        message: `${a.process} (${a.mode}, fence ${a.fence}) and ${b.process} (${b.mode}, fence ${b.fence}) for ${both}`
      })
    }
  }

  for (const [key, ofKey] of groupBy(grants, ({ invoke }) => invoke.key)) {
    const stamped = ofKey.map(({ answer, invoke }): Stamped => ({
      fence: answer!.fence!,
      from: invoke.at,
      until: answer!.at,
      strict: invoke.call === "acquire" && invoke.mode === "exclusive",
      name: `${invoke.process}'s ${answer!.fence}`
    }))
    for (const [before, after] of backwards(stamped)) {
      violate({ what: "fence", of: key, message: `${after.name} was granted after ${before.name}` })
    }
  }

  for (const [resource, ofResource] of groupBy(writes, ({ resource }) => resource)) {
    const accepted = ofResource.filter(({ outcome }) => outcome === "accepted")
    const stamped = accepted.map(({ fence, from, process, until }): Stamped => ({
      fence,
      from,
      until: until ?? Infinity,
      strict: false,
      name: `${process} with ${fence}`
    }))
    for (const [before, after] of backwards(stamped)) {
      violate({ what: "stale-write", of: resource, message: `${after.name} wrote after ${before.name}` })
    }
    explain("register", resource, Linearizability.check(ofResource.map(writeOperation), register, options), violate)
  }

  for (const [key, ofKey] of groupBy(calls, ({ invoke }) => invoke.key)) {
    const believed = new Map(merged(windows.filter((window) => window.key === key)).map((w) => [w.fence, w.until]))
    const operations = lockModel.operations(ofKey, believed, options)
    explain("lock", key, Linearizability.check(operations, lockModel.model, options), violate)
  }

  const answered = (tag: Return["_tag"]) => calls.filter(({ answer }) => answer?._tag === tag).length
  return {
    violations,
    counts: {
      grants: grants.length,
      busy: answered("busy"),
      unknown: calls.filter(({ answer }) => answer === undefined || answer._tag === "info").length,
      windows: merged(windows).length,
      accepted: writes.filter(({ outcome }) => outcome === "accepted").length,
      refused: writes.filter(({ outcome }) => outcome === "refused").length
    }
  }
}

const explain = (
  what: "lock" | "register",
  of: string,
  verdict: Linearizability.Verdict,
  violate: (violation: Violation) => void
): void => {
  if (verdict._tag === "NotLinearizable") {
    const next = verdict.stuckOn.slice(0, 8).join(", ")
    violate({ what, of, message: `${verdict.explained} operations can be explained, then none of: ${next}` })
  } else if (verdict._tag === "Undecided") {
    violate({ what: "undecided", of, message: `no order was found in ${verdict.steps} steps` })
  }
}

/** The state of a guarded resource is the highest fence that has written. */
const register: Linearizability.Model<bigint> = { initial: 0n, keyOf: String }

const writeOperation = ({ fence, from, outcome, process, until }: Write): Linearizability.Operation<bigint> => ({
  name: `${process} writes with ${fence}: ${outcome}`,
  call: from,
  end: outcome === "unknown" ? Infinity : until ?? Infinity,
  apply: (highest) =>
    outcome === "refused"
      ? fence < highest ? [highest] : []
      : fence >= highest
      ? [fence]
      : outcome === "unknown"
      ? [highest]
      : []
})
