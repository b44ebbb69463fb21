/** Roles, pools, lock tables and neighbours: the lock must fit beside them, and leave nothing behind. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Exit, Fiber, Layer, Random, Redacted, Schedule } from "effect"
import { Locking } from "effect-locking/Locking"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import Pg from "pg"
import * as PgLocking from "../../src/PgLocking.js"
import {
  backends,
  clock,
  held,
  keysHeld,
  node,
  nothingHeld,
  serve,
  slack,
  somebodyWaits,
  stay,
  terminate,
  until,
  version
} from "./kit.js"

const patient = { waitTimeout: "25 seconds" } as const

const range = (n: number) => Array.from({ length: n }, (_, i) => i)

describe("beside the program and its neighbours", () => {
  it.scopedLive(
    "R8.2 a role with time-outs and read-only transactions of its own, set by ALTER ROLE",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url())
        yield* a.withLock(Effect.void, "k")
        yield* server.createRole("app", {
          settings: {
            statement_timeout: "1s",
            lock_timeout: "100ms",
            idle_session_timeout: "1s",
            idle_in_transaction_session_timeout: "1s",
            ...(version >= 17 && { transaction_timeout: "1s" }),
            default_transaction_read_only: "on",
            default_transaction_isolation: "serializable",
            search_path: "nowhere",
            standard_conforming_strings: "off"
          }
        })
        yield* server.query("grant usage, update on sequence effect_locking_fence to app")
        const app = server.url({ role: "app" })
        const b = yield* node(app, { sessionTtl: "20 seconds", pollInterval: "20 seconds" })
        const c = yield* node(app, { sessionTtl: "20 seconds", pollInterval: "20 seconds" })
        const gate = yield* Deferred.make<void>()
        const holder = yield* Effect.fork(b.withLock(Deferred.await(gate), "k", patient))
        yield* until("held", Effect.map(keysHeld(server), ({ length }) => length === 1))
        const before = yield* keysHeld(server)
        const waiter = yield* Effect.fork(c.withLock(clock, "k", patient))
        yield* somebodyWaits(server)
        // longer than all of them
        yield* Effect.sleep(2500)
        assert.deepStrictEqual(yield* keysHeld(server), before)
        const left = yield* clock
        yield* Deferred.succeed(gate, undefined)
        yield* Fiber.join(holder)
        assert.isBelow((yield* Fiber.join(waiter)) - left, slack)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B55 a pool of three, three holders who query, then 200 waiters: all finish, on two connections of ours",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const Sql = PgClient.layer({ url: Redacted.make(server.url({ applicationName: "users" })), maxConnections: 3 })
        const context = yield* Layer.build(
          Layer.provideMerge(PgLocking.layer({ sessionTtl: 5000, restartQuarantine: false }), Sql)
        )
        const locking = Context.get(context, Locking)
        const sql = Context.get(context, PgClient.PgClient)
        const barrier = yield* Deferred.make<void>()
        let inside = 0
        yield* Effect.forEach(["a", "b", "c"], (key) =>
          locking.withLock(
            Effect.gen(function*() {
              if (++inside === 3) yield* Deferred.succeed(barrier, undefined)
              yield* Deferred.await(barrier)
              yield* sql.withTransaction(sql`select pg_sleep(0.05)`)
            }),
            key,
            patient
          ), { concurrency: 3 })
        const results = yield* Effect.forEach(
          range(200),
          (i) => locking.withLock(Effect.as(sql`select 1`, i), `k${i % 20}`, patient),
          { concurrency: 200 }
        )
        assert.deepStrictEqual(results, range(200))
        const own = yield* backends(server)
        assert.isAtMost(own.length, 2)
        const users = yield* server.query("select 1 from pg_stat_activity where application_name = 'users'")
        assert.isAtMost(users.length, 3)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B56 CREATE INDEX CONCURRENTLY under the lock is not blocked by those who wait for it",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        yield* server.query("create table t (a int); insert into t select generate_series(1, 1000)")
        const [a, b, c] = yield* Effect.forEach([1, 2, 3], () => node(server.url(), { sessionTtl: 5000 }))
        const waiters: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
        yield* a!.withLock(
          Effect.gen(function*() {
            for (const one of [b!, c!]) {
              waiters.push(yield* Effect.forkDaemon(one.withLock(Effect.void, "migration", patient)))
            }
            yield* somebodyWaits(server, 2)
            yield* server.query("set statement_timeout = '10s'; select 1")
            yield* server.query("create index concurrently on t (a)", [], { settings: { statement_timeout: "10s" } })
          }),
          "migration"
        )
        for (const waiter of waiters) yield* Fiber.join(waiter)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B58 waiters are interrupted by the hundred: no neighbour's statement is cancelled",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url(), { sessionTtl: 20_000 })
        const b = yield* node(server.url(), { sessionTtl: 20_000 })
        const sql = Context.get(
          yield* Layer.build(PgClient.layer({ url: Redacted.make(server.url()), maxConnections: 3 })),
          PgClient.PgClient
        )
        const holder = yield* Effect.fork(a.withLock(Effect.never, "k0"))
        const neighbour = yield* Effect.fork(Effect.forever(sql`select pg_sleep(0.005)`))
        yield* Effect.forEach(range(400), (i) =>
          Effect.gen(function*() {
            const waiter = yield* Effect.fork(b.withLock(Effect.void, `k${i % 3}`, patient))
            yield* Effect.sleep(yield* Random.nextIntBetween(0, 40))
            yield* Fiber.interrupt(waiter)
          }), { concurrency: 40 })
        assert.isNull(neighbour.unsafePoll(), "it goes on")
        assert.notInclude(yield* server.log, "canceling statement")
        yield* Fiber.interrupt(neighbour)
        yield* Fiber.interrupt(holder)
        yield* nothingHeld(server)
      }),
    60_000
  )
})

describe("a statement that fails when it has taken its locks already", () => {
  /** A role that may lock, and from which the fences can be taken away: `nextval` then fails after the lock. */
  const world = Effect.gen(function*() {
    const server = yield* serve()
    yield* Effect.scoped(Effect.flatMap(node(server.url()), (first) => first.withLock(Effect.void, "k")))
    yield* server.createRole("app")
    const allow = server.query("grant usage, update on sequence effect_locking_fence to app")
    yield* allow
    return {
      server,
      url: server.url({ role: "app" }),
      allow,
      refuse: server.query("revoke usage, update on sequence effect_locking_fence from app")
    }
  })

  it.scopedLive(
    "R7.2 B15 one key, several, readers, and many at once: what it took is given up again, and only that",
    () =>
      Effect.gen(function*() {
        const { allow, refuse, server, url } = yield* world
        const a = yield* node(url, { sessionTtl: "30 seconds" })
        const b = yield* node(server.url(), { sessionTtl: "30 seconds" })
        const kept = yield* a.acquire("kept")
        const read = yield* a.acquire("read", { mode: "shared" })
        // in the way of the last of several
        yield* b.acquire("busy")
        const before = yield* held(server)
        assert.lengthOf(before, 3)
        yield* refuse
        const once = { waitTimeout: 0 } as const
        const body = Effect.die("the body ran")
        const attempts: Record<string, Effect.Effect<unknown, { readonly _tag: string }>> = {
          "one key": Effect.flip(a.withLock(body, "k", once)),
          "a reader": Effect.flip(a.withLock(body, "k", { ...once, mode: "shared" })),
          "several keys": Effect.flip(a.withLocks(body, ["k", "l", "m"], once)),
          "several readers, of which one is in already": Effect.flip(
            a.withLocks(body, ["k", "read"], { ...once, mode: "shared" })
          ),
          "many at once": Effect.forEach(range(20), (i) => Effect.flip(a.withLock(body, `k${i}`, once)), {
            concurrency: "unbounded"
          })
        }
        for (const [name, attempt] of Object.entries(attempts)) {
          const errors = [yield* attempt].flat()
          for (const error of errors) assert.propertyVal(error, "_tag", "ProviderFailed", name)
          assert.deepStrictEqual(yield* held(server), before, name)
        }
        // the session went on, and so did what it holds
        assert.isTrue((yield* kept.isValid) && (yield* read.isValid))
        assert.strictEqual((yield* b.withLockIfAvailable(body, "kept"))._tag, "None")
        yield* allow
        yield* a.withLocks(Effect.void, ["k", "l", "m"], once)
        assert.deepStrictEqual(yield* held(server), before)
        assert.isTrue(yield* kept.release)
      }),
    60_000
  )
})

