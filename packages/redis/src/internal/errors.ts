/**
 * What ioredis says, as the engine needs it. Its errors carry the command with its arguments, so a cause is made anew
 * from name, code and message.
 */
import { DriverError } from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"

/** The server refused before it did anything, as every script looks before it writes. */
const refusals = new Set([
  "BUSY",
  "CLUSTERDOWN",
  "CROSSSLOT",
  "DENIED",
  "LOADING",
  "MASTERDOWN",
  "MISCONF",
  "NOAUTH",
  "NOPERM",
  "NOREPLICAS",
  "NOSCRIPT",
  "OOM",
  "READONLY",
  "TRYAGAIN",
  "WRONGPASS",
  "WRONGTYPE"
])

/** ioredis had no connection, so nothing was sent. */
const wasNotSent = (error: unknown): boolean => error instanceof Error && error.message.includes("enableOfflineQueue")

/** What of a message may be told: the server's words, up to where it could repeat what it was sent. */
const tell = (text: string): string => text.replace(/['"`].*$/s, "…").slice(0, 200)

const codeOf = (error: Error): string | undefined => {
  const { code } = error as { readonly code?: unknown }
  return typeof code === "string" ? code : /^[A-Z]{2,}(?= |$)/.exec(error.message)?.[0]
}

/** An error with nothing in it that a caller has sent. */
export const clean = (error: unknown): Error => {
  if (!(error instanceof Error)) return new Error("ioredis failed with something that is no error")
  const made: Error & { code?: string } = new Error(tell(error.message))
  made.name = error.name
  const code = codeOf(error)
  if (code !== undefined) made.code = code
  return made
}

/** Whether the server has no such script, which is the only answer to which a script is sent in full. */
export const isUnknownScript = (error: unknown): boolean =>
  error instanceof Error && error.message.startsWith("NOSCRIPT")

export const driverError = (error: unknown): DriverError => {
  const cause = clean(error)
  const code = (cause as { readonly code?: string }).code
  const refused = cause.name === "ReplyError" && code !== undefined && refusals.has(code)
  return new DriverError({
    executed: refused || wasNotSent(error) ? "no" : "unknown",
    message: refused ? `the server refused: ${code}` : cause.message,
    cause,
    retryAfter: code === "LOADING" ? Duration.millis(100) : undefined
  })
}

/** For what ioredis never got as far as to send. */
export const notConnected = (cause?: unknown): DriverError =>
  new DriverError({
    executed: "no",
    message: "there is no connection to the server",
    cause: cause === undefined ? undefined : clean(cause)
  })

/** A script answered something that it never answers: somebody else writes under its name. */
export const unintelligible = (script: string): DriverError =>
  new DriverError({ executed: "unknown", message: `the script ${script} gave an answer that it does not have` })

/** The server refused to act for a caller who had gone by then. */
export const late: DriverError = new DriverError({
  executed: "no",
  message: "the server was reached too late to act for this caller"
})
