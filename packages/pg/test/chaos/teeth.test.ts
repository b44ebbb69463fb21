/**
 * The judge of the chaos runs has teeth: each of these drivers breaks one promise, and it is seen.
 */
import type { Violation } from "@effect-locking/testing/OverlapOracle"
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { assert, describe, it } from "@effect/vitest"
import { Console, Effect } from "effect"
import * as chaos from "./chaos.js"
import type { Fault, Seat } from "./nemesis.js"
import { options, plan } from "./postgres.js"
import type { Options } from "./worker.js"

const seed = 7

/** Longer than the server waits for a word. */
const longPartition: Fault<Seat> = {
  name: "long partition",
  run: ({ proxy }) => Effect.zipRight(proxy.pause(), Effect.sleep(1800)).pipe(Effect.ensuring(proxy.heal))
}

describe("the judge of the chaos sees", () => {
  const sees = (
    name: string,
    expected: ReadonlyArray<Violation["what"]>,
    change: (server: PostgresServer.PostgresServer) => Partial<chaos.Plan<Options>>
  ) =>
    it.scopedLive(
      name,
      () =>
        Effect.gen(function*() {
          const server = yield* PostgresServer.make()
          const run = yield* chaos.run({
            ...plan(server, seed, 0),
            keys: 6,
            callers: 6,
            ofProcesses: [],
            ofStore: [],
            ...change(server),
            expected
          })
          const judged = yield* run.judged
          yield* Console.info(`${name}: ${chaos.summary(run, judged)}`)
          for (const what of expected) assert.include(judged.violations.map(({ what }) => what), what)
        }),
      180_000
    )

  sees(
    "R7.2 R3.3 a driver that does not hear of the end of its session, and a resource that looks at no fences",
    ["overlap", "stale-write"],
    () => ({
      options: { ...options, broken: "deaf" },
      guarded: false,
      long: { share: 0.7, longest: 3000 },
      ofProcesses: [longPartition]
    })
  )
  sees("R1.1 a driver that gives back what it has just granted", ["overlap"], () => ({
    options: { ...options, broken: "leaky" }
  }))
  sees("R3.1 a driver that repeats the fences of other processes", ["fence"], () => ({
    options: { ...options, broken: "counting" }
  }))
  sees(
    "R7.2 a driver that does not wait for those who were cut off when the server restarted",
    ["overlap"],
    (server) => ({
      options: { ...options, sessionTtl: 3000, ttl: 3000, restartQuarantine: false },
      ttl: 3000,
      long: { share: 0.7, longest: 5000 },
      ofProcesses: plan(server, seed, 0).ofProcesses.filter(({ name }) => name === "restart behind a partition")
    })
  )
})
