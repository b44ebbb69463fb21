/**
 * Connections from configuration.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it, layer } from "@effect/vitest"
import { Config, ConfigProvider, Effect, Layer, Redacted } from "effect"
import * as Locking from "effect-locking/Locking"
import type { Cluster, Redis } from "ioredis"
import * as path from "node:path"
import * as configured from "../src/internal/configured.js"
import * as RedisLocking from "../src/RedisLocking.js"
import { Masters } from "./cluster.js"
import * as kit from "./kit.js"

const locks = (connection: RedisLocking.Connection) =>
  RedisLocking.layerConfig({ connection: Config.succeed(connection) as Config.Config<any> })

const refused = (connection: RedisLocking.Connection) =>
  Effect.map(Effect.flip(Effect.scoped(Layer.build(locks(connection)))), (error) => {
    assert(error._tag === "InvalidOptions", String(error))
    return error
  })

const optionsOf = (connection: RedisLocking.Connection) =>
  Effect.scoped(
    Effect.map(configured.client(connection), (client) => {
      assert.include(["wait", "end"], client.status)
      return client
    })
  )

describe("layerConfig", () => {
  it.scopedLive("R4.3 an address that is none is refused with its path, before anything connects", () =>
    Effect.gen(function*() {
      const server = yield* kit.anyServer
      const proxy = yield* TcpProxy.make({ port: server.port })
      const here = `127.0.0.1:${proxy.port}`
      const cases: ReadonlyArray<readonly [RedisLocking.Connection, ...ReadonlyArray<string>]> = [
        [{ nodes: [here, "redis-a"] }, "connection.nodes[1]"],
        [{ nodes: ["", here, "redis-a:", ":6379"] }, ...[0, 2, 3].map((i) => `connection.nodes[${i}]`)],
        [
          { nodes: ["redis-a:0", "redis-a:65536", "redis-a:6379x", "redis-a: 6379"] },
          ...[0, 1, 2, 3].map((i) => `connection.nodes[${i}]`)
        ],
        // whose last part would be the port
        [
          { nodes: ["::1", "fe80::1:6379", "[::1]", "redis://redis-a:6379"] },
          ...[0, 1, 2, 3].map((i) => `connection.nodes[${i}]`)
        ],
        [{ nodes: [] }, "connection.nodes"],
        [{ sentinels: [here, "redis-a"], master: "locks" }, "connection.sentinels[1]"],
        [{ sentinels: [here], master: "" }, "connection.master"],
        [{ sentinels: [], master: "" }, "connection.sentinels", "connection.master"],
        ["", "connection"],
        [here, "connection"],
        ["redis-a", "connection"],
        [`http://${here}`, "connection"],
        ["redis://redis-a:port", "connection"],
        [`redis://${here}/orders`, "connection"],
        ["redis:///0", "connection"],
        [Redacted.make(`redis://:secret%@${here}`), "connection"]
      ]
      for (const [connection, ...paths] of cases) {
        const error = yield* refused(connection)
        assert.deepStrictEqual(error.issues.map(({ path }) => path), paths, JSON.stringify(connection))
        assert.match(error.message, /must (be|name)/)
        assert.notMatch(JSON.stringify(error), /secret/)
      }
      assert.deepStrictEqual(yield* proxy.connections, [])
    }))

  it.effect("R8.3 a URL, nodes and sentinels become what they name", () =>
    Effect.gen(function*() {
      const one = (yield* optionsOf(Redacted.make("rediss://me:p%25w@redis-a:6380/3"))) as Redis
      const { db, host, password, port, tls, username } = one.options
      assert.deepStrictEqual(
        { db, host, password, port, username },
        { db: 3, host: "redis-a", password: "p%w", port: 6380, username: "me" }
      )
      assert.isOk(tls)
      const plain = (yield* optionsOf("redis://redis-a")) as Redis
      assert.deepStrictEqual([plain.options.host, plain.options.port, plain.options.tls], ["redis-a", 6379, undefined])
      assert.strictEqual(((yield* optionsOf("redis://[::1]:6380")) as Redis).options.host?.replace(/[[\]]/g, ""), "::1")

      const sentinel = (yield* optionsOf({
        sentinels: ["redis-a:26379", "[fd00::2]:26380"],
        master: "locks",
        username: "me",
        password: Redacted.make("secret"),
        tls: true
      })) as Redis
      assert.deepStrictEqual(sentinel.options.sentinels, [
        { host: "redis-a", port: 26379 },
        { host: "fd00::2", port: 26380 }
      ])
      assert.deepStrictEqual([sentinel.options.name, sentinel.options.password], ["locks", "secret"])
      assert.isTrue(sentinel.options.enableTLSForSentinelMode)

      const cluster = (yield* optionsOf({ nodes: ["[::1]:7000", "10.0.0.1:7001"], password: "secret" })) as Cluster
      const { startupNodes } = cluster as unknown as { readonly startupNodes: unknown }
      assert.deepStrictEqual(startupNodes, [{ host: "::1", port: 7000 }, { host: "10.0.0.1", port: 7001 }])
      assert.deepStrictEqual(cluster.options.redisOptions, { password: "secret" })
    }))

  it.scopedLive("R8.3 a URL from the environment leads to its server", () =>
    Effect.gen(function*() {
      const server = yield* kit.server
      yield* server.command("CONFIG", "SET", "requirepass", "p%w")
      const provider = ConfigProvider.fromMap(new Map([["REDIS_URL", `redis://:p%25w@127.0.0.1:${server.port}/3`]]))
      const Locks = RedisLocking.layerConfig({ connection: Config.redacted("REDIS_URL") })
      const program = Locking.withLock(Effect.succeed("held"), "k")
      assert.strictEqual(
        yield* Effect.provide(program, Layer.provide(Locks, Layer.setConfigProvider(provider))),
        "held"
      )
    }))

  it.scopedLive("R8.3 rediss:// speaks TLS: a certificate that nobody trusts is refused", () =>
    Effect.gen(function*() {
      const fixture = (name: string) => path.join(import.meta.dirname, "../../testing/test/fixtures/tls", name)
      const server = yield* RedisServer.make({
        tls: { certificate: fixture("certificate.pem"), key: fixture("key.pem") }
      })
      const error = yield* Effect.flip(Layer.build(locks(`rediss://127.0.0.1:${server.tlsPort}`)))
      assert(error._tag === "ProviderFailed")
      assert.match(String(error.cause), /certificate/)
    }))
})

layer(Masters.live, { excludeTestServices: true, timeout: 60_000 })("layerConfig", (it) => {
  it.effect("R8.3 one node leads to a cluster", () =>
    Effect.gen(function*() {
      const [, second] = yield* Masters
      const names = ["a", "b", "c", "d", "e", "f"]
      const held = yield* Effect.provide(
        // the client may make its connections anew while it gets to know the nodes
        Effect.forEach(names, (name) => Locking.withLock(Effect.succeed(name), name, { waitTimeout: "30 seconds" })),
        locks({ nodes: [`127.0.0.1:${second!.port}`] })
      )
      assert.deepStrictEqual(held, names)
    }))
})
