/**
 * The only module that knows names which Effect 4 renamed; the rest of `src` compiles on both lines.
 */
import * as Cause from "effect/Cause"
import type * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Effectable from "effect/Effectable"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as FiberRef from "effect/FiberRef"
import type * as FiberRefs from "effect/FiberRefs"
import * as Layer from "effect/Layer"
import * as Runtime from "effect/Runtime"

export type DurationInput = Duration.DurationInput

export type RuntimeFiber<A, E = never> = Fiber.RuntimeFiber<A, E>

export const tag = Context.GenericTag

/** Whether a test moves the clock. */
export const isTestClock = (clock: Clock.Clock): boolean => "adjust" in clock

/** A value that travels with the flow of the code and has a default. */
export const reference = <A, Self = A>(id: string, defaultValue: () => A): Context.Reference<Self, A> =>
  Context.Reference<Self>()(id, { defaultValue })

export const fork = Effect.fork
export const forkDaemon = Effect.forkDaemon
export const withFiber = Effect.withFiberRuntime
export const fromCallback = Effect.async
export const zipRight = Effect.zipRight
export const currentClock = Effect.clock
export const scopedLayer = Layer.scoped
export const catchAllCause = Effect.catchAllCause

/** Starts a fiber with the state of the running one and a context of its own. Not a child: nothing ends it by itself. */
export type Start = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  context: Context.Context<R>,
  /** Within this very step, until it waits for something. */
  atOnce: boolean,
  /** Is told the state that it begins with. */
  begins: (state: FiberState) => void
) => RuntimeFiber<A, E>

/** Fibers that have begun within each other share a stack, which has an end. */
const deepest = 16
let depth = 0

/** To start a fiber from the running one, whose state it begins with. */
export const starting = <A, E, R>(
  use: (fiber: RuntimeFiber<any, any>, start: Start) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.withFiberRuntime<A, E, R>((fiber, { runtimeFlags }) =>
    use(fiber, (effect, context, atOnce, begins) => {
      depth++
      const started = Runtime.runFork(
        Runtime.make({ context, runtimeFlags, fiberRefs: fiber.getFiberRefs() }),
        effect,
        {
          immediate: atOnce && depth <= deepest,
          updateRefs: (state) => {
            begins(state)
            return state
          }
        }
      )
      depth--
      return started
    })
  )

/** Whether the region round a mask, which this function leads back to, can be interrupted. */
export const givesInterruption = (restore: unknown): boolean => restore === Effect.interruptible

export const deferred = <A, E = never>(): Deferred.Deferred<A, E> => Deferred.unsafeMake<A, E>(FiberId.none)
/** The exit of something that was called off. */
export const interrupted: Exit.Exit<never> = Exit.interrupt(FiberId.none)

export const deferredDone = <A, E>(self: Deferred.Deferred<A, E>, exit: Exit.Exit<A, E>): void =>
  Deferred.unsafeDone(self, exit)

export type Fork = <A, E>(effect: Effect.Effect<A, E>) => RuntimeFiber<A, E>

/** Layers are built in regions that are not interruptible; what is forked from them is. */
const layerRuntime = Effect.interruptible(Effect.runtime<never>())

/** Starts fibers from synchronous code with the scheduler, clock and references of the layer; interruptible. */
export const forker: Effect.Effect<Fork> = Effect.map(layerRuntime, (runtime) => Runtime.runFork(runtime))

/** The same without spans. To set a reference for one effect costs more than a call to a store does otherwise. */
export const untracedForker: Effect.Effect<Fork> = Effect.map(
  layerRuntime,
  (runtime) => Runtime.runFork(Runtime.setFiberRef(runtime, FiberRef.currentTracerEnabled, false))
)

/** An effect of a kind of our own. */
export const EffectClass = Effectable.Class

const toExit = { onLeft: Exit.die, onRight: Exit.succeed }

/** What a plain function returns or throws. */
export const attempt = <A>(run: () => A): Exit.Exit<A> =>
  Either.match(Either.try({ try: run, catch: (defect) => defect }), toExit) as Exit.Exit<A>

/** Whether an effect has ended before it began. */
export const isExit = Exit.isExit as <A, E>(effect: Effect.Effect<A, E>) => effect is Exit.Exit<A, E>

/** Sends the interrupt without waiting for its effect. */
export const interruptNow = (fiber: RuntimeFiber<any, any>): void => fiber.unsafeInterruptAsFork(FiberId.none)

/** The same in the name of another fiber. */
export const interruptAs = (fiber: RuntimeFiber<any, any>, by: RuntimeFiber<any, any>): void =>
  fiber.unsafeInterruptAsFork(by.id())

/** Whether an interrupt has reached the fiber, even one that it has not acted on yet. */
export const isInterrupted = (fiber: RuntimeFiber<any, any>): boolean =>
  !Cause.isEmpty(fiber.getFiberRef(FiberRef.interruptedCause))

/** The context that travels with a fiber. */
export const contextOf = (fiber: RuntimeFiber<any, any>): Context.Context<never> => fiber.currentContext

export type FiberState = FiberRefs.FiberRefs

/** The fiber-local state as it is now: a copy. */
export const stateOf = (fiber: RuntimeFiber<any, any>): FiberState => fiber.getFiberRefs()

/** Whether an ended fiber changed the state that it began with, other than the context that it was given. */
export const hasChanges = (fiber: RuntimeFiber<any, any>, begunWith: FiberState): boolean => {
  let isChanged = false
  // an iteration would make an object for each entry
  stateOf(fiber).locals.forEach(([[, value]], ref) => {
    if (ref === FiberRef.currentContext || ref === FiberRef.currentRuntimeFlags) return
    const before = begunWith.locals.get(ref)
    if (before === undefined || before[0][1] !== value) isChanged = true
  })
  return isChanged
}

/** Takes over what an ended child changed, but for the context. */
export const inheritFrom = (child: RuntimeFiber<any, any>, parent: RuntimeFiber<any, any>): Effect.Effect<void> => {
  const context = contextOf(parent)
  return Effect.zipRight(child.inheritAll, setContext(context))
}

/** Changes the context of the running fiber for good. */
export const setContext = <R>(context: Context.Context<R>): Effect.Effect<void> =>
  FiberRef.set(FiberRef.currentContext, context as Context.Context<never>)
