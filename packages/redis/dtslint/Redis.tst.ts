import type * as RedisError from "@effect-locking/redis/RedisError"
import * as RedisFence from "@effect-locking/redis/RedisFence"
import * as RedisLocking from "@effect-locking/redis/RedisLocking"
import { Config, type ConfigError, type Effect, type Either, type Layer, type Scope } from "effect"
import type { Fence, SharedFence } from "effect-locking/Fence"
import type { Lease } from "effect-locking/Lease"
import type { LockDriver } from "effect-locking/LockDriver"
import type * as LockError from "effect-locking/LockError"
import type { Locking } from "effect-locking/Locking"
import type { Cluster, Redis } from "ioredis"
import { describe, expect, it } from "tstyche"

declare const redis: Redis
declare const cluster: Cluster
declare const lease: Lease<"exclusive">
declare const shared: Lease<"shared">
declare const fence: Fence
declare const sharedFence: SharedFence

describe("RedisLocking", () => {
  it("layers need nothing, and fail as every layer does", () => {
    expect(RedisLocking.layer({ client: redis, namespace: "a" })).type.toBe<
      Layer.Layer<Locking, LockError.StartError>
    >()
    expect(RedisLocking.layer({ client: cluster, fairPatience: "1 second", retention: 0 })).type.toBe<
      Layer.Layer<Locking, LockError.StartError>
    >()
    expect(RedisLocking.layerQuorum({ clients: [redis, redis, redis], longestTtl: "30 seconds" })).type.toBe<
      Layer.Layer<Locking, LockError.StartError>
    >()
    expect(RedisLocking.layerConfig({ connection: Config.redacted("URL") })).type.toBe<
      Layer.Layer<Locking, LockError.StartError | ConfigError.ConfigError>
    >()
    expect(RedisLocking.layer).type.not.toBeCallableWith({})
    expect(RedisLocking.layer).type.not.toBeCallableWith({ client: "redis://localhost" })
    expect(RedisLocking.layerQuorum).type.not.toBeCallableWith({ client: redis })
  })

  it("drivers need a scope", () => {
    expect(RedisLocking.driver({ client: redis })).type.toBe<
      Effect.Effect<LockDriver, LockError.InvalidOptions, Scope.Scope>
    >()
    expect(RedisLocking.driverQuorum({ clients: [redis] })).type.toBe<
      Effect.Effect<LockDriver, LockError.InvalidOptions, Scope.Scope>
    >()
  })
})

describe("RedisFence", () => {
  it("takes exclusive leases and their fences only", () => {
    type Set = Effect.Effect<void, LockError.InvalidOptions | LockError.StaleFence | RedisError.WriteFailed>
    expect(RedisFence.set(redis, "key", "value", lease)).type.toBe<Set>()
    expect(RedisFence.set(cluster, "key", "value", fence, { expiry: "1 day", fenceKey: "f" })).type.toBe<Set>()
    expect(RedisFence.fenceKey("key", "prefix:")).type.toBe<Either.Either<string, LockError.InvalidOptions>>()
    expect(RedisFence.set).type.not.toBeCallableWith(redis, "key", "value", shared)
    expect(RedisFence.set).type.not.toBeCallableWith(redis, "key", "value", sharedFence)
    expect(RedisFence.set).type.not.toBeCallableWith(redis, "key", "value", 42n)
  })
})
