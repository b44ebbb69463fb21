/**
 * When a lease may be believed. A pure state machine over a monotonic clock in milliseconds: nothing here asks a clock.
 *
 * The rule is that of etcd's and River's elections: trust starts with the *start* of the attempt that the store
 * confirmed, never with its reply, and ends a margin before the store's own end, for clocks that run at other rates.
 */

/** One percent and five milliseconds; at most half of a very short ttl. */
export const margin = (ttl: number): number => Math.min(ttl * 0.01 + 5, ttl / 2)

export const trustedUntil = (attemptStart: number, ttl: number): number =>
  ttl === Infinity ? Infinity : attemptStart + ttl - margin(ttl)

export type Trust =
  | { readonly _tag: "Held"; readonly until: number; readonly renewAt: number }
  | { readonly _tag: "Lost" }
  | { readonly _tag: "Released" }

const endless: Trust = { _tag: "Held", until: Infinity, renewAt: Infinity }

export const lost: Trust = { _tag: "Lost" }

export const released: Trust = { _tag: "Released" }

export const granted = (attemptStart: number, ttl: number): Trust =>
  ttl === Infinity
    ? endless
    : { _tag: "Held", until: trustedUntil(attemptStart, ttl), renewAt: attemptStart + ttl / 3 }

/** A confirmation never shortens trust, and never revives what has ended. */
export const confirmed = (trust: Trust, attemptStart: number, ttl: number): Trust =>
  trust._tag !== "Held" || ttl === Infinity
    ? trust
    : {
      _tag: "Held",
      until: Math.max(trust.until, trustedUntil(attemptStart, ttl)),
      renewAt: Math.max(trust.renewAt, attemptStart + ttl / 3)
    }

/** No answer extends nothing; the next try comes soon, while there is trust left to try in. */
export const unanswered = (trust: Trust, now: number, jitter: number): Trust =>
  trust._tag !== "Held"
    ? trust
    : { ...trust, renewAt: now + Math.max(1, Math.min((trust.until - now) / 4, 1000) * (0.5 + jitter / 2)) }

export const isTrusted = (trust: Trust, now: number): boolean => trust._tag === "Held" && now < trust.until

/** A successor in this process gets the grant only with most of its time left. */
export const isFresh = (trust: Trust, now: number, ttl: number): boolean =>
  trust._tag === "Held" && (ttl === Infinity || trust.until - now >= (ttl * 2) / 3 - margin(ttl))
