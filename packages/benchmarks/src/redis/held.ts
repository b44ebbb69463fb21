/**
 * What leases cost that are only held: their renewals, many in one command.
 */
import * as Effect from "effect/Effect"
import type { Benchmark } from "../figure.js"
import { run } from "../remote.js"
import * as bench from "./bench.js"

const leases = 1000
const ttl = 3000

export const held: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const client = yield* bench.raw(url)
    const locking = yield* bench.locking(url)
    for (let i = 0; i < leases; i++) {
      yield* locking.acquire(`k${i}`, { ttl })
      // over a third of the ttl, so that each would be due at a moment of its own
      if (i % 10 === 0) yield* Effect.sleep(ttl / 3 * 10 / leases)
    }
    const before = yield* bench.commands(client)
    const time = Math.max(10, seconds) * 1000
    yield* Effect.sleep(time)
    const sent = (yield* bench.commands(client)) - before
    return [{
      name: `${leases} leases that are held, with a ttl of 3 s`,
      value: sent / (time / 1000),
      unit: "commands per second",
      target: { atMost: 20 },
      note: `${sent} commands in ${time / 1000} s`
    }]
  }))
