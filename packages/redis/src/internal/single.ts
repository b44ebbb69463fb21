/**
 * The driver over one server, Sentinel or a cluster.
 */
import type { LockDriver } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { toEffect } from "./ask.js"
import * as channels from "./channels.js"
import { type Client, prefixOf } from "./client.js"
import * as connection from "./connection.js"
import * as deployment from "./deployment.js"
import * as driver from "./driver.js"
import { list } from "./list.js"
import * as server from "./server.js"

/** A key that is asked for and never made: scripts want one, and with it the right to use the prefix is proven. */
export const probe = (prefix: string): string => `${prefix}effect-locking:{probe}`

export const make = (
  client: Client,
  settings: server.Settings & Pick<driver.Parts, "beat">
): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.gen(function*() {
    const prefix = prefixOf(client)
    const link = yield* connection.make(client, "effect-locking-scripts")
    const store = server.make(link, settings)
    return yield* driver.make({
      fairPatience: settings.fairPatience,
      beat: settings.beat,
      store,
      channels: yield* channels.make(client, "effect-locking-wakeups"),
      prefix,
      // a cluster's client closes connections when it learns who is a replica
      ready: Effect.zipRight(
        link.ready,
        Effect.asVoid(Effect.retry(toEffect(connection.synchronise(link, probe(prefix))), {
          while: ({ executed }) => executed === "unknown",
          schedule: Schedule.spaced(50),
          times: link.isCluster ? 20 : 0
        }))
      ),
      list: (namespace) => list(link, store, prefix, namespace),
      check: deployment.check(link)
    })
  })
