/**
 * Processes that lock, believe and write while everything around them fails; and what came of it. Nothing here knows what
 * the store is.
 */
import * as History from "@effect-locking/testing/History"
import type { Violation } from "@effect-locking/testing/OverlapOracle"
import * as Worker from "@effect-locking/testing/Worker"
import { Cause, Duration, Effect, Exit, Fiber, Option, Predicate, type Scope } from "effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as nemesis from "./nemesis.js"
import * as register from "./register.js"
import * as seating from "./seats.js"
import { judge, type Judged, type Story } from "./verdict.js"
import type { Task, Told } from "./work.js"

export interface Plan<Options> {
  readonly seed: number
  /** The least; it goes on until there were enough grants, and each fault at least once. */
  readonly seconds: number
  /** A program that calls `work`, as one file. */
  readonly worker: Effect.Effect<string, never, Scope.Scope>
  /** Where the store listens, and where a process finds it behind a proxy. */
  readonly port: number
  readonly url: (port: number) => string
  readonly options: Options
  /** Of the leases, in milliseconds. */
  readonly ttl: number
  readonly ofProcesses: ReadonlyArray<nemesis.Fault<nemesis.Seat>>
  readonly ofStore: ReadonlyArray<nemesis.Fault<void>>
  readonly guarded?: boolean
  readonly processes?: number
  readonly keys?: number
  readonly callers?: number
  readonly leastLeases?: number
  /** How many sections are long, and in milliseconds how long at most. */
  readonly long?: Task["long"]
  /** A run that is to show these goes on until they were seen instead. */
  readonly expected?: ReadonlyArray<Violation["what"]>
}

/** How long a busy machine may take for what has no reason to wait. */
const patience = Duration.seconds(60)

