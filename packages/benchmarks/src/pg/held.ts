/**
 * What leases cost that are only held: the beats of their session, which renew all of them.
 */
import * as Effect from "effect/Effect"
import type { Benchmark } from "../figure.js"
import { run, type Sent } from "../remote.js"
import * as bench from "./bench.js"

const leases = 400

export const held: Benchmark = ({ seconds }) =>
  run(Effect.gen(function*() {
    const url = (yield* bench.server).url()
    const sent: Sent = { count: 0 }
    const locking = yield* bench.locking(url, sent)
    // over more than a third of the ttl, so that each would be due at a moment of its own
    const spread = 6000
    for (let i = 0; i < leases; i++) {
      yield* locking.acquire(`k${i}`)
      yield* Effect.sleep(spread / leases)
    }
    const before = sent.count
    const time = Math.max(10, seconds) * 1000
    yield* Effect.sleep(time)
    return [{
      name: `${leases} leases that are held, with a ttl of 15 s`,
      value: (sent.count - before) / (time / 1000),
      unit: "statements per second",
      target: { atMost: 2 },
      note: `${sent.count - before} statements in ${time / 1000} s`
    }]
  }))
