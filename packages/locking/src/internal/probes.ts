/**
 * The test seam of the engine: free in production, where `hook` is never set.
 */

/** Rare branches that a search must reach, or its green run means nothing. */
export type Probe =
  | "grant beats time-out"
  | "interrupt after grant"
  | "interrupt while queued"
  | "time-out while queued"
  | "lease stale on arrival"
  | "local deadline passed"
  | "renewal unanswered, retried"
  | "renewal refused"
  | "release outcome unknown"
  | "acquire outcome unknown"
  | "poll cured a lost note"
  | "lost before the body started"
  | "shutdown with waiters"
  | "shutdown with holders"
  | "limit reached"
  | "attempt abandoned"
  | "undo refused"
  | "handed over"
  | "offered to nobody"
  | "offer answered after the heir had left"
  | "reader joined"
  | "stood back"

export const probes: {
  current: ((probe: Probe) => void) | undefined
  /** `false` switches poll and holder's-end timers off, so that a lost wake-up shows as a deadlock. */
  safetyNets: boolean
} = { current: undefined, safetyNets: true }

export const sometimes = (probe: Probe): void => {
  if (probes.current !== undefined) probes.current(probe)
}
