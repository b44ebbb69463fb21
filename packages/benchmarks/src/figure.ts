/**
 * What a benchmark answers: a figure, with its target where the library promises one.
 */
export interface Figure {
  readonly name: string
  readonly value: number
  readonly unit: string
  /** The value it must have at least, or at most. */
  readonly target?: { readonly atLeast: number } | { readonly atMost: number }
  readonly note?: string
}

export interface Settings {
  /** About how long to measure, for each benchmark. */
  readonly seconds: number
}

export type Benchmark = (settings: Settings) => Promise<ReadonlyArray<Figure>>

/** Benchmarks that need the same: nothing, or a server. */
export type Group = Readonly<Record<string, Benchmark>>

export const isMet = ({ target, value }: Figure): boolean =>
  target === undefined || ("atLeast" in target ? value >= target.atLeast : value <= target.atMost)

const number = (value: number): string =>
  Number.isInteger(value) || value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)

const targetOf = ({ target }: Figure): string =>
  target === undefined ? "" : "atLeast" in target ? `at least ${target.atLeast}` : `at most ${target.atMost}`

const verdictOf = (figure: Figure): string => figure.target === undefined ? "" : isMet(figure) ? "ok" : "MISSED"

export const table = (figures: ReadonlyArray<Figure>): string => {
  const rows = figures.map((figure) => [
    figure.name,
    number(figure.value),
    figure.unit,
    targetOf(figure),
    verdictOf(figure)
  ])
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows.map(([name, value, unit, target, verdict], i) => {
    const cells = [
      name!.padEnd(widths[0]!),
      value!.padStart(widths[1]!),
      unit!.padEnd(widths[2]!),
      target!.padEnd(widths[3]!),
      verdict
    ]
    const { note } = figures[i]!
    return `${cells.join("  ").trimEnd()}${note === undefined ? "" : `\n    ${note}`}`
  }).join("\n")
}

export const json = (figures: ReadonlyArray<Figure>): string =>
  JSON.stringify(figures.map((figure) => ({ ...figure, met: isMet(figure) })), null, 2)
