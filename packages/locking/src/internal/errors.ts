/**
 * Errors as plain data, and causes without anything that a client attached to them.
 */
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import { isRecord } from "effect/Predicate"

/** A cause for JSON. */
export interface PlainCause {
  readonly name: string
  readonly message: string
  readonly code?: string | number | undefined
  readonly cause?: unknown
}

// deeper causes say little, and a chain may be a circle
const maxDepth = 4

const text = (value: unknown): string => typeof value === "string" ? value : ""

const makeError = (
  name: string,
  message: string,
  code: unknown,
  frames: ReadonlyArray<string>,
  cause: unknown
): Error => {
  const error = new Error(message)
  const hidden = (property: string, value: unknown) =>
    Object.defineProperty(error, property, { value, configurable: true, writable: true })
  hidden("name", name)
  hidden("stack", [message === "" ? name : `${name}: ${message}`, ...frames].join("\n"))
  if (cause !== undefined) hidden("cause", cause)
  return typeof code === "string" || typeof code === "number" ? Object.assign(error, { code }) : error
}

/** An error's own message, or those of the errors that it gathers: connection errors of Node have no other. */
const messageOf = (error: Error): string => {
  if (text(error.message) !== "" || !(error instanceof AggregateError) || !Array.isArray(error.errors)) {
    return text(error.message)
  }
  return error.errors.map((part) => part instanceof Error ? text(part.message) : "").filter((part) => part !== "").join(
    "; "
  )
}

/**
 * Rebuilds an error from what holds no keys, tenants, tokens or metadata: name, code, message, stack frames, and the
 * same of its causes. Clients attach commands with their arguments, parameters and rows to their errors.
 */
export const rebuild = (cause: unknown, depth = 0): Error => {
  if (Cause.isCause(cause)) return rebuild(Cause.squash(cause), depth)
  // its text may be anything
  if (!(cause instanceof Error)) {
    return makeError("Error", `a value of type ${typeof cause} was thrown`, undefined, [], undefined)
  }
  return makeError(
    text(cause.name) || "Error",
    messageOf(cause),
    (cause as { readonly code?: unknown }).code,
    text(cause.stack).split("\n").filter((line) => /^\s+at /.test(line)),
    cause.cause === undefined || depth >= maxDepth ? undefined : rebuild(cause.cause, depth + 1)
  )
}

/** The fields of an error with its cause rebuilt. */
export const safeCause = <A extends { readonly cause?: unknown }>(fields: A): A =>
  fields.cause === undefined ? fields : { ...fields, cause: rebuild(fields.cause) }

/** A cause as data. */
export const plainCause = (error: Error & { readonly code?: unknown }): PlainCause => ({
  name: error.name,
  message: error.message,
  ...(typeof error.code === "string" || typeof error.code === "number" ? { code: error.code } : {}),
  ...(error.cause instanceof Error ? { cause: plainCause(error.cause) } : {})
})

/** The inverse of `plainCause`. The stack stays where the error was made. */
export const fromPlainCause = (plain: PlainCause, depth = 0): Error => {
  const { cause } = plain
  const inner = isRecord(cause) && depth < maxDepth
    ? fromPlainCause({ ...cause, name: text(cause["name"]) || "Error", message: text(cause["message"]) }, depth + 1)
    : undefined
  return makeError(plain.name, plain.message, plain.code, [], inner)
}

/** A duration in milliseconds that survives JSON. */
export const plainMillis = (duration: Duration.Duration): number | "Infinity" =>
  Duration.isFinite(duration) ? Duration.toMillis(duration) : "Infinity"

const plainValue = (value: unknown): unknown => {
  if (typeof value === "bigint") return value.toString()
  if (Duration.isDuration(value)) return plainMillis(value)
  if (Array.isArray(value)) return value.map(plainValue)
  return isRecord(value) ? plainFields(value) : value
}

const plainFields = (value: object): Record<string, unknown> => {
  const plain: Record<string, unknown> = {}
  for (const [field, inner] of Object.entries(value)) {
    if (inner !== undefined) plain[field] = plainValue(inner)
  }
  return plain
}

/** An error of ours as data for JSON: fences as decimal strings, durations as milliseconds. */
export const toPlain = (
  error: Error & { readonly _tag: string; readonly code: string; readonly fix: string }
): Record<string, unknown> => ({
  _tag: error._tag,
  code: error.code,
  message: error.message,
  fix: error.fix,
  // the cause is a hidden field
  ...plainFields(error),
  ...(error.cause instanceof Error ? { cause: plainCause(error.cause) } : {})
})
