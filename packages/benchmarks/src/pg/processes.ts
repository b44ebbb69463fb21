/**
 * What only several processes can show: how many statements a grant costs that others want too, and how long a key is
 * on its way from one process to the next.
 */
import * as Worker from "@effect-locking/testing/Worker"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type { Benchmark, Figure } from "../figure.js"
import { median } from "../measure.js"
import * as bench from "./bench.js"
import type { Alternated, Contended, Task } from "./worker.js"

const play = <A>(tasks: ReadonlyArray<Task>) =>
  Effect.gen(function*() {
    const workers = yield* Effect.forEach(tasks, (task) =>
      Worker.spawn(new URL("./worker.js", import.meta.url), {
        args: [JSON.stringify(task)],
        nodeOptions: ["--import", new URL("../published.js", import.meta.url).href],
        watchdog: Duration.minutes(10)
      }))
    const each = <B, E>(step: (worker: Worker.Worker) => Effect.Effect<B, E>) =>
      Effect.forEach(workers, step, { concurrency: "unbounded" })
    yield* each(({ take }) => take)
    yield* each(({ send }) => send("go"))
    return (yield* each(({ take }) => take)) as ReadonlyArray<A>
  }).pipe(Effect.scoped)

const processes = 4

export const contended: Benchmark = ({ seconds }) =>
  bench.run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const cost = (keys: number, callers: number, figure: Pick<Figure, "name" | "target">) =>
      Effect.map(
        play<Contended>(
          bench.range(processes).map(() => ({ url, what: "contend", callers, keys, seconds: seconds / 3 }))
        ),
        (all): Figure => {
          const sum = (count: (one: Contended) => number) => all.reduce((total, one) => total + count(one), 0)
          const grants = sum((_) => _.grants)
          return {
            value: sum((_) => _.statements) / grants,
            unit: "statements",
            note: `${(grants / (seconds / 3)).toFixed(0)} grants per second, by process ${
              all.map((one) => `${(100 * one.grants / grants).toFixed(0)} %`).join(", ")
            }`,
            ...figure
          }
        }
      )
    return [
      yield* cost(1, 50, {
        name: `a grant and its release, ${processes} processes with 50 callers each for one key`,
        target: { atMost: 2.5 }
      }),
      yield* cost(20, 200, {
        name: `the same, 200 callers each for 20 keys`,
        target: { atMost: 2.5 }
      }),
      yield* cost(1, 1, { name: "the same, one caller each for one key: nothing to join, nobody to hand over to" })
    ]
  }))

export const handoff: Benchmark = ({ seconds }) =>
  bench.run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const turns = Math.max(20, Math.round(seconds * 20))
    const select: Array<number> = []
    // at the same time and as seldom, so that the machine's other work and cold caches disturb both
    const ask = Effect.promise(async () => {
      const start = performance.now()
      await client.query("select 1")
      select.push((performance.now() - start) * 1000)
    })
    yield* Effect.forkScoped(Effect.repeat(ask, Schedule.spaced(15)))
    const all = yield* play<Alternated>(bench.range(2).map(() => ({ url, what: "alternate", turns })))
    // one after the other: each grant follows a release of the other
    const released = all.map((one) => one.released)
    const delays: Array<number> = []
    for (const [i, { granted }] of all.entries()) {
      for (const at of granted) {
        const before = Math.max(...released[1 - i]!.filter((time) => time < at))
        const own = Math.max(...released[i]!.filter((time) => time < at))
        if (before > own) delays.push(at - before)
      }
    }
    return [{
      name: "a key on its way from one process to another, p50, beside one SELECT 1",
      value: median(delays) / median(select),
      unit: "times",
      target: { atMost: 20 },
      note: `${(median(delays) / 1000).toFixed(2)} ms beside ${(median(select) / 1000).toFixed(2)} ms, ` +
        `from the end of the section to the beginning of the next, ${delays.length} times`
    }]
  }))
