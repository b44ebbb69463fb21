/** Draws who held what and when: one lane for each worker, time from left to right. */
import { paint, type Screen, type Style } from "./terminal.js"

export type Kind = "wait" | "hold" | "frozen" | "late"

export interface Phase {
  readonly kind: Kind
  /** Milliseconds. */
  readonly from: number
  readonly until: number
}

/** Something that a worker did, in phases that follow each other. */
export interface Bar {
  readonly lane: string
  readonly label: string
  readonly phases: ReadonlyArray<Phase>
  /** It ended badly. */
  readonly failed: boolean
}

export interface Timeline {
  readonly lanes: ReadonlyArray<string>
  readonly bars: ReadonlyArray<Bar>
  readonly from: number
  readonly until: number
  /** What the signs mean, in this picture. */
  readonly meaning: Partial<{ readonly [sign in Kind | "failed"]: string }>
}

type Glyphs = { readonly [sign in Kind | "failed" | "open" | "close"]: string }

const unicode: Glyphs = { wait: "┄", hold: "━", frozen: "▒", late: "░", failed: "✗", open: "┣", close: "┫" }
const ascii: Glyphs = { wait: ".", hold: "=", frozen: "~", late: "-", failed: "X", open: "[", close: "]" }

interface Cell {
  char: string
  style: Style | undefined
}

export const draw = (screen: Screen, timeline: Timeline): ReadonlyArray<string> => {
  const glyphs = screen.unicode ? unicode : ascii
  const names = Math.max(...timeline.lanes.map((lane) => lane.length)) + 2
  const width = screen.width - names - 4
  const column = (time: number) => Math.floor((time - timeline.from) / (timeline.until - timeline.from) * width)
  const lanes = timeline.lanes.map((lane) => {
    const cells: Array<Cell> = Array.from({ length: width }, () => ({ char: " ", style: undefined }))
    for (const bar of timeline.bars) if (bar.lane === lane) drawBar(cells, bar, column, glyphs)
    return `  ${lane.padEnd(names)}${join(screen, cells)}`
  })
  return [
    `  ${paint(screen, "dim", "ms".padEnd(names) + axis(timeline, width, column))}`,
    ...lanes,
    ...legend(screen, timeline, glyphs, names)
  ]
}

const legend = (screen: Screen, { meaning }: Timeline, glyphs: Glyphs, indent: number): ReadonlyArray<string> => {
  const margin = " ".repeat(indent + 2)
  const rows: Array<string> = []
  let length = Infinity
  for (const [sign, text] of Object.entries(meaning) as Array<[Kind | "failed", string]>) {
    const glyph = glyphs[sign].repeat(sign === "failed" ? 1 : 2)
    const entry = `${paint(screen, sign === "failed" ? "bad" : sign, glyph)} ${text}`
    const width = glyph.length + 1 + text.length
    if (length + 3 + width > screen.width) {
      rows.push(margin + entry)
      length = margin.length + width
    } else {
      rows.push(`${rows.pop()}   ${entry}`)
      length += 3 + width
    }
  }
  return rows
}

const drawBar = (cells: Array<Cell>, bar: Bar, column: (time: number) => number, glyphs: Glyphs): void => {
  const put = (at: number, char: string, style: Style) => {
    if (at >= 0 && at < cells.length) cells[at] = { char, style }
  }
  // the end is not part of a bar, so that bars which only touch do not overlap; each has a column at least
  const phases = bar.phases.map(({ from, kind, until }) => ({
    kind,
    first: column(from),
    last: Math.max(column(from), column(until) - 1)
  }))
  for (const { first, kind, last } of phases) {
    for (let at = Math.max(0, first); at <= last && at < cells.length; at++) put(at, glyphs[kind], kind)
  }
  const solid = phases.filter(({ kind }) => kind !== "wait")
  const [begin, end] = [solid[0], solid.at(-1)]
  if (begin === undefined || end === undefined) return
  const space = end.last - begin.first + 1
  const capped = space >= bar.label.length + 2
  if (capped) {
    put(begin.first, glyphs.open, begin.kind)
    put(end.last, glyphs.close, end.kind)
  }
  if (space >= bar.label.length) {
    for (const [i, char] of Array.from(bar.label).entries()) put(begin.first + (capped ? 1 : 0) + i, char, begin.kind)
  }
  if (bar.failed) put(end.last, glyphs.failed, "bad")
}

const axis = (timeline: Timeline, width: number, column: (time: number) => number): string => {
  const span = timeline.until - timeline.from
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((step) => span / step <= width / 8) ?? 10_000
  let text = ""
  for (let time = 0; time <= span; time += step) {
    const at = column(timeline.from + time)
    if (at + String(time).length <= width) text = text.padEnd(at) + time
  }
  return text
}

const join = (screen: Screen, cells: ReadonlyArray<Cell>): string => {
  let text = ""
  let run = ""
  let style: Style | undefined
  for (const cell of cells) {
    if (cell.style !== style) {
      text += paint(screen, style, run)
      run = ""
      style = cell.style
    }
    run += cell.char
  }
  return (text + paint(screen, style, run)).trimEnd()
}
