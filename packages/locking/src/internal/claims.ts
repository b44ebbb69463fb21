/**
 * What a flow of code holds travels with it, into child fibers and time-outs, but not past the end of the section: a
 * claim that is over counts for nobody.
 */
import * as Context from "effect/Context"
import * as Tracer from "effect/Tracer"
import type * as LockKey from "../LockKey.js"
import { contextOf, reference, type RuntimeFiber } from "./compat.js"
import type { Core, Hold } from "./core.js"

export class Claim {
  constructor(
    readonly parent: Claim | undefined,
    /** Let go when the claim is over: an ended fiber may live on for a while, and with it all that its context reaches. */
    public hold: Hold | undefined
  ) {}
}

export const ClaimRef = reference<Claim | undefined>("effect-locking/Claim", () => undefined)

/** The context of a section: with its claim, and with its span where it has one. */
export const within = (
  context: Context.Context<never>,
  claim: Claim,
  span: Tracer.Span | undefined
): Context.Context<never> => {
  const claimed = Context.add(context, ClaimRef, claim)
  return span === undefined ? claimed : Context.add(claimed, Tracer.ParentSpan, span)
}

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
