/**
 * Clients made from configuration. They never connect: what connects is made of them, with options of its own.
 */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { Cluster, Redis } from "ioredis"
import type { Connection } from "../RedisLocking.js"
import type { Client } from "./client.js"

const read = (secret: string | Redacted.Redacted): string =>
  typeof secret === "string" ? secret : Redacted.value(secret)

const addressOf = (text: string): { readonly host: string; readonly port: number } => {
  const colon = text.lastIndexOf(":")
  return { host: text.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(text.slice(colon + 1)) }
}

const make = (connection: Connection): Client => {
  if (typeof connection === "string" || Redacted.isRedacted(connection)) {
    return new Redis(read(connection), { lazyConnect: true })
  }
  const { password, username } = connection
  const login = {
    ...username === undefined ? {} : { username },
    ...password === undefined ? {} : { password: read(password) },
    ...connection.tls === true ? { tls: {} } : {}
  }
  return "sentinels" in connection
    ? new Redis({
      ...login,
      sentinels: connection.sentinels.map(addressOf),
      name: connection.master,
      lazyConnect: true,
      ...connection.tls === true ? { sentinelTLS: {}, enableTLSForSentinelMode: true } : {}
    })
    : new Cluster(connection.nodes.map(addressOf), { lazyConnect: true, redisOptions: login })
}

export const client = (connection: Connection): Effect.Effect<Client, never, Scope.Scope> =>
  Effect.acquireRelease(Effect.sync(() => make(connection)), (made) => Effect.sync(() => made.disconnect()))
