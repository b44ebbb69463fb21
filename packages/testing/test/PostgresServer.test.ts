import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, TestClock } from "effect"
import * as childProcess from "node:child_process"
import * as fs from "node:fs"
import { isRunning } from "../src/internal/processes.js"
import { until } from "../src/internal/realTime.js"

const answers = (server: PostgresServer.Postgres) =>
  Effect.map(server.query("select 1 as one"), ([row]) => row!["one"] === 1)

for (const version of [15, 18] as const) {
  describe(`PostgreSQL ${version}`, () => {
    it.scopedLive("restarts and crashes, and keeps what was committed", () =>
      Effect.gen(function*() {
        const server = yield* PostgresServer.make({ version, settings: { max_connections: "17" } })
        const [row] = yield* server.query(
          "select current_setting('server_version_num')::int / 10000 as v, current_setting('max_connections') as m"
        )
        assert.deepStrictEqual(row, { v: version, m: "17" })
        yield* server.query("create table t (i int); insert into t values (1)")
        yield* server.restart("fast")
        yield* server.kill
        assert(Exit.isFailure(yield* Effect.exit(answers(server))))
        yield* server.start
        yield* server.start
        assert.deepStrictEqual(yield* server.query("select i from t"), [{ i: 1 }])
        yield* server.stop("immediate")
        yield* server.stop()
        yield* server.start
        assert(yield* answers(server))
      }))

    it.scopedLive("a frozen one is mute, and goes on where it was", () =>
      Effect.gen(function*() {
        const server = yield* PostgresServer.make({ version })
        yield* server.freeze
        const answer = yield* Effect.fork(answers(server))
        yield* Effect.sleep(300)
        assert.isTrue((yield* answer.poll)._tag === "None")
        yield* server.thaw
        assert.isTrue(yield* Fiber.join(answer))
        yield* server.freeze
        yield* server.kill
        yield* server.start
        assert.isTrue(yield* answers(server))
        // the scope ends it frozen
        yield* server.freeze
      }))

    it.scopedLive("a standby follows, and takes over when it is told to", () =>
      Effect.gen(function*() {
        const primary = yield* PostgresServer.make({ version })
        yield* primary.query("create table t (i int)")
        const standby = yield* primary.standby()
        yield* primary.query("insert into t values (1)")
        yield* until({
          step: "see the row at the standby",
          see: Effect.map(standby.query("select i from t"), (rows) => rows.length === 1),
          within: 10_000
        })
        assert(Exit.isFailure(yield* Effect.exit(standby.query("insert into t values (2)"))))
        yield* primary.kill
        yield* standby.promote
        yield* standby.query("insert into t values (2)")
        assert.lengthOf(yield* standby.query("select i from t"), 2)
      }))
  })
}

it.scopedLive("roles with settings of their own, databases, and URLs", () =>
  Effect.gen(function*() {
    const server = yield* PostgresServer.make()
    const role = "a \"strange\" name"
    for (const timeout of ["1s", "2s"]) {
      yield* server.createRole(role, { settings: { idle_session_timeout: timeout } })
      const [row] = yield* server.query("show idle_session_timeout", [], { role })
      assert.deepStrictEqual(row, { idle_session_timeout: timeout })
    }
    yield* server.createDatabase("other", role)
    const connect = { role, database: "other", applicationName: "me & you", settings: { search_path: "a, b" } }
    const [row] = yield* server.query(
      "select current_user as u, current_database() as d, current_setting('application_name') as a, current_setting('search_path') as s",
      undefined,
      connect
    )
    assert.deepStrictEqual(row, { u: role, d: "other", a: "me & you", s: "a, b" })
    assert(Exit.isFailure(yield* Effect.exit(server.query("create role another", [], { role }))))
  }))

/** Sets `PG_URL` for a while. */
const named = (url: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const before = process.env["PG_URL"]
      process.env["PG_URL"] = url
      return before
    }),
    (before) =>
      Effect.sync(() => {
        if (before === undefined) delete process.env["PG_URL"]
        else process.env["PG_URL"] = before
      })
  )

