/**
 * Errors as plain data, and causes without anything that a client attached to them.
 */
import * as Duration from "effect/Duration"
import { isRecord } from "effect/Predicate"

/** Deeper causes say little, and a chain may be a circle. */
const maxDepth = 4

const text = (value: unknown): string | undefined => typeof value === "string" && value !== "" ? value : undefined

/**
 * Rebuilds an error from what cannot hold keys, tenants, tokens or metadata: its name, code, message, stack frames and
 * the same of its causes. Clients attach commands with their arguments, parameters and rows to their errors.
 */
export const rebuild = (cause: unknown, depth = 0): Error => {
  if (!(cause instanceof Error)) return new Error(`A value that is not an error was thrown (${typeof cause})`)
  const parts = (cause as { readonly errors?: unknown }).errors
  const message = text(cause.message) ??
    (Array.isArray(parts) ? parts.map((part) => text((part as Error | undefined)?.message) ?? "").join("; ") : "")
  const safe: Error & { code?: string | number } = new Error(message)
  const name = text(cause.name) ?? "Error"
  Object.defineProperty(safe, "name", { value: name, configurable: true, writable: true })
  const code = (cause as { readonly code?: unknown }).code
  if (typeof code === "string" || typeof code === "number") safe.code = code
  const frames = (text(cause.stack) ?? "").split("\n").filter((line) => /^\s+at /.test(line))
  safe.stack = [message === "" ? name : `${name}: ${message}`, ...frames].join("\n")
  if (cause.cause !== undefined && depth < maxDepth) {
    Object.defineProperty(safe, "cause", { value: rebuild(cause.cause, depth + 1), configurable: true, writable: true })
  }
  return safe
}

/** The fields of an error with its cause rebuilt. */
export const safeCause = <A extends { readonly cause?: unknown }>(fields: A): A =>
  fields.cause === undefined ? fields : { ...fields, cause: rebuild(fields.cause) }

/** A duration in milliseconds that survives JSON. */
const plainMillis = (duration: Duration.Duration): number | "Infinity" =>
  Duration.isFinite(duration) ? Duration.toMillis(duration) : "Infinity"

const plainValue = (value: unknown): unknown => {
  if (typeof value === "bigint") return value.toString()
  if (Duration.isDuration(value)) return plainMillis(value)
  if (value instanceof Error) return plainCause(value)
  if (Array.isArray(value)) return value.map(plainValue)
  if (isRecord(value)) return plainFields(value)
  return value
}

const plainFields = (value: object): Record<string, unknown> => {
  const plain: Record<string, unknown> = {}
  for (const [field, inner] of Object.entries(value)) {
    if (inner !== undefined) plain[field] = plainValue(inner)
  }
  return plain
}

const plainCause = (error: Error & { readonly code?: unknown }): Record<string, unknown> => ({
  name: error.name,
  message: error.message,
  ...(error.code === undefined ? {} : { code: error.code }),
  ...(error.cause instanceof Error ? { cause: plainCause(error.cause) } : {})
})

/** An error of ours as data for JSON: bigint as decimal string, durations as milliseconds. */
export const toPlain = (
  error: Error & { readonly _tag: string; readonly code: string; readonly fix: string }
): Record<string, unknown> => ({
  _tag: error._tag,
  code: error.code,
  message: error.message,
  fix: error.fix,
  ...plainFields(error),
  ...(error.cause instanceof Error ? { cause: plainCause(error.cause) } : {})
})
