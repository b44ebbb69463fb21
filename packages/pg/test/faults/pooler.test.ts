/** pgbouncer between the driver and the server. */
import * as PgBouncer from "@effect-locking/testing/PgBouncer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { agent, clock, held, keysHeld, node, nothingHeld, serve, slack, somebodyWaits } from "./kit.js"

const patient = { waitTimeout: "25 seconds" } as const

describe("behind a pooler", () => {
  for (const [pooling, poolSize] of [["transaction", 3], ["transaction", 1], ["statement", 3]] as const) {
    it.scopedLive(
      `B05 R10.4 ${pooling} mode, ${poolSize} sessions: refused with the remedy, and nothing of ours stays on them`,
      () =>
        Effect.gen(function*() {
          const server = yield* serve()
          const pooler = yield* PgBouncer.make(server, { pooling, poolSize })
          for (let i = 0; i < 3; i++) {
            const error = yield* Effect.flip(node(pooler.url()))
            assert(error._tag === "DriverInvalid", error._tag)
            assert.include(error.problem, "pooler")
            assert.include(error.fix, "direct URL")
          }
          assert.deepStrictEqual(yield* held(server), [])
          // the program's own statements go through the same sessions
          for (let i = 0; i < 3; i++) {
            const [row] = yield* server.query(
              `select current_setting('synchronous_commit') as sync, current_setting('statement_timeout') as statement,
            current_setting('idle_session_timeout') as idle, current_setting('application_name') as name`,
              [],
              { port: pooler.port }
            )
            assert.include(row, { sync: "on", statement: "0", idle: "0" })
            assert.notInclude(row!["name"], "effect-locking")
          }
        }),
      60_000
    )
  }

  it.scopedLive(
    "B05 R7.2 session mode: exclusion, wake-ups, and the locks of a killed process are free at once",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const pooler = yield* PgBouncer.make(server, { pooling: "session", poolSize: 10 })
        const a = yield* agent({ name: "a", url: pooler.url(), options: { sessionTtl: "30 seconds" } })
        const b = yield* node(pooler.url(), { sessionTtl: "30 seconds", pollInterval: "20 seconds" })
        yield* a.ready
        yield* a.tell({ do: "hold", key: "k" })
        yield* a.hear("entered")
        const first = yield* Effect.fork(b.withLock(clock, "k", patient))
        yield* somebodyWaits(server)
        const left = yield* clock
        yield* a.tell({ do: "leave", key: "k" })
        assert.isBelow((yield* Fiber.join(first)) - left, slack)
        yield* a.tell({ do: "hold", key: "k" })
        yield* a.hear("entered")
        assert.lengthOf(yield* keysHeld(server), 1)
        yield* a.kill
        yield* nothingHeld(server, slack)
        yield* b.withLock(Effect.void, "k", { waitTimeout: 0 })
        // whoever has the session next finds it as it was
        const [row] = yield* server.query("select current_setting('idle_session_timeout') as idle", [], {
          port: pooler.port
        })
        assert.deepStrictEqual(row, { idle: "0" })
      }),
    60_000
  )

  it.scopedLive(
    "R7.2 the pooler dies: LeaseLost, and a direct way is all it needs to go on",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const pooler = yield* PgBouncer.make(server, { pooling: "session", poolSize: 10 })
        const a = yield* agent({ name: "a", url: pooler.url(), options: { sessionTtl: "30 seconds" } })
        yield* a.ready
        yield* a.tell({ do: "hold", key: "k" })
        yield* a.hear("entered")
        yield* pooler.kill
        const left = yield* a.hear("left")
        assert.deepStrictEqual([left.outcome, left.reason], ["LeaseLost", "session-ended"])
        yield* nothingHeld(server)
        assert.deepStrictEqual((yield* a.told).filter(({ _tag }) => _tag === "crash"), [])
      }),
    60_000
  )
})
