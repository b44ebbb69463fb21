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
import { StaleFence } from "effect-locking/LockError"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as ioredis from "ioredis"
import { hash } from "node:crypto"
import { type Ask, isFailure } from "./internal/ask.js"
import { driverError, isUnknownScript } from "./internal/errors.js"
import { tagOf } from "./internal/records.js"
import { WriteFailed } from "./RedisError.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface GuardOptions {
  /** The key that keeps the highest fence. Default: `fenceKey` of the key that is written. */
  readonly fenceKey?: string | undefined
  /**
   * For how long after the last write the fence is kept. Default: for ever. A write that is late by more than this
   * passes.
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

/**
 * The key in which `set` keeps the highest fence of another: in the same slot of a cluster.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { RedisFence } from "@effect-locking/redis"
 *
 * strictEqual(RedisFence.fenceKey("report"), "{report}:fence")
 * strictEqual(RedisFence.fenceKey("report:{2025}:a"), "report:{2025}:a:fence")
 * ```
 *
 * @since 0.1.0
 * @category guards
 */
export const fenceKey = (key: string): string => tagOf(key) === key ? `{${key}}:fence` : `${key}:fence`

/**
 * Sets a key, unless a later holder has written to it. Equal fences pass, so that one holder may write twice. Only an
 * exclusive lease can be a guard.
 *
 * Fails `StaleFence`, when nothing was written; `WriteFailed` when the server refuses or does not answer.
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
): Effect.Effect<void, StaleFence | WriteFailed> =>
  Effect.suspend(() => {
    const fence: bigint = typeof lease === "bigint" ? lease : lease.fence
    const expiry = options?.expiry === undefined ? 0 : Math.ceil(Duration.toMillis(options.expiry))
    const keys = [options?.fenceKey ?? fenceKey(key), key] as const
    const args = [String(fence), String(expiry), value] as const
    const ask: Ask<string> = (done) => {
      const answered = (seen: unknown) => done(String(seen))
      const failed = (error: unknown) => done(driverError(error))
      client.evalsha(setSha, 2, ...keys, ...args).then(answered, (error) => {
        if (!isUnknownScript(error)) return failed(error)
        client.eval(setScript, 2, ...keys, ...args).then(answered, failed)
      })
    }
    return Effect.async<void, StaleFence | WriteFailed>((resume) =>
      ask((seen) => {
        if (isFailure(seen)) resume(new WriteFailed({ executed: seen.executed, cause: seen.cause }))
        else if (seen === "") resume(Effect.void)
        else resume(new StaleFence({ backend: "redis", resource: BigInt(seen), lock: fence }))
      })
    )
  })
