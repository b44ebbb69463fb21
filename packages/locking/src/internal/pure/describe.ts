/**
 * How refused values are told to people: what they are, never more of them than helps.
 */
import { Fault, measure } from "./keyEncoding.js"

/** What kind of value this is, with its article. Never looks into objects, whose conversion may throw. */
export const kind = (value: unknown): string => {
  if (value === null) return "null"
  if (value === undefined) return "undefined"
  if (Array.isArray(value)) return "an array"
  return typeof value === "object" ? "an object" : `a ${typeof value}`
}

/** A scalar as one would write it in code, shortened; anything else by its kind. */
export const show = (value: unknown): string => {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value)
    case "bigint":
      return value > -(10n ** 40n) && value < 10n ** 40n ? `${value}n` : "a bigint of more than 40 digits"
    case "number":
    case "boolean":
      return Object.is(value, -0) ? "-0" : String(value)
    default:
      return kind(value)
  }
}

/** What is wrong with a key, tenant or namespace, and what would be right; never the string itself. */
export const nameFault = (text: unknown, maxBytes: number): string | undefined => {
  if (typeof text !== "string") return `must be a string, got ${kind(text)}`
  switch (measure(text, maxBytes)) {
    case Fault.empty:
      return "must not be empty"
    case Fault.nul:
      return "must not contain the character U+0000"
    case Fault.illFormed:
      return "must be well-formed Unicode, but holds half of a surrogate pair"
    case Fault.tooLong:
      return `must be at most ${maxBytes} bytes long in UTF-8`
    default:
      return undefined
  }
}

/** How many letters have to be changed, added, dropped or swapped with their neighbour to make `b` of `a`. */
const distance = (a: string, b: string): number => {
  let beforePrevious: Array<number> = []
  let previous = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1
      row[j] = Math.min(previous[j]! + 1, row[j - 1]! + 1, previous[j - 1]! + cost)
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        row[j] = Math.min(row[j]!, beforePrevious[j - 2]! + 1)
      }
    }
    beforePrevious = previous
    previous = row
  }
  return previous[b.length]!
}

/** The name that was probably meant, if one is close. The first wins among equals. */
export const closest = (name: string, names: Iterable<string>): string | undefined => {
  if (name.length > 40) return undefined
  const wanted = name.toLowerCase()
  let best: string | undefined
  let bestDistance = Infinity
  for (const candidate of names) {
    const known = candidate.toLowerCase()
    // `timeout` for `waitTimeout`, `meta` for `metadata`
    const isPart = wanted.length > 3 && (known.endsWith(wanted) || known.startsWith(wanted))
    const far = isPart ? 1.5 : distance(wanted, known)
    const near = isPart || far <= Math.max(1, Math.floor(Math.min(wanted.length, known.length) / 3))
    if (near && far < bestDistance) {
      best = candidate
      bestDistance = far
    }
  }
  return best
}
