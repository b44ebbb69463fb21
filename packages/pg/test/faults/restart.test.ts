/** The server restarts, crashes, resets itself or is replaced by a standby. */
import type * as PostgresServer from "@effect-locking/testing/PostgresServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Context, Duration, Effect, Fiber, Layer, Logger } from "effect"
import { Locking } from "effect-locking/Locking"
import Pg from "pg"
import * as PgLocking from "../../src/PgLocking.js"
import {
  agent,
  clock,
  keysHeld,
  node,
  nothingHeld,
  serve,
  serverMargin,
  slack,
  somebodyWaits,
  stay,
  tables,
  terminate,
  until
} from "./kit.js"

const patient = { waitTimeout: "25 seconds" } as const

const fenceOf = (locking: Locking, key = "k") =>
  locking.useLock(key, patient, ({ fence }) => Effect.succeed(fence as bigint))

describe("a restart", () => {
  it.scopedLive(
    "B38 B37 R7.2 R7.3 with holder, waiter and idle connections: the process lives, and locks again",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        yield* tables(server)
        const options = { sessionTtl: 1000, restartQuarantine: false }
        const a = yield* agent({ name: "a", url: server.url(), options })
        const b = yield* node(server.url(), options)
        yield* a.ready
        for (const mode of ["fast", "immediate"] as const) {
          yield* a.tell({ do: "hold", key: "own", options: patient })
          yield* a.hear("entered")
          // a pool of the program's own, idle from now on
          yield* a.tell({ do: "write", key: "own" })
          assert.strictEqual((yield* a.hear("wrote")).outcome, "ok")
          const other = yield* stay(b, "other")
          yield* a.tell({ do: "hold", key: "other", options: patient })
          yield* Effect.sleep(200)
          yield* server.stop(mode)
          const left = yield* a.hear("left")
          assert.deepStrictEqual([left.key, left.outcome, left.reason], ["own", "LeaseLost", "session-ended"])
          assert.strictEqual((yield* other.ended).reason, "session-ended")
          yield* Effect.sleep(600)
          yield* server.start
          // the waiter went on
          const entered = yield* a.hear("entered")
          assert.strictEqual(entered.key, "other")
          assert.isTrue(BigInt(entered.fence) > other.fence)
          yield* a.tell({ do: "leave", key: "other" })
          assert.strictEqual((yield* a.hear("left")).outcome, "ok")
        }
        yield* a.tell({ do: "hold", key: "next" })
        yield* a.hear("entered")
        yield* a.tell({ do: "leave", key: "next" })
        assert.strictEqual((yield* a.hear("left")).outcome, "ok")
        assert.deepStrictEqual((yield* a.told).filter(({ _tag }) => _tag === "crash"), [])
        assert.strictEqual(yield* a.errors, "")
        yield* nothingHeld(server)
      }),
    90_000
  )

  it.scopedLive(
    "B38 R7.3 over a pool of the program's own: it hears of its idle connections, and the locks of theirs",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const broken: Array<Error> = []
        const pool = new Pg.Pool({ connectionString: server.url(), max: 3 })
        pool.on("error", (error) => broken.push(error))
        const Sql = PgClient.layerFromPool({
          acquire: Effect.acquireRelease(Effect.succeed(pool), (pool) => Effect.promise(() => pool.end()))
        })
        const options = { sessionTtl: 1000, restartQuarantine: false }
        const context = yield* Layer.build(Layer.provideMerge(PgLocking.layer(options), Sql))
        const [a, sql] = [Context.get(context, Locking), Context.get(context, PgClient.PgClient)]
        yield* sql`select 1`
        const holder = yield* stay(a, "k")
        const b = yield* node(server.url(), options)
        const other = yield* stay(b, "other")
        const waiter = yield* Effect.fork(a.withLock(sql`select 1`, "other", patient))
        yield* somebodyWaits(server)
        yield* server.restart()
        assert.strictEqual((yield* holder.ended).reason, "session-ended")
        assert.strictEqual((yield* other.ended).reason, "session-ended")
        yield* Fiber.join(waiter)
        yield* a.withLock(sql`select 1`, "next", patient)
        // of the one that was idle; without a listener this ends the process
        assert.isNotEmpty(broken)
        yield* nothingHeld(server)
      }),
    60_000
  )

  const forgets = (crash: (server: PostgresServer.PostgresServer) => Effect.Effect<unknown, unknown>) =>
    Effect.gen(function*() {
      const sessionTtl = 2000
      const server = yield* serve()
      const proxy = yield* TcpProxy.make({ port: server.port })
      const options = { sessionTtl, restartQuarantine: true }
      const a = yield* node(server.url({ port: proxy.port }), options)
      const b = yield* node(server.url(), options)
      const holder = yield* stay(a, "k")
      // of the holder nothing is heard any more, nor does it hear
      yield* proxy.blackHole()
      yield* crash(server)
      const start = yield* clock
      let wait = 0
      yield* until(
        "it is told when to come back",
        Effect.map(Effect.flip(b.withLock(Effect.void, "k", { waitTimeout: 0 })), (error) => {
          if (error._tag === "ProviderFailed" && error.retryAfter !== undefined) {
            wait = Duration.toMillis(error.retryAfter)
          }
          return wait > 0
        })
      )
      assert.isAtMost(wait, sessionTtl + serverMargin)
      const entered = yield* b.useLock("k", patient, ({ fence }) => Effect.map(clock, (at) => ({ at, fence })))
      // one that starts now waits as well, or finds that it is over
      const c = yield* node(server.url(), options)
      const last = yield* fenceOf(c)
      const ended = yield* holder.ended
      assert.isBelow(ended.at, entered.at)
      assert.isBelow(entered.at - start, sessionTtl + serverMargin + slack)
      assert.isTrue(entered.fence > holder.fence && last > entered.fence)
      yield* proxy.heal
      assert.isTrue((yield* fenceOf(a)) > last)
    })

  it.scopedLive(
    "R7.2 B01 kill -9 and start behind a partition: the quarantine keeps the key until its holder has ended",
    () => forgets((server) => Effect.zipRight(server.kill, server.start)),
    60_000
  )

  it.scopedLive(
    "R7.2 B01 one backend killed -9, so that the server resets itself: the quarantine holds as well",
    () =>
      forgets((server) =>
        Effect.gen(function*() {
          const [{ pid }] =
            (yield* server.query("select pid from pg_stat_activity where backend_type = 'checkpointer'")) as [
              { readonly pid: number }
            ]
          yield* server.killBackend(pid)
          yield* until("it is back", Effect.isSuccess(server.query("select 1")))
        })
      ),
    60_000
  )

  it.scopedLive(
    "R7.2 a layer that is built right after it waits, logs for how long, and then grants at once",
    () =>
      Effect.gen(function*() {
        const sessionTtl = 2000
        const server = yield* serve()
        yield* Effect.scoped(Effect.flatMap(node(server.url()), (before) => before.withLock(Effect.void, "k")))
        yield* server.restart("immediate")
        const logged: Array<string> = []
        const logger = Logger.make(({ message }) => {
          logged.push(String(message))
        })
        const a = yield* Effect.provide(
          node(server.url(), { sessionTtl, restartQuarantine: true }),
          Logger.replace(Logger.defaultLogger, logger)
        )
        const [row] = yield* server.query<{ readonly up: number }>(
          "select extract(epoch from clock_timestamp() - pg_postmaster_start_time())::float8 * 1000 as up"
        )
        // as long as a lease from before may be believed in, and not much longer
        assert.isAtLeast(row!.up, sessionTtl)
        assert.isBelow(row!.up, sessionTtl + serverMargin + slack)
        const seconds = logged.flatMap((text) => /waiting ([\d.]+) s/.exec(text)?.[1] ?? []).map(Number)
        assert.lengthOf(seconds, 1)
        assert.isAbove(seconds[0]!, 0)
        assert.isAtMost(seconds[0]!, (sessionTtl + serverMargin) / 1000)
        yield* a.withLock(Effect.void, "k", { waitTimeout: 0 })
      }),
    60_000
  )

  it.scopedLive("R7.2 a first start does not wait for leases that nobody can have", () =>
    Effect.gen(function*() {
      const server = yield* serve()
      const start = yield* clock
      const a = yield* node(server.url(), { sessionTtl: "1 minute", restartQuarantine: true })
      yield* a.withLock(Effect.void, "k", { waitTimeout: 0 })
      assert.isBelow((yield* clock) - start, slack + 2000)
    }), 60_000)

  it.scopedLive(
    "R7.2 reconnectQuarantine: after a loss of its own session a process waits before its next grant",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const sessionTtl = 1000
        const a = yield* node(server.url(), { sessionTtl, reconnectQuarantine: true })
        const holder = yield* stay(a, "k")
        const [held] = yield* keysHeld(server)
        yield* terminate(server, held!.pid)
        const lost = yield* holder.ended
        const entered = yield* a.withLock(clock, "k", patient)
        assert.isAtLeast(entered - lost.at, sessionTtl)
      }),
    60_000
  )
})

