/**
 * Spans: `effect-locking.acquire`, `effect-locking.hold` and `effect-locking.renew`, with backend and key hash, and a
 * link from who waits to who holds. By default only what had to wait makes spans.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Tracer from "effect/Tracer"
import { contextOf, type RuntimeFiber } from "./compat.js"
import type { Core, Hold, Request } from "./core.js"
import { keyHash } from "./report.js"

/** Under this name the store keeps a holder's span with its metadata, as HTTP does in a header. */
export const traceparent = "traceparent"

/** The span under which a caller asks, in W3C form. */
export const traceOf = (core: Core, fiber: RuntimeFiber<any, any>): string | undefined => {
  if (core.settings.tracing === "off") return undefined
  const span: Tracer.AnySpan | undefined = contextOf(fiber).unsafeMap.get(Tracer.ParentSpan.key)
  return span === undefined ? undefined : `00-${span.traceId}-${span.spanId}-${span.sampled ? "01" : "00"}`
}

const form = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/

/** What stands in somebody's metadata is taken for a span only where it has the form of one. */
const linkTo = (trace: string | undefined): ReadonlyArray<Tracer.SpanLink> => {
  const [, traceId, spanId, flags] = form.exec(trace ?? "") ?? []
  return traceId === undefined || spanId === undefined ? [] : [{
    _tag: "SpanLink",
    span: Tracer.externalSpan({ traceId, spanId, sampled: flags === "01", context: Context.empty() }),
    attributes: { relation: "held by" }
  }]
}

type Named = { readonly keys: ReadonlyArray<{ readonly id: string }> }

const makeSpan = (core: Core, name: string, of: Named, trace?: string | undefined): Effect.Effect<Tracer.Span> =>
  Effect.makeSpan(`effect-locking.${name}`, {
    captureStackTrace: false,
    attributes: { backend: core.settings.backend, lock: keyHash(of) },
    links: linkTo(trace)
  })

/** Says how it ended, but not with what: tracers may keep what they are given. */
const end = (core: Core, span: Tracer.Span, exit: Exit.Exit<unknown, unknown>): void =>
  span.end(BigInt(Math.round(core.timer.now() * 1e6)), Exit.isSuccess(exit) ? Exit.void : exit)

/**
 * A span round an effect that has none inside, in a region that nothing leaves early: `Effect.withSpan` would cost more
 * than the lock.
 */
const spanned = <A, E, R>(
  core: Core,
  span: Effect.Effect<Tracer.Span>,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.flatMap(span, (span) => Effect.onExit(effect, (exit) => Effect.sync(() => end(core, span, exit))))

/** The whole of an acquire. */
export const acquiring = <A, E, R>(
  core: Core,
  request: Request,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => {
  if (core.settings.tracing !== "all") return effect
  request.isTraced = true
  return spanned(core, makeSpan(core, "acquire", request), effect)
}

/** The rest of an acquire that has to wait, for the holder who asked under `trace`. */
export const waiting = <A, E, R>(
  core: Core,
  request: Request,
  trace: string | undefined,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => {
  if (core.settings.tracing !== "contended" || request.isTraced) return effect
  request.isTraced = true
  return spanned(core, makeSpan(core, "acquire", request, trace), effect)
}

/** Runs a section under a span of its own, which the section is given to put into its context. */
export const holding = <A, E, R>(
  hold: Hold,
  section: (span: Tracer.Span | undefined) => Effect.Effect<Exit.Exit<A, E>, never, R>
): Effect.Effect<Exit.Exit<A, E>, never, R> =>
  hold.isTraced
    ? Effect.flatMap(makeSpan(hold.core, "hold", hold), (span) =>
      Effect.map(section(span), (exit) => {
        end(hold.core, span, exit)
        return exit
      }))
    : section(undefined)

export const renewing = <A, E, R>(core: Core, of: Named, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  core.settings.tracing === "all" ? spanned(core, makeSpan(core, "renew", of), effect) : effect
