import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer, Option } from "effect"
import type { LockMode } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import * as PgFence from "../src/PgFence.js"
import * as PgLocking from "../src/PgLocking.js"
import { database, layerServer, node, sql } from "./server.js"

/** A program: its own client, and locks beside it. */
const program = <const Options extends PgLocking.PgLockingOptions>(url: string, options?: Options) =>
  Layer.provideMerge(PgLocking.layer(options), sql(url))

const transaction = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(PgClient.PgClient, (client) => client.withTransaction(effect))

/** Sections of one key, without a pause, until the scope closes; ends once each has begun. */
const sections = (locking: Locking.Locking, mode: LockMode) =>
  Effect.forEach([20, 27, 34, 41], (millis) =>
    Effect.gen(function*() {
      const begun = yield* Deferred.make<void>()
      const section = locking.withLock(
        Effect.zipRight(Deferred.succeed(begun, undefined), Effect.sleep(millis)),
        "k",
        { mode, waitTimeout: "1 minute" }
      )
      yield* Effect.forkScoped(Effect.forever(section))
      yield* Deferred.await(begun)
    }))

/** Looks until it is so. */
const until = <E, R>(see: Effect.Effect<boolean, E, R>) =>
  Effect.repeat(Effect.delay(see, 10), { until: (isSo) => isSo })

