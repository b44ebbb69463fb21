/**
 * What a flow of code holds travels with it, into child fibers and time-outs, but not past the end of the section: a
 * claim that is over counts for nobody.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Tracer from "effect/Tracer"
import type * as LockKey from "../LockKey.js"
import { contextOf, reference, type RuntimeFiber, setContext, withFiber } from "./compat.js"
import type { Core, Hold } from "./core.js"

export class Claim {
  constructor(
    readonly parent: Claim | undefined,
    /** Let go when the claim is over: an ended fiber may live on for a while, and with it all that its context reaches. */
    public hold: Hold | undefined
  ) {}
}

export const ClaimRef = reference<Claim | undefined>("effect-locking/Claim", () => undefined)

/** Puts a claim, and the span of its section, into the context of a fiber that has just begun, for all its life. */
export const put = (claim: Claim, span: Tracer.Span | undefined): Effect.Effect<void> =>
  withFiber((fiber) => {
    const context = Context.add(contextOf(fiber), ClaimRef, claim)
    return setContext(span === undefined ? context : Context.add(context, Tracer.ParentSpan, span))
  })

export const of = (fiber: RuntimeFiber<any, any>): Claim | undefined => Context.get(contextOf(fiber), ClaimRef)

/** The innermost hold of the key that this flow of code has. */
export const find = (from: Claim | undefined, core: Core, key: LockKey.ResolvedKey): Claim | undefined => {
  for (let claim = from; claim !== undefined; claim = claim.parent) {
    const { hold } = claim
    if (hold?.state !== "held" || hold.core !== core) continue
    if (hold.keys.some((_) => _.id === key.id)) return claim
  }
  return undefined
}
