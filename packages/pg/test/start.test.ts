import * as PgBouncer from "@effect-locking/testing/PgBouncer"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import type { Locking } from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import { lockId } from "../src/internal/pure/lockId.js"
import { beginCreation, createSequence } from "../src/internal/sql.js"
import type { DriverOptions } from "../src/PgLocking.js"
import { alwaysYes, database, layerServer, node, Server, sql } from "./server.js"

type Options = LockingOptions & { readonly driver?: DriverOptions }

/** Why a layer does not start. */
const refusal = (url: string, options?: Options) => Effect.scoped(Effect.flip(node(url, options)))

const starts = (url: string, options?: Options) => Effect.scoped(Effect.flatMap(node(url, options), fenceOf))

const sequence = "\"public\".effect_locking_fence"

// without a sequence nobody can tell that nothing was granted before the server started
const clock: Options = { driver: { fence: "clock", restartQuarantine: false } }

/** For a sequence that starts before the server did. */
const fresh: Options = { driver: { restartQuarantine: false } }

const fenceOf = (locking: Locking) => locking.useLock("k", (lease) => Effect.succeed(lease.fence))

layer(layerServer(18), { excludeTestServices: true, timeout: 60_000 })("start", (it) => {
  describe("fences come from one source", () => {
    it.scoped("R3.1 the first start makes the sequence; fences rise over starts", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const first = yield* starts(url())
        const second = yield* starts(url())
        assert.isTrue(second >= first + 8n)
        const [row] = yield* query("select increment_by::int as by, cache_size::int as cache from pg_sequences")
        assert.deepStrictEqual(row, { by: 8, cache: 1 })
      }))

    it.scoped("R3.1 several first starts at once: one makes the sequence, the others wait for it", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const program = yield* Layer.build(sql(url()))
        const all = yield* Effect.provide(
          Effect.flatMap(PgClient.PgClient, (client) =>
            client.withTransaction(Effect.gen(function*() {
              // as one of them does it, who has not committed yet
              yield* client.unsafe(beginCreation)
              yield* client.unsafe(createSequence(sequence, "8"))
              const others = yield* Effect.fork(
                Effect.forEach([1, 2, 3, 4], () => starts(url(), { driver: { restartQuarantine: false } }), {
                  concurrency: "unbounded"
                })
              )
              yield* query("select 1 from pg_locks where not granted").pipe(
                Effect.repeat({ until: ({ length }) => length === 4 })
              )
              return others
            }))),
          program
        )
        const fences = yield* Fiber.join(all)
        assert.strictEqual(new Set(fences).size, 4)
        assert.lengthOf(yield* query("select 1 from pg_sequences"), 1)
      }))

    it.scoped("R3.1 a role that may not create it: DriverInvalid, with the SQL that a DBA has to run", () =>
      Effect.gen(function*() {
        const server = yield* Server
        const { query, url } = yield* database
        yield* server.createRole("plain")
        const error = yield* refusal(url({ role: "plain" }))
        assert(error._tag === "DriverInvalid")
        assert.match(error.message, /does not exist and this role may not create it/)
        const created = /create sequence .* cache 1/.exec(error.fix)![0]
        yield* query(created)
        const missing = yield* refusal(url({ role: "plain" }))
        assert(missing._tag === "DriverInvalid")
        assert.match(missing.message, /may not draw/)
        yield* query(/grant .* on sequence \S+/.exec(missing.fix)![0] + " to plain")
        yield* starts(url({ role: "plain" }))
      }))

    it.scoped("R3.1 usage alone is not enough: the sequence has to be moved up to the clock", () =>
      Effect.gen(function*() {
        const server = yield* Server
        const { query, url } = yield* database
        yield* server.createRole("reader")
        yield* starts(url())
        yield* query(`grant usage on sequence ${sequence} to reader`)
        assert.strictEqual((yield* refusal(url({ role: "reader" })))._tag, "DriverInvalid")
      }))

    it.scoped("R3.1 a second schema is refused, whatever the search path", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        yield* query("create schema other")
        yield* starts(url())
        const error = yield* refusal(url(), { driver: { schema: "other" } })
        assert(error._tag === "DriverInvalid")
        assert.match(error.fix, /"public"/)
        // the name is qualified, so the path of the role is of no matter
        const fence = yield* starts(url({ settings: { search_path: "other" } }))
        assert.isTrue((yield* starts(url())) > fence)
        assert.lengthOf(yield* query("select 1 from pg_sequences"), 1)
      }))

    it.scoped("R3.1 the clock beside a sequence is refused; alone it gives rising fences and leaves nothing behind", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const first = yield* starts(url(), clock)
        assert.isTrue((yield* starts(url(), clock)) > first + 8n)
        assert.lengthOf(yield* query("select 1 from pg_sequences"), 0)
        yield* starts(url())
        const error = yield* refusal(url(), clock)
        assert(error._tag === "DriverInvalid")
        assert.match(error.message, /run backwards/)
      }))

    it.scoped("R3.1 a sequence beside a clock in use is refused and not made; once it is gone the fences go on rising", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const one = yield* node(url(), clock)
        const another = yield* node(url(), clock)
        const before = yield* fenceOf(one)
        const between = yield* fenceOf(another)
        assert.isTrue(between > before)
        const error = yield* refusal(url(), fresh)
        assert(error._tag === "DriverInvalid")
        assert.match(error.message, /run backwards/)
        assert.match(error.fix, /clock/)
        assert.lengthOf(yield* query("select 1 from pg_sequences"), 0)
        assert.isTrue((yield* fenceOf(one)) > between)
        // as a process that crashes: the session goes, and what names its source with it
        const lease = yield* one.acquire("kept")
        const last = yield* fenceOf(one)
        yield* query(
          "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'effect-locking/%'"
        )
        yield* Effect.flip(lease.lost)
        const after = yield* node(url(), fresh)
        assert.isTrue((yield* fenceOf(after)) > last)
        // who comes back has missed the change
        const late = yield* Effect.flip(one.withLock(Effect.void, "k", { waitTimeout: 0 }))
        assert(late._tag === "ProviderFailed")
        assert.match(String(late.cause), /run backwards/)
      }))

    it.scoped("R3.1 a clock beside a sequence in use is refused, and keeps nobody out afterwards", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const one = yield* node(url())
        const before = yield* fenceOf(one)
        assert.strictEqual((yield* refusal(url(), clock))._tag, "DriverInvalid")
        assert.deepStrictEqual(yield* query("select 1 from pg_locks where locktype = 'advisory'"), [])
        assert.isTrue((yield* fenceOf(one)) > before)
        assert.isTrue((yield* starts(url())) > before)
      }))

    it.scoped("R3.1 a sequence that a DBA made meanwhile waits for the clock to go", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        const last = yield* Effect.scoped(Effect.gen(function*() {
          const one = yield* node(url(), clock)
          yield* query(createSequence(sequence, "1"))
          assert.strictEqual((yield* refusal(url(), fresh))._tag, "DriverInvalid")
          return yield* fenceOf(one)
        }))
        assert.isTrue((yield* starts(url(), fresh)) > last)
      }))

    it.scoped("R3.1 several first starts at once, each with another source: one makes it, the others are refused", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        yield* query("create schema other")
        const program = yield* Layer.build(sql(url()))
        const others = yield* Effect.provide(
          Effect.flatMap(PgClient.PgClient, (client) =>
            client.withTransaction(Effect.gen(function*() {
              // as one of them does it, who has not committed yet
              yield* client.unsafe(beginCreation)
              yield* client.unsafe(createSequence(sequence, "8"))
              const others = yield* Effect.fork(
                Effect.forEach([clock, { driver: { schema: "other" } }], (options) => refusal(url(), options), {
                  concurrency: "unbounded"
                })
              )
              yield* query("select 1 from pg_locks where not granted").pipe(
                Effect.repeat({ until: ({ length }) => length === 2 })
              )
              return others
            }))),
          program
        )
        assert.deepStrictEqual((yield* Fiber.join(others)).map(({ _tag }) => _tag), ["DriverInvalid", "DriverInvalid"])
        assert.lengthOf(yield* query("select 1 from pg_sequences"), 1)
      }))

    it.scoped("R3.1 what names the clock is no lock of a user: nobody lists it, and a refused statement leaves it be", () =>
      Effect.gen(function*() {
        const { url } = yield* database
        yield* (yield* Server).createRole("clerk")
        const one = yield* node(url({ role: "clerk" }), clock)
        assert.deepStrictEqual(yield* one.list(), [])
        const lease = yield* one.acquire("mine")
        const theirs = lockId(yield* one.resolveKey("theirs"))
        const program = yield* Layer.build(sql(url()))
        const error = yield* Effect.provide(
          Effect.flatMap(PgClient.PgClient, (client) =>
            client.withTransaction(Effect.zipRight(
              client`select pg_advisory_xact_lock(${theirs}::int8)`,
              // it may not end the session of somebody else
              Effect.flip(one.forceRelease("theirs", { hard: true }))
            ))),
          program
        )
        assert(error._tag === "ProviderFailed")
        assert.match(String(error.cause), /permission denied/)
        assert.isTrue(yield* lease.isValid)
        assert.strictEqual((yield* refusal(url(), fresh))._tag, "DriverInvalid")
      }))

    it.scoped("R3.1 a sequence with a cache or a small step is refused", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        for (const wrong of ["increment by 8 cache 20", "increment by 1 cache 1"]) {
          yield* query(`create sequence ${sequence} as int8 ${wrong}`)
          const error = yield* refusal(url())
          assert(error._tag === "DriverInvalid")
          yield* query(/alter sequence .* cache 1/.exec(error.fix)![0])
          // it starts with 1, as if it were older than the server
          yield* starts(url(), { driver: { restartQuarantine: false } })
          yield* query(`drop sequence ${sequence}`)
        }
      }))
  })

  describe("deployments that do not keep a session", () => {
    it.scoped("R10.4 B05 a pooler in transaction mode: DriverInvalid, with the remedy", () =>
      Effect.gen(function*() {
        const { name, query } = yield* database
        const server = yield* Server
        for (const poolSize of [1, 2, 3]) {
          const pooler = yield* PgBouncer.make(server, { pooling: "transaction", poolSize })
          const error = yield* refusal(pooler.url({ database: name }))
          assert(error._tag === "DriverInvalid")
          assert.match(error.message, /pooler in transaction mode/)
          assert.match(error.fix, /direct URL/)
        }
        assert.deepStrictEqual(yield* query("select 1 from pg_locks where locktype = 'advisory'"), [])
      }))

    it.scoped("R10.4 B05 a pooler in session mode is fine", () =>
      Effect.gen(function*() {
        const { name } = yield* database
        const pooler = yield* PgBouncer.make(yield* Server, { pooling: "session" })
        yield* starts(pooler.url({ database: name }))
      }))

    it.scoped("R10.4 advisory locks that always say yes: DriverInvalid, in each mode of start that asks the server", () =>
      Effect.gen(function*() {
        const { query, url } = yield* database
        yield* alwaysYes(query)
        const shadowed = url({ settings: { search_path: "fake, pg_catalog, public" } })
        for (const start of ["eager", "strict"] as const) {
          const error = yield* refusal(shadowed, { start, driver: { restartQuarantine: false } })
          assert(error._tag === "DriverInvalid")
          assert.match(error.message, /two sessions were given one lock/)
          assert.match(error.fix, /search_path/)
        }
        const lazy = yield* node(shadowed, { start: "lazy" })
        assert.strictEqual(
          (yield* Effect.flip(lazy.withLock(Effect.void, "k", { waitTimeout: 0 })))._tag,
          "ProviderFailed"
        )
        // the functions are of no matter to those who do not see them
        yield* starts(url())
        assert.deepStrictEqual(yield* query("select 1 from pg_locks where locktype = 'advisory'"), [])
      }))

    it.scoped("R10.4 a standby: DriverInvalid", () =>
      Effect.gen(function*() {
        const server = yield* Server
        const standby = yield* server.standby()
        const error = yield* refusal(standby.url())
        assert(error._tag === "DriverInvalid")
        assert.match(error.message, /standby/)
      }))
  })

  it.scoped("R1.7 a server that cannot be reached fails the layer, or with a lazy start the call", () =>
    Effect.gen(function*() {
      const nowhere = "postgres://postgres@127.0.0.1:1/none"
      const error = yield* refusal(nowhere)
      assert(error._tag === "ProviderFailed")
      assert.match(error.message, /ECONNREFUSED/)
      const locking = yield* node(nowhere, { start: "lazy" })
      assert.strictEqual(
        (yield* Effect.flip(locking.withLock(Effect.void, "k", { waitTimeout: 0 })))._tag,
        "ProviderFailed"
      )
    }))

  it.scoped("R5 wrong options are refused before anything is asked, each with its path", () =>
    Effect.gen(function*() {
      const error = yield* refusal("postgres://postgres@127.0.0.1:1/none", {
        driver: { sessionTtl: "1 millis", schema: "", fence: "dice" as never }
      })
      assert(error._tag === "InvalidOptions")
      assert.deepStrictEqual(error.issues.map(({ path }) => path), ["sessionTtl", "schema", "fence"])
      const { url } = yield* database
      const ours = yield* refusal(url(), { maxKeys: 501 })
      assert(ours._tag === "InvalidOptions")
    }))
})
