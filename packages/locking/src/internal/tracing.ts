/**
 * Spans: `effect-locking.acquire`, `effect-locking.hold` and `effect-locking.renew`, with backend and key hash, and a
 * link from who waits to who holds. By default only what had to wait makes spans.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
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

/** A span that says how the effect ended, but not with what: tracers may keep what they are given. */
const span = (
  core: Core,
  name: string,
  of: { readonly keys: ReadonlyArray<{ readonly id: string }> },
  trace?: string | undefined
) =>
<A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    let value: A
    const spanned = Effect.withSpan(
      Effect.map(effect, (result) => {
        value = result
      }),
      `effect-locking.${name}`,
      {
        captureStackTrace: false,
        attributes: { backend: core.settings.backend, lock: keyHash(of) },
        links: linkTo(trace)
      }
    )
    return Effect.map(spanned, () => value) as Effect.Effect<A, E, R>
  })

/** The whole of an acquire. */
export const acquiring = <A, E, R>(
  core: Core,
  request: Request,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => {
  if (core.settings.tracing !== "all") return effect
  request.isTraced = true
  return span(core, "acquire", request)(effect)
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
  return span(core, "acquire", request, trace)(effect)
}

export const holding = <A, E, R>(hold: Hold, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  hold.isTraced ? span(hold.core, "hold", hold)(effect) : effect

export const renewing = <A, E, R>(
  core: Core,
  keys: { readonly keys: ReadonlyArray<{ readonly id: string }> },
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => core.settings.tracing === "all" ? span(core, "renew", keys)(effect) : effect
