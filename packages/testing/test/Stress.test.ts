import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect } from "effect"
import * as Stress from "../src/Stress.js"

const worker = new URL("./fixtures/stressed.ts", import.meta.url)

describe("Stress", () => {
  it.scopedLive("R8.5 one process alone: no violation, everybody is served", () =>
    Effect.gen(function*() {
      const verdict = yield* Stress.run(worker, {
        store: "none",
        processes: 1,
        callers: 20,
        keys: 5,
        duration: "2500 millis"
      })
      assert.deepStrictEqual(verdict.violations, [])
      assert.isAtLeast(verdict.turns, 20)
      assert(Duration.lessThan(verdict.drained, Duration.seconds(20)))
      // alone it has all of every second, unless the machine let it run in none
      assert(verdict.shares.every((share) => share === 1))
    }), 60_000)

  it.scopedLive("R8.5 has teeth: processes that do not exclude each other are found", () =>
    Effect.gen(function*() {
      const { violations } = yield* Stress.run(worker, {
        store: "none",
        processes: 2,
        callers: 20,
        keys: 2,
        duration: "2 seconds"
      })
      assert.include(violations.map(({ what }) => what), "overlap")
    }), 60_000)
})
