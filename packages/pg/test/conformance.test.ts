/**
 * The suite that every driver has to pass, with PostgreSQL's own view of what is held. On the server that `PG_URL` names,
 * where it names one: that is not stopped or frozen.
 */
import * as LockDriverSuite from "@effect-locking/testing/LockDriverSuite"
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { Duration, Effect } from "effect"
import * as PgLocking from "../src/PgLocking.js"
import { versions } from "./server.js"

const isNamed = (process.env["PG_URL"] ?? "") !== ""

const own = (server: PostgresServer.PostgresServer) => ({
  stall: Effect.acquireRelease(server.freeze, () => server.thaw),
  restart: server.restart("immediate")
})

/** A database that is gone with the scope: others may use the server. */
const database = (server: PostgresServer.Postgres) =>
  Effect.acquireRelease(
    Effect.tap(Effect.sync(() => `suite_${process.pid}_${Date.now()}`), server.createDatabase),
    (name) => Effect.ignore(server.query(`drop database ${name} with (force)`))
  )

for (const version of isNamed ? [undefined] : versions) {
  LockDriverSuite.lockDriverSuite({
    name: version === undefined ? "PostgreSQL of PG_URL" : `PostgreSQL ${version}`,
    time: "real",
    slack: 3,
    make: Effect.gen(function*() {
      const thrownAway = version === undefined ? undefined : yield* PostgresServer.make({ version })
      const server = thrownAway ?? (yield* PostgresServer.fromEnvOrThrowAway())
      const name = yield* database(server)
      const proxy = yield* TcpProxy.make(server)
      const count = (condition: string) =>
        Effect.map(
          server.query<{ readonly count: number }>(
            `select count(*)::int as count from pg_locks where locktype = 'advisory' and granted and ${condition}
            and database = (select oid from pg_database where datname = current_database())`,
            [],
            { database: name }
          ),
          ([row]) => row!.count
        )
      return {
        open: PgLocking.driver({
          connection: server.url({ database: name, port: proxy.port }),
          restartQuarantine: false
        }),
        storeView: { grants: count("objsubid = 1"), interests: count("objsubid = 2") },
        faults: {
          dropConnections: proxy.cut(),
          // one that is about locks, not the opening of a session
          loseNextReply: proxy.dropNextReply({ request: (bytes) => /effect_locking_(lock|unlock|batch)/.test(bytes) }),
          ...(thrownAway && own(thrownAway))
        }
      }
    }),
    capabilities: {
      modes: ["exclusive", "shared"],
      fair: false,
      push: true,
      expiry: "session",
      remote: true,
      ttl: { default: Duration.seconds(15), min: Duration.millis(100), infinite: true },
      maxKeys: 500
    },
    // a session has no tokens and no end; whether others wait, a release tells, and a renewal of readers
    knows: ["fence", "since", "session", "metadata", "keys"]
  })
}
