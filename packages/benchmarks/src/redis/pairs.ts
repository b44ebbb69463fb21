/**
 * A lock that nobody else wants: taken and given back, one after the other and many at once, beside the lock that
 * programs make by hand: `SET NX PX`, and a script that compares and deletes.
 */
import * as Effect from "effect/Effect"
import type { Benchmark } from "../figure.js"
import { interleave, median, ratio, repeat, startTimer, type Time, typical } from "../measure.js"
import { atOnce, driverPair, inTurn, queued, range, run, type Step, stepsAtOnce, timed } from "../remote.js"
import * as bench from "./bench.js"

type ByHand = ReturnType<typeof bench.byHand>

const pairs = async ({ give, take }: ByHand, key: string, times: number): Promise<void> => {
  for (let i = 0; i < times; i++) await give(key, await take(key))
}

/** The median of operations that are done one after the other, each of which notes its time. */
const typicalOf = (times: number, all: (walls: Array<number>) => Promise<unknown>) => async (): Promise<Time> => {
  const time = startTimer()
  const walls: Array<number> = []
  await all(walls)
  return { cpu: time().cpu / times, wall: median(walls) }
}

const since = (start: number): number => (performance.now() - start) * 1000

const timedByHand = (times: number, { give, take }: ByHand) => async (walls: Array<number>): Promise<void> => {
  for (let i = 0; i < times; i++) {
    const start = performance.now()
    await give("raw", await take("raw"))
    walls.push(since(start))
  }
}

const timedStep = (times: number, step: Step) => (walls: Array<number>): Promise<void> =>
  inTurn((done) => {
    const start = performance.now()
    step(() => {
      walls.push(since(start))
      done()
    })
  }, times)

const timedEffect = (times: number, effect: Effect.Effect<unknown, unknown>) => (walls: Array<number>) =>
  repeat(
    Effect.suspend(() => {
      const start = performance.now()
      return Effect.map(effect, () => walls.push(since(start)))
    }),
    times
  )

export const uncontended: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const byHand = bench.byHand(yield* bench.raw(url))
    const driver = yield* bench.driver(url)
    const locking = yield* bench.locking(url)
    const key = yield* locking.resolveKey("k")
    const times = 100
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: typicalOf(times, timedByHand(times, byHand)),
        driver: typicalOf(times, timedStep(times, driverPair(driver, key))),
        engine: typicalOf(times, timedEffect(times, locking.withLock(Effect.void, "k")))
      }, seconds)
    )
    const wall = (name: keyof (typeof rounds)[number]) => `${typical(rounds, name, "wall").toFixed(0)} µs`
    return [
      {
        name: "a lock and its release by the driver alone: p50, beside the same by hand",
        value: ratio(rounds, "driver", "raw", "wall"),
        unit: "times",
        target: { atMost: 1.35 },
        note: `one after the other: ${wall("driver")} beside ${wall("raw")}`
      },
      {
        name: "the same by withLock",
        value: ratio(rounds, "engine", "raw", "wall"),
        unit: "times",
        note: wall("engine")
      }
    ]
  }))

const callers = 64

export const joined: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const byHand = bench.byHand(yield* bench.raw(url))
    const driver = yield* bench.driver(url)
    const locking = yield* bench.locking(url)
    const keys = yield* Effect.forEach(range(callers), (i) => locking.resolveKey(`k${i}`))
    // so many that the callers themselves cost little
    const turns = 100
    const times = callers * turns
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(times, () => Promise.all(range(callers).map((i) => pairs(byHand, `raw${i}`, turns)))),
        driver: timed(times, stepsAtOnce(turns, keys.map((key) => driverPair(driver, key)))),
        engine: timed(times, atOnce(turns, keys.map(({ key }) => locking.withLock(Effect.void, key))))
      }, seconds)
    )
    const perSecond = (name: keyof (typeof rounds)[number]) =>
      (1e6 / typical(rounds, name, "wall")).toLocaleString("en-US", { maximumFractionDigits: 0 })
    return [
      {
        name:
          `${callers} callers at once, a lock of its own for each: rate, as a part of that by hand, by the driver alone`,
        value: ratio(rounds, "raw", "driver", "wall"),
        unit: "",
        target: { atLeast: 0.8 },
        note: `${perSecond("driver")} locks per second beside ${perSecond("raw")}`
      },
      {
        name: "the same by withLock",
        value: ratio(rounds, "raw", "engine", "wall"),
        unit: "",
        note: `${perSecond("engine")} locks per second`
      }
    ]
  }))

const waiters = 100

export const waiting: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const byHand = bench.byHand(yield* bench.raw(url))
    const locking = yield* bench.locking(url)
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(waiters, () => pairs(byHand, "raw", waiters)),
        engine: queued(locking, waiters)
      }, seconds)
    )
    const total = (name: keyof (typeof rounds)[number]) =>
      `${(typical(rounds, name, "wall") * waiters / 1000).toFixed(1)} ms`
    return [{
      name: `${waiters} waiters of one process for one key: time for all, as a part of the same turns by hand`,
      value: ratio(rounds, "engine", "raw", "wall"),
      unit: "",
      target: { atMost: 0.4 },
      note: `${total("engine")} beside ${total("raw")}`
    }]
  }))
