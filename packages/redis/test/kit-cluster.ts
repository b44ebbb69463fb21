/**
 * The smallest cluster: three masters without replicas.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import { Context, Effect, Layer, type Scope } from "effect"
import { Cluster, type ClusterOptions } from "ioredis"
import { Cluster as Cluster6 } from "ioredis6"
import * as kit from "./kit.js"

export class Masters extends Context.Tag("Masters")<Masters, ReadonlyArray<RedisServer.RedisServer>>() {
  static readonly live = Layer.scoped(
    Masters,
    Effect.orDie(Effect.gen(function*() {
      const servers = yield* Effect.forEach(
        Array.from({ length: 3 }),
        () => RedisServer.make({ settings: { "cluster-enabled": "yes" } })
      )
      const share = Math.ceil(16_384 / 3)
      for (const [i, server] of servers.entries()) {
        yield* server.command("CLUSTER", "ADDSLOTSRANGE", i * share, Math.min((i + 1) * share, 16_384) - 1)
        yield* server.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
      }
      for (const { port } of servers.slice(1)) yield* servers[0]!.command("CLUSTER", "MEET", "127.0.0.1", port)
      for (const server of servers) {
        yield* kit.eventually(
          Effect.zipWith(
            server.command("CLUSTER", "INFO"),
            server.command("CLUSTER", "SLOTS"),
            (info: string, slots: ReadonlyArray<unknown>) => info.includes("cluster_state:ok") && slots.length === 3
          ),
          30_000
        )
      }
      return servers
    }))
  )
}

/** A client of the user's. */
export const client = (
  major: kit.Major,
  options: ClusterOptions = {}
): Effect.Effect<Cluster, never, Masters | Scope.Scope> =>
  Effect.flatMap(Masters, (servers) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        const nodes = servers.map(({ port }) => ({ host: "127.0.0.1", port }))
        const made = major === 5
          ? new Cluster(nodes, options)
          : new Cluster6(nodes, options as {}) as unknown as Cluster
        made.on("error", () => {})
        return made
      }),
      (made) => Effect.sync(() => made.disconnect())
    ))
