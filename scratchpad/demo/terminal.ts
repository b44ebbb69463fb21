/** Where the demo prints, and what can be shown there. */
import { Context, Effect } from "effect"

export type Style = "title" | "dim" | "good" | "bad" | "hold" | "frozen" | "late" | "wait"

export interface Screen {
  /** Columns to fill, at most 100. */
  readonly width: number
  readonly colour: boolean
  readonly unicode: boolean
  /** Shows a line until the next one replaces it, on a terminal only. */
  readonly status: (text: string) => Effect.Effect<void>
}

export class Terminal extends Context.Tag("demo/Terminal")<Terminal, Screen>() {}

interface Output {
  readonly isTTY?: boolean
  readonly columns?: number
  readonly write: (text: string) => unknown
}

type Environment = Readonly<Record<string, string | undefined>>

/** Colours and symbols on a terminal that is not asked for plain text; plain ASCII everywhere else. */
export const detect = (output: Output, env: Environment): Screen => {
  const live = output.isTTY === true && env["TERM"] !== "dumb"
  const rich = live && (env["NO_COLOR"] ?? "") === ""
  const width = Math.max(60, Math.min(100, output.isTTY === true ? output.columns ?? 80 : 96))
  let shown = 0
  return {
    width,
    colour: rich,
    unicode: rich && isUtf8(env),
    status: (text) =>
      Effect.sync(() => {
        if (!live) return
        const line = text.slice(0, width - 1)
        // blanks do what an escape sequence would, on every terminal
        output.write(`\r${line.padEnd(shown)}${line === "" ? "\r" : ""}`)
        shown = line.length
      })
  }
}

const isUtf8 = (env: Environment): boolean => {
  const locale = [env["LC_ALL"], env["LC_CTYPE"], env["LANG"]].find((value) => value !== undefined && value !== "")
  return /utf-?8/i.test(locale ?? "") || env["WT_SESSION"] !== undefined
}

const codes: { readonly [style in Style]: string } = {
  title: "1",
  dim: "2",
  good: "32",
  bad: "1;31",
  hold: "32",
  frozen: "36",
  late: "33",
  wait: "2"
}

export const paint = (screen: Screen, style: Style | undefined, text: string): string =>
  screen.colour && style !== undefined && text !== "" ? `\u001b[${codes[style]}m${text}\u001b[0m` : text