const within = <A, E, R>(what: string, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.timeoutFailCause(Effect.disconnect(effect), {
    duration: patience,
    onTimeout: () => Cause.die(new Error(`not within ${Duration.format(patience)}: ${what}`))
  })

const isTold =
  <Tag extends Told["_tag"]>(tag: Tag) => (value: unknown): value is Extract<Told, { readonly _tag: Tag }> =>
    Predicate.isTagged(value, tag)

const isEntered = isTold("entered")

/** Ends when there was enough torment, and everybody is at work under no fault. */
export const run = <Options>(plan: Plan<Options>) =>
  Effect.gen(function*() {
    const {
      callers = 4,
      expected,
      guarded = true,
      keys = 4,
      leastLeases = 60,
      long = { share: 0.2, longest: 1200 },
      seconds,
      seed
    } = plan
    const file = yield* plan.worker
    const resource = yield* register.make
    const { lives, seats } = yield* seating.make({
      places: plan.processes ?? 4,
      port: plan.port,
      start: ({ generation, name, place, port }) => {
        const task: Task<Options> = {
          name,
          keys,
          callers,
          long,
          guarded,
          seed: seed * 1000 + place * 100 + generation,
          url: plan.url(port),
          register: resource.port,
          options: plan.options
        }
        return Worker.spawn(file, { args: [JSON.stringify(task)], watchdog: Duration.seconds(seconds * 3 + 300) })
      }
    })
    const each = <A, E>(step: (seat: seating.Seat) => Effect.Effect<A, E>) =>
      Effect.forEach(seats, step, { concurrency: "unbounded" })
    yield* within("everybody starts", each(({ life }) => life().worker.takeUntil(isTold("ready"))))

    const forgotten: Array<nemesis.Forgotten> = []
    const stopped: Array<nemesis.Stopped> = []
    const happened: Array<nemesis.Happened> = []
    const stories = Effect.forEach(lives, ({ killedAt, name, worker }) =>
      Effect.map(worker.written, (told): Story => ({ process: name, told: told as ReadonlyArray<Told>, killedAt })))
    const judged = (maxSteps: number): Effect.Effect<Judged> =>
      Effect.zipWith(stories, resource.writes, (all, writes) =>
        judge(all, writes, { forgotten, stopped }, plan.ttl, maxSteps))
    const faults = [...plan.ofProcesses, ...plan.ofStore].map(({ name }) =>
      name
    )

    // no look at the verdict here: the network is in this process, and would wait for it
    const hasHappened = Effect.map(stories, (all) => {
      const leases = all.reduce((sum, { told }) =>
        sum + told.filter(isEntered).length, 0)
      return leases >= leastLeases && faults.every((name) =>
        happened.some(({ fault }) =>
          fault === name
        )
      )
    })
    // seen twice: what a process wrote last may not have been read yet at the first look
    let sightings = 0
    const isSeen = Effect.map(judged(100), ({ violations }) => {
      const isThere = expected?.every((what) => violations.some((violation) => violation.what === what))
      sightings = isThere === true ? sightings + 1 : 0
      return sightings >= 2
    })

    let isOver = false
    const start = History.now()
    const tormenting = yield* Effect.fork(nemesis.torment({
      seed,
      seats,
      ofProcesses: plan.ofProcesses,
      ofStore: plan.ofStore,
      onForgotten: (one) => forgotten.push(one),
      onStopped: (one) => stopped.push(one),
      onHappened: (one) => happened.push(one),
      isOver: () => isOver
    }))
    yield* Effect.sleep(Duration.seconds(seconds))
    // what has not happened by then the test misses
    const isEnough = expected === undefined ? hasHappened : isSeen
    // who has died torments nobody any more, and tells why when it is joined
    const isDead = Effect.map(Fiber.poll(tormenting), Option.exists(Exit.isFailure))
    yield* Effect.delay(Effect.zipWith(isDead, isEnough, (dead, enough) => dead || enough), 200).pipe(
      Effect.repeat({ until: (isDone) => isDone }),
      Effect.timeoutOption(patience)
    )
    isOver = true
    yield* within("the last faults end", Fiber.join(tormenting))

    /** All is well again, so everybody gets to work again; and then ends by itself. */
    const recovered = Effect.gen(function*() {
      yield* each(({ proxy, thaw }) => Effect.zipRight(thaw, proxy.heal))
      const healed = History.now()
      const isAfter = (value: unknown): value is Told => isEntered(value) && value.at > healed
      yield* within("everybody works again", each(({ life }) => life().worker.takeUntil(isAfter)))
      yield* each(({ life }) => life().worker.send("stop"))
      return yield* within("everybody ends", each(({ life }) => life().worker.ended))
    })

    return {
      seed,
      seconds: Math.round((History.now() - start) / 1e6),
      faults: faults.map((name) => [name, happened.filter(({ fault }) => fault === name).length] as const),
      recovered,
      judged: judged(expected === undefined ? 500_000 : 100),
      /** What the processes wrote that they should not. */
      errors: Effect.map(
        Effect.forEach(lives, ({ worker }) => worker.errors),
        (errors) => errors.filter((text) => text !== "")
      ),
      /** For those who look for the cause. */
      record: Effect.map(
        Effect.zip(stories, resource.writes),
        ([stories, writes]) => ({ stories, writes, forgotten, stopped, happened })
      )
    }
  })

export type Run = Effect.Effect.Success<ReturnType<typeof run>>

/** What a reader of the log wants to know. */
export const summary = ({ faults, seconds, seed }: Run, { figures, outcomes }: Judged): string =>
  `chaos, seed ${seed}, ${seconds} s: ${faults.reduce((sum, [, count]) => sum + count, 0)} faults, ${
    [figures, outcomes].flatMap((of) => Object.entries(of).map(([name, count]) => `${count} ${name}`)).join(", ")
  }`

/** Keeps what there is to look at, and says where. */
export const keep = ({ record, seed }: Run, { violations }: Judged): Effect.Effect<string> =>
  Effect.map(record, (record) => {
    const file = path.join(os.tmpdir(), `effect-locking-chaos-${seed}.json`)
    fs.writeFileSync(
      file,
      JSON.stringify({ violations, ...record }, (_, value) => typeof value === "bigint" ? String(value) : value)
    )
    return file
  })
