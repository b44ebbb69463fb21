/** pgbouncer between the driver and the server, and others who have our session. */
import * as PgBouncer from "@effect-locking/testing/PgBouncer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Array, Deferred, Effect, Fiber } from "effect"
import Pg from "pg"
import { lockId } from "../../src/internal/pure/lockId.js"
import {
  agent,
  backends,
  clock,
  held,
  keysHeld,
  node,
  nothingHeld,
  serve,
  slack,
  somebodyWaits,
  terminate,
  until
} from "./kit.js"

/** A way on which a second connection is not to be had. */
const onlyOnce = (url: string) => {
  let isMade = false
  return Effect.suspend(() => {
    if (isMade) return Effect.fail("one connection is the limit")
    isMade = true
    return Effect.succeed(new Pg.Client({ connectionString: url }))
  })
}

const patient = { waitTimeout: "25 seconds" } as const

describe("behind a pooler", () => {
  for (
    const [pooling, poolSize, order] of [
      ["transaction", 3, "the last one first"],
      ["transaction", 1, "the last one first"],
      ["statement", 3, "the last one first"],
      // what is set meets another session than the next question, which finds out and ends its own
      ["transaction", 3, "in turn"]
    ] as const
  ) {
    it.scopedLive(
      `B05 R10.4 ${pooling} mode, ${poolSize} sessions, ${order}: refused with the remedy, and nothing of ours stays on them`,
      () =>
        Effect.gen(function*() {
          const server = yield* serve()
          const pooler = yield* PgBouncer.make(server, {
            pooling,
            poolSize,
            settings: { server_round_robin: order === "in turn" ? "1" : "0" }
          })
          const ask = (text: string) => server.query(text, [], { port: pooler.port })
          const sessions = server.query<{ readonly pid: number }>(
            "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
          )
          // the program is at work already
          const work = Effect.forEach(Array.makeBy(poolSize, () => "select pg_sleep(0.1)"), ask, {
            concurrency: "unbounded"
          })
          yield* until("all sessions are open", Effect.zipWith(work, sessions, (_, { length }) => length === poolSize))
          for (let i = 0; i < 3; i++) {
            const error = yield* Effect.flip(node(pooler.url()))
            assert(error._tag === "DriverInvalid", error._tag)
            assert.include(error.problem, "pooler")
            assert.include(error.fix, "direct URL")
          }
          assert.deepStrictEqual(yield* held(server), [])
          // the program's own statements go through the same sessions
          for (let i = 0; i < 2 * poolSize; i++) {
            const [row] = yield* ask(
              `select current_setting('synchronous_commit') as sync, current_setting('statement_timeout') as statement,
            current_setting('idle_session_timeout') as idle, current_setting('application_name') as name,
            coalesce(current_setting('effect_locking.session', true), '') as session`
            )
            assert.include(row, { sync: "on", statement: "0", idle: "0", session: "" })
            assert.notInclude(row!["name"], "effect-locking")
          }
        }),
      60_000
    )
  }

  it.scopedLive(
    "B05 R10.4 the way to the server leads through it since the connection broke: refused with the remedy, nothing granted or left",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const pooler = yield* PgBouncer.make(server, { pooling: "transaction", poolSize: 1 })
        let url = server.url()
        const connection = Effect.sync(() => new Pg.Client({ connectionString: url }))
        const patiently = { sessionTtl: "30 seconds", attemptTimeout: "10 seconds" } as const
        const nodes = yield* Effect.forEach([1, 2, 3], () => node(connection, patiently))
        const leases = yield* Effect.forEach(nodes, (locking, i) => locking.acquire(`own${i}`))
        url = pooler.url()
        for (const { pid } of yield* backends(server)) yield* terminate(server, pid)
        yield* Effect.forEach(leases, ({ lost }) => Effect.flip(lost))
        const entered: Array<string> = []
        yield* Effect.forEach(nodes, (locking, i) =>
          Effect.forEach([["k"], ["k", "l"]], (keys) =>
            Effect.gen(function*() {
              const body = Effect.sync(() =>
                entered.push(`${i} has ${keys}`)
              )
              const error = yield* Effect.flip(locking.withLocks(body, keys, { waitTimeout: 0 }))
              assert(error._tag === "ProviderFailed", error._tag)
              assert.include(String(error.cause), "pooler")
            })), { concurrency: "unbounded" })
        assert.deepStrictEqual(entered, [])
        assert.deepStrictEqual(yield* held(server), [])
        // the way back is all that it needs
        url = server.url()
        yield* Effect.forEach(nodes, (locking) =>
          locking.withLock(Effect.void, "k"))
      }),
    60_000
  )

  it.scopedLive(
    "B05 each session is asked of again, by a second connection unless both ends say that nothing is between them",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const proxy = yield* TcpProxy.make({ port: server.port })
        for (const [url, again] of [[server.url(), 1], [server.url({ port: proxy.port }), 2]] as const) {
          let made = 0
          const connection = Effect.sync(() => {
            made++
            return new Pg.Client({ connectionString: url })
          })
          const locking = yield* node(connection, { sessionTtl: "30 seconds" })
          assert.strictEqual(made, 2)
          const lease = yield* locking.acquire("k")
          for (const { pid } of yield* backends(server)) yield* terminate(server, pid)
          yield* Effect.flip(lease.lost)
          yield* locking.withLock(Effect.void, "k")
          assert.strictEqual(made, 2 + again)
        }
      }),
    60_000
  )

  // what a session prepared the other one does not know, or has under the same name
  for (const [theirs, ours] of [[["k", "l"], ["k"]], [["k"], ["k", "l"]], [["k"], ["k"]]] as const) {
    it.scopedLive(
      `B05 the session is swapped for that of who holds ${theirs}, where no probe could be made: who asks for ${ours} is refused by the statement itself`,
      () =>
        Effect.gen(function*() {
          const server = yield* serve()
          const pooler = yield* PgBouncer.make(server, { pooling: "transaction", poolSize: 1 })
          const a = yield* node(onlyOnce(pooler.url()), { sessionTtl: "30 seconds" })
          // nothing of it is on its way then
          yield* until(
            "it has counted the locks of the server",
            Effect.map(
              server.query(
                `select 1 from pg_stat_activity
                where application_name like 'effect-locking/%' and state = 'idle' and query like '%pg_locks%'`
              ),
              ({ length }) => length === 1
            )
          )
          for (const { pid } of yield* backends(server)) yield* terminate(server, pid)
          yield* until("the pooler knows", Effect.map(pooler.log, (log) => /S-.*closing because/.test(log)))
          const b = yield* node(onlyOnce(pooler.url()), { sessionTtl: "30 seconds" })
          const inside = yield* Deferred.make<void>()
          const gate = yield* Deferred.make<void>()
          const holder = yield* Effect.fork(
            b.withLocks(Effect.zipRight(Deferred.succeed(inside, undefined), Deferred.await(gate)), theirs)
          )
          yield* Deferred.await(inside)
          const error = yield* Effect.flip(a.withLocks(Effect.void, ours, { waitTimeout: 0 }))
          assert(error._tag === "ProviderFailed" || error._tag === "OutcomeUnknown", error._tag)
          assert.include(String(error.cause), "pooler")
          assert.lengthOf(yield* keysHeld(server), theirs.length)
          yield* Deferred.succeed(gate, undefined)
          yield* Fiber.join(holder)
          // what is taken twice stays after one release
          assert.deepStrictEqual(yield* held(server), [])
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

describe("a session on which somebody else unlocks", () => {
  /** A lease that is kept, and what the program itself says on the session of its locks. */
  const world = Effect.gen(function*() {
    const server = yield* serve()
    const clients: Array<Pg.Client> = []
    const connection = Effect.sync(() => {
      const client = new Pg.Client({ connectionString: server.url() })
      clients.push(client)
      return client
    })
    const a = yield* node(connection, { sessionTtl: "30 seconds" })
    const kept = yield* a.acquire("kept")
    const [session] = yield* keysHeld(server)
    return {
      a,
      server,
      unlock: (key: string) =>
        Effect.flatMap(
          a.resolveKey(key),
          (key) => Effect.promise(() => clients[0]!.query("select pg_advisory_unlock($1)", [lockId(key)]))
        ),
      unlockAll: Effect.promise(() => clients[0]!.query("select pg_advisory_unlock_all()")),
      /** Its books are wrong, so nothing in them is believed, and whatever the server may still hold goes with it. */
      hasEnded: Effect.gen(function*() {
        assert.strictEqual((yield* Effect.flip(kept.lost)).reason, "session-ended")
        yield* until("it is gone", Effect.map(backends(server), (all) => all.every(({ pid }) => pid !== session!.pid)))
        yield* a.withLock(Effect.void, "kept", patient)
        yield* nothingHeld(server)
      })
    }
  })

  it.scopedLive("B15 a release that the server denies", () =>
    Effect.gen(function*() {
      const { a, hasEnded, unlock } = yield* world
      const lease = yield* a.acquire("k")
      yield* unlock("k")
      yield* lease.release
      yield* hasEnded
    }), 60_000)

  it.scopedLive("B15 a release of several keys, of which the server denies one", () =>
    Effect.gen(function*() {
      const { a, hasEnded, unlock } = yield* world
      assert.strictEqual(yield* a.withLocks(Effect.as(unlock("l"), "done"), ["k", "l", "m"]), "done")
      yield* hasEnded
    }), 60_000)

  it.scopedLive("B15 a release by a reader", () =>
    Effect.gen(function*() {
      const { a, hasEnded, unlockAll } = yield* world
      const lease = yield* a.acquire("k", { mode: "shared" })
      yield* unlockAll
      yield* lease.release
      yield* hasEnded
    }), 60_000)

  it.scopedLive("B15 a waiter that gives up, whose interest the server denies", () =>
    Effect.gen(function*() {
      const { a, hasEnded, server, unlockAll } = yield* world
      const b = yield* node(server.url(), { sessionTtl: "30 seconds" })
      const lease = yield* b.acquire("k")
      const waiter = yield* Effect.fork(a.withLock(Effect.void, "k", patient))
      yield* somebodyWaits(server)
      yield* unlockAll
      yield* Fiber.interrupt(waiter)
      yield* lease.release
      yield* hasEnded
    }), 60_000)
})
