/**
 * A cluster, and clients that ask it.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import { Context, Effect, Layer } from "effect"
import { Cluster, type ClusterOptions } from "ioredis"
import { Cluster as Cluster6 } from "ioredis6"
import * as kit from "./kit.js"

/** Slots of a master. */
export const share = Math.ceil(16_384 / 3)

/** Three masters, which need not agree on who is lost within `nodeTimeout`, and behind them a replica each where asked for. */
export const make = (options: { readonly replicas: boolean; readonly nodeTimeout: number }) =>
  Effect.gen(function*() {
    const count = options.replicas ? 6 : 3
    const servers = yield* Effect.forEach(
      Array.from({ length: count }),
      () =>
        RedisServer.make({
          settings: {
            "cluster-enabled": "yes",
            "cluster-node-timeout": String(options.nodeTimeout),
            appendonly: "yes"
          }
        })
    )
    const [first] = servers
    // slots are told before the nodes meet: nobody has to be asked
    for (let i = 0; i < 3; i++) {
      yield* servers[i]!.command("CLUSTER", "ADDSLOTSRANGE", i * share, Math.min((i + 1) * share, 16_384) - 1)
      yield* servers[i]!.command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
    }
    for (const { port } of servers.slice(1)) yield* first!.command("CLUSTER", "MEET", "127.0.0.1", port)
    for (const server of servers) {
      yield* kit.eventually(
        Effect.map(server.command("CLUSTER", "INFO"), (text: string) =>
          text.includes("cluster_state:ok") && text.includes(`cluster_known_nodes:${count}`)),
        30_000
      )
    }
    // a notice goes from node to node, and is lost where a link is not up yet
    for (const server of servers) {
      yield* kit.eventually(
        Effect.map(
          server.command("CLUSTER", "NODES"),
          (text: string) =>
            text.trim().split("\n").every((line) =>
              line.includes(" connected") && !line.includes("handshake")
            )
        ),
        30_000
      )
    }
    for (let i = 0; i + 3 < count; i++) {
      const id: string = yield* servers[i]!.command("CLUSTER", "MYID")
      // the replica may not have heard of its master yet
      yield* kit.eventually(Effect.as(servers[i + 3]!.command("CLUSTER", "REPLICATE", id), true), 30_000)
    }
    for (let i = 3; i < count; i++) {
      yield* kit.eventually(kit.follows(servers[i]!), 30_000)
    }
    // a client that hears of the replicas later makes its connections anew
    for (const server of servers) {
      yield* kit.eventually(
        Effect.map(
          server.command("CLUSTER", "SLOTS"),
          (slots: ReadonlyArray<ReadonlyArray<unknown>>) =>
            slots.length === 3 && slots.every(({ length }) => length === (options.replicas ? 4 : 3))
        ),
        30_000
      )
    }
    return servers
  })

/** Three masters for a file of tests. */
export class Masters extends Context.Tag("Masters")<Masters, ReadonlyArray<RedisServer.RedisServer>>() {
  static readonly live = Layer.scoped(Masters, Effect.orDie(make({ replicas: false, nodeTimeout: 15_000 })))
}

/** A client of the user's. */
export const client = (
  ports: ReadonlyArray<{ readonly port: number }>,
  major: kit.Major,
  options: ClusterOptions = {}
) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const nodes = ports.map(({ port }) => ({ host: "127.0.0.1", port }))
      const made = major === 5
        ? new Cluster(nodes, options)
        : new Cluster6(nodes, options as {}) as unknown as Cluster
      made.on("error", () => {})
      return made
    }),
    (made) => Effect.sync(() => made.disconnect())
  )
