/**
 * What befalls the processes of a run and their ways to the store, in an order that a seed decides; what befalls the
 * store itself is told by the store's own part.
 */
import * as History from "@effect-locking/testing/History"
import type * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { Effect } from "effect"
import { type Random, random } from "./random.js"

/**
 * The store was made to forget what a process holds, at some time between `from` and `until`, and the process may not
 * know: from then on nothing is promised to it.
 */
export interface Forgotten {
  readonly process: string
  readonly from: number
  readonly until: number
}

/**
 * The store was stopped in such a way that its sessions end one by one: what one of them held another may be granted in
 * its last moment, and a holder who is cut off does not hear of it. Nothing is promised of grants of that time.
 */
export interface Stopped {
  readonly from: number
  readonly until: number
}

/** A process of the run, and its way to the store. */
export interface Seat {
  /** Of the process. */
  readonly name: () => string
  readonly proxy: TcpProxy.TcpProxy
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /** SIGKILL; another process takes its place after a while. */
  readonly replace: (afterMillis: number) => Effect.Effect<void>
}

export interface Stage {
  readonly random: Random
  /** Runs what makes the store forget a process. */
  readonly forgetting: <A, E, R>(process: string, fault: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Runs what stops the store so that its sessions end one by one. */
  readonly stopping: <A, E, R>(fault: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

export interface Fault<in Target> {
  readonly name: string
  readonly run: (target: Target, stage: Stage) => Effect.Effect<void>
}

/** In milliseconds. */
const aWhile = ({ random }: Stage): number => random.between(100, 1500)

/** From a fault until the way is whole again. */
const during = (name: string, fault: (seat: Seat, stage: Stage) => Effect.Effect<unknown>): Fault<Seat> => ({
  name,
  run: (seat, stage) =>
    Effect.zipRight(fault(seat, stage), Effect.sleep(aWhile(stage))).pipe(Effect.ensuring(seat.proxy.heal))
})

const directions = [undefined, "toServer", "toClient"] as const

/**
 * Of processes and their ways. `isSession`: what a process holds ends with its connection, as far as the store is
 * concerned.
 */
export const ofProcesses = (isSession: boolean): ReadonlyArray<Fault<Seat>> => {
  const ends = (seat: Seat, { forgetting }: Stage, fault: Effect.Effect<unknown>) =>
    isSession ? forgetting(seat.name(), fault) : fault
  return [
    {
      name: "freeze",
      run: (seat, stage) => Effect.zipRight(seat.freeze, Effect.sleep(aWhile(stage))).pipe(Effect.ensuring(seat.thaw))
    },
    { name: "kill", run: (seat, stage) => seat.replace(stage.random.between(50, 500)) },
    ...directions.map((direction) => during(`pause ${direction ?? "both"}`, ({ proxy }) => proxy.pause({ direction }))),
    ...directions.map((direction) =>
      during(`black hole ${direction ?? "both"}`, ({ proxy }) => proxy.blackHole({ direction }))
    ),
    during("cut", (seat, stage) => ends(seat, stage, seat.proxy.cut())),
    during("half close client", ({ proxy }) => proxy.halfClose("client")),
    during("half close server", (seat, stage) => ends(seat, stage, seat.proxy.halfClose("server"))),
    during("latency", ({ proxy }, { random }) => proxy.delay(random.between(20, 300))),
    during("jitter", ({ proxy }, { random }) =>
      Effect.zipRight(
        proxy.delay(random.between(5, 100), { direction: "toClient" }),
        proxy.delay(random.between(5, 250), { direction: "toServer" })
      )),
    during(
      "drop reply",
      (seat, stage) => ends(seat, stage, Effect.timeoutOption(Effect.flatten(seat.proxy.dropNextReply()), 1000))
    ),
    during(
      "drop request",
      (seat, stage) => ends(seat, stage, Effect.timeoutOption(Effect.flatten(seat.proxy.dropNextRequest()), 1000))
    ),
    {
      name: "freeze while cut off",
      run: (seat, stage) =>
        seat.proxy.pause().pipe(
          Effect.zipRight(seat.freeze),
          Effect.zipRight(Effect.sleep(aWhile(stage))),
          Effect.zipRight(seat.thaw),
          Effect.zipRight(Effect.sleep(stage.random.between(50, 500))),
          Effect.ensuring(Effect.zipRight(seat.thaw, seat.proxy.heal))
        )
    }
  ]
}

/** What happened, for people and for the count. */
export interface Happened {
  readonly fault: string
  readonly to: string
  readonly from: number
  readonly until: number
}

/** What happens on one side of the world, one thing after the other, until the end. */
interface Side {
  readonly random: Random
  readonly step: (stage: Stage) => Effect.Effect<void>
}

/** One after the other, and from the start again. */
const cycle = <A>(all: ReadonlyArray<A>, from = 0): () => A => {
  let at = from
  return () => all[at++ % all.length]!
}

/**
 * Torments until it is over, and then only until what is under way has ended: the seats from two sides, and the store.
 * One seat suffers one fault at a time, so that what heals one does not heal another.
 */
export const torment = (options: {
  readonly seed: number
  readonly seats: ReadonlyArray<Seat>
  readonly ofProcesses: ReadonlyArray<Fault<Seat>>
  readonly ofStore: ReadonlyArray<Fault<void>>
  readonly onForgotten: (forgotten: Forgotten) => void
  readonly onStopped: (stopped: Stopped) => void
  readonly onHappened: (happened: Happened) => void
  readonly isOver: () => boolean
}): Effect.Effect<void> => {
  const { ofProcesses, ofStore, seats, seed } = options
  const timed = <A, E, R>(
    fault: Effect.Effect<A, E, R>,
    onEnd: (time: { readonly from: number; readonly until: number }) => void
  ) =>
    Effect.suspend(() => {
      const from = History.now()
      return Effect.ensuring(fault, Effect.sync(() => onEnd({ from, until: History.now() })))
    })
  const forgetting: Stage["forgetting"] = (process, fault) =>
    timed(fault, (time) => options.onForgotten({ process, ...time }))
  const stopping: Stage["stopping"] = (fault) => timed(fault, options.onStopped)
  const told = <Target>(fault: Fault<Target>, target: Target, to: string, stage: Stage) =>
    Effect.suspend(() => {
      const from = History.now()
      return Effect.zipRight(
        fault.run(target, stage),
        Effect.sync(() => options.onHappened({ fault: fault.name, to, from, until: History.now() }))
      )
    })

  const order = random(seed).shuffled(ofProcesses)
  const half = Math.ceil(seats.length / 2)
  const ofSeats = (own: ReadonlyArray<Seat>, number: number): Side => {
    // the two sides go through the same faults, half a round apart
    const next = cycle(order, Math.floor(order.length / 2) * number)
    return {
      random: random(seed + 1 + number),
      step: (stage) => {
        const fault = next()
        const victims = stage.random.chance(0.25) ? own : [stage.random.pick(own)]
        return Effect.zipRight(
          Effect.forEach(victims, (seat) => told(fault, seat, seat.name(), stage), {
            concurrency: "unbounded",
            discard: true
          }),
          Effect.sleep(stage.random.between(100, 500))
        )
      }
    }
  }
  const nextOfStore = cycle(random(seed).shuffled(ofStore))
  const sides: ReadonlyArray<Side> = [
    ...(ofProcesses.length === 0 ? [] : [ofSeats(seats.slice(0, half), 0), ofSeats(seats.slice(half), 1)]),
    ...(ofStore.length === 0 ? [] : [{
      random: random(seed + 3),
      step: (stage: Stage) =>
        Effect.zipRight(
          // all of them get something done in between
          Effect.sleep(stage.random.between(1000, 2000)),
          Effect.suspend(() => told(nextOfStore(), undefined, "the store", stage))
        )
    }])
  ]
  return Effect.forEach(
    sides,
    ({ random, step }) =>
      Effect.repeat(Effect.suspend(() => step({ random, forgetting, stopping })), { until: options.isOver }),
    {
      concurrency: "unbounded",
      discard: true
    }
  )
}
