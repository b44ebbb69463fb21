/** Holders that freeze, block their own loop, or are killed: processes of their own, by signals. */
import * as History from "@effect-locking/testing/History"
import * as OverlapOracle from "@effect-locking/testing/OverlapOracle"
import type * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as fs from "node:fs"
import {
  agent,
  backends,
  clock,
  keysHeld,
  node,
  nothingHeld,
  serve,
  serverMargin,
  slack,
  somebodyWaits,
  tables
} from "./kit.js"

const sessionTtl = 800

/** What ended when, on the clock of the server. */
const lastWord = (server: PostgresServer.PostgresServer, pid: number) =>
  Effect.map(
    server.query<{ readonly at: number }>(
      "select extract(epoch from state_change)::float8 * 1000 as at from pg_stat_activity where pid = $1",
      [pid]
    ),
    ([row]) => row!.at
  )

const serverNow = (server: PostgresServer.PostgresServer) =>
  Effect.map(
    server.query<{ readonly at: number }>("select extract(epoch from clock_timestamp())::float8 * 1000 as at"),
    ([row]) => row!.at
  )

/** The form with a column of the user's own, as the page of the package has it. */
const column = /^UPDATE accounts [^\n]*?(?= +--)/m.exec(
  fs.readFileSync(new URL("../../README.md", import.meta.url), "utf8")
)![0]

