/**
 * What locks cost the server, by its own count.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as kit from "./kit.js"

describe("cost", () => {
  it.scopedLive(
    "R6.6 1 000 leases that are held with a ttl of 3 s: at most 20 commands a second",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const locking = yield* kit.node(server.url(), { ttl: "3 seconds" })
        const leases = yield* Effect.forEach(
          Array.from({ length: 1_000 }, (_, i) => `held/${i}`),
          (key) => locking.acquire(key),
          { concurrency: 50 }
        )
        const before = yield* kit.commands(server)
        const start = performance.now()
        yield* Effect.sleep("5 seconds")
        const seconds = (performance.now() - start) / 1_000
        const perSecond = ((yield* kit.commands(server)) - before) / seconds
        const valid = yield* Effect.filter(leases, (lease) => lease.isValid)
        assert.lengthOf(valid, 1_000)
        // all of them were renewed meanwhile, so it was not for nothing
        assert.isAtLeast(perSecond, 1)
        assert.isAtMost(perSecond, 20)
      }),
    60_000
  )
})
