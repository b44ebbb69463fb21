/**
 * A master with a replica, watched over by three sentinels.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, it } from "@effect/vitest"
import { Config, ConfigProvider, Effect, Layer, type Scope } from "effect"
import * as Locking from "effect-locking/Locking"
import * as RedisLocking from "../src/RedisLocking.js"
import * as kit from "./kit.js"

const world = Effect.gen(function*() {
  const master = yield* RedisServer.make()
  const replica = yield* RedisServer.make({ settings: { replicaof: `127.0.0.1 ${master.port}` } })
  yield* kit.eventually(kit.follows(replica), 20_000)
  const sentinels = yield* Effect.forEach([1, 2, 3], () =>
    RedisServer.make({
      sentinel: true,
      file: [
        `sentinel monitor locks 127.0.0.1 ${master.port} 2`,
        "sentinel down-after-milliseconds locks 600",
        "sentinel failover-timeout locks 3000"
      ]
    }))
  for (const sentinel of sentinels) {
    yield* kit.eventually(
      Effect.map(
        sentinel.command("INFO", "sentinel"),
        (text: string) => text.includes("slaves=1") && text.includes("sentinels=3")
      ),
      20_000
    )
  }
  return { master, replica, sentinels }
})

const isNow = (server: RedisServer.RedisServer, role: "master" | "slave") =>
  Effect.map(server.command("ROLE"), (told) => told[0] === role)

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 90_000)

describe("sentinel", () => {
  it_(
    "R8.3 R3.1 a promoted replica goes on with higher fences; a layer from configuration follows it",
    () =>
      Effect.gen(function*() {
        const { master, replica, sentinels } = yield* world
        const provider = ConfigProvider.fromMap(
          new Map([["SENTINELS", sentinels.map(({ port }) => `127.0.0.1:${port}`).join()], ["MASTER", "locks"]])
        )
        const Locks = RedisLocking.layerConfig({
          connection: Config.all({
            sentinels: Config.array(Config.string(), "SENTINELS"),
            master: Config.string("MASTER")
          }),
          namespace: Config.succeed("test"),
          waitTimeout: Config.succeed("1 minute")
        })
        yield* Effect.gen(function*() {
          const fence = Locking.useLock("promoted", (lease) => Effect.succeed<bigint>(lease.fence))
          const before = yield* fence
          yield* master.kill
          const after = yield* fence
          assert.isTrue(after > before)
          assert.include(yield* replica.command("ROLE"), "master")
          assert.strictEqual(yield* replica.command("EXISTS", "test:{none:promoted}"), 1)
          // and an orderly one, back to the old master
          yield* master.start
          yield* kit.eventually(kit.follows(master), 30_000)
          yield* kit.eventually(Effect.as(sentinels[0]!.command("SENTINEL", "FAILOVER", "locks"), true), 30_000)
          yield* kit.eventually(isNow(master, "master"), 30_000)
          const back = yield* fence
          assert.isTrue(back > after)
          // the old one is not asked any more, although nobody has closed a connection
          yield* kit.eventually(isNow(replica, "slave"), 30_000)
          assert.isTrue((yield* fence) > back)
        }).pipe(Effect.provide(Locks.pipe(Layer.provide(Layer.setConfigProvider(provider)))))
      })
  )
})
