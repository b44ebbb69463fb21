/**
 * Figures are ratios of processor time within one run: the clock on the wall tells of the neighbours, too.
 */
import * as Effect from "effect/Effect"

export interface Figure {
  readonly name: string
  readonly value: number
  readonly unit: string
  /** The value it must have at least, or at most. */
  readonly target?: { readonly atLeast?: number; readonly atMost?: number }
  readonly note?: string
}

export const cpuMicros = async (work: () => Promise<unknown>): Promise<number> => {
  const before = process.cpuUsage()
  await work()
  const { system, user } = process.cpuUsage(before)
  return system + user
}

/** Runs an effect `times` times in one fiber. */
export const repeat = (effect: Effect.Effect<unknown, unknown>, times: number): Promise<unknown> => {
  const loop = (left: number): Effect.Effect<unknown, unknown> =>
    left === 0 ? Effect.void : Effect.flatMap(effect, () => loop(left - 1))
  return Effect.runPromise(loop(times))
}

/** The best processor time per operation of each case, in interleaved rounds after one to warm up. */
export const compare = async <K extends string>(
  cases: Readonly<Record<K, Effect.Effect<unknown, unknown>>>,
  seconds: number
): Promise<Record<K, number>> => {
  const times = 10_000
  const names = Object.keys(cases) as Array<K>
  const best = {} as Record<K, number>
  const until = performance.now() + seconds * 1000
  for (let round = 0; round < 3 || performance.now() < until; round++) {
    for (const name of names) {
      const micros = (await cpuMicros(() => repeat(cases[name], times))) / times
      if (round > 0) best[name] = Math.min(best[name] ?? Infinity, micros)
    }
  }
  return best
}

export const isMet = ({ target, value }: Figure): boolean =>
  value >= (target?.atLeast ?? -Infinity) && value <= (target?.atMost ?? Infinity)

const number = (value: number): string =>
  value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(3)

export const print = (figures: ReadonlyArray<Figure>): string =>
  figures.map((figure) => {
    const { atLeast, atMost } = figure.target ?? {}
    const target = atLeast !== undefined ? `at least ${atLeast}` : atMost !== undefined ? `at most ${atMost}` : ""
    const verdict = figure.target === undefined ? "" : isMet(figure) ? "ok" : "MISSED"
    const line = `${figure.name.padEnd(62)} ${number(figure.value).padStart(8)} ${figure.unit.padEnd(12)} ${
      target.padEnd(14)
    } ${verdict}`
    return figure.note === undefined ? line.trimEnd() : `${line.trimEnd()}\n    ${figure.note}`
  }).join("\n")
