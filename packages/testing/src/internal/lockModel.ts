/**
 * One lock as a state machine, for the search for an order that explains a history.
 */
import type { LockMode } from "effect-locking/LockDriver"
import type { Invoke, Return } from "../History.js"
import type { Model, Operation } from "../Linearizability.js"

export interface Call {
  readonly invoke: Invoke
  /** Missing when the process ended before. */
  readonly answer: Return | undefined
}

/** A holder is known by its fence; one whose grant nobody saw, by its call. */
interface State {
  readonly writer: string | undefined
  readonly readers: ReadonlyArray<string>
  readonly last: bigint
}

export const model: Model<State> = {
  initial: { writer: undefined, readers: [], last: 0n },
  keyOf: ({ last, readers, writer }) => `${writer}|${[...readers].sort().join(",")}|${last}`
}

const isHeld = (state: State, holder: string): boolean => state.writer === holder || state.readers.includes(holder)

const enter = (state: State, holder: string, mode: LockMode): ReadonlyArray<State> =>
  state.writer !== undefined || (mode === "exclusive" && state.readers.length > 0)
    ? []
    : mode === "exclusive"
    ? [{ ...state, writer: holder }]
    : [{ ...state, readers: [...state.readers, holder] }]

const leave = (state: State, holder: string): ReadonlyArray<State> =>
  isHeld(state, holder)
    ? [{
      ...state,
      writer: state.writer === holder ? undefined : state.writer,
      readers: state.readers.filter((reader) => reader !== holder)
    }]
    : []

const grant = (state: State, fence: bigint, mode: LockMode): ReadonlyArray<State> =>
  fence > state.last || (mode === "shared" && fence === state.last)
    ? enter(state, String(fence), mode).map((next) => ({ ...next, last: fence }))
    : []

/** What may have happened at the lock. `believed`: until when holders believed, by fence. */
export const operations = (
  calls: ReadonlyArray<Call>,
  believed: ReadonlyMap<bigint, number>,
  options: {
    readonly tolerance?: number | undefined
    readonly endsEarly?: boolean | undefined
    readonly spuriousBusy?: boolean | undefined
  }
): ReadonlyArray<Operation<State>> => {
  const found: Array<Operation<State>> = []
  /** The earliest end of each grant, by fence: it moves with every confirmation. */
  const ends = new Map<bigint, number>()
  const confirm = (fence: bigint, end: number) => ends.set(fence, Math.max(end, ends.get(fence) ?? -Infinity))

  for (const { answer, invoke } of calls) {
    const outcome = answer?._tag ?? "info"
    const name = `${invoke.process} ${invoke.call}${invoke.call === "acquire" ? "" : ` ${invoke.fence}`}: ${outcome}${
      answer?.fence === undefined ? "" : ` ${answer.fence}`
    }`
    const operation = (apply: Operation<State>["apply"]) =>
      void found.push({ name, call: invoke.at, end: outcome === "info" ? Infinity : answer!.at, apply })

    if (invoke.call === "acquire") {
      const { mode } = invoke
      if (outcome === "ok") {
        const fence = answer!.fence!
        operation((state) => grant(state, fence, mode))
        confirm(fence, invoke.at + (invoke.ttl ?? Infinity))
      } else if (outcome === "busy") {
        // a reader may be told busy because a writer waits, which no history shows
        if (mode === "exclusive" && options.spuriousBusy !== true) {
          operation((state) => state.writer !== undefined || state.readers.length > 0 ? [state] : [])
        }
      } else if (outcome === "info") {
        // granted perhaps, and given back some time
        const holder = `?${invoke.id}`
        operation((state) => enter(state, holder, mode))
        found.push({
          name: `${name}, gone`,
          call: invoke.at,
          end: Infinity,
          apply: (state) => leave(state, holder)
        })
      }
      continue
    }
    const holder = String(invoke.fence)
    if (invoke.call === "renew") {
      if (outcome === "ok") {
        operation((state) => isHeld(state, holder) ? [state] : [])
        confirm(invoke.fence, invoke.at + (invoke.ttl ?? Infinity))
      } else if (outcome === "fail") operation((state) => isHeld(state, holder) ? [] : [state])
    } else if (outcome === "fail") operation((state) => isHeld(state, holder) ? [] : [state])
    else operation((state) => leave(state, holder))
  }

  // a lease may run out at any time after its earliest end, and that has no end of its own
  for (const [fence, end] of ends) {
    const earliest = Math.max(end, believed.get(fence) ?? -Infinity) - (options.tolerance ?? 0)
    if (earliest === Infinity && options.endsEarly !== true) continue
    found.push({
      name: `${fence} ends by itself`,
      call: options.endsEarly === true ? -Infinity : earliest,
      end: Infinity,
      apply: (state) => leave(state, String(fence))
    })
  }
  return found
}