describe("fences over crashes", () => {
  it.scopedLive(
    "R3.1 kill -9 of the server, again and again: no step back, though nothing of it was on disk",
    () =>
      Effect.gen(function*() {
        const server = yield* serve({
          settings: { synchronous_commit: "off", wal_writer_delay: "10s", checkpoint_timeout: "1h" }
        })
        const a = yield* node(server.url())
        let highest = 0n
        for (let crash = 0; crash < 4; crash++) {
          const b = yield* node(server.url())
          for (let i = 0; i < 20; i++) {
            for (const locking of [a, b]) {
              const fence = yield* fenceOf(locking)
              assert.isTrue(fence > highest, `crash ${crash}, grant ${i}: ${fence} after ${highest}`)
              highest = fence
            }
          }
          yield* server.kill
          yield* server.start
        }
      }),
    60_000
  )

  it.scopedLive(
    "R3.1 R7.2 fail-over to a standby that lags: no step back, in a process that goes on and in a new one",
    () =>
      Effect.gen(function*() {
        const primary = yield* serve()
        let current = primary.url()
        const connection = Effect.sync(() => new Pg.Client({ connectionString: current }))
        yield* fenceOf(yield* node(connection))
        const standby = yield* primary.standby()
        yield* standby.start
        // refused: its advisory locks are apart from the primary's
        const refused = yield* Effect.flip(node(standby.url()))
        assert(refused._tag === "DriverInvalid", refused._tag)
        assert.include(refused.fix, "primary")
        assert.deepStrictEqual(yield* keysHeld(standby), [])
        const a = yield* node(connection)
        yield* fenceOf(a)
        yield* standby.stop()
        let highest = 0n
        for (let i = 0; i < 100; i++) highest = yield* fenceOf(a)
        const holder = yield* stay(a, "held")
        yield* primary.kill
        assert.strictEqual((yield* holder.ended).reason, "session-ended")
        yield* standby.start
        yield* standby.promote
        const [{ last }] = (yield* standby.query("select last_value::text as last from effect_locking_fence")) as [
          { readonly last: string }
        ]
        assert.isTrue(BigInt(last) < highest, "it does lag")
        current = standby.url()
        const next = yield* fenceOf(a)
        assert.isTrue(next > highest && next > holder.fence)
        const b = yield* node(connection)
        assert.isTrue((yield* fenceOf(b)) > next)
      }),
    90_000
  )
})
