/**
 * How many statements a grant costs that several processes want, and how long a key is on its way between two.
 */
import * as Effect from "effect/Effect"
import type { Benchmark, Figure } from "../figure.js"
import * as processes from "../processes.js"
import { run } from "../remote.js"
import * as bench from "./bench.js"

const count = 4

export const contended: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const time = seconds / 3
    const cost = (keys: number, callers: number, figure: Pick<Figure, "name" | "target">) =>
      Effect.map(
        processes.contend(count, { driver: "pg", url, callers, keys, seconds: time, hold: 0 }),
        ({ counted, grants, sent, shares }): Figure => ({
          value: sent / grants,
          unit: "statements",
          note: `${(counted / time).toFixed(0)} grants per second, by process ${shares}`,
          ...figure
        })
      )
    return [
      yield* cost(1, 50, {
        name: `a grant and its release, ${count} processes with 50 callers each for one key`,
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
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const { handoff, question, times } = yield* processes.alternate({ driver: "pg", url }, {
      turns: Math.max(20, Math.round(seconds * 20)),
      question: () => client.query("select 1")
    })
    return [{
      name: "a key on its way from one process to another, p50, beside one SELECT 1",
      value: handoff / question,
      unit: "times",
      target: { atMost: 20 },
      note: `${(handoff / 1000).toFixed(2)} ms beside ${(question / 1000).toFixed(2)} ms, ` +
        `from the end of the section to the beginning of the next, ${times} times`
    }]
  }))
