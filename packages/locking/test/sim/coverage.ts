/** The rare branches that a search must reach, or its green run means nothing. */
import type { Probe } from "../../src/internal/probes.js"

const required: Readonly<Record<Probe, true>> = {
  "grant beats time-out": true,
  "interrupt after grant": true,
  "interrupt while queued": true,
  "time-out while queued": true,
  "lease stale on arrival": true,
  "local deadline passed": true,
  "renewal unanswered, retried": true,
  "renewal refused": true,
  "release outcome unknown": true,
  "acquire outcome unknown": true,
  "poll cured a lost note": true,
  "lost before the body started": true,
  "shutdown with waiters": true,
  "shutdown with holders": true,
  "limit reached": true,
  "attempt abandoned": true,
  "undo refused": true,
  "handed over": true,
  "offered to nobody": true,
  "offer answered after the heir had left": true,
  "reader joined": true,
  "stood back": true
}

export const requiredProbes = Object.keys(required) as ReadonlyArray<Probe>

export const missingProbes = (reached: ReadonlyMap<Probe, number>): ReadonlyArray<Probe> =>
  requiredProbes.filter((probe) => !reached.has(probe))
