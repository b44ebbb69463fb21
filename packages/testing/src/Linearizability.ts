/**
 * Whether operations that overlapped in time can be put into an order that explains all their answers: each takes
 * effect at one instant between its call and its end.
 *
 * The search is that of Wing and Gong with Lowe's memo of the pairs (operations done, state). An operation whose outcome
 * nobody knows has no end: it may take effect at any time after its call, or never.
 *
 * @since 0.1.0
 */

/**
 * @since 0.1.0
 * @category models
 */
export interface Operation<in out State> {
  /** For people who read the verdict. */
  readonly name: string
  readonly call: number
  /** `Infinity` when nobody knows; such an operation need not have happened. */
  readonly end: number
  /** The states that it may lead to; none when its answer is impossible here. */
  readonly apply: (state: State) => ReadonlyArray<State>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Model<in out State> {
  readonly initial: State
  /** Equal for equal states only. */
  readonly keyOf: (state: State) => string
}

/**
 * `stuckOn`: what could have come next on the longest way that was found. `Undecided`: the search took more steps than
 * it was given.
 *
 * @since 0.1.0
 * @category models
 */
export type Verdict =
  | { readonly _tag: "Linearizable"; readonly order: ReadonlyArray<string> }
  | { readonly _tag: "NotLinearizable"; readonly explained: number; readonly stuckOn: ReadonlyArray<string> }
  | { readonly _tag: "Undecided"; readonly steps: number }

interface Step<State> {
  readonly candidates: ReadonlyArray<number>
  /** The operation that was tried last, and the states that it leads to. */
  tried: number
  states: ReadonlyArray<State>
  nextState: number
  /** Whether the operation tried last counts as done now. */
  isApplied: boolean
  readonly state: State
  /** No operation before this place in the order of calls is open. */
  readonly from: number
}

/** The operations that are done, as a number of 64 bits that changes with each of them. */
class Done {
  private readonly flags: Uint8Array
  private readonly high: Uint32Array
  private readonly low: Uint32Array
  private hash = [0, 0]
  count = 0

  constructor(size: number) {
    this.flags = new Uint8Array(size)
    this.high = new Uint32Array(size)
    this.low = new Uint32Array(size)
    let seed = 0x9e3779b9
    const next = () => {
      seed = (seed + 0x6d2b79f5) | 0
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
      t ^= t + Math.imul(t ^ (t >>> 7), 61 | t)
      return (t ^ (t >>> 14)) >>> 0
    }
    for (let i = 0; i < size; i++) {
      this.high[i] = next()
      this.low[i] = next()
    }
  }

  has(i: number): boolean {
    return this.flags[i] === 1
  }

  flip(i: number): void {
    this.flags[i]! ^= 1
    this.count += this.flags[i] === 1 ? 1 : -1
    this.hash = [this.hash[0]! ^ this.high[i]!, this.hash[1]! ^ this.low[i]!]
  }

  key(): string {
    return `${this.hash[0]},${this.hash[1]},${this.count}`
  }
}

/**
 * Looks for an order. Thousands of operations of a few processes take well under a second; many unknown outcomes at once
 * make the search long and its verdict weak, so keep them below a tenth.
 *
 * @example
 * ```ts
 * import { Linearizability } from "@effect-locking/testing"
 * import { strictEqual } from "node:assert"
 *
 * const write = (value: number, call: number, end: number): Linearizability.Operation<number> => ({
 *   name: `write ${value}`, call, end, apply: () => [value]
 * })
 * const read = (value: number, call: number, end: number): Linearizability.Operation<number> => ({
 *   name: `read ${value}`, call, end, apply: (state) => state === value ? [state] : []
 * })
 * const register = { initial: 0, keyOf: String }
 *
 * // the read overlaps the second write: it may see either
 * strictEqual(Linearizability.check([write(1, 0, 1), write(2, 2, 5), read(1, 3, 4)], register)._tag, "Linearizable")
 * strictEqual(Linearizability.check([write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], register)._tag, "NotLinearizable")
 * ```
 *
 * @since 0.1.0
 * @category checking
 */
export const check = <State>(
  operations: ReadonlyArray<Operation<State>>,
  model: Model<State>,
  options?: { readonly maxSteps?: number | undefined }
): Verdict => {
  const maxSteps = options?.maxSteps ?? 2_000_000
  const byCall = operations.map((_, i) => i).sort((a, b) => operations[a]!.call - operations[b]!.call)
  const done = new Done(operations.length)
  const seen = new Set<string>()
  let unexplained = operations.filter(({ end }) => end !== Infinity).length
  let steps = 0
  let best = { count: -1, stuckOn: [] as ReadonlyArray<string> }

  /** What may come next: whatever was called before the first end among the operations that are not done. */
  const stepFrom = (state: State, start: number): Step<State> => {
    let from = start
    while (from < byCall.length && done.has(byCall[from]!)) from++
    let firstEnd = Infinity
    const open: Array<number> = []
    for (let at = from; at < byCall.length; at++) {
      const i = byCall[at]!
      if (done.has(i)) continue
      const { call, end } = operations[i]!
      if (call > firstEnd) break
      open.push(i)
      firstEnd = Math.min(firstEnd, end)
    }
    const candidates = open.filter((i) => operations[i]!.call <= firstEnd)
    if (done.count > best.count) best = { count: done.count, stuckOn: candidates.map((i) => operations[i]!.name) }
    return { candidates, tried: -1, states: [], nextState: 0, isApplied: false, state, from }
  }

  const flip = (i: number): void => {
    done.flip(i)
    if (operations[i]!.end !== Infinity) unexplained += done.has(i) ? -1 : 1
  }

  const path: Array<Step<State>> = [stepFrom(model.initial, 0)]
  while (unexplained > 0) {
    const step = path.at(-1)
    if (step === undefined) return { _tag: "NotLinearizable", explained: best.count, stuckOn: best.stuckOn }
    if (steps > maxSteps) return { _tag: "Undecided", steps }
    if (step.isApplied) {
      flip(step.candidates[step.tried]!)
      step.isApplied = false
    }
    if (step.nextState === step.states.length) {
      step.tried++
      if (step.tried === step.candidates.length) {
        path.pop()
        continue
      }
      step.states = operations[step.candidates[step.tried]!]!.apply(step.state)
      step.nextState = 0
      continue
    }
    const state = step.states[step.nextState++]!
    flip(step.candidates[step.tried]!)
    step.isApplied = true
    steps++
    const memo = `${done.key()}|${model.keyOf(state)}`
    if (seen.has(memo)) continue
    seen.add(memo)
    path.push(stepFrom(state, step.from))
  }
  return {
    _tag: "Linearizable",
    order: path.filter(({ isApplied }) => isApplied).map((step) => operations[step.candidates[step.tried]!]!.name)
  }
}
