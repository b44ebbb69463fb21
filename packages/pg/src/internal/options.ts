/**
 * The options of the driver, checked: all issues at once, each with its path and with what would be right.
 */
import { InvalidOptions } from "effect-locking/LockError"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import type { DriverOptions } from "../PgLocking.js"

export interface Parsed {
  readonly schema: string
  readonly fence: "sequence" | "clock"
  /** In milliseconds. */
  readonly sessionTtl: number
  readonly restartQuarantine: boolean
  readonly reconnectQuarantine: boolean
}

const defaultTtl = 15_000
const shortestTtl = 500
const longestTtl = 3_600_000
const names = ["connection", "schema", "fence", "sessionTtl", "restartQuarantine", "reconnectQuarantine"] as const

/** What belongs to the driver; the rest is the layer's. */
export const split = (options: DriverOptions & LockingOptions): readonly [DriverOptions, LockingOptions] => {
  const own: Record<string, unknown> = {}
  const rest: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(options)) {
    ;(names.includes(name as (typeof names)[number]) ? own : rest)[name] = value
  }
  return [own, rest]
}

export const parse = (options: DriverOptions): Parsed | InvalidOptions => {
  const issues: Array<{ readonly path: string; readonly message: string }> = []
  const refuse = (path: string, message: string) => issues.push({ path, message })
  const { fence = "sequence", reconnectQuarantine = false, restartQuarantine = true, schema = "public" } = options
  const given = Duration.decodeUnknown(options.sessionTtl ?? defaultTtl)
  const millis = Option.match(given, { onNone: () => NaN, onSome: Duration.toMillis })
  if (!(millis >= shortestTtl && millis <= longestTtl)) refuse("sessionTtl", "must be a duration of 500 ms … 1 hour")
  if (typeof schema !== "string" || schema === "" || Buffer.byteLength(schema) > 63 || schema.includes("\u0000")) {
    refuse("schema", "must be the name of a schema, of 1 … 63 bytes")
  }
  if (fence !== "sequence" && fence !== "clock") refuse("fence", "must be \"sequence\" or \"clock\"")
  if (typeof restartQuarantine !== "boolean") refuse("restartQuarantine", "must be true or false")
  if (typeof reconnectQuarantine !== "boolean") refuse("reconnectQuarantine", "must be true or false")
  return issues.length > 0
    ? new InvalidOptions({ backend: "pg", issues })
    : { schema, fence, sessionTtl: millis, restartQuarantine, reconnectQuarantine }
}
