/** Locks of transactions, where the server restarts and behind pgbouncer. */
import * as PgBouncer from "@effect-locking/testing/PgBouncer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, Layer } from "effect"
import * as PgLocking from "../../src/PgLocking.js"
import { sql } from "../server.js"
import { clock, node, nothingHeld, serve, serverMargin, slack, somebodyWaits, stay, until } from "./kit.js"

const transaction = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(PgClient.PgClient, (client) => client.withTransaction(effect))

/** Takes the lock in a transaction of its own, and tells when it had it. */
const locked = (waitTimeout: Duration.DurationInput) =>
  transaction(Effect.zipRight(PgLocking.transactionLock("k", { waitTimeout }), clock))

describe("locks of transactions after a restart", () => {
  // a program whose layer has not connected yet
  const program = (url: string, options: PgLocking.PgLockingOptions) =>
    Layer.build(Layer.provideMerge(PgLocking.layer({ start: "lazy", ...options }), sql(url)))

  for (const version of [18, 15] as const) {
    it.scopedLive(
      `R9.5 R7.2 B01 PostgreSQL ${version}, killed -9 behind a partition: none is granted until its holder has ended`,
      () =>
        Effect.gen(function*() {
          const sessionTtl = 3000
          const server = yield* serve({ version })
          const proxy = yield* TcpProxy.make({ port: server.port })
          const holder = yield* stay(yield* node(server.url({ port: proxy.port }), { sessionTtl }), "k")
          // of the holder nothing is heard any more, nor does it hear
          yield* proxy.blackHole()
          yield* Effect.zipRight(server.kill, server.start)
          const start = yield* clock
          const context = yield* program(server.url(), { sessionTtl })
          const refused = yield* Effect.flip(Effect.provide(locked(0), context))
          assert(refused._tag === "ProviderFailed", refused._tag)
          assert.isAtMost(Duration.toMillis(refused.retryAfter!), sessionTtl + serverMargin)
          const entered = yield* Effect.provide(locked("25 seconds"), context)
          assert.isBelow((yield* holder.ended).at, entered)
          assert.isBelow(entered - start, sessionTtl + serverMargin + slack)
          yield* Effect.provide(locked(0), context)
        }),
      60_000
    )
  }

  it.scopedLive(
    "R9.5 R7.2 where nothing was granted before the start, and without the quarantine, it is had at once",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const sessionTtl = "1 minute"
        yield* Effect.provide(locked(0), yield* program(server.url(), { sessionTtl }))
        const a = yield* node(server.url())
        yield* a.withLock(Effect.void, "k")
        yield* Effect.provide(locked(0), yield* program(server.url(), { sessionTtl }))
        yield* server.restart()
        const refused = yield* Effect.flip(Effect.provide(locked(0), yield* program(server.url(), { sessionTtl })))
        assert.strictEqual(refused._tag, "ProviderFailed")
        yield* Effect.provide(locked(0), yield* program(server.url(), { sessionTtl, restartQuarantine: false }))
      }),
    60_000
  )

  it.scopedLive(
    "R9.5 R7.2 statistics that are reset by hand are no restart for those who were connected",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const context = yield* program(server.url(), { sessionTtl: 500 })
        yield* (yield* node(server.url())).withLock(Effect.void, "k")
        const age = Effect.flatMap(
          PgClient.PgClient,
          (client) =>
            client<{ readonly age: number }>`select extract(epoch from clock_timestamp() - backend_start)::float8 as age
            from pg_stat_get_activity(pg_backend_pid())`
        )
        yield* until("the connection is old enough", Effect.map(age, ([row]) => row!.age > 1)).pipe(
          Effect.provide(context)
        )
        yield* server.query("select pg_stat_reset_shared('wal')")
        yield* Effect.provide(locked(0), context)
      }),
    60_000
  )
})

describe("locks of transactions behind a pooler", () => {
  it.scopedLive(
    "R9.5 B05 transaction mode: they exclude each other and ordinary locks, and wake who waits",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const pooler = yield* PgBouncer.make(server, { pooling: "transaction", poolSize: 3 })
        yield* server.query("create table counter (n int); insert into counter values (0)")
        // their statements share sessions, those of the library lead to the server itself
        const programs = yield* Effect.forEach([1, 2], () =>
          Layer.build(Layer.provideMerge(
            PgLocking.layer({ connection: server.url(), pollInterval: "1 minute" }),
            sql(pooler.url())
          )))
        const add = Effect.gen(function*() {
          const client = yield* PgClient.PgClient
          yield* PgLocking.transactionLock("k", { waitTimeout: "30 seconds" })
          const [row] = yield* client<{ readonly n: number }>`select n from counter`
          yield* client`update counter set n = ${row!.n + 1}`
        })
        yield* Effect.forEach(programs, (context) =>
          Effect.provide(
            Effect.forEach(Array.from({ length: 20 }), () => transaction(add), { concurrency: 4 }),
            context
          ), { concurrency: "unbounded" })
        assert.deepStrictEqual(yield* server.query("select n from counter"), [{ n: 40 }])
        const held = yield* Deferred.make<void>()
        const commit = yield* Deferred.make<void>()
        const holder = yield* transaction(
          PgLocking.transactionLock("k").pipe(
            Effect.zipRight(Deferred.succeed(held, undefined)),
            Effect.zipRight(Deferred.await(commit))
          )
        ).pipe(Effect.provide(programs[0]!), Effect.fork)
        yield* Deferred.await(held)
        const other = yield* node(server.url(), { pollInterval: "1 minute" })
        const waiter = yield* Effect.fork(other.withLock(Effect.void, "k", { waitTimeout: "20 seconds" }))
        yield* somebodyWaits(server)
        yield* Deferred.succeed(commit, undefined)
        yield* Fiber.join(waiter)
        yield* Fiber.join(holder)
        yield* nothingHeld(server)
      }),
    60_000
  )
})
