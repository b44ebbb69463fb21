/**
 * What the benchmarks share: a throw-away server, the plain client beside which everything is measured, and layers whose
 * commands the server counts.
 */
import { RedisLocking } from "@effect-locking/redis"
import * as RedisServer from "@effect-locking/testing/RedisServer"
import * as Locking from "effect-locking/Locking"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { Redis } from "ioredis"
import type { Sent } from "../remote.js"

export const server = RedisServer.make()

/** The client that programs use without the library. */
export const raw = (url: string): Effect.Effect<Redis, unknown, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.tryPromise(async () => {
      const client = new Redis(url, { lazyConnect: true })
      await client.connect()
      return client
    }),
    (client) => Effect.sync(() => client.disconnect())
  )

export const driver = (url: string) => Effect.flatMap(raw(url), (client) => RedisLocking.driver({ client }))

/** What is sent is counted by the server: see `commands`. */
export const locking = (url: string, _sent?: Sent) =>
  // a client by itself makes no spans
  Effect.flatMap(driver(url), (driver) => Locking.make(driver, { tracing: "off" }))

/** What programs have sent to the server: what scripts call is not among it. */
export const commands = (client: Redis): Effect.Effect<number> =>
  Effect.promise(async () => {
    const stats = await client.info("commandstats")
    const of = (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0)
    return ["evalsha", "eval", "ping", "subscribe", "unsubscribe"].reduce((total, name) => total + of(name), 0)
  })

const giveUp = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

/** A lock as programs make it by hand, and its release. */
export const byHand = (client: Redis) => {
  let tokens = 0
  client.defineCommand("giveUp", { numberOfKeys: 1, lua: giveUp })
  const { giveUp: release } = client as unknown as {
    readonly giveUp: (key: string, token: string) => Promise<number>
  }
  return {
    take: async (key: string): Promise<string> => {
      const token = `raw-${tokens++}`
      await client.set(key, token, "PX", 15_000, "NX")
      return token
    },
    give: (key: string, token: string) => release.call(client, key, token)
  }
}
