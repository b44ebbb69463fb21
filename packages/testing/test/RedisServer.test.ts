import * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import * as fs from "node:fs"
import { isRunning } from "../src/internal/processes.js"

/** Its clock against the machine's, in seconds. */
const ahead = (server: RedisServer.Redis) =>
  Effect.map(server.command("TIME"), ([seconds]) => Number(seconds) - Date.now() / 1_000)

/** Sets a variable of the environment for a while. */
const withVariable = (name: string, value: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const before = process.env[name]
      process.env[name] = value
      return before
    }),
    (before) =>
      Effect.sync(() => {
        if (before === undefined) delete process.env[name]
        else process.env[name] = before
      })
  )

describe("RedisServer", () => {
  it.scopedLive("forgets in a crash, or remembers where it is told to", () =>
    Effect.gen(function*() {
      for (const appendonly of ["no", "yes"]) {
        const server = yield* RedisServer.make({ settings: { appendonly, appendfsync: "always" } })
        assert.match(server.version, /^(Redis|Valkey) \d+\./)
        yield* server.command("SET", "key", "value")
        yield* server.kill
        assert(Exit.isFailure(yield* Effect.exit(server.command("PING"))))
        yield* server.start
        yield* server.start
        assert.strictEqual(yield* server.command("GET", "key"), appendonly === "yes" ? "value" : null)
      }
    }))

  it.scopedLive("a frozen one is mute, and goes on where it was", () =>
    Effect.gen(function*() {
      const server = yield* RedisServer.make()
      yield* server.freeze
      const answer = yield* Effect.fork(server.command("PING"))
      yield* Effect.sleep(300)
      assert.isTrue((yield* answer.poll)._tag === "None")
      yield* server.thaw
      assert.strictEqual(yield* Fiber.join(answer), "PONG")
    }))

  it.live("is gone with its scope, frozen or not", () =>
    Effect.gen(function*() {
      for (const isFrozen of [false, true]) {
        const [pid, folder] = yield* Effect.scoped(Effect.gen(function*() {
          const server = yield* RedisServer.make()
          const info: string = yield* server.command("INFO", "server")
          if (isFrozen) yield* server.freeze
          return [Number(/process_id:(\d+)/.exec(info)![1]), server.folder] as const
        }))
        assert.isFalse(isRunning(pid))
        assert.isFalse(fs.existsSync(folder))
      }
    }))

  it.scopedLive("has a clock that can be moved, there and back, and that a restart leaves where it is", () =>
    Effect.gen(function*() {
      const server = yield* RedisServer.make({ movableClock: true })
      assert.closeTo(yield* ahead(server), 0, 2)
      for (const seconds of [35, -3_600]) {
        yield* server.moveClock(seconds * 1_000)
        assert.closeTo(yield* ahead(server), seconds, 2)
      }
      yield* server.kill
      yield* server.start
      assert.closeTo(yield* ahead(server), -3_600, 2)
      yield* server.moveClock(0)
      // what had time left by the clock that was has none by the one that is
      yield* server.command("SET", "key", "value", "PX", "600000")
      yield* server.moveClock(700_000)
      assert.strictEqual(yield* server.command("GET", "key"), null)
    }))

  it.scopedLive("says what to do where its clock is the machine's", () =>
    Effect.gen(function*() {
      const server = yield* RedisServer.make()
      const error = yield* Effect.flip(server.moveClock(1_000))
      assert.include(error.message, "movableClock")
    }))

  it.scopedLive("R8.7 is the one that REDIS_URL names, where it names one", () =>
    Effect.gen(function*() {
      const other = yield* RedisServer.make()
      yield* other.command("CONFIG", "SET", "requirepass", "secret")
      yield* withVariable("REDIS_URL", `redis://:secret@127.0.0.1:${other.port}/3`)
      const server = yield* RedisServer.fromEnvOrThrowAway()
      assert.deepStrictEqual([server.host, server.port, server.version], ["127.0.0.1", other.port, other.version])
      assert.strictEqual(server.url(), `redis://:secret@127.0.0.1:${other.port}/3`)
      assert.strictEqual(server.url(1234), `redis://:secret@127.0.0.1:1234/3`)
      yield* server.command("SET", "key", "value")
      assert.include(yield* server.command("INFO", "keyspace"), "db3:keys=1")
    }))

  it.scopedLive("R8.7 is thrown away where REDIS_URL names none", () =>
    Effect.gen(function*() {
      yield* withVariable("REDIS_URL", "")
      const server = yield* RedisServer.fromEnvOrThrowAway()
      assert.strictEqual(yield* server.command("PING"), "PONG")
    }))
})
