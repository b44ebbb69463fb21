import * as PgBouncer from "@effect-locking/testing/PgBouncer"
import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import type { LockingOptions } from "effect-locking/LockOptions"
import { createSequenceOnce } from "../src/internal/sql.js"
import type { DriverOptions } from "../src/PgLocking.js"
import { alwaysYes, database, layerServer, node, Server, sql } from "./server.js"

type Options = LockingOptions & { readonly driver?: DriverOptions }

/** Why a layer does not start. */
const refusal = (url: string, options?: Options) => Effect.scoped(Effect.flip(node(url, options)))

const starts = (url: string, options?: Options) =>
  Effect.scoped(
    Effect.flatMap(node(url, options), (locking) => locking.useLock("k", (lease) => Effect.succeed(lease.fence)))
  )

const sequence = "\"public\".effect_locking_fence"

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
              yield* client.unsafe(createSequenceOnce(sequence, "8"))
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
        // without a sequence nobody can tell that nothing was granted before the server started
        const clock: Options = { driver: { fence: "clock", restartQuarantine: false } }
        const first = yield* starts(url(), clock)
        assert.isTrue((yield* starts(url(), clock)) > first + 8n)
        assert.lengthOf(yield* query("select 1 from pg_sequences"), 0)
        yield* starts(url())
        const error = yield* refusal(url(), clock)
        assert(error._tag === "DriverInvalid")
        assert.match(error.message, /run backwards/)
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
