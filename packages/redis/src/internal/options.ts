/**
 * The options of the driver, checked: all issues at once, each with its path and with what would be right.
 */
import { InvalidOptions } from "effect-locking/LockError"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"

/** In milliseconds. */
export interface Parsed {
  readonly retention: number
  readonly fairPatience: number
  readonly longestTtl: number
}

export interface Given {
  readonly retention?: Duration.DurationInput | undefined
  readonly fairPatience?: Duration.DurationInput | undefined
  readonly longestTtl?: Duration.DurationInput | undefined
}

const ranges: Readonly<Record<keyof Given, readonly [byDefault: number, least: number, most: number, text: string]>> = {
  retention: [3_600_000, 0, 31_536_000_000, "0 … 1 year"],
  fairPatience: [1_500, 1_000, 60_000, "1 second … 1 minute"],
  longestTtl: [60_000, 100, 31_536_000_000, "100 ms … 1 year"]
}

const own: ReadonlySet<string> = new Set([...Object.keys(ranges), "client", "clients", "connection"])

/** What belongs to the driver; the rest is the layer's. */
export const split = <A extends object>(options: A & LockingOptions): readonly [own: A, common: LockingOptions] => {
  const entries = Object.entries(options)
  return [
    Object.fromEntries(entries.filter(([name]) => own.has(name))) as A,
    Object.fromEntries(entries.filter(([name]) => !own.has(name)))
  ]
}

/** `NaN`: that is no duration. */
export const millis = (given: unknown): number =>
  typeof given === "number"
    ? given
    : Option.match(Duration.decodeUnknown(given), { onNone: () => NaN, onSome: Duration.toMillis })

/** `clients`: how many servers there are, where they are a quorum. */
export const parse = (given: Given, clients?: number): Parsed | InvalidOptions => {
  const issues: Array<{ readonly path: string; readonly message: string }> = []
  const read = (name: keyof Given): number => {
    const [byDefault, least, most, text] = ranges[name]
    const value = given[name] === undefined ? byDefault : millis(given[name])
    if (!(value >= least && value <= most)) issues.push({ path: name, message: `must be a duration of ${text}` })
    return Math.round(value)
  }
  const parsed = {
    retention: read("retention"),
    fairPatience: read("fairPatience"),
    longestTtl: read("longestTtl")
  }
  if (clients !== undefined && !(clients >= 3 && clients % 2 === 1)) {
    issues.push({
      path: "clients",
      message: `must be an odd number of independent servers, three or more, got ${clients}: an even one bears no more`
    })
  }
  return issues.length > 0 ? new InvalidOptions({ backend: "redis", issues }) : parsed
}
