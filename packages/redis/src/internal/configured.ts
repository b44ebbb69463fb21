/**
 * Clients made from configuration. They never connect: what connects is made of them, with options of its own.
 */
import { InvalidOptions, type Issue } from "effect-locking/LockError"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { Cluster, Redis } from "ioredis"
import type { Connection } from "../RedisLocking.js"
import type { Client } from "./client.js"

const read = (secret: string | Redacted.Redacted): string =>
  typeof secret === "string" ? secret : Redacted.value(secret)

const isUrl = (text: string): boolean => {
  if (!URL.canParse(text)) return false
  const { hostname, password, pathname, protocol, username } = new URL(text)
  return /^rediss?:$/.test(protocol) && hostname !== "" && /^(\/\d*)?$/.test(pathname) &&
    Either.isRight(Either.try(() => decodeURIComponent(`${username}${password}`)))
}

interface Address {
  readonly host: string
  readonly port: number
}

const addressOf = (text: string): Address | undefined => {
  const [, host, port] = /^(\[[\da-f:.]+\]|[^\s:/@[\]]+):(\d+)$/i.exec(text) ?? []
  return Number(port) >= 1 && Number(port) <= 65_535
    ? { host: host!.replace(/^\[|\]$/g, ""), port: Number(port) }
    : undefined
}

const isUnnamed = (connection: Connection): connection is string | Redacted.Redacted =>
  typeof connection === "string" || Redacted.isRedacted(connection)

/** What is wrong with it, in words that repeat nothing of it: there may be a password. */
const issuesOf = (connection: Connection): ReadonlyArray<Issue> => {
  if (isUnnamed(connection)) {
    return isUrl(read(connection)) ? [] : [{
      path: "connection",
      message: "must be a URL as redis://user:password@host:6379/0, or rediss://… for TLS; a password has %25 for %"
    }]
  }
  const [path, addresses] = "sentinels" in connection
    ? ["connection.sentinels", connection.sentinels] as const
    : ["connection.nodes", connection.nodes] as const
  return [
    ...addresses.length > 0 ? [] : [{ path, message: "must name at least one host:port" }],
    ...addresses.flatMap((text, i) =>
      addressOf(text) !== undefined ? [] : [{
        path: `${path}[${i}]`,
        message: "must be host:port, as in redis-a:6379 or [::1]:6379"
      }]
    ),
    ...!("master" in connection) || connection.master !== "" ? [] : [{
      path: "connection.master",
      message: "must be the name that the sentinels have for the master"
    }]
  ]
}

const make = (connection: Connection): Client => {
  if (isUnnamed(connection)) return new Redis(read(connection), { lazyConnect: true })
  const { password, username } = connection
  const login = {
    ...username === undefined ? {} : { username },
    ...password === undefined ? {} : { password: read(password) },
    ...connection.tls === true ? { tls: {} } : {}
  }
  const addressesOf = (texts: ReadonlyArray<string>) => texts.map((text) => addressOf(text)!)
  return "sentinels" in connection
    ? new Redis({
      ...login,
      sentinels: addressesOf(connection.sentinels),
      name: connection.master,
      lazyConnect: true,
      ...connection.tls === true ? { sentinelTLS: {}, enableTLSForSentinelMode: true } : {}
    })
    : new Cluster(addressesOf(connection.nodes), { lazyConnect: true, redisOptions: login })
}

export const client = (connection: Connection): Effect.Effect<Client, InvalidOptions, Scope.Scope> =>
  Effect.suspend(() => {
    const issues = issuesOf(connection)
    return issues.length > 0
      ? Effect.fail(new InvalidOptions({ backend: "redis", issues }))
      : Effect.acquireRelease(Effect.sync(() => make(connection)), (made) => Effect.sync(() => made.disconnect()))
  })
