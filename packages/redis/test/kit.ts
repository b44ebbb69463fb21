/**
 * What the tests share: clients of both major versions, drivers as processes of their own, and words for what they do.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert } from "@effect/vitest"
import type { Scope } from "effect"
import { Deferred, Duration, Effect, Either, Fiber, HashMap, Logger } from "effect"
import type { Contention, Grant, LockDriver, LockMode, LockRequest, Permits } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { ResolvedKey } from "effect-locking/LockKey"
import type { LockingOptions } from "effect-locking/LockOptions"
import { Redis, type RedisOptions } from "ioredis"
import { Redis as Redis6 } from "ioredis6"
import * as single from "../src/internal/single.js"
import * as RedisLocking from "../src/RedisLocking.js"

export type Major = 5 | 6

/** A client of the user's. */
export const client = (
  url: string,
  options: RedisOptions = {},
  major: Major = 5
): Effect.Effect<Redis, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const made = major === 5 ? new Redis(url, options) : new Redis6(url, options as {}) as unknown as Redis
      made.on("error", () => {})
      return made
    }),
    (made) => Effect.sync(() => made.disconnect())
  )

/** A process at a server. */
export const driver = (
  url: string,
  options: RedisLocking.CommonOptions & {
    readonly client?: RedisOptions
    readonly major?: Major
  } = {}
): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.gen(function*() {
    const { client: clientOptions, major, ...rest } = options
    const made = yield* Effect.orDie(RedisLocking.driver({ client: yield* client(url, clientOptions, major), ...rest }))
    yield* Effect.orDie(made.ready)
    return made
  })

/** One that never looks by itself whether what is waited for is free: what it hears of, it hears by push. */
export const listener = (
  url: string,
  options: { readonly client?: RedisOptions; readonly major?: Major } = {}
): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.flatMap(
    client(url, options.client, options.major),
    (client) => single.make(client, { retention: 3_600_000, fairPatience: 1_500, beat: Infinity })
  )

/** With the engine, which must not look either: give it a long `pollInterval`. */
export const listening = (url: string, options: LockingOptions) =>
  Effect.flatMap(listener(url), (driver) => Locking.make(driver, { namespace: "test", ...options }))

/** A process at a server, with the engine. */
export const node = (url: string, options: LockingOptions = {}, clientOptions: RedisOptions = {}, major: Major = 5) =>
  Effect.flatMap(
    Effect.flatMap(client(url, clientOptions, major), (client) => RedisLocking.driver({ client })),
    (driver) => Locking.make(driver, { namespace: "test", ...options })
  )

/** A section that says that it has begun, and ends when it is told to. */
const section = Effect.gen(function*() {
  const begun = yield* Deferred.make<void>()
  const end = yield* Deferred.make<void>()
  return { begun, end, run: Effect.zipRight(Deferred.succeed(begun, undefined), Deferred.await(end)) }
})

/** Somebody holds it, until told otherwise. */
export const hold = (locking: Locking.Locking, name: string, options = {}) =>
  Effect.gen(function*() {
    const { begun, end, run } = yield* section
    const fiber = yield* Effect.fork(locking.withLock(run, name, options))
    yield* Effect.raceFirst(Deferred.await(begun), Fiber.join(fiber))
    return { fiber, end: Deferred.succeed(end, undefined) }
  })

export const key = (name: string, namespace = "test"): ResolvedKey => ({
  namespace,
  scope: "none",
  tenant: undefined,
  key: name,
  id: `${Buffer.byteLength(namespace)}:${namespace}:none:${name}`
})

export interface OpenOptions {
  readonly mode?: LockMode
  readonly ttl?: Duration.DurationInput
  readonly fair?: boolean
  readonly waiting?: boolean
  readonly permits?: Permits
}

export const open = (driver: LockDriver, keys: ReadonlyArray<ResolvedKey>, options: OpenOptions = {}): Contention => {
  const request: LockRequest = {
    keys,
    mode: options.mode ?? "exclusive",
    ttl: Duration.decode(options.ttl ?? "30 seconds"),
    fair: options.fair ?? false,
    permits: options.permits,
    waiting: options.waiting ?? true,
    holder: { session: "session", metadata: { job: "secret-job" } }
  }
  return driver.contend(request)
}

