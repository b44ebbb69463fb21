/**
 * What the benchmarks of stores behind a network share: what is asked of a driver and of the engine, one after the other
 * and many at once.
 */
import type { LockDriver, LockKey } from "effect-locking"
import type { Locking } from "effect-locking/Locking"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import { again, startTimer, type Time } from "./measure.js"

/** What was sent to the store. */
export interface Sent {
  count: number
}

export const run = <A>(program: Effect.Effect<A, unknown, Scope.Scope>): Promise<A> =>
  Effect.runPromise(Effect.scoped(program))

/** Of so many things each. */
export const range = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, i) => i)

/** So many operations, and the time of each of them. */
export const timed = (times: number, work: () => Promise<unknown>) => async (): Promise<Time> => {
  const time = startTimer()
  await work()
  const { cpu, wall } = time()
  return { cpu: cpu / times, wall: wall / times }
}

/** Something that calls back when it is done. */
export type Step = (done: () => void) => void

interface ByCallback<A> {
  readonly register: (resume: (next: Effect.Effect<A, unknown>) => void) => void
}

const isByCallback = <A>(call: object): call is ByCallback<A> => "register" in call

/** Asks a driver as the engine does: what it answers by callback needs no fiber. */
const ask = <A>(call: Effect.Effect<A, unknown>, done: (answer: A) => void): void => {
  if (isByCallback<A>(call)) return call.register((next) => ask(next, done))
  const settle = (exit: Exit.Exit<A, unknown>) => {
    if (Exit.isFailure(exit)) throw new Error(Cause.pretty(exit.cause))
    done(exit.value)
  }
  if (Exit.isExit(call)) settle(call as Exit.Exit<A, unknown>)
  else Effect.runCallback(call, { onExit: settle })
}

let tokens = 0

/** A grant and its release, as the engine asks for them, without the engine. */
export const driverPair = (driver: LockDriver.LockDriver, key: LockKey.ResolvedKey): Step => (done) => {
  const contention = driver.contend({
    keys: [key],
    mode: "exclusive",
    ttl: Duration.seconds(15),
    fair: false,
    waiting: false,
    holder: { session: "bench", metadata: {} }
  })
  ask(contention.attempt({ token: `pair-${tokens++}`, left: Duration.seconds(5) }), (answer) => {
    if (answer._tag !== "Grant") throw new Error(`${key.key}: ${answer._tag}`)
    ask(driver.release(answer), done)
  })
}

/** So many times, one after the other. */
export const inTurn = (step: Step, times: number): Promise<void> =>
  new Promise((resolve) => {
    const next = (left: number): void => left === 0 ? resolve() : step(() => next(left - 1))
    next(times)
  })

/** Each of them so many times, all at once. */
export const atOnce = (turns: number, pairs: ReadonlyArray<Effect.Effect<unknown, unknown>>) => {
  const program = Effect.forEach(pairs, (pair) => again(pair, turns), { concurrency: "unbounded", discard: true })
  return () => Effect.runPromise(program)
}

/** The same of steps. */
export const stepsAtOnce = (turns: number, steps: ReadonlyArray<Step>) => () =>
  Promise.all(steps.map((step) => inTurn(step, turns)))

/** The time of one turn while so many wait for the same key, from the release that they wait for. */
export const queued = (locking: Locking, waiters: number) => async (): Promise<Time> => {
  const { all, gate } = await Effect.runPromise(Effect.gen(function*() {
    const gate = yield* Scope.make()
    yield* Scope.extend(locking.acquire("k"), gate)
    const all = yield* Deferred.make<void>()
    let waiting = 0
    let served = 0
    const wait = Effect.suspend(() => {
      waiting++
      return locking.withLock(Effect.void, "k", { waitTimeout: Number.POSITIVE_INFINITY })
    })
    // to await each of them would cost as much as a part of a lock
    const serve = Effect.flatMap(wait, () => ++served === waiters ? Deferred.succeed(all, undefined) : Effect.void)
    yield* Effect.forEach(range(waiters), () => Effect.forkDaemon(serve), { discard: true })
    // to wait in idleness would leave caches cold, which the plain client's are not
    while (waiting < waiters) yield* Effect.yieldNow()
    return { all, gate }
  }))
  return timed(waiters, () => Effect.runPromise(Effect.zipRight(Scope.close(gate, Exit.void), Deferred.await(all))))()
}
