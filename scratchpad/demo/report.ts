/** The texts of the demo: headings, paragraphs, tables, and claims with a tick when they hold. */
import { Console, Effect } from "effect"
import { paint, type Style, Terminal } from "./terminal.js"
import * as Timeline from "./timeline.js"

/** Something that the demo says, and whether it is so. */
export interface Claim {
  readonly text: string
  readonly holds: boolean
}

const lines = (texts: ReadonlyArray<string>): Effect.Effect<void> =>
  Effect.forEach(texts, (_) => Console.log(_), { discard: true })

export const heading = (text: string): Effect.Effect<void, never, Terminal> =>
  Effect.flatMap(Terminal, (screen) => {
    const rule = (screen.unicode ? "─" : "-").repeat(Math.max(0, screen.width - text.length - 1))
    return lines(["", `${paint(screen, "title", text)} ${paint(screen, "dim", rule)}`])
  })

/** Fills the width, and breaks between words. */
export const paragraph = (text: string, style?: Style): Effect.Effect<void, never, Terminal> =>
  Effect.flatMap(
    Terminal,
    (screen) => lines(wrap(text, screen.width - 2).map((line) => `  ${paint(screen, style, line)}`))
  )

export const timeline = (timeline: Timeline.Timeline): Effect.Effect<void, never, Terminal> =>
  Effect.flatMap(Terminal, (screen) => lines(["", ...Timeline.draw(screen, timeline), ""]))

/** The first column is text, the others are numbers. */
export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): Effect.Effect<void, never, Terminal> =>
  Effect.flatMap(Terminal, (screen) => {
    const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
    return lines(rows.map((row, i) => {
      const cells = row.map((cell, column) =>
        column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]! + 4)
      )
      return `  ${paint(screen, i === 0 ? "dim" : undefined, cells.join("").trimEnd())}`
    }))
  })

/** What happened when, in milliseconds, and in that order. What did not happen is left out. */
export const moments = (moments: ReadonlyArray<readonly [when: number | undefined, what: string | undefined]>) =>
  Effect.flatMap(Terminal, (screen) => {
    const happened = moments
      .flatMap(([when = Infinity, what]) => when === Infinity || what === undefined ? [] : [{ when, what }])
      .sort((a, b) => a.when - b.when)
    const width = Math.max(...happened.map(({ when }) => millis(when).length))
    return lines(
      happened.flatMap(({ what, when }) =>
        wrap(what, screen.width - width - 4).map((line, i) =>
          `  ${paint(screen, "dim", (i === 0 ? millis(when) : "").padStart(width))}  ${line}`
        )
      )
    )
  })

export const claims = (claims: ReadonlyArray<Claim>): Effect.Effect<void, never, Terminal> =>
  Effect.flatMap(Terminal, (screen) => {
    const [yes, no] = screen.unicode ? ["✓ ", "✗ NOT TRUE: "] : ["ok ", "NOT TRUE: "]
    return lines([
      "",
      ...claims.flatMap(({ holds, text }) => {
        const sign = holds ? yes : no
        const [first = "", ...rest] = wrap(text, screen.width - 2 - sign.length)
        return [
          `  ${paint(screen, holds ? "good" : "bad", sign)}${first}`,
          ...rest.map((line) => `  ${" ".repeat(sign.length)}${line}`)
        ]
      })
    ])
  })

export const wrap = (text: string, width: number): ReadonlyArray<string> => {
  const wrapped: Array<string> = []
  let line = ""
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      wrapped.push(line)
      line = word
    } else line = line === "" ? word : `${line} ${word}`
  }
  return [...wrapped, line]
}

export const count = (n: number): string => Math.round(n).toLocaleString("en-US")

export const money = (cents: number): string =>
  (cents / 100).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })

export const millis = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : count(ms)} ms`
