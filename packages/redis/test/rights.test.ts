/**
 * A user with the rights that the README lists, and no other, can do all that this package does.
 */
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, it, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import * as Locking from "effect-locking/Locking"
import type { Cluster, Redis } from "ioredis"
import * as fs from "node:fs"
import * as path from "node:path"
import { recordOf } from "../src/internal/records.js"
import * as RedisFence from "../src/RedisFence.js"
import * as RedisLocking from "../src/RedisLocking.js"
import { client as clusterClient, Masters } from "./cluster.js"
import * as kit from "./kit.js"

/** `ACL SETUSER locks …`, as they stand there. */
const rights: ReadonlyArray<ReadonlyArray<string>> = fs.readFileSync(
  path.join(import.meta.dirname, "../README.md"),
  "utf8"
).split("\n")
  .filter((line) => line.startsWith("ACL SETUSER locks "))
  .map((line) => line.split(" "))

const allowed = rights.flat().filter((right) => right.startsWith("+")).map((right) => right.slice(1))

const user = { username: "locks", password: "password" }

const grantRights = (server: RedisServer.RedisServer) =>
  Effect.zipRight(
    Effect.forEach(rights, ([command, ...words]) => server.command(command!, ...words)),
    server.command("CONFIG", "RESETSTAT")
  )

const namespace = "effect-locking"

/** Whatever can be asked for, through the engine and past it. */
const story = <R>(
  client: Effect.Effect<Redis | Cluster, never, R>,
  names: ReadonlyArray<string>,
  servers: ReadonlyArray<RedisServer.RedisServer>
) =>
  Effect.gen(function*() {
    const channels = channelsOf(servers)
    const open = Effect.tap(Effect.flatMap(client, (client) => RedisLocking.driver({ client })), ({ ready }) => ready)
    const options = { namespace, pollInterval: "30 seconds", waitTimeout: "30 seconds" } as const
    const node = Effect.flatMap(open, (driver) => Locking.make(driver, options))
    const [one, two, driver, writer] = [yield* node, yield* node, yield* open, yield* client]
    for (const name of names) {
      // a wake-up: the next poll is far away
      const { end } = yield* kit.hold(one, name)
      const woken = yield* Effect.fork(two.withLock(Effect.void, name))
      yield* kit.eventually(
        Effect.map(channels, (found) => found.includes(recordOf("", kit.key(name, namespace))))
      )
      yield* end
      yield* Fiber.join(woken)
      yield* one.withLock(Effect.void, name, { mode: "shared" })
      // order, and hand-over to those who wait here
      const line = yield* Effect.forEach([one, two, one, two], (locking) =>
        Effect.fork(locking.withLock(Effect.sleep(5), name, { fair: true })))
      yield* Fiber.joinAll(line)
      // somebody who gives up
      const { end: leave } = yield* kit.hold(one, name)
      yield* Effect.flip(two.withLock(Effect.void, name, { waitTimeout: "100 millis" }))
      yield* leave

      const key = kit.key(name, namespace)
      const permits = kit.open(driver, [key], { permits: { count: 1, limit: 2 } })
      const grants = [yield* kit.take(permits, kit.token()), yield* kit.take(permits, kit.token())]
      for (const grant of grants) {
        yield* driver.release(grant)
      }

      const grant = yield* kit.take(kit.open(driver, [key]), kit.token())
      assert.deepStrictEqual(yield* driver.renew([grant]), [{ _tag: "Confirmed", contended: false }])
      assert.lengthOf(yield* one.inspect(name), 1)
      assert.include(
        (yield* one.list()).map(({ key }) =>
          key
        ),
        name
      )
      const revoked = yield* Deferred.make<void>()
      const held = yield* Effect.fork(
        one.withLock(Effect.zipRight(Deferred.succeed(revoked, undefined), Effect.never), `${name}/revoked`)
      )
      yield* Deferred.await(revoked)
      assert.lengthOf((yield* two.forceRelease(`${name}/revoked`)).holders, 1)
      assert.strictEqual((yield* Effect.flip(Fiber.join(held)))._tag, "LeaseLost")
      yield* driver.release(grant)

      yield* one.useLock(name, (lease) => RedisFence.set(writer, `report:${name}`, "…", lease))
    }
    assert.include((yield* one.check).map(({ code }) => code), "SERVER_VERSION")
    for (const server of servers) {
      const clients: string = yield* server.command("CLIENT", "LIST")
      const ours = clients.split("\n").filter((line) => line.includes("name=effect-locking-"))
      assert.isNotEmpty(ours)
      ours.forEach((line) => assert.include(line, "user=locks"))
    }
  })

const stats = (server: RedisServer.RedisServer) =>
  Effect.map(
    server.command("INFO", "commandstats"),
    (text: string) => new Set([...text.matchAll(/^cmdstat_([^:]+):calls=[1-9]/gm)].map(([, name]) => name!))
  )

const isNotRefused = (server: RedisServer.RedisServer) =>
  Effect.map(server.command("ACL", "LOG"), (log) => assert.deepStrictEqual(log, []))

const channelsOf = (servers: ReadonlyArray<RedisServer.RedisServer>) =>
  Effect.orDie(Effect.map(
    Effect.forEach(servers, (server) => server.command("PUBSUB", "CHANNELS", "*")),
    (found): ReadonlyArray<string> => found.flat()
  ))

describe("rights", () => {
  for (const major of [5, 6] as const) {
    it.scopedLive(
      `R8.3 of the README are enough, and all of them are used, ioredis ${major}`,
      () =>
        Effect.gen(function*() {
          const server = yield* kit.server
          yield* grantRights(server)
          yield* story(kit.client(server.url(), user, major), ["a"], [server])
          // a channel is given up a while after its last waiter
          yield* kit.eventually(Effect.map(stats(server), (used) => used.has("unsubscribe")))
          yield* isNotRefused(server)
          const used = yield* stats(server)
          assert.deepStrictEqual(allowed.filter((name) => !name.startsWith("cluster") && !used.has(name)), [])
        }),
      60_000
    )
  }

  it.scopedLive("R8.3 what is missing is seen", () =>
    Effect.gen(function*() {
      const server = yield* kit.server
      yield* grantRights(server)
      yield* server.command("ACL", "SETUSER", "locks", "-hlen")
      const driver = yield* kit.driver(server.url(), { client: user })
      yield* Effect.exit(driver.release(yield* kit.take(kit.open(driver, [kit.key("a", namespace)]), kit.token())))
      assert.isNotEmpty(yield* server.command("ACL", "LOG"))
    }))
})

layer(Masters.live, { excludeTestServices: true, timeout: 60_000 })("rights", (it) => {
  for (const major of [5, 6] as const) {
    it.scoped(`R8.3 of the README are enough on a cluster, ioredis ${major}`, () =>
      Effect.gen(function*() {
        const servers = yield* Masters
        for (const server of servers) yield* grantRights(server)
        // on every node some
        const names = ["a", "b", "c", "d", "e", "f"].map((name) => `${name}/${major}`)
        yield* story(clusterClient(servers, major, { redisOptions: user }), names, servers)
        for (const server of servers) yield* isNotRefused(server)
        const used = yield* Effect.forEach(servers, stats)
        assert.isTrue(
          used.some((names) => names.has("cluster|slots")) && used.some((names) => names.has("cluster|info"))
        )
      }), 60_000)
  }
})
