/**
 * Lets questions through while there is a connection. One that was good comes back at once as a rule, so it is waited
 * for, and so is the first one; one that did not come back is not: whoever asks then hears it promptly.
 */
import type { Own } from "./client.js"

export interface Gate {
  /** Goes on with whether there is a connection, as soon as that is known. */
  readonly pass: (go: (isOpen: boolean) => void) => void
  readonly lastError: () => unknown
}

export const make = (own: Own): Gate => {
  let wasReady = false
  let isComing = true
  let lastError: unknown = undefined
  let waiting: Array<(isOpen: boolean) => void> = []
  const pass: Gate["pass"] = (go) => {
    if (own.status === "ready") go(true)
    else if (isComing) waiting.push(go)
    else go(false)
  }
  const again = () => {
    const all = waiting
    waiting = []
    for (const go of all) pass(go)
  }
  own.on("error", (error) => lastError = error)
  own.on("ready", () => {
    wasReady = true
    lastError = undefined
    again()
  })
  own.on("close", () => {
    isComing = wasReady
    wasReady = false
    again()
  })
  own.on("end", () => {
    isComing = false
    again()
  })
  return { pass, lastError: () => lastError }
}
