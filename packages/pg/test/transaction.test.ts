import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import * as Locking from "effect-locking/Locking"
import * as PgFence from "../src/PgFence.js"
import * as PgLocking from "../src/PgLocking.js"
import { database, layerServer, node, sql } from "./server.js"

/** A program: its own client, and locks beside it. */
const program = (url: string) => Layer.provideMerge(PgLocking.layer(), sql(url))

const transaction = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(PgClient.PgClient, (client) => client.withTransaction(effect))

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
