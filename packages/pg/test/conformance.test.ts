/**
 * The suite that every driver has to pass, with PostgreSQL's own view of what is held.
 */
import * as LockDriverSuite from "@effect-locking/testing/LockDriverSuite"
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { Effect } from "effect"
import * as PgLocking from "../src/PgLocking.js"
import { versions } from "./server.js"

for (const version of versions) {
  LockDriverSuite.lockDriverSuite({
    name: `PostgreSQL ${version}`,
    time: "real",
    slack: 3,
    make: Effect.gen(function*() {
      const server = yield* PostgresServer.make({ version })
      const proxy = yield* TcpProxy.make({ port: server.port })
      const count = (condition: string) =>
        Effect.map(
          server.query<{ readonly count: number }>(
            `select count(*)::int as count from pg_locks where locktype = 'advisory' and granted and ${condition}`
          ),
          ([row]) => row!.count
        )
      return {
        open: PgLocking.driver({ connection: server.url({ port: proxy.port }), restartQuarantine: false }),
        storeView: { grants: count("objsubid = 1"), interests: count("objsubid = 2") },
        faults: {
          dropConnections: proxy.cut(),
          // one that is about locks, not the opening of a session
          loseNextReply: proxy.dropNextReply({ request: (bytes) => /effect_locking_(lock|unlock|batch)/.test(bytes) }),
          stall: Effect.acquireRelease(server.freeze, () => server.thaw),
          restart: server.restart("immediate")
        }
      }
    })
  })
}