it.scopedLive("R8.7 is the one that PG_URL names, where it names one", () =>
  Effect.gen(function*() {
    const other = yield* PostgresServer.make({ version: 15 })
    yield* other.createRole("owner", { superuser: true })
    yield* other.createDatabase("theirs")
    yield* named(other.url({ role: "owner", password: "secret", database: "theirs" }))
    const server = yield* PostgresServer.fromEnvOrThrowAway({ version: 18 })
    assert.deepStrictEqual([server.host, server.port], ["127.0.0.1", other.port])
    const asked = (connect?: PostgresServer.ConnectOptions) =>
      Effect.map(
        server.query(
          "select current_user as u, current_database() as d, current_setting('server_version_num')::int / 10000 as v",
          [],
          connect
        ),
        ([row]) => row
      )
    assert.deepStrictEqual(yield* asked(), { u: "owner", d: "theirs", v: 15 })
    yield* server.createRole("app")
    yield* server.createDatabase("ours")
    assert.deepStrictEqual(yield* asked({ role: "app", database: "ours" }), { u: "app", d: "ours", v: 15 })
    assert.strictEqual(server.url({ role: "app", port: 1234 }), "postgres://app@127.0.0.1:1234/theirs")
    yield* named("postgres://owner@db.example/theirs?sslmode=require")
    const remote = yield* PostgresServer.fromEnvOrThrowAway()
    assert.deepStrictEqual([remote.host, remote.port], ["db.example", 5432])
    assert.strictEqual(remote.url(), "postgres://owner@db.example/theirs?sslmode=require")
    // through a proxy, which is here
    assert.strictEqual(remote.url({ port: 1234 }), "postgres://owner@127.0.0.1:1234/theirs?sslmode=require")
  }))

it.scopedLive("R8.7 is thrown away where PG_URL names none", () =>
  Effect.gen(function*() {
    yield* named("")
    const server = yield* PostgresServer.fromEnvOrThrowAway({ version: 15 })
    assert.isTrue(yield* answers(server))
  }))

it.scopedLive("the death of one session's process ends all sessions", () =>
  Effect.gen(function*() {
    const server = yield* PostgresServer.make()
    const long = yield* Effect.fork(server.query("select pg_sleep(30)"))
    yield* until({
      step: "see the session",
      see: Effect.flatMap(
        server.query<{ pid: number }>("select pid from pg_stat_activity where query = 'select pg_sleep(30)'"),
        ([row]) => row === undefined ? Effect.succeed(false) : Effect.as(server.killBackend(row.pid), true)
      ),
      within: 5_000
    })
    assert(Exit.isFailure(yield* Fiber.await(long)))
    yield* until({
      step: "see it recover",
      see: Effect.orElseSucceed(answers(server), () => false),
      within: 10_000
    })
  }))

it.scoped("works beside a TestClock that nobody moves", () =>
  Effect.gen(function*() {
    const server = yield* PostgresServer.make()
    assert.isTrue(yield* answers(server))
    yield* TestClock.adjust(0)
  }))

it.scopedLive("a setting that the server refuses is told", () =>
  Effect.gen(function*() {
    const error = yield* Effect.flip(PostgresServer.make({ settings: { max_connections: "many" } }))
    assert.include(error.message, "max_connections")
  }))

it.scopedLive("nothing is left when the process of the tests dies", () =>
  Effect.gen(function*() {
    const child = childProcess.spawn(
      process.execPath,
      ["--import", "tsx", new URL("fixtures/postgresServer.ts", import.meta.url).pathname],
      { stdio: ["ignore", "pipe", "inherit"] }
    )
    const line = yield* Effect.async<string>((resume) => {
      child.stdout.once("data", (chunk) => resume(Effect.succeed(String(chunk))))
    })
    const { folder, pid } = JSON.parse(line)
    assert.isTrue(isRunning(pid))
    child.kill("SIGKILL")
    yield* until({
      step: "see the server go",
      see: Effect.sync(() => !isRunning(pid) && !fs.existsSync(folder)),
      within: 15_000
    })
  }))
