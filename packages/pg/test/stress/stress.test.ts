import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import * as Stress from "@effect-locking/testing/Stress"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Schedule } from "effect"

/** How long each run is, in seconds. */
const seconds = Number(process.env["PG_STRESS_SECONDS"] ?? 4)

const [processes, callers] = [4, 200]

/** A machine that is busy makes everybody wait, but only a lost wake-up until the poll. */
const patience = Duration.seconds(15)

/** The most sessions of one process at the server, and of all. */
const watchSessions = (server: PostgresServer.Postgres) =>
  Effect.gen(function*() {
    const most = { ofOne: 0, ofAll: 0 }
    const count = Effect.map(
      server.query<{ readonly name: string | null; readonly n: number }>(
        `select substring(application_name from 'stress-[0-9]+') as name, count(*)::int as n from pg_stat_activity
 where backend_type = 'client backend' and pid <> pg_backend_pid() group by 1`
      ),
      (rows) => {
        // a connection has its name a moment after it was made; until then it counts with those of all
        const ofOne = rows.filter(({ name }) => name !== null).map(({ n }) => n)
        most.ofOne = Math.max(most.ofOne, ...ofOne)
        most.ofAll = Math.max(most.ofAll, rows.reduce((sum, { n }) => sum + n, 0))
      }
    )
    yield* Effect.forkScoped(Effect.repeat(count, Schedule.spaced(300)))
    return most
  })

describe("stress", () => {
  for (const version of [18, 15] as const) {
    it.scopedLive(
      `R3.1 R6.2 R6.4 ${processes} processes with ${callers} waiters each for 20 keys, PostgreSQL ${version}`,
      () =>
        Effect.gen(function*() {
          const server = yield* PostgresServer.make({ version })
          const sessions = yield* watchSessions(server)
          const verdict = yield* Stress.run(new URL("./worker.ts", import.meta.url), {
            store: server.url(),
            processes,
            callers,
            duration: Duration.seconds(seconds)
          })
          assert.deepStrictEqual(verdict.violations, [])
          assert.isAtLeast(verdict.turns, processes * callers, "nobody was left out")
          assert(
            Duration.lessThan(verdict.longestStall, patience),
            `a key was free and wanted: ${verdict.longestStall}`
          )
          assert(Duration.lessThan(verdict.drained, patience), `until the last was served: ${verdict.drained}`)
          assert.isNotEmpty(verdict.shares, "it could be judged")
          assert.isAtLeast(verdict.shares[0]!, 0.2, "of its fair share, in some second")
          assert.isAtMost(sessions.ofOne, 2)
          assert.isAtMost(sessions.ofAll, 2 * processes)
          const left = yield* server.query("select 1 from pg_locks where locktype = 'advisory'")
          assert.lengthOf(left, 0)
        }),
      (seconds + 90) * 1000
    )
  }
})