describe("a holder that does not run", () => {
  it.scopedLive(
    "R7.2 R3.3 B63 B37 frozen: another process gets the key within ttl and margin, late writes are refused by guard and by column, the section is interrupted",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        yield* tables(server)
        yield* server.query(`create table accounts (id text primary key, balance text, fence int8 not null);
          insert into accounts values ('k', '', 0)`)
        const options = { sessionTtl }
        const [a, b] = yield* Effect.all([
          agent({ name: "a", url: server.url(), options }),
          agent({ name: "b", url: server.url(), options })
        ])
        const writes = [{ do: "write", key: "k" }, { do: "update", key: "k", statement: column }] as const
        const wrote = (one: typeof a, outcomes: ReadonlyArray<string>) =>
          Effect.forEach(outcomes, (outcome) =>
            Effect.map(one.hear("wrote"), (told) => assert.strictEqual(told.outcome, outcome)))
        yield* a.ready
        yield* b.ready
        for (let round = 0; round < 3; round++) {
          yield* a.tell({ do: "hold", key: "k", options: { waitTimeout: "20 seconds" } })
          const first = yield* a.hear("entered")
          yield* Effect.forEach(writes, a.tell)
          yield* wrote(a, ["ok", "ok"])
          const [holder] = yield* keysHeld(server)
          yield* b.tell({ do: "hold", key: "k", options: { waitTimeout: "20 seconds" } })
          yield* somebodyWaits(server)
          yield* a.freeze
          // nothing that it has sent is on its way any more
          yield* Effect.sleep(20)
          const heard = yield* lastWord(server, holder!.pid)
          const second = yield* b.hear("entered")
          const took = (yield* serverNow(server)) - heard
          assert.isAbove(took, sessionTtl + serverMargin - 5, "the server keeps it longer than its holder believes")
          assert.isBelow(took, sessionTtl + serverMargin + slack)
          assert.isAbove(Number(second.fence), Number(first.fence))
          yield* Effect.forEach(writes, b.tell)
          yield* wrote(b, ["ok", "ok"])
          // it writes what it was about to write when it froze
          yield* Effect.forEach(writes, a.tell)
          yield* a.thaw
          yield* wrote(a, ["StaleFence", "NoRow"])
          assert.deepStrictEqual(yield* server.query("select balance from accounts"), [{ balance: "b" }])
          assert.isTrue((yield* a.told).some((told) =>
            told._tag === "left" && told.outcome === "LeaseLost"
          ))
          yield* b.tell({ do: "leave", key: "k" })
          assert.strictEqual((yield* b.hear("left")).outcome, "ok")
        }
        yield* nothingHeld(server)
        const told = [...yield* a.told, ...yield* b.told]
        assert.deepStrictEqual(told.filter(({ _tag }) => _tag === "crash"), [])
        assert.lengthOf(told.filter((one) => one._tag === "left" && one.outcome === "LeaseLost"), 3)
        const { counts, violations } = OverlapOracle.judge(History.decode(told), { endsEarly: true })
        assert.deepStrictEqual(violations, [])
        assert.deepStrictEqual([counts.windows, counts.accepted, counts.refused], [6, 12, 6])
      }),
    60_000
  )

  it.scopedLive(
    "R7.2 killed: the next one is in within one poll, and the dead one leaves nothing at the server",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const pollInterval = 600
        const [a, b] = yield* Effect.all([
          agent({ name: "a", url: server.url(), options: { sessionTtl: "1 minute" } }),
          node(server.url(), { sessionTtl: "1 minute", pollInterval })
        ])
        yield* a.ready
        yield* a.tell({ do: "hold", key: "k" })
        const first = yield* a.hear("entered")
        const [holder] = yield* keysHeld(server)
        const waiter = yield* Effect.fork(
          b.useLock("k", { waitTimeout: "20 seconds" }, (lease) =>
            Effect.zip(
              clock,
              Effect.map(keysHeld(server), (held) => [held, lease.fence] as const)
            ))
        )
        yield* somebodyWaits(server)
        const killed = yield* clock
        yield* a.kill
        const [at, [held, fence]] = yield* Fiber.join(waiter)
        assert.isBelow(at - killed, pollInterval * 1.25 + slack)
        assert.lengthOf(held, 1)
        assert.notStrictEqual(held[0]!.pid, holder!.pid)
        assert.isTrue(fence > BigInt(first.fence))
        yield* nothingHeld(server)
        assert.lengthOf(yield* backends(server), 2)
      }),
    60_000
  )

  it.scopedLive(
    "B34 B37 a loop that is blocked past the ttl: the renewal takes nothing back, and the loss comes once",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* agent({ name: "a", url: server.url(), options: { sessionTtl } })
        const b = yield* node(server.url(), { sessionTtl })
        yield* a.ready
        yield* a.tell({ do: "hold", key: "k" })
        const first = yield* a.hear("entered")
        yield* a.tell({ do: "block", millis: sessionTtl + serverMargin + 1500 })
        const fence = yield* b.useLock("k", { waitTimeout: "20 seconds" }, (lease) => Effect.succeed(lease.fence))
        assert.isTrue(fence > BigInt(first.fence))
        const left = yield* a.hear("left")
        assert.strictEqual(left.outcome, "LeaseLost")
        // its timers are all late: whatever they do now, the key stays free
        yield* Effect.sleep(sessionTtl)
        assert.deepStrictEqual(yield* keysHeld(server), [])
        yield* a.tell({ do: "hold", key: "k" })
        yield* a.hear("entered")
        yield* a.tell({ do: "leave", key: "k" })
        assert.strictEqual((yield* a.hear("left")).outcome, "ok")
        assert.deepStrictEqual((yield* a.told).filter(({ _tag }) => _tag === "crash"), [])
      }),
    60_000
  )

  it.scopedLive(
    "B34 R2.5 blocked past the ttl and back before the server gives the key away: lost all the same",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* agent({ name: "a", url: server.url(), options: { sessionTtl: 3000 } })
        yield* a.ready
        // the server's margin is 300 ms, in which the session lives on after the end of all trust
        yield* a.tell({ do: "hold", key: "k", options: { ttl: 400 } })
        yield* a.hear("entered")
        yield* a.tell({ do: "block", millis: 1000 })
        const left = yield* a.hear("left")
        assert.strictEqual(left.outcome, "LeaseLost")
        // the session goes on, so it has to be unlocked
        yield* nothingHeld(server, 2000)
      }),
    60_000
  )
})
