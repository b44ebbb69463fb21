/** Wake-ups that get lost, and what waiting costs. */
import type * as PostgresServer from "@effect-locking/testing/PostgresServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, Logger, LogLevel } from "effect"
import type { Locking } from "effect-locking/Locking"
import * as fs from "node:fs"
import * as path from "node:path"
import {
  backends,
  clock,
  held,
  keysHeld,
  node,
  type NodeOptions,
  nothingHeld,
  serve,
  slack,
  somebodyWaits,
  terminate,
  until
} from "./kit.js"

const patient = { waitTimeout: "25 seconds" } as const

/** A section that ends when it is told to. */
const section = (locking: Locking, key: string) =>
  Effect.gen(function*() {
    const gate = yield* Deferred.make<void>()
    const inside = yield* Deferred.make<void>()
    const fiber = yield* Effect.fork(
      locking.withLock(Effect.zipRight(Deferred.succeed(inside, undefined), Deferred.await(gate)), key, patient)
    )
    yield* Deferred.await(inside)
    return Effect.gen(function*() {
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(fiber)
      return yield* clock
    })
  })

const listeners = (server: PostgresServer.PostgresServer) =>
  Effect.map(
    backends(server),
    // who holds for long listens as well
    (all) => all.filter(({ listens, name }) => listens && name.endsWith("/waiter")).map(({ pid }) => pid)
  )

/** Transactions of the database so far, also those that failed: one for each statement of ours. */
const statements = (server: PostgresServer.PostgresServer) =>
  Effect.map(
    // a session tells what it did when it is idle for a while, so its own counters are asked for at once
    server.query<{ readonly n: number }>(
      "select pg_stat_force_next_flush(), (xact_commit + xact_rollback)::int as n from pg_stat_database where datname = current_database()"
    ),
    ([row]) => row!.n
  )

/** Three processes behind a proxy with ten callers each for a key that the first of them holds for ever. */
const crowd = (server: PostgresServer.PostgresServer, proxy: TcpProxy.TcpProxy, options: NodeOptions) =>
  Effect.gen(function*() {
    const nodes = yield* Effect.forEach([1, 2, 3], () => node(server.url({ port: proxy.port }), options))
    const holder = yield* Effect.fork(Effect.exit(nodes[0]!.withLock(Effect.never, "k")))
    yield* until("held", Effect.map(keysHeld(server), ({ length }) => length === 1))
    const waiters = yield* Effect.forEach(
      nodes.flatMap((one) => Array.from({ length: 10 }, () => one)),
      (one) => Effect.fork(one.withLock(Effect.void, "k", patient))
    )
    yield* somebodyWaits(server, 2)
    return { holder, waiters }
  })