describe("nothing stays behind", () => {
  it.scopedLive(
    "B15 R1.1 success, failure, defect, interruption, loss and time-out: no advisory lock is left",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url(), { sessionTtl: 5000 })
        const b = yield* node(server.url(), { sessionTtl: 5000 })
        const exits: Record<string, Effect.Effect<unknown, unknown>> = {
          success: a.withLock(Effect.void, "k"),
          failure: a.withLock(Effect.fail("own"), "k"),
          defect: a.withLock(Effect.die("own"), "k"),
          interruption: Effect.flatMap(
            Effect.fork(a.withLock(Effect.never, "k")),
            (fiber) => Effect.zipRight(Effect.sleep(5), Fiber.interrupt(fiber))
          ),
          timeout: b.withLock(Effect.flip(a.withLock(Effect.void, "k", { waitTimeout: 20 })), "k"),
          tooLong: a.withLock(Effect.never, "k", { maxHold: 20 }),
          several: a.withLocks(Effect.fail("own"), ["k", "l", "m"]),
          shared: a.withLock(Effect.die("own"), "k", { mode: "shared" })
        }
        for (const [name, run] of Object.entries(exits)) {
          for (let i = 0; i < 15; i++) yield* Effect.exit(run)
          yield* nothingHeld(server).pipe(Effect.annotateLogs({ name }))
        }
        for (let i = 0; i < 4; i++) {
          const holder = yield* stay(a, "k")
          const waiter = yield* Effect.fork(b.withLock(Effect.void, "k", patient))
          yield* somebodyWaits(server)
          yield* terminate(server, (yield* keysHeld(server))[0]!.pid)
          assert.strictEqual((yield* holder.ended).reason, "session-ended")
          yield* Fiber.join(waiter)
          yield* nothingHeld(server)
        }
      }),
    60_000
  )

  it.scopedLive(
    "B12 interrupted at every step, free or queued: the next attempt succeeds",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url(), { sessionTtl: 20_000 })
        const b = yield* node(server.url(), { sessionTtl: 20_000 })
        const sweep = (acquire: Effect.Effect<unknown, unknown>) =>
          Effect.forEach(range(41), (k) =>
            Effect.gen(function*() {
              const fiber = yield* Effect.fork(acquire)
              for (let i = 0; i < k; i++) yield* Effect.yieldNow()
              // the later ones reach into the answers of the server
              if (k > 20) yield* Effect.sleep((k - 20) / 5)
              yield* Fiber.interrupt(fiber)
            }))
        yield* sweep(a.withLock(Effect.never, "k"))
        yield* b.withLock(Effect.void, "k", { waitTimeout: "2 seconds" })
        yield* a.withLock(Effect.void, "k", { waitTimeout: "2 seconds" })
        yield* b.withLock(sweep(a.withLock(Effect.never, "k", patient)), "k")
        yield* b.withLock(Effect.void, "k", { waitTimeout: "2 seconds" })
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B04 R1.13 ten callers of one process, at one and the same session: one is inside at a time",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url(), { sessionTtl: 5000 })
        let inside = 0
        const fences: Array<bigint> = []
        yield* Effect.forEach(range(10), (i) =>
          a.useLock("k", patient, ({ fence }) =>
            Effect.gen(function*() {
              assert.strictEqual(++inside, 1)
              fences.push(fence as bigint)
              yield* Effect.sleep(10 + i)
              assert.lengthOf(yield* keysHeld(server), 1)
              inside--
            })), { concurrency: 10 })
        assert.deepStrictEqual(fences, [...new Set(fences)].sort((x, y) => Number(x - y)))
        assert.lengthOf(fences, 10)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B45 B78 wait limits and hold limits hold against the server, and not with the retries",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* node(server.url(), { sessionTtl: 20_000 })
        // polls must not make the last answer come late
        const b = yield* node(server.url(), { sessionTtl: 20_000, pollInterval: "20 seconds" })
        yield* b.withLock(Effect.void, "k", { waitTimeout: 0 })
        yield* b.withLock(Effect.void, "k", { waitTimeout: 1 })
        const holder = yield* Effect.fork(Effect.exit(a.withLock(Effect.never, "k", { maxHold: 2500 })))
        yield* until("held", Effect.map(keysHeld(server), ({ length }) => length === 1))
        const start = yield* clock
        assert.strictEqual((yield* Effect.flip(b.withLock(Effect.void, "k", { waitTimeout: 0 })))._tag, "LockBusy")
        const one = yield* Effect.flip(b.withLock(Effect.void, "k", { waitTimeout: "1 second" }))
        assert(one._tag === "WaitTimeout")
        assert.isAtLeast(Duration.toMillis(one.waited), 1000)
        assert.isBelow((yield* clock) - start, 1200 + slack)
        // the hold ends by its limit
        yield* b.withLock(Effect.void, "k", { waitTimeout: Infinity })
        const exit = yield* Fiber.join(holder)
        assert(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost")
        assert.strictEqual(exit.cause.error.reason, "max-hold")
        for (const waitTimeout of [-1, NaN]) {
          assert.strictEqual((yield* Effect.flip(b.withLock(Effect.void, "k", { waitTimeout })))._tag, "InvalidOptions")
        }
        yield* nothingHeld(server)
      }),
    60_000
  )
})

