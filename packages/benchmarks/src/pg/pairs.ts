/**
 * A lock that nobody else wants: taken and given back, one after the other and many at once, beside two plain
 * statements of the plain client.
 */
import * as Effect from "effect/Effect"
import type Pg from "pg"
import type { Benchmark } from "../figure.js"
import { interleave, ratio, repeat, typical } from "../measure.js"
import { atOnce, driverPair, inTurn, queued, range, run, type Sent, stepsAtOnce, timed } from "../remote.js"
import * as bench from "./bench.js"

const selects = async (client: Pg.Client, pairs: number): Promise<void> => {
  for (let i = 0; i < pairs; i++) {
    await client.query("select 1")
    await client.query("select 1")
  }
}

export const uncontended: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const driver = yield* bench.driver(url)
    const locking = yield* bench.locking(url)
    const key = yield* locking.resolveKey("k")
    const times = 100
    const withLock = locking.withLock(Effect.void, "k")
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(times, () => selects(client, times)),
        driver: timed(times, () => inTurn(driverPair(driver, key), times)),
        engine: timed(times, () => repeat(withLock, times))
      }, seconds)
    )
    const wall = (name: keyof (typeof rounds)[number]) => `${typical(rounds, name, "wall").toFixed(0)} µs`
    return [
      {
        name: "a lock and its release by withLock: rate, as a part of that of two SELECT 1",
        value: ratio(rounds, "raw", "engine", "wall"),
        unit: "",
        target: { atLeast: 0.6 },
        note: `one after the other: ${wall("engine")} beside ${wall("raw")}`
      },
      {
        name: "the same by the driver alone",
        value: ratio(rounds, "raw", "driver", "wall"),
        unit: "",
        target: { atLeast: 0.8 },
        note: `${wall("driver")}`
      }
    ]
  }))

const callers = 64

export const joined: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const sent: Sent = { count: 0 }
    const driver = yield* bench.driver(url)
    const locking = yield* bench.locking(url, sent)
    const keys = yield* Effect.forEach(range(callers), (i) => locking.resolveKey(`k${i}`))
    // so many that the callers themselves cost little
    const turns = 100
    const times = callers * turns
    let pairs = 0
    const before = sent.count
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(turns * 10, () => selects(client, turns * 10)),
        driver: timed(times, stepsAtOnce(turns, keys.map((key) => driverPair(driver, key)))),
        engine: timed(times, atOnce(turns, keys.map(({ key }) => locking.withLock(Effect.sync(() => pairs++), key))))
      }, seconds)
    )
    const perSecond = (name: keyof (typeof rounds)[number]) =>
      (1e6 / typical(rounds, name, "wall")).toLocaleString("en-US", { maximumFractionDigits: 0 })
    const name = `${callers} callers at once, a lock of its own for each: rate, beside two SELECT 1 one after the other`
    return [
      {
        name: `${name}, by the driver alone`,
        value: ratio(rounds, "raw", "driver", "wall"),
        unit: "times",
        target: { atLeast: 8 },
        note: `${perSecond("driver")} locks beside ${
          perSecond("raw")
        } pairs of statements per second, all of one client`
      },
      {
        name: "the same by withLock",
        value: ratio(rounds, "raw", "engine", "wall"),
        unit: "times",
        note:
          `${perSecond("engine")} locks per second, ${((sent.count - before) / pairs).toFixed(3)} statements for a ` +
          "lock and its release; one thread makes so many fibers, sections and leases"
      }
    ]
  }))

const waiters = 100

export const waiting: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const locking = yield* bench.locking(url)
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(waiters, async () => {
          for (let i = 0; i < waiters; i++) {
            await client.query("select pg_advisory_lock(1)")
            await client.query("select pg_advisory_unlock(1)")
          }
        }),
        engine: queued(locking, waiters)
      }, seconds)
    )
    const total = (name: keyof (typeof rounds)[number]) =>
      `${(typical(rounds, name, "wall") * waiters / 1000).toFixed(1)} ms`
    return [{
      name: `${waiters} waiters of one process for one key: time for all, as a part of the same turns by SQL`,
      value: ratio(rounds, "engine", "raw", "wall"),
      unit: "",
      target: { atMost: 0.4 },
      note: `${total("engine")} beside ${total("raw")} for ${waiters} times pg_advisory_lock and pg_advisory_unlock, ` +
        "one after the other on one client"
    }]
  }))
