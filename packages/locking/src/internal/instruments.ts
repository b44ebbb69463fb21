/**
 * The metrics of a layer, all registered at zero when it starts. Tag: `backend`; some have one more.
 */
import * as Metric from "effect/Metric"
import * as MetricBoundaries from "effect/MetricBoundaries"
import * as MetricKey from "effect/MetricKey"
import type * as MetricKeyType from "effect/MetricKeyType"
import type * as MetricLabel from "effect/MetricLabel"
import type { LeaseLostReason } from "../LockError.js"

export const outcomes = [
  "granted",
  "busy",
  "timeout",
  "limit",
  "reentry",
  "closed",
  "failed",
  "unknown",
  "interrupted"
] as const

export type Outcome = typeof outcomes[number]

const renewalOutcomes = ["confirmed", "lost", "unknown"] as const

const reasons: ReadonlyArray<LeaseLostReason> = [
  "expired",
  "unconfirmed",
  "taken",
  "revoked",
  "session-ended",
  "max-hold",
  "closed"
]

const none: ReadonlyArray<MetricLabel.MetricLabel> = []

type Update = (value: number) => void

export interface Instruments {
  readonly acquired: Readonly<Record<Outcome, Update>>
  readonly wait: Update
  readonly hold: Update
  readonly leases: Update
  readonly waiters: Update
  readonly oldestWait: Update
  readonly renewed: Readonly<Record<typeof renewalOutcomes[number], Update>>
  readonly lost: Readonly<Record<LeaseLostReason, Update>>
  readonly overran: Update
  readonly releaseFailed: Update
  readonly longHold: Update
  readonly eventDropped: Update
}

const bind = <Type extends MetricKeyType.MetricKeyType<any, any>>(
  key: MetricKey.MetricKey<Type>,
  zero?: number
): Update => {
  const metric = Metric.fromMetricKey(key)
  if (zero === undefined) metric.unsafeValue(none)
  else metric.unsafeUpdate(zero as any, none)
  return (value) => metric.unsafeUpdate(value as any, none)
}

const each = <K extends string>(
  key: MetricKey.MetricKey.Counter<number>,
  label: string,
  names: ReadonlyArray<K>
): Record<K, Update> =>
  Object.fromEntries(names.map((name) => [name, bind(MetricKey.tagged(key, label, name), 0)])) as Record<K, Update>

export const make = (backend: string): Instruments => {
  // labels go into the key once: a metric that is tagged later joins its labels anew at every update
  const tagged = MetricKey.tagged("backend", backend)
  const counter = (name: string, description: string) =>
    tagged(MetricKey.counter(`effect_locking_${name}`, { description, incremental: true }))
  const gauge = (name: string, description: string) =>
    tagged(MetricKey.gauge(`effect_locking_${name}`, { description }))
  const seconds = MetricBoundaries.fromIterable([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300])
  const histogram = (name: string, description: string) =>
    tagged(MetricKey.histogram(`effect_locking_${name}`, seconds, description))
  return {
    acquired: each(counter("acquires_total", "Calls by outcome"), "outcome", outcomes),
    wait: bind(histogram("wait_seconds", "From the call to the grant")),
    hold: bind(histogram("hold_seconds", "From the grant to its end")),
    leases: bind(gauge("leases", "Leases held now"), 0),
    waiters: bind(gauge("waiters", "Callers waiting now"), 0),
    oldestWait: bind(
      gauge(
        "oldest_wait_start_time_seconds",
        // a time that has passed would be wrong until the next update
        "Since when the longest waiting caller waits, in seconds since 1970; 0 when nobody does"
      ),
      0
    ),
    renewed: each(counter("renewals_total", "Renewals by outcome"), "outcome", renewalOutcomes),
    lost: each(counter("leases_lost_total", "Leases lost by reason"), "reason", reasons),
    overran: bind(counter("overruns_total", "Sections that went on after their lease had ended"), 0),
    releaseFailed: bind(counter("release_failures_total", "Releases that were not answered"), 0),
    longHold: bind(counter("long_holds_total", "Leases held longer than holdWarning"), 0),
    eventDropped: bind(counter("events_dropped_total", "Events that slow listeners lost"), 0)
  }
}
