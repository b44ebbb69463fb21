/**
 * What every driver has to do. On the server that `REDIS_URL` names, where it names one: that is not stopped or frozen.
 */
import * as LockDriverSuite from "@effect-locking/testing/LockDriverSuite"
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { Effect } from "effect"
import { createRequire } from "node:module"
import * as kit from "./kit.js"

const isNamed = (process.env["REDIS_URL"] ?? "") !== ""

const own = (server: RedisServer.RedisServer) => ({
  stall: Effect.asVoid(Effect.acquireRelease(server.freeze, () => server.thaw)),
  restart: Effect.zipRight(server.stop, server.start)
})

const scripts = TcpProxy.named("effect-locking-scripts")

/** What the tests run on: `Redis 7.0.15`. */
const product = await Effect.runPromise(Effect.scoped(Effect.map(kit.anyServer, ({ version }) => version)))

const packageOf = createRequire(import.meta.url)

/** Each major has a file of its own, so that they run beside one another. */
export const conformance = (major: kit.Major): void => {
  const { version: client } = packageOf(`ioredis${major === 5 ? "" : major}/package.json`) as {
    readonly version: string
  }
  // at a server that both share neither may count what the other holds
  const keyPrefix = isNamed ? `ioredis${major}:` : ""
  LockDriverSuite.lockDriverSuite({
    name: `${product}, ioredis ${client}`,
    time: "real",
    slack: 3,
    make: Effect.gen(function*() {
      const thrownAway = isNamed ? undefined : yield* kit.durableServer
      const server = thrownAway ?? (yield* kit.anyServer)
      const proxy = yield* TcpProxy.make(server)
      const fields = (kind: string) =>
        Effect.gen(function*() {
          const keys: ReadonlyArray<string> = yield* server.command("KEYS", `${keyPrefix}suite-*`)
          const [seconds] = yield* server.command("TIME")
          let count = 0
          for (const key of keys) {
            const hash: ReadonlyArray<string> = yield* server.command("HGETALL", key)
            for (let i = 0; i < hash.length; i += 2) {
              // what has lapsed is there until the next grant
              const until = Number(hash[i + 1]!.split(" ")[kind === "h" ? 1 : 3])
              if (hash[i]!.startsWith(kind) && until > Number(seconds) * 1_000) count++
            }
          }
          return count
        })
      return {
        open: kit.driver(server.url(proxy.port), { major, client: { keyPrefix } }),
        storeView: { grants: fields("h"), interests: fields("w") },
        faults: {
          dropConnections: Effect.asVoid(proxy.cut()),
          loseNextReply: Effect.asVoid(proxy.dropNextReply({ who: scripts })),
          ...(thrownAway && own(thrownAway))
        }
      }
    }),
    capabilities: { modes: ["exclusive", "shared"], fair: true, push: true, expiry: "server" },
    knows: ["fence", "token", "since", "until", "session", "metadata", "keys", "waiters"]
  })
}