describe("wake-ups", () => {
  it.scopedLive(
    "B22 R6.2 R10.6 the LISTEN session is terminated: the next one is in within the poll, one warning, and it listens again",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const warnings: Array<Readonly<Record<string, unknown>>> = []
        const logger = Logger.make(({ annotations, logLevel }) => {
          if (LogLevel.greaterThanEqual(logLevel, LogLevel.Warning)) warnings.push(Object.fromEntries(annotations))
        })
        const pollInterval = 5000
        const a = yield* node(server.url(), { sessionTtl: "30 seconds" })
        const b = yield* Effect.provide(
          node(server.url(), { sessionTtl: "30 seconds", pollInterval, session: "waiter", backend: "orders" }),
          Logger.replace(Logger.defaultLogger, logger)
        )
        const leave = yield* section(a, "k")
        const waiters = yield* Effect.forEach([1, 2, 3], () => Effect.fork(b.withLock(clock, "k", patient)))
        yield* somebodyWaits(server)
        const [pid] = yield* listeners(server)
        yield* terminate(server, pid!)
        const left = yield* leave
        const [first, ...others] = yield* Effect.forEach(waiters, Fiber.join)
        assert.isBelow(first! - left, pollInterval * 1.25 + slack)
        assert.lengthOf(others, 2)
        yield* until("it listens again", Effect.map(listeners(server), (pids) => pids.length === 1 && pids[0] !== pid))
        assert.deepStrictEqual(warnings, [{ backend: "orders", code: "PG_LISTENER_LOST" }])
        // and is heard again
        const again = yield* section(a, "k")
        const waiter = yield* Effect.fork(b.withLock(clock, "k", patient))
        yield* somebodyWaits(server)
        const freed = yield* again
        assert.isBelow((yield* Fiber.join(waiter)) - freed, slack)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B22 B21 the waiter's session is ended: it waits on, and is woken from the next one",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url(), { sessionTtl: "30 seconds" })
        const b = yield* node(server.url(), { sessionTtl: "30 seconds", pollInterval: "20 seconds" })
        const leave = yield* section(a, "k")
        const waiter = yield* Effect.fork(b.withLock(clock, "k", patient))
        yield* somebodyWaits(server)
        const [own] = yield* keysHeld(server)
        const interest = (yield* held(server)).find(({ isKey, pid }) => !isKey && pid !== own!.pid)
        yield* terminate(server, interest!.pid)
        yield* until(
          "it waits again",
          Effect.map(
            held(server),
            (all) => all.some(({ isKey, mode, pid }) => !isKey && mode === "ShareLock" && pid !== interest!.pid)
          )
        )
        const left = yield* leave
        assert.isBelow((yield* Fiber.join(waiter)) - left, slack)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B22 R6.2 no connection for wake-ups is to be had: waiters poll, and get in",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        yield* server.query("create role poor login connection limit 1; grant create on schema public to poor")
        const a = yield* node(server.url(), { sessionTtl: "30 seconds" })
        yield* a.withLock(Effect.void, "k")
        yield* server.query("alter sequence effect_locking_fence owner to poor")
        const b = yield* node(server.url({ role: "poor" }), { sessionTtl: "30 seconds", pollInterval: "20 seconds" })
        const leave = yield* section(a, "k")
        const waiter = yield* Effect.fork(b.withLock(clock, "k", patient))
        yield* Effect.sleep(500)
        const left = yield* leave
        // backing off to a second
        assert.isBelow((yield* Fiber.join(waiter)) - left, 1000 + slack)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B28 R6.3 fifty waiters in five processes: what waiting and hand-overs cost the server",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const nodes = yield* Effect.forEach([1, 2, 3, 4, 5], () => node(server.url(), { sessionTtl: "30 seconds" }))
        const first = yield* section(nodes[0]!, "k")
        const waiters = yield* Effect.forEach(nodes, (one) =>
          Effect.forEach(
            Array.from({ length: 10 }),
            () => Effect.fork(one.withLock(Effect.sleep(20), "k", { waitTimeout: "1 minute" }))
          ))
        yield* somebodyWaits(server, 4)
        const since = yield* clock
        const before = yield* statements(server)
        yield* Effect.sleep(2000)
        const idle = (yield* statements(server)) - before
        // each of the five polls every 250 ms ± 25 %, the holder renews, and this test asks as well
        assert.isBelow(idle, 5 * ((yield* clock) - since) / 187 + 50)
        const start = yield* statements(server)
        yield* first
        for (const waiter of waiters.flat()) yield* Fiber.join(waiter)
        yield* Effect.sleep(1100)
        const each = ((yield* statements(server)) - start) / 50
        assert.isBelow(each, 6, "statements for each grant, and not for each waiter")
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B28 B38 the server is away for a while: nobody hammers it, and everybody goes on",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const proxy = yield* TcpProxy.make({ port: server.port })
        const { holder, waiters } = yield* crowd(server, proxy, { sessionTtl: "10 seconds", restartQuarantine: false })
        yield* server.stop()
        yield* Effect.sleep(2500)
        const attempts = yield* proxy.connections
        // a session and a connection for wake-ups of each process, backing off from 50 ms to a second
        assert.isBelow(attempts.length, 90)
        yield* server.start
        for (const waiter of waiters) yield* Fiber.join(waiter)
        yield* Fiber.join(holder)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B28 B38 the server is read-only for five seconds, as a standby: nobody hammers it, and everybody goes on",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const proxy = yield* TcpProxy.make({ port: server.port })
        const { holder, waiters } = yield* crowd(server, proxy, { sessionTtl: "10 seconds" })
        yield* server.stop()
        fs.writeFileSync(path.join(server.dataFolder, "standby.signal"), "")
        yield* server.start
        const [state] = yield* server.query<{ readonly standby: boolean }>("select pg_is_in_recovery() as standby")
        assert.isTrue(state!.standby)
        const before = (yield* proxy.connections).length
        yield* Effect.sleep(5000)
        const attempts = (yield* proxy.connections).length - before
        assert.deepStrictEqual(yield* keysHeld(server), [])
        assert.deepStrictEqual(waiters.filter((waiter) => waiter.unsafePoll() !== null), [], "they wait on")
        // a session and a connection for wake-ups of each process, at most once in three quarters of a second
        assert.isBelow(attempts, 3 * 2 * 7)
        assert.isAbove(attempts, 3)
        yield* server.promote
        for (const waiter of waiters) yield* Fiber.join(waiter)
        yield* Fiber.join(holder)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B28 R7.2 the server refuses every grant for five seconds: nobody hammers it, nothing is left held, and everybody goes on",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const admin = yield* node(server.url(), { sessionTtl: "30 seconds" })
        const leave = yield* section(admin, "k")
        yield* server.createRole("app")
        const allow = server.query("grant usage, update on sequence effect_locking_fence to app")
        yield* allow
        const nodes = yield* Effect.forEach(
          [1, 2, 3, 4, 5],
          () => node(server.url({ role: "app" }), { sessionTtl: "30 seconds" })
        )
        const waiters = yield* Effect.forEach(nodes, (one) =>
          Effect.forEach(Array.from({ length: 10 }), () => Effect.fork(one.withLock(Effect.void, "k", patient))))
        yield* somebodyWaits(server, 5)
        // a grant then fails when it has taken the lock already
        yield* server.query("revoke usage, update on sequence effect_locking_fence from app")
        yield* leave
        const before = yield* statements(server)
        yield* Effect.sleep(5000)
        const asked = (yield* statements(server)) - before
        // each of the five tries ten times, after pauses that grow to a second: a refusal, a look at what it left, its undoing
        assert.isBelow(asked, 5 * 16 * 3)
        // between a refusal and its undoing it is held for a moment
        yield* until(
          "nobody holds it",
          Effect.map(keysHeld(server), ({ length }) =>
            length === 0)
        )
        yield* allow
        for (const waiter of waiters.flat()) yield* Fiber.join(waiter)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B67 R5 a wait in vain behind a stranger: not an error of the connection, and nobody is left waiting",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url(), { sessionTtl: "30 seconds", session: "blocker" })
        // one that asks twice and then sleeps, and one that polls
        const b = yield* node(server.url(), { sessionTtl: "30 seconds", pollInterval: "20 seconds" })
        const c = yield* node(server.url(), { sessionTtl: "30 seconds" })
        const leave = yield* section(a, "k")
        const inVain = (locking: Locking, waitTimeout: number) =>
          Effect.map(Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout })), (error) => {
            assert(error._tag === "WaitTimeout", error._tag)
            assert.isAtLeast(Duration.toMillis(error.waited), waitTimeout)
            assert.match(error.keyHash, /^[0-9a-f]+$/)
            assert.isFalse(error.holder?.local)
            return error.holder?.session
          })
        assert.strictEqual(yield* inVain(b, 600), "blocker")
        for (let i = 0; i < 4; i++) yield* inVain(b, 400)
        // the server is asked once a second who it is, and what it said is kept
        assert.strictEqual(yield* inVain(c, 1500), "blocker")
        yield* until("nobody waits", Effect.map(held(server), (all) => all.every(({ isKey }) => isKey)))
        assert.isAtMost((yield* backends(server)).length, 6)
        yield* leave
      }),
    60_000
  )
})
