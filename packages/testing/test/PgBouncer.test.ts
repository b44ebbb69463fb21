import * as PgBouncer from "@effect-locking/testing/PgBouncer"
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { assert, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import * as Debian from "../src/internal/debian.js"

it.scopedLive("transaction pooling: a session's state is seen by others, as in production", () =>
  Effect.gen(function*() {
    const server = yield* PostgresServer.make()
    const pooler = yield* PgBouncer.make(server, { pooling: "transaction", poolSize: 1 })
    const through = { port: pooler.port }
    assert.deepStrictEqual(yield* server.query("select pg_try_advisory_lock(1) as mine", [], through), [{ mine: true }])
    // another client, the same session
    assert.deepStrictEqual(yield* server.query("select pg_try_advisory_lock(1) as mine", [], through), [{ mine: true }])
    assert.deepStrictEqual(yield* server.query("select pg_try_advisory_lock(1) as mine"), [{ mine: false }])
    assert.include(pooler.url({ database: "x" }), `:${pooler.port}/x`)
    yield* pooler.kill
    assert(Exit.isFailure(yield* Effect.exit(server.query("select 1", [], through))))
  }))

it.scopedLive("session pooling: a session is clean when its client has gone", () =>
  Effect.gen(function*() {
    const server = yield* PostgresServer.make({ version: 15 })
    const pooler = yield* PgBouncer.make(server, { pooling: "session", poolSize: 1 })
    const through = { port: pooler.port }
    assert.deepStrictEqual(yield* server.query("select pg_try_advisory_lock(1) as mine", [], through), [{ mine: true }])
    yield* server.query("select 1", [], through)
    assert.deepStrictEqual(yield* server.query("select pg_try_advisory_lock(1) as mine"), [{ mine: true }])
  }))

it.live("a program that is nowhere: the error tells what to do", () =>
  Effect.gen(function*() {
    const error = yield* Effect.flip(Debian.program({ name: "no-such-server", packages: ["no-such-package-anywhere"] }))
    assert.include(error.message, "have no-such-server on PATH")
    assert.include(error.message, "apt-get update")
  }))