describe("the lock table of the server", () => {
  const small = { max_locks_per_transaction: "10", max_connections: "30", max_wal_senders: "0" }

  it.scopedLive("B48 R6.6 200 keys at once, and each of them excludes", () =>
    Effect.gen(function*() {
      const server = yield* serve()
      const a = yield* node(server.url(), { sessionTtl: 20_000 })
      const b = yield* node(server.url(), { sessionTtl: 20_000 })
      yield* Effect.scoped(Effect.gen(function*() {
        yield* Effect.forEach(range(200), (i) => a.acquire(`k${i}`, patient), { concurrency: 50 })
        assert.lengthOf(yield* keysHeld(server), 200)
        const free = yield* Effect.forEach(range(200), (i) => b.withLockIfAvailable(Effect.void, `k${i}`), {
          concurrency: 50
        })
        assert.lengthOf(free.filter(({ _tag }) => _tag === "Some"), 0)
      }))
      yield* nothingHeld(server)
    }), 60_000)

  it.scopedLive(
    "R6.6 a process takes no more than its tenth, though all is asked for at once, and others log in",
    () =>
      Effect.gen(function*() {
        const server = yield* serve({ settings: small })
        const limit = 30
        const a = yield* node(server.url(), { sessionTtl: 20_000 })
        yield* Effect.scoped(Effect.gen(function*() {
          const exits = yield* Effect.forEach(range(200), (i) => Effect.exit(a.acquire(`k${i}`, patient)), {
            concurrency: "unbounded"
          })
          const refused = exits.flatMap((exit) =>
            Exit.isFailure(exit) && exit.cause._tag === "Fail" ? [exit.cause.error._tag] : []
          )
          assert.deepStrictEqual([...new Set(refused)], ["KeyLimit"])
          assert.isAtMost((yield* held(server)).length, limit)
          assert.lengthOf(refused, 200 - limit)
          yield* server.query("create table t (a int)")
        }))
        yield* nothingHeld(server)
        // those who wait count as well
        const b = yield* node(server.url(), { sessionTtl: 20_000 })
        yield* Effect.scoped(Effect.gen(function*() {
          yield* Effect.forEach(range(limit), (i) => b.acquire(`k${i}`, patient), { concurrency: "unbounded" })
          const waiters = yield* Effect.forEach(
            range(limit),
            (i) => Effect.fork(a.withLock(Effect.void, `k${i}`, patient))
          )
          yield* somebodyWaits(server, 5)
          yield* Effect.sleep(1000)
          assert.isAtMost((yield* held(server)).length, 2 * limit)
          yield* Effect.forEach(waiters, Fiber.interrupt)
        }))
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "R6.6 R10.4 strangers fill more than half of it: KeyLimit before it is full, a finding, and what is held stays",
    () =>
      Effect.gen(function*() {
        const server = yield* serve({ settings: small })
        const stranger = new Pg.Client({ connectionString: server.url() })
        yield* Effect.acquireRelease(
          Effect.promise(() => stranger.connect()),
          () => Effect.promise(() => stranger.end())
        )
        // of 300 for which there is room
        const fill = (from: number, to: number, lock = "pg_advisory_lock") =>
          Effect.promise(() => stranger.query(`select count(${lock}(-i)) from generate_series(${from}, ${to}) i`))
        const a = yield* node(server.url(), { sessionTtl: 20_000 })
        const isFound = Effect.map(a.check, (findings) => findings.some(({ code }) => code === "LOCK_TABLE"))
        const kept = yield* a.acquire("kept")
        yield* fill(1, 140)
        assert.isFalse(yield* isFound)
        yield* fill(141, 170)
        assert.isTrue(yield* isFound)
        // locks are counted when a session opens, and again and again
        const b = yield* node(server.url(), { sessionTtl: 20_000 })
        const tags = Effect.map(
          Effect.exit(b.withLock(Effect.void, "k", { waitTimeout: 0 })),
          (exit) => Exit.isSuccess(exit) ? "granted" : exit.cause._tag === "Fail" ? exit.cause.error._tag : "defect"
        )
        yield* until("refused", Effect.map(tags, (tag) => tag === "KeyLimit"))
        assert.isTrue(yield* kept.isValid)
        yield* fill(141, 170, "pg_advisory_unlock")
        yield* until("granted again", Effect.map(tags, (tag) => tag === "granted"))
        assert.isFalse(yield* isFound)
      }),
    60_000
  )

  it.scopedLive(
    "R7.2 a stranger exhausts it (53200): typed errors, nothing leaks, held leases stay, and all works afterwards",
    () =>
      Effect.gen(function*() {
        const server = yield* serve({ settings: small })
        const a = yield* node(server.url(), { sessionTtl: 20_000 })
        const stranger = new Pg.Client({ connectionString: server.url() })
        stranger.on("error", () => {})
        yield* Effect.promise(() => stranger.connect())
        const leave = yield* Deferred.make<void>()
        const holder = yield* Effect.fork(
          a.withLock(Effect.as(Deferred.await(leave), "kept"), "mine", patient)
        )
        yield* until("held", Effect.map(keysHeld(server), ({ length }) => length === 1))
        const [mine] = yield* keysHeld(server)
        const count = (clause: string) =>
          Effect.promise(() =>
            stranger.query(
              `select count(*)::int as n from pg_lock_status() where locktype = 'advisory' and pid = ${
                mine!.pid
              } ${clause}`
            )
          ).pipe(Effect.map(({ rows }) => rows[0].n as number))
        yield* count("")
        const full = yield* Effect.promise(() =>
          stranger.query("select count(pg_try_advisory_lock(-i)) from generate_series(1, 100000) i").then(
            () => "none",
            (error: unknown) => (error as { readonly code: string }).code
          )
        )
        assert.strictEqual(full, "53200")
        for (let i = 0; i < 5; i++) {
          const error = yield* Effect.flip(a.withLock(Effect.die("entered"), `k${i}`, { waitTimeout: 300 }))
          assert.include(["ProviderFailed", "KeyLimit", "OutcomeUnknown"], error._tag)
        }
        assert.strictEqual(yield* count(""), 1)
        assert.isNull(holder.unsafePoll(), "a lease that is held is not given up for it")
        yield* Effect.promise(() => stranger.query("select pg_advisory_unlock_all()"))
        yield* Effect.promise(() => stranger.end())
        // the crowd is counted every five seconds
        yield* Effect.retry(a.withLock(Effect.void, "k", patient), { times: 100, schedule: Schedule.spaced(200) })
        yield* Deferred.succeed(leave, undefined)
        assert.strictEqual(yield* Fiber.join(holder), "kept")
        yield* nothingHeld(server)
      }),
    60_000
  )
})

/** What the program reaches, after everything else was collected. */
const heap = Effect.sync(() => {
  setFlagsFromString("--expose-gc")
  const collect: () => void = runInNewContext("gc")
  collect()
  collect()
  return process.memoryUsage().heapUsed
})

describe("what stays", () => {
  it.scopedLive(
    "B40 R6.5 ten thousand keys, some of them waited for in vain, leave nothing here or at the server",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const [a, b] = [yield* node(server.url()), yield* node(server.url())]
        const round = (name: string, keys: number) =>
          Effect.forEach(range(keys), (i) => {
            const key = `${name}/${i}`
            return i % 50 === 0
              ? Effect.scoped(Effect.zipRight(
                b.acquire(key),
                // interrupted while it waits at the server
                Effect.timeoutOption(a.withLock(Effect.void, key, patient), 20)
              ))
              : a.withLock(Effect.void, key)
          }, { concurrency: 64, discard: true })
        // compiled code, and whatever is kept within bounds
        yield* round("warm", 3000)
        const before = yield* heap
        yield* round("key", 10_000)
        yield* nothingHeld(server)
        const grown = (yield* heap) - before
        // a record has several hundred bytes
        assert.isBelow(grown, 10_000 * 100)
        // and the limit counts what is held now
        yield* Effect.scoped(Effect.forEach(range(300), (i) => a.acquire(`held/${i}`), { discard: true }))
        yield* nothingHeld(server)
      }),
    60_000
  )
})
