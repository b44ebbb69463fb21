/**
 * Connections of our own, beside the user's: with options under which a command is sent once or not at all, and every
 * caller hears promptly what is known of it.
 */
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type * as ioredis from "ioredis"

/** A client that the user made; it is only duplicated. */
export type Client = ioredis.Redis | ioredis.Cluster

/** What we use of a client. */
export interface Own {
  readonly status: string
  readonly evalsha: (sha: string, keys: number, ...args: ReadonlyArray<string>) => PromiseLike<unknown>
  readonly eval: (source: string, keys: number, ...args: ReadonlyArray<string>) => PromiseLike<unknown>
  readonly subscribe: (...channels: ReadonlyArray<string>) => PromiseLike<unknown>
  readonly unsubscribe: (...channels: ReadonlyArray<string>) => PromiseLike<unknown>
  readonly ping: () => PromiseLike<unknown>
  readonly call: (command: string, ...args: ReadonlyArray<string>) => PromiseLike<unknown>
  readonly on: (event: string, listener: (...args: ReadonlyArray<any>) => void) => unknown
  readonly off: (event: string, listener: (...args: ReadonlyArray<any>) => void) => unknown
  readonly disconnect: () => void
  /** Its socket, another one after each reconnection; a cluster has none. */
  readonly stream?: Stream | undefined
}

export interface Stream {
  readonly cork: () => void
  readonly uncork: () => void
}

/** Shorter than a third of most leases: a link that swallows everything is given up in time to renew on another. */
const silence = 2_000

/** Doubles up to a second, and never gives up. Each connection has a part of its own: those lost together come back apart. */
const reconnect = (part: number) => (attempt: number): number => part * Math.min(25 * 2 ** Math.min(attempt, 6), 1_000)

const options = (name: string, part: number) => ({
  connectionName: name,
  // a command that waits in the client is executed when nobody waits for it any more
  enableOfflineQueue: false,
  // a script whose reply was lost is repeated by us, who know that it may be
  autoResendUnfulfilledCommands: false,
  // and its caller hears of it when the connection closes; without this it would never
  maxRetriesPerRequest: 0,
  autoResubscribe: false,
  connectTimeout: 2_000,
  socketTimeout: silence,
  // it rejects a command that is executed all the same
  commandTimeout: undefined,
  blockingTimeout: undefined,
  enableAutoPipelining: false,
  // would apply to keys, but not to channels and patterns: names are made with it instead
  keyPrefix: "",
  stringNumbers: false,
  lazyConnect: false,
  readOnly: false,
  monitor: false,
  // Sentinel: without it an orderly fail-over leaves us on the old master for ten seconds and more
  failoverDetector: true,
  // a master that became a replica: look for the new one; nothing was executed, and nothing is sent again
  reconnectOnError: (error: Error) => error.message.startsWith("READONLY"),
  retryStrategy: reconnect(part)
})

const clusterOptions = (name: string, part: number, ofNodes: ioredis.ClusterOptions["redisOptions"]) => ({
  enableOfflineQueue: false,
  // its own way of sending a command again
  retryDelayOnFailover: 0,
  scaleReads: "master",
  enableAutoPipelining: false,
  keyPrefix: "",
  maxRedirections: 5,
  lazyConnect: false,
  clusterRetryStrategy: reconnect(part),
  // ioredis 5 takes these instead of the user's, and would lose password and TLS; the queue is that of a node: a command
  // for one that is not connected yet
  redisOptions: { ...ofNodes, ...options(name, part), enableOfflineQueue: true, autoResubscribe: true }
})

export const isCluster = (client: Client): client is ioredis.Cluster => client.isCluster

export const duplicate = (client: Client, name: string): Effect.Effect<Own> =>
  Effect.map(Random.nextRange(0.5, 1), (part) => {
    const own = isCluster(client)
      ? client.duplicate([], clusterOptions(name, part, client.options.redisOptions))
      : client.duplicate(options(name, part) as Partial<ioredis.RedisOptions>)
    return own as unknown as Own
  })

/** What the user's client puts before every key. */
export const prefixOf = (client: Client): string => {
  const { keyPrefix } = client.options
  const ofNodes = isCluster(client) ? client.options.redisOptions?.keyPrefix : undefined
  return String(keyPrefix || ofNodes || "")
}

/** Connections to each master, for questions that go to all of them. */
export const mastersOf = (own: Own): ReadonlyArray<Own> => {
  const { nodes } = own as { readonly nodes?: (role: "master") => ReadonlyArray<unknown> }
  return typeof nodes === "function" ? nodes.call(own, "master") as ReadonlyArray<Own> : [own]
}
