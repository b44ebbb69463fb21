import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { assert, describe, it } from "@effect/vitest"
import { Array, Console, Effect } from "effect"
import { backends, nothingHeld, until } from "../faults/kit.js"
import * as chaos from "./chaos.js"
import { plan } from "./postgres.js"

/** So many more runs, each with a seed that nobody has seen. */
const runs = Number(process.env["PG_CHAOS_RUNS"] ?? 1)
/** How long each is at least. */
const seconds = Number(process.env["PG_CHAOS_SECONDS"] ?? 8)
/** Repeats a run instead, as far as the machine does. */
const given = process.env["PG_CHAOS_SEED"]

const fresh = Date.now() % 1_000_000
const seeds = given === undefined ? [1002, ...Array.makeBy(runs, (i) => fresh + i)] : [Number(given)]

/** Calls may end so, and not otherwise. */
const expected = [
  "ok",
  "LockBusy",
  "WaitTimeout",
  "LeaseLost",
  "ProviderFailed",
  "OutcomeUnknown",
  "start: ProviderFailed"
]

describe("chaos", () => {
  for (const seed of seeds) {
    const replay = `PG_CHAOS_SEED=${seed} PG_CHAOS_SECONDS=${seconds} pnpm vitest run --project pg chaos/chaos.test`

    it.scopedLive(
      `R3.1 R7.2 4 processes, their ways and their server fail in every way at once, seed ${seed}`,
      () =>
        Effect.gen(function*() {
          const server = yield* PostgresServer.make()
          const run = yield* chaos.run(plan(server, seed, seconds))
          const recovered = yield* Effect.exit(run.recovered)
          const judged = yield* run.judged
          yield* Console.info(chaos.summary(run, judged))
          if (judged.violations.length > 0) yield* Console.error(`all that happened: ${yield* chaos.keep(run, judged)}`)
          assert.deepStrictEqual(judged.violations, [])
          assert.deepStrictEqual(Object.keys(judged.outcomes).filter((name) => !expected.includes(name)), [])
          // enough has happened
          assert.isAtLeast(judged.figures.leases, 60)
          for (const [fault, count] of run.faults) assert.isAtLeast(count, 1, fault)
          // nobody is stuck, and nothing is left
          for (const { code } of yield* recovered) assert.strictEqual(code, 0)
          assert.deepStrictEqual(yield* run.errors, [])
          yield* nothingHeld(server)
          yield* until("no session is left", Effect.map(backends(server), ({ length }) => length === 0))
        }).pipe(Effect.tapErrorCause(() => Console.error(`to repeat it: ${replay}`))),
      (seconds + 240) * 1000
    )
  }
})
