/**
 * What a lock gives that several processes want, and how long a key is on its way between two.
 */
import * as Effect from "effect/Effect"
import type { Benchmark } from "../figure.js"
import { startTimer } from "../measure.js"
import * as processes from "../processes.js"
import { run } from "../remote.js"
import * as bench from "./bench.js"

const count = 3
const callers = 30
const hold = 1

export const contended: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const { give, take } = bench.byHand(client)
    // as fast as the lock can go round: one after the other, nobody waits for it
    const alone = Effect.gen(function*() {
      const turns = 200
      const time = startTimer()
      for (let i = 0; i < turns; i++) {
        const token = yield* Effect.promise(() => take("raw"))
        yield* Effect.sleep(hold)
        yield* Effect.promise(() => give("raw", token))
      }
      return turns / (time().wall / 1e6)
    })
    const before = yield* alone
    const sentBefore = yield* bench.commands(client)
    const { counted, grants, longestWait, shares, unserved } = yield* processes.contend(count, {
      driver: "redis",
      url,
      callers,
      keys: 1,
      seconds,
      hold
    })
    const sent = (yield* bench.commands(client)) - sentBefore
    const raw = (before + (yield* alone)) / 2
    const rate = counted / seconds
    const round = 1000 * count * callers / rate
    return [
      {
        name: `${count} processes with ${callers} callers each, who hold one key for 1 ms: rate, beside one by hand`,
        value: rate / raw,
        unit: "",
        target: { atLeast: 0.8 },
        note: `${rate.toFixed(0)} beside ${raw.toFixed(0)} per second, by process ${shares}`
      },
      { name: "callers who never got it", value: unserved, unit: "", target: { atMost: 0 } },
      {
        name: "the longest wait, beside the time in which each could have had one turn",
        value: longestWait / round,
        unit: "",
        target: { atMost: 1.5 },
        note: `${longestWait.toFixed(0)} ms beside ${round.toFixed(0)} ms`
      },
      {
        name: "commands for a grant and its release",
        value: sent / grants,
        unit: "commands",
        target: { atMost: 6 }
      }
    ]
  }))

export const handoff: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const { handoff, question, times } = yield* processes.alternate({ driver: "redis", url }, {
      turns: Math.max(20, Math.round(seconds * 20)),
      question: () => client.ping()
    })
    return [{
      name: "a key on its way from one process to another, p50, beside one PING",
      value: handoff / question,
      unit: "times",
      target: { atMost: 8 },
      note: `${(handoff / 1000).toFixed(2)} ms beside ${(question / 1000).toFixed(2)} ms, ` +
        `from the end of the section to the beginning of the next, ${times} times`
    }]
  }))
