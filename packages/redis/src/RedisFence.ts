/**
 * The check at the resource, where the data is in Redis: a write under a lock is refused once a later holder has written.
 * No lease can stop a process that froze, woke up and writes; this does.
 *
 * Beside what is written a key keeps the highest fence that was seen. Both change in one script, so nobody comes between
 * the check and the write. The fence may come from any backend, as long as it is always the same one.
 *
 * @since 0.1.0
 */
import type { Fence } from "effect-locking/Fence"
import type { Lease } from "effect-locking/Lease"
import { InvalidOptions, StaleFence } from "effect-locking/LockError"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type * as ioredis from "ioredis"
import { hash } from "node:crypto"
import { type Ask, isFailure } from "./internal/ask.js"
import { prefixOf } from "./internal/client.js"
import { driverError, isUnknownScript, unintelligible } from "./internal/errors.js"
import { millis } from "./internal/options.js"
import { tagOf } from "./internal/records.js"
import { WriteFailed } from "./RedisError.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface GuardOptions {
  /**
   * The key that keeps the highest fence, in the slot of what is written where they lie in a cluster. Default: `fenceKey`
   * of the key that is written, and of the client's `keyPrefix`.
   */
  readonly fenceKey?: string | undefined
  /**
   * For how long after the last write the fence is kept, above zero. Default: for ever, as is `infinity`. A write that is
   * late by more than this passes.
   */
  readonly expiry?: Duration.DurationInput | undefined
}

/**
 * A function for scripts of your own: `fenced(key, fence, expiry)` compares a fence with the highest that the key has
 * seen, raises that, and answers whether the write may go on; and if not, the highest. `expiry` is in milliseconds, `'0'`
 * for ever. Equal fences pass. In a cluster the key has to lie in the slot of what is written.
 *
 * @example
 * ```ts
 * import { RedisFence } from "@effect-locking/redis"
 * import { Effect } from "effect"
 * import { Locking } from "effect-locking"
 * import { Redis } from "ioredis"
 *
 * const client = new Redis({ lazyConnect: true })
 *
 * const script = `${RedisFence.lua}
 * if not fenced(KEYS[1], ARGV[1], '0') then return 0 end
 * redis.call('HINCRBY', KEYS[2], 'balance', ARGV[2])
 * return 1`
 *
 * const deposit = (amount: number) =>
 *   Locking.useLock("account:1", (lease) =>
 *     Effect.promise(() => client.eval(script, 2, "{account:1}:fence", "{account:1}", String(lease.fence), amount)))
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const lua: string = `local function fenced(key,fence,expiry)
  local seen=redis.call('GET',key)
  if seen and (#seen>#fence or #seen==#fence and seen>fence) then return false,seen end
  if expiry=='0' then redis.call('SET',key,fence) else redis.call('SET',key,fence,'PX',expiry) end
  return true
end
`

const setScript = `${lua}
local passes,seen=fenced(KEYS[1],ARGV[1],ARGV[2])
if not passes then return seen end
redis.call('SET',KEYS[2],ARGV[3])
return ''`

const setSha = hash("sha1", setScript)

/** What a key without a place for its fence is told. */
const unnamed = {
  path: "fenceKey",
  message: "must be named, in the slot of the key: that is empty, or has braces that are no tag of a cluster"
}

/** The first of the names that lies where the key does, as the server sees them: with the prefix before them. */
const derive = (key: string, keyPrefix: string): string | undefined => {
  const tag = tagOf(`${keyPrefix}${key}`)
  return [`${key}:fence`, `{${keyPrefix}${key}}:fence`].find((name) => tagOf(`${keyPrefix}${name}`) === tag)
}

/**
 * The key in which `set` keeps the highest fence of another: in the same slot of a cluster. `keyPrefix` is that of the
 * client, which puts it before both.
 *
 * There is none for keys such as `a}b` and `{}a`: no other key is sure to lie in the same slot.
 *
 * @example
 * ```ts
 * import { deepStrictEqual, strictEqual } from "node:assert"
 * import { RedisFence } from "@effect-locking/redis"
 * import { Either } from "effect"
 *
 * deepStrictEqual(RedisFence.fenceKey("report"), Either.right("{report}:fence"))
 * deepStrictEqual(RedisFence.fenceKey("report:{2025}:a"), Either.right("report:{2025}:a:fence"))
 * deepStrictEqual(RedisFence.fenceKey("report", "app:"), Either.right("{app:report}:fence"))
 * strictEqual(Either.isLeft(RedisFence.fenceKey("{}report")), true)
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const fenceKey = (key: string, keyPrefix = ""): Either.Either<string, InvalidOptions> =>
  Either.fromNullable(
    derive(key, keyPrefix),
    () => new InvalidOptions({ backend: "redis", issues: [unnamed] })
  )

/**
 * Sets a key, unless a later holder has written to it. Equal fences pass, so that one holder may write twice. Only an
 * exclusive lease can be a guard.
 *
 * Fails `StaleFence`, when nothing was written; `WriteFailed` when the server refuses or does not answer;
 * `InvalidOptions` before anything is sent.
 *
 * @example
 * ```ts
 * import { RedisFence } from "@effect-locking/redis"
 * import { Locking } from "effect-locking"
 * import { Redis } from "ioredis"
 *
 * const client = new Redis({ lazyConnect: true })
 *
 * const publish = Locking.useLock("report", (lease) => RedisFence.set(client, "report", "…", lease))
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const set = (
  client: ioredis.Redis | ioredis.Cluster,
  key: string,
  value: string,
  lease: Lease<"exclusive"> | Fence,
  options?: GuardOptions
): Effect.Effect<void, InvalidOptions | StaleFence | WriteFailed> =>
  Effect.suspend((): Effect.Effect<void, InvalidOptions | StaleFence | WriteFailed> => {
    const fence: bigint = typeof lease === "bigint" ? lease : lease.fence
    const name = options?.fenceKey ?? derive(key, prefixOf(client))
    const expiry = options?.expiry === undefined ? Infinity : Math.ceil(millis(options.expiry))
    if (name === undefined || !(expiry > 0)) {
      const issues = [
        ...name === undefined ? [unnamed] : [],
        ...expiry > 0 ? [] : [{ path: "expiry", message: "must be a duration above zero" }]
      ]
      return new InvalidOptions({ backend: "redis", issues })
    }
    const keys = [name, key] as const
    const args = [String(fence), Number.isSafeInteger(expiry) ? String(expiry) : "0", value] as const
    const ask: Ask<string> = (done) => {
      const answered = (seen: unknown) => done(/^\d*$/.test(String(seen)) ? String(seen) : unintelligible("fenced"))
      const failed = (error: unknown) => done(driverError(error))
      client.evalsha(setSha, 2, ...keys, ...args).then(answered, (error) => {
        if (!isUnknownScript(error)) return failed(error)
        client.eval(setScript, 2, ...keys, ...args).then(answered, failed)
      })
    }
    return Effect.async<void, StaleFence | WriteFailed>((resume) =>
      ask((seen) => {
        if (isFailure(seen)) resume(new WriteFailed({ executed: seen.executed, cause: seen.cause ?? seen }))
        else if (seen === "") resume(Effect.void)
        else resume(new StaleFence({ backend: "redis", resource: BigInt(seen), lock: fence }))
      })
    )
  })
