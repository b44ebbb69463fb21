/**
 * A lock that nobody else wants: taken and given back, one after the other and many at once, beside two plain
 * statements of the plain client.
 */
import type { LockDriver, LockKey } from "effect-locking"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import type Pg from "pg"
import type { Benchmark } from "../figure.js"
import { interleave, ratio, repeat, startTimer, type Time, typical } from "../measure.js"
import * as bench from "./bench.js"

/** So many operations, and the time of each of them. */
const timed = (times: number, work: () => Promise<unknown>) => async (): Promise<Time> => {
  const time = startTimer()
  await work()
  const { cpu, wall } = time()
  return { cpu: cpu / times, wall: wall / times }
}

const selects = async (client: Pg.Client, pairs: number): Promise<void> => {
  for (let i = 0; i < pairs; i++) {
    await client.query("select 1")
    await client.query("select 1")
  }
}

let tokens = 0

/** As the engine asks for it, without the engine. */
const driverPair = (driver: LockDriver.LockDriver, name: string): Effect.Effect<unknown, unknown> => {
  const key: LockKey.ResolvedKey = { namespace: "bench", scope: "none", tenant: undefined, key: name, id: name }
  return Effect.suspend(() => {
    const contention = driver.contend({
      keys: [key],
      mode: "exclusive",
      ttl: Duration.seconds(15),
      fair: false,
      waiting: false,
      holder: { session: "bench", metadata: {} }
    })
    return Effect.flatMap(
      contention.attempt({ token: `pair-${tokens++}`, left: Duration.seconds(5) }),
      (answer) => answer._tag === "Grant" ? driver.release(answer) : Effect.die(answer)
    )
  })
}

export const uncontended: Benchmark = ({ seconds }) =>
  bench.run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const driver = yield* bench.driver(url)
    const locking = yield* bench.locking(url)
    const times = 100
    const withLock = locking.withLock(Effect.void, "k")
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(times, () => selects(client, times)),
        driver: timed(times, () => repeat(driverPair(driver, "k"), times)),
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
  bench.run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const sent: bench.Sent = { statements: 0 }
    const driver = yield* bench.driver(url)
    const locking = yield* bench.locking(url, sent)
    const turns = 10
    const times = callers * turns
    const all = (pairOf: (key: string) => Effect.Effect<unknown, unknown>) => {
      const caller = (i: number) => Effect.repeatN(pairOf(`k${i}`), turns - 1)
      const program = Effect.forEach(bench.range(callers), caller, { concurrency: "unbounded", discard: true })
      return () => Effect.runPromise(program)
    }
    let pairs = 0
    const before = sent.statements
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(times, () => Promise.all(bench.range(callers).map(() => selects(client, turns)))),
        driver: timed(times, all((key) => driverPair(driver, key))),
        engine: timed(times, all((key) => locking.withLock(Effect.sync(() => pairs++), key)))
      }, seconds)
    )
    const perSecond = (name: keyof (typeof rounds)[number]) =>
      (1e6 / typical(rounds, name, "wall")).toLocaleString("en-US", { maximumFractionDigits: 0 })
    return [
      {
        name: `${callers} callers at once, a lock of its own for each: rate, beside two SELECT 1 for each`,
        value: ratio(rounds, "raw", "engine", "wall"),
        unit: "times",
        target: { atLeast: 8 },
        note: `${perSecond("engine")} locks beside ${perSecond("raw")} pairs of statements per second, all of one ` +
          `client; ${((sent.statements - before) / pairs).toFixed(3)} statements for a lock and its release`
      },
      {
        name: "the same by the driver alone",
        value: ratio(rounds, "raw", "driver", "wall"),
        unit: "times",
        target: { atLeast: 8 },
        note: `${perSecond("driver")} locks per second`
      }
    ]
  }))

const waiters = 100

export const waiting: Benchmark = ({ seconds }) =>
  bench.run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const locking = yield* bench.locking(url)
    const engine = async (): Promise<Time> => {
      const { callers, gate } = await Effect.runPromise(Effect.gen(function*() {
        const gate = yield* Scope.make()
        yield* Scope.extend(locking.acquire("k"), gate)
        const callers = yield* Effect.forEach(bench.range(waiters), () =>
          Effect.forkDaemon(locking.withLock(Effect.void, "k", { waitTimeout: Number.POSITIVE_INFINITY })))
        // until all of them wait
        yield* Effect.sleep(20)
        return { callers, gate }
      }))
      return timed(waiters, () =>
        Effect.runPromise(
          Effect.zipRight(
            Scope.close(gate, Exit.void),
            Effect.forEach(callers, (caller) =>
              caller.await, { discard: true })
          )
        ))()
    }
    const rounds = yield* Effect.promise(() =>
      interleave({
        raw: timed(waiters, async () => {
          for (let i = 0; i < waiters; i++) {
            await client.query("select pg_advisory_lock(1)")
            await client.query("select pg_advisory_unlock(1)")
          }
        }),
        engine
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
