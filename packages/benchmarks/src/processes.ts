/**
 * What only several processes can show, beside one that asks the store alone.
 */
import * as Worker from "@effect-locking/testing/Worker"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import { median } from "./measure.js"
import { range } from "./remote.js"
import type { Alternated, Contended, Task } from "./worker.js"

const play = <A>(tasks: ReadonlyArray<Task>) =>
  Effect.gen(function*() {
    const workers = yield* Effect.forEach(tasks, (task) =>
      Worker.spawn(new URL("./worker.js", import.meta.url), {
        args: [JSON.stringify(task)],
        nodeOptions: ["--import", new URL("./published.js", import.meta.url).href],
        watchdog: Duration.minutes(10)
      }))
    const each = <B, E>(step: (worker: Worker.Worker) => Effect.Effect<B, E>) =>
      Effect.forEach(workers, step, { concurrency: "unbounded" })
    yield* each(({ take }) => take)
    yield* each(({ send }) => send("go"))
    return (yield* each(({ take }) => take)) as ReadonlyArray<A>
  }).pipe(Effect.scoped)

type Contention = Omit<Extract<Task, { readonly what: "contend" }>, "what">

/** So many processes with the same task, at once. */
export const contend = (processes: number, task: Contention) =>
  Effect.map(
    play<Contended>(range(processes).map((): Task => ({ ...task, what: "contend" }))),
    (all) => {
      const sum = (count: (one: Contended) => number) => all.reduce((total, one) => total + count(one), 0)
      const grants = sum((_) => _.grants)
      return {
        grants,
        counted: sum((_) => _.counted),
        sent: sum((_) => _.sent),
        unserved: sum((_) => _.unserved),
        longestWait: Math.max(...all.map((_) => _.longestWait)),
        shares: all.map((one) => `${(100 * one.grants / grants).toFixed(0)} %`).join(", ")
      }
    }
  )

/**
 * How long a key is on its way from one process to the other, beside a plain question to the store; medians, in
 * microseconds.
 */
export const alternate = (task: { readonly driver: Task["driver"]; readonly url: string }, options: {
  readonly turns: number
  readonly question: () => Promise<unknown>
}) =>
  Effect.gen(function*() {
    const asked: Array<number> = []
    // at the same time and as seldom, so that the machine's other work and cold caches disturb both
    const ask = Effect.promise(async () => {
      const start = performance.now()
      await options.question()
      asked.push((performance.now() - start) * 1000)
    })
    yield* Effect.forkScoped(Effect.repeat(ask, Schedule.spaced(15)))
    const all = yield* play<Alternated>(
      range(2).map((): Task => ({ ...task, what: "alternate", turns: options.turns }))
    )
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
    return { handoff: median(delays), question: median(asked), times: delays.length }
  })
