import type { PgClient } from "@effect/sql-pg/PgClient"
import type { SqlClient } from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import { Config, type ConfigError, type Effect, type Layer, type Scope } from "effect"
import type * as Fence from "effect-locking/Fence"
import type { Lease } from "effect-locking/Lease"
import type { LockDriver } from "effect-locking/LockDriver"
import type * as LockError from "effect-locking/LockError"
import type { Locking } from "effect-locking/Locking"
import { describe, expect, it } from "tstyche"
import type { TransactionInvalid } from "../src/PgError.js"
import * as PgFence from "../src/PgFence.js"
import * as PgLocking from "../src/PgLocking.js"

declare const lease: Lease<"exclusive">
declare const reader: Lease<"shared">
declare const fence: Fence.Fence

describe("layers", () => {
  it("R8.2 needs the program's client unless it is told where to connect", () => {
    expect(PgLocking.layer()).type.toBe<
      Layer.Layer<Locking | PgLocking.PgLocking, LockError.StartError, PgClient>
    >()
    expect(PgLocking.layer({ connection: "postgres://localhost/shop", namespace: "shop" })).type.toBe<
      Layer.Layer<Locking | PgLocking.PgLocking, LockError.StartError>
    >()
    expect(PgLocking.layerConfig({ connection: Config.redacted("URL") })).type.toBe<
      Layer.Layer<Locking | PgLocking.PgLocking, LockError.StartError | ConfigError.ConfigError>
    >()
    expect(PgLocking.driver()).type.toBe<
      Effect.Effect<LockDriver, LockError.InvalidOptions, Scope.Scope | PgClient>
    >()
    expect(PgLocking.driver({ connection: "postgres://localhost/shop" })).type.toBe<
      Effect.Effect<LockDriver, LockError.InvalidOptions, Scope.Scope>
    >()
  })

  it("R5 wrong options do not compile", () => {
    expect(PgLocking.layer).type.not.toBeCallableWith({ fence: "dice" })
    expect(PgLocking.layer).type.not.toBeCallableWith({ sessionTtl: {} })
    expect(PgLocking.driver).type.not.toBeCallableWith({ schema: 1 })
  })
})

describe("transactions", () => {
  it("R9.5 what a lock of a transaction can fail with", () => {
    expect(PgLocking.transactionLock("k")).type.toBe<
      Effect.Effect<
        void,
        | LockError.InvalidOptions
        | LockError.InvalidKey
        | LockError.LockBusy
        | LockError.WaitTimeout
        | LockError.ProviderFailed
        | TransactionInvalid,
        PgLocking.PgLocking | SqlClient
      >
    >()
  })

  it("R3.3 R1.6 a guard takes the fence of an exclusive lease, and no reader's", () => {
    type Guarded = Effect.Effect<void, LockError.StaleFence | TransactionInvalid | SqlError, SqlClient>
    expect(PgFence.guard("r", lease)).type.toBe<Guarded>()
    expect(PgFence.guard("r", fence)).type.toBe<Guarded>()
    expect(PgFence.guard).type.not.toBeCallableWith("r", reader)
    expect(PgFence.guard).type.not.toBeCallableWith("r", reader.fence)
    expect(PgFence.guard).type.not.toBeCallableWith("r", 1n)
  })
})
