/**
 * A call to a store by callback: as good as any effect, and cheaper to the engine, which needs no fiber to wait for it.
 */
import * as Effect from "effect/Effect"
import { EffectClass, fromCallback } from "./compat.js"

/**
 * Begins a call and answers how to abandon it, if it can be. `resume` takes what ended it, or what goes on with it; only its first
 * call counts.
 */
export type Register<A, E> = (resume: (next: Effect.Effect<A, E>) => void) => (() => void) | void

export class Callback<A, E> extends EffectClass<A, E> {
  constructor(readonly register: Register<A, E>) {
    super()
  }
  commit(): Effect.Effect<A, E> {
    return fromCallback((resume) => {
      const abandon = this.register(resume)
      return abandon === undefined ? undefined : Effect.sync(abandon)
    })
  }
}