export const attempt = (contention: Contention, token: string, left: Duration.DurationInput = "5 seconds") =>
  contention.attempt({ token, left: Duration.decode(left) })

export const take = (contention: Contention, token: string) =>
  Effect.map(attempt(contention, token), (answer): Grant => {
    assert(answer._tag === "Grant", "busy")
    return answer
  })

export const isBusy = (contention: Contention, token: string) =>
  Effect.map(attempt(contention, token), (answer) => {
    assert(answer._tag === "Busy", "granted")
    return answer
  })

/** One server for a file of tests. */
export const server: Effect.Effect<RedisServer.RedisServer, never, Scope.Scope> = Effect.orDie(RedisServer.make())

/**
 * For tests that leave a server as they found it, but for keys of their own that expire: the one that `REDIS_URL` names,
 * or a throw-away one.
 */
export const anyServer: Effect.Effect<RedisServer.Redis, never, Scope.Scope> = Effect.orDie(
  RedisServer.fromEnvOrThrowAway()
)

let tokens = 0

/** Nobody had it before. */
export const token = (): string => `token-${process.pid}.${tokens++}`

/** Looks until it sees it. Who is not answered has not seen it: a server closes connections as its role changes. */
export const eventually = <E>(see: Effect.Effect<boolean, E>, within = 15_000): Effect.Effect<void, E> =>
  Effect.suspend(() => {
    const deadline = performance.now() + within
    const look: Effect.Effect<void, E> = Effect.flatMap(Effect.either(see), (seen) => {
      if (Either.isRight(seen) && seen.right) return Effect.void
      if (performance.now() < deadline) return Effect.zipRight(Effect.sleep(10), look)
      return Either.isLeft(seen) ? Effect.fail(seen.left) : Effect.die(new Error("it did not happen"))
    })
    return look
  })

/** A replica has what its master has. */
export const follows = (replica: RedisServer.RedisServer) =>
  Effect.map(replica.command("INFO", "replication"), (text: string) => text.includes("master_link_status:up"))

/** A section of so many milliseconds: there is one inside at a time, and fences rise in the order of grants. */
export const oneAtATime = (pause: number) => {
  let [inside, last] = [0, 0n]
  return (lease: { readonly fence: bigint }) =>
    Effect.gen(function*() {
      assert.strictEqual(++inside, 1)
      assert.isTrue(lease.fence > last)
      last = lease.fence
      yield* Effect.sleep(pause)
      inside--
    })
}

/** What is logged, as the fields of each line. */
export const captured = () => {
  const lines: Array<Readonly<Record<string, unknown>>> = []
  const logger = Logger.make(({ annotations, message }) =>
    void lines.push({ ...Object.fromEntries(HashMap.toEntries(annotations)), message })
  )
  return {
    lines,
    layer: Logger.replace(Logger.defaultLogger, logger),
    withCode: (code: string) => lines.filter((line) => line["code"] === code)
  }
}

/** A server that remembers all that it has acknowledged. */
export const durableServer: Effect.Effect<RedisServer.RedisServer, never, Scope.Scope> = Effect.orDie(
  RedisServer.make({ settings: { appendonly: "yes", appendfsync: "always" } })
)

/** What scripts call, and what those ask who only look. */
const inScripts = ["hgetall", "hget", "hset", "hdel", "hlen", "pexpire", "pttl", "time", "publish"]
const toConnect = ["info", "client", "hello", "command"]

/** How many commands the server was sent by those who lock there. */
export const commands = (server: RedisServer.RedisServer): Effect.Effect<number> =>
  Effect.map(
    Effect.orDie(server.command("INFO", "commandstats")),
    (text: string) =>
      [...text.matchAll(/^cmdstat_([a-z]+)[^:]*:calls=(\d+)/gm)]
        .filter(([, name]) => ![...inScripts, ...toConnect].includes(name!))
        .reduce((sum, [, , calls]) => sum + Number(calls), 0)
  )
