import * as OverlapOracle from "@effect-locking/testing/OverlapOracle"
import { assert, describe, it } from "@effect/vitest"
import { Array, Effect } from "effect"
import * as kit from "../kit.js"
import * as stress from "./stress.js"

/** How long each run is, in seconds. */
const seconds = Number(process.env["REDIS_STRESS_SECONDS"] ?? 4)

const load: stress.Load = { processes: 4, waiters: 200, keys: 20, seconds, pollInterval: 60_000 }

/** In microseconds. A machine that is busy makes everybody wait, but only what was lost until a poll or a lease's end. */
const patience = 30_000_000

describe("stress", () => {
  for (const isChaotic of [false, true]) {
    it.scopedLive(
      `H1 R3.1 R6.2 R6.4 4 processes with 200 waiters each for 20 keys${
        isChaotic ? ", whose connections are killed at random" : ""
      }`,
      () =>
        Effect.gen(function*() {
          const outcome = yield* stress.run(yield* kit.server, load, { isChaotic })
          const windows = stress.windows(outcome)
          const { counts, violations } = OverlapOracle.judge(windows)
          assert.deepStrictEqual(violations, [])
          // nobody was left out
          assert.isAtLeast(windows.length, load.processes * load.waiters)
          assert.strictEqual(counts.windows, windows.length, "each turn has a fence of its own")
          for (const turns of Object.values(Array.groupBy(windows, ({ key }) => key))) {
            const fences = turns.toSorted((a, b) => a.from - b.from).map(({ fence }) => fence)
            assert(fences.every((fence, i) => i === 0 || fence > fences[i - 1]!), `the fences of ${turns[0].key} rise`)
          }
          assert.isBelow(stress.longestStall(outcome), patience, "µs in which a key was free and wanted")
          assert.isBelow(outcome.end - outcome.stop, patience, "µs until the last who waited was served")
          const [least = 1] = stress.shares(outcome)
          assert.isAtLeast(least, 0.2, "of its fair share, in some second")
          assert.strictEqual(outcome.left, 0)
          if (isChaotic) return assert.isAtLeast(outcome.killed, 2 * seconds)
          assert.isAtMost(outcome.commands / windows.length, 6, "commands for each turn")
          assert.isAtMost(outcome.connections, 2 * load.processes)
        }),
      (seconds + 110) * 1000
    )
  }
})