layer(layerServer(18), { excludeTestServices: true, timeout: 60_000 })("inside a transaction", (it) => {
  describe("transactionLock", () => {
    it.scoped("R9.5 excludes ordinary locks until the commit, which wakes who waits for one", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        // only a wake-up can be as quick as that
        const other = yield* node(url(), { pollInterval: "1 minute" })
        const held = yield* Deferred.make<void>()
        const commit = yield* Deferred.make<void>()
        const holder = yield* transaction(
          PgLocking.transactionLock("k").pipe(
            Effect.zipRight(Deferred.succeed(held, undefined)),
            Effect.zipRight(Deferred.await(commit))
          )
        ).pipe(Effect.provide(program(url())), Effect.fork)
        yield* Deferred.await(held)
        assert.strictEqual((yield* Effect.flip(other.withLock(Effect.void, "k", { waitTimeout: 0 })))._tag, "LockBusy")
        const waiter = yield* Effect.fork(other.withLock(Effect.succeed("in"), "k", { waitTimeout: "20 seconds" }))
        yield* Effect.sleep(200)
        yield* Deferred.succeed(commit, undefined)
        assert.strictEqual(yield* Fiber.join(waiter), "in")
        yield* Fiber.join(holder)
      }))

    it.scoped("R9.5 ends with a rollback, too", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const failed = transaction(Effect.zipRight(PgLocking.transactionLock("k"), Effect.fail("no")))
        yield* Effect.flip(failed).pipe(
          Effect.zipRight(transaction(PgLocking.transactionLock("k", { waitTimeout: 0 }))),
          Effect.provide(program(url()))
        )
        assert.deepStrictEqual(yield* query("select 1 from pg_locks where locktype = 'advisory'"), [])
      }))

    it.scoped("R9.5 R1.7 waits until its limit, then WaitTimeout; with none LockBusy", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        const other = yield* node(url())
        yield* other.acquire("k")
        const asked = (waitTimeout: number) =>
          Effect.flip(transaction(PgLocking.transactionLock("k", { waitTimeout }))).pipe(Effect.provide(program(url())))
        const busy = yield* asked(0)
        assert(busy._tag === "LockBusy")
        const late = yield* asked(150)
        assert(late._tag === "WaitTimeout")
        assert.notInclude(late.message, "\"k\"")
      }))

    for (const mode of ["exclusive", "shared"] as const) {
      for (const whose of ["another process", "its own process"] as const) {
        it.scoped(`R1.6 R6.4 R9.5 gets in beside ${mode} callers of ${whose} who leave no gap`, () =>
          Effect.gen(function*() {
            const { query, url } = yield* database
            const context = yield* Layer.build(program(url()))
            const locking = Context.get(context, Locking.Locking)
            const others = whose === "its own process"
              ? [locking]
              : yield* Effect.replicateEffect(node(url()), mode === "shared" ? 2 : 1)
            for (const other of others) yield* sections(other, mode)
            const inside = transaction(Effect.zipRight(
              PgLocking.transactionLock("k", { waitTimeout: "15 seconds" }),
              query("select mode from pg_locks where locktype = 'advisory' and objsubid = 1")
            ))
            const held = yield* Effect.provide(inside, context)
            assert.deepStrictEqual(held, [{ mode: "ExclusiveLock" }])
          }))
      }
    }

    for (const end of ["a grant", "its time-out", "an interruption"] as const) {
      it.scoped(`R1.6 R9.5 after ${end} nothing of the wait is left, and readers who stood back are let in`, () =>
        Effect.gen(function*() {
          const { query, url } = yield* database
          // only a wake-up can be as quick as that
          const slow = { pollInterval: "1 minute" } as const
          const context = yield* Layer.build(program(url(), slow))
          const here = Context.get(context, Locking.Locking)
          const there = yield* node(url(), slow)
          const announced = query(
            "select mode from pg_locks where locktype = 'advisory' and objsubid = 2 order by mode"
          )
          const read = (locking: Locking.Locking) =>
            locking.withLock(Effect.void, "k", { mode: "shared", waitTimeout: "20 seconds" })
          const leave = yield* Deferred.make<void>()
          const begun = yield* Deferred.make<void>()
          const reader = yield* Effect.fork(there.withLock(
            Effect.zipRight(Deferred.succeed(begun, undefined), Deferred.await(leave)),
            "k",
            { mode: "shared" }
          ))
          yield* Deferred.await(begun)
          const asked = PgLocking.transactionLock("k", {
            waitTimeout: end === "its time-out" ? "2 seconds" : "20 seconds"
          })
          const waiter = yield* transaction(
            // the transaction goes on
            Effect.catchTag(asked, "WaitTimeout", () => Deferred.await(leave))
          ).pipe(Effect.provide(context), Effect.fork)
          // an intent and an interest
          yield* until(Effect.map(announced, ({ length }) => length === 2))
          // the server wakes those elsewhere; with none there, it wakes nobody
          const who = end === "its time-out" ? [here] : [here, there]
          const readers = yield* Effect.forEach(who, (locking) => Effect.fork(read(locking)))
          yield* until(Effect.map(announced, ({ length }) => length === 1 + who.length))
          assert.isTrue(readers.every((fiber) => fiber.unsafePoll() === null))
          if (end === "a grant") yield* Deferred.succeed(leave, undefined)
          if (end === "an interruption") yield* Fiber.interruptFork(waiter)
          yield* Fiber.joinAll(readers)
          yield* Deferred.succeed(leave, undefined)
          yield* Fiber.join(reader)
          assert.strictEqual(Exit.isSuccess(yield* Fiber.await(waiter)), end !== "an interruption")
          yield* until(
            Effect.map(query("select 1 from pg_locks where locktype = 'advisory'"), ({ length }) => length === 0)
          )
        }))
    }

    it.scoped("R1.6 R9.5 beside a reader of its own process who waits already, it keeps readers elsewhere back", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const context = yield* Layer.build(program(url()))
        const announced = query("select mode from pg_locks where locktype = 'advisory' and objsubid = 2 order by mode")
        const lease = yield* (yield* node(url())).acquire("k")
        const reader = yield* Context.get(context, Locking.Locking)
          .withLock(Effect.void, "k", { mode: "shared", waitTimeout: "20 seconds" })
          .pipe(Effect.fork)
        yield* until(Effect.map(announced, ({ length }) => length === 1))
        const waiter = yield* transaction(PgLocking.transactionLock("k", { waitTimeout: "20 seconds" })).pipe(
          Effect.provide(context),
          Effect.fork
        )
        yield* until(Effect.map(announced, ({ length }) => length === 2))
        assert.deepStrictEqual(yield* announced, [{ mode: "ExclusiveLock" }, { mode: "ShareLock" }])
        yield* lease.release
        yield* Fiber.join(waiter)
        yield* Fiber.join(reader)
      }))

    it.scoped("R1.6 R6.4 R9.5 while it waits, no more than four readers of its own process join those who hold it", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const context = yield* Layer.build(program(url()))
        const here = Context.get(context, Locking.Locking)
        const lease = yield* here.acquire("k", { mode: "shared" })
        const waiter = yield* transaction(PgLocking.transactionLock("k", { waitTimeout: "20 seconds" })).pipe(
          Effect.provide(context),
          Effect.fork
        )
        yield* until(Effect.map(query("select 1 from pg_locks where objsubid = 2"), ({ length }) => length === 2))
        const join = here.withLockIfAvailable(Effect.void, "k", { mode: "shared" })
        const joined = yield* Effect.all(Array.from({ length: 8 }, () => join))
        assert.isAtMost(joined.filter(Option.isSome).length, 4)
        yield* lease.release
        yield* Fiber.join(waiter)
      }))

    it.scoped("R9.5 never waits inside the server", () =>
      Effect.gen(function*() {
        const { name, query, url } = yield* database
        const other = yield* node(url())
        const lease = yield* other.acquire("k")
        const waiter = yield* transaction(PgLocking.transactionLock("k", { waitTimeout: "1 minute" })).pipe(
          Effect.provide(program(url())),
          Effect.fork
        )
        yield* until(Effect.map(query("select 1 from pg_locks where objsubid = 2"), ({ length }) => length > 0))
        const views: Array<unknown> = []
        for (let looks = 0; looks < 10; looks++) {
          const waits = yield* query(
            "select wait_event from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'",
            [name]
          )
          const queued = yield* query("select locktype, mode from pg_locks where not granted")
          for (const row of [...waits, ...queued]) views.push(row)
        }
        yield* lease.release
        yield* Fiber.join(waiter)
        assert.deepStrictEqual(views, [])
      }))

    it.scoped("R9.5 R5 who did not get it is told who holds it", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        const context = yield* Layer.build(program(url(), { session: "the asker" }))
        const other = yield* Layer.build(PgLocking.layer({ connection: url(), session: "the other" }))
        const asked = (key: string, waitTimeout: number) =>
          Effect.flip(transaction(PgLocking.transactionLock(key, { waitTimeout }))).pipe(Effect.provide(context))
        yield* Context.get(other, Locking.Locking).acquire("there")
        const late = yield* asked("there", 300)
        assert(late._tag === "WaitTimeout")
        assert.include(late.holder, { session: "the other", mode: "exclusive", local: false })
        assert.include(late.message, "the other")
        yield* Context.get(context, Locking.Locking).acquire("here", { mode: "shared" })
        const busy = yield* asked("here", 0)
        assert(busy._tag === "LockBusy")
        assert.include(busy.holder, { session: "the asker", mode: "shared", local: true })
      }))

    it.scoped("R9.5 taken in a nested transaction, it goes with the rollback to the savepoint", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        const other = yield* node(url())
        const isFree = Effect.map(
          other.withLockIfAvailable(Effect.void, "inner"),
          Option.isSome
        )
        yield* transaction(Effect.gen(function*() {
          yield* PgLocking.transactionLock("outer")
          yield* Effect.flip(transaction(
            PgLocking.transactionLock("inner").pipe(
              Effect.zipRight(isFree),
              Effect.tap((isFree) => assert.isFalse(isFree)),
              Effect.zipRight(Effect.fail("no"))
            )
          ))
          assert.isTrue(yield* isFree)
          // one that does not fail keeps it until the end of all
          yield* transaction(PgLocking.transactionLock("inner"))
          assert.isFalse(yield* isFree)
          assert.isTrue(Option.isNone(yield* other.withLockIfAvailable(Effect.void, "outer")))
        })).pipe(Effect.provide(program(url())))
        assert.isTrue(yield* isFree)
      }))

    it.scoped("R9.5 outside of a transaction, and above READ COMMITTED, it is refused", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        yield* Effect.gen(function*() {
          const outside = yield* Effect.flip(PgLocking.transactionLock("k"))
          assert(outside._tag === "TransactionInvalid" && outside.reason === "none")
          const client = yield* PgClient.PgClient
          const above = yield* Effect.flip(transaction(
            Effect.zipRight(client`set transaction isolation level repeatable read`, PgLocking.transactionLock("k"))
          ))
          assert(above._tag === "TransactionInvalid" && above.reason === "isolation")
        }).pipe(Effect.provide(program(url())))
      }))

    it.scoped("R4.3 R5 a key or a wait that cannot be is refused before anything is asked", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        yield* Effect.gen(function*() {
          assert.strictEqual((yield* Effect.flip(transaction(PgLocking.transactionLock(""))))._tag, "InvalidKey")
          const wait = Effect.flip(transaction(PgLocking.transactionLock("k", { waitTimeout: -1 })))
          assert.strictEqual((yield* wait)._tag, "InvalidOptions")
        }).pipe(Effect.provide(program(url())))
      }))

    it.scoped("R9.5 what is read under it is what the one before wrote", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        yield* query("create table counter (n int); insert into counter values (0)")
        const add = transaction(Effect.gen(function*() {
          const client = yield* PgClient.PgClient
          yield* PgLocking.transactionLock("counter", { waitTimeout: "20 seconds" })
          const [row] = yield* client<{ readonly n: number }>`select n from counter`
          yield* client`update counter set n = ${row!.n + 1}`
        }))
        yield* Effect.forEach(Array.from({ length: 40 }), () => add, { concurrency: 4 }).pipe(
          Effect.provide(program(url()))
        )
        assert.deepStrictEqual(yield* query("select n from counter"), [{ n: 40 }])
      }))
  })

  describe("PgFence.guard", () => {
    const guarded = (resource: string, fence: Parameters<typeof PgFence.guard>[1]) =>
      transaction(PgFence.guard(resource, fence))

    it.scoped("R3.3 a later holder's write shuts the door on the earlier one; equal fences pass", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        yield* Effect.gen(function*() {
          yield* PgFence.createTable()
          yield* PgFence.createTable()
          const earlier = yield* Locking.useLock("k", (lease) => Effect.as(guarded("r", lease), lease.fence))
          yield* guarded("r", earlier)
          const later = yield* Locking.useLock("k", (lease) => Effect.as(guarded("r", lease), lease.fence))
          const error = yield* Effect.flip(guarded("r", earlier))
          assert(error._tag === "StaleFence")
          assert.deepStrictEqual([error.resource, error.lock], [later, earlier])
          yield* guarded("another", earlier)
          yield* guarded("r", later)
        }).pipe(Effect.provide(program(url())))
      }))

    it.scoped("R3.3 a refusal rolls back what the transaction wrote", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        yield* query("create table t (i int)")
        yield* Effect.gen(function*() {
          const client = yield* PgClient.PgClient
          yield* PgFence.createTable()
          const earlier = yield* Locking.useLock("k", (lease) => Effect.succeed(lease.fence))
          yield* Locking.useLock("k", (lease) => guarded("r", lease))
          const late = transaction(Effect.zipRight(client`insert into t values (1)`, PgFence.guard("r", earlier)))
          assert.strictEqual((yield* Effect.flip(late))._tag, "StaleFence")
        }).pipe(Effect.provide(program(url())))
        assert.deepStrictEqual(yield* query("select * from t"), [])
      }))

    it.scoped("R3.3 two writers of a resource go one after the other", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        yield* Effect.gen(function*() {
          yield* PgFence.createTable()
          const [earlier, later] = [
            yield* Locking.useLock("k", (lease) => Effect.succeed(lease.fence)),
            yield* Locking.useLock("k", (lease) => Effect.succeed(lease.fence))
          ]
          const inside = yield* Deferred.make<void>()
          const commit = yield* Deferred.make<void>()
          const first = yield* Effect.fork(transaction(
            PgFence.guard("r", later).pipe(
              Effect.zipRight(Deferred.succeed(inside, undefined)),
              Effect.zipRight(Deferred.await(commit))
            )
          ))
          yield* Deferred.await(inside)
          const second = yield* Effect.fork(Effect.flip(guarded("r", earlier)))
          // it waits for the row
          while ((yield* query("select 1 from pg_locks where not granted")).length === 0) yield* Effect.sleep(10)
          yield* Deferred.succeed(commit, undefined)
          yield* Fiber.join(first)
          assert.strictEqual((yield* Fiber.join(second))._tag, "StaleFence")
        }).pipe(Effect.provide(program(url())))
      }))

    it.scoped("R3.3 outside of a transaction it is refused, without a table the error says so", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        yield* Effect.gen(function*() {
          const fence = yield* Locking.useLock("k", (lease) => Effect.succeed(lease.fence))
          const outside = yield* Effect.flip(PgFence.guard("r", fence))
          assert.strictEqual(outside._tag, "TransactionInvalid")
          const missing = yield* Effect.flip(guarded("r", fence))
          assert.strictEqual(missing._tag, "SqlError")
        }).pipe(Effect.provide(program(url())))
      }))

    it.scoped("R3.3 the form with a column of one's own, as the docs have it", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        yield* query("create table accounts (id text primary key, balance int, fence int8 not null default 0)")
        yield* query("insert into accounts values ('a', 0)")
        yield* Effect.gen(function*() {
          const client = yield* PgClient.PgClient
          const write = (fence: bigint, balance: number) =>
            Effect.map(
              client`update accounts set balance = ${balance}, fence = ${String(fence)}::int8
                where id = 'a' and fence <= ${String(fence)}::int8 returning id`,
              (rows) => rows.length === 1
            )
          const earlier = yield* Locking.useLock("k", (lease) => Effect.succeed(lease.fence))
          assert.isTrue(yield* write(earlier, 1))
          assert.isTrue(yield* Locking.useLock("k", (lease) => write(lease.fence, 2)))
          assert.isFalse(yield* write(earlier, 3))
        }).pipe(Effect.provide(program(url())))
        assert.deepStrictEqual(yield* query("select balance from accounts"), [{ balance: 2 }])
      }))
  })
})
