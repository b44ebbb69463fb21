import type { Duration, Schema } from "effect"
import { Effect } from "effect"
import * as LockError from "effect-locking/LockError"
import type * as LockErrorSchema from "effect-locking/LockErrorSchema"
import { describe, expect, it } from "tstyche"

declare const acquire: Effect.Effect<number, LockError.AcquireError>

describe("LockError", () => {
  it("R5 the unions hold exactly what can occur", () => {
    expect<LockError.TryAcquireError["_tag"]>().type.toBe<
      | "InvalidOptions"
      | "InvalidKey"
      | "QueueFull"
      | "KeyLimit"
      | "LockReentry"
      | "LockingClosed"
      | "ProviderFailed"
      | "OutcomeUnknown"
    >()
    expect<LockError.AcquireError["_tag"]>().type.toBe<LockError.TryAcquireError["_tag"] | "LockBusy" | "WaitTimeout">()
    expect<LockError.WithLockError["_tag"]>().type.toBe<LockError.AcquireError["_tag"] | "LeaseLost">()
    expect<LockError.TryLockError["_tag"]>().type.toBe<LockError.TryAcquireError["_tag"] | "LeaseLost">()
    expect<LockError.LockError["_tag"]>().type.toBe<
      LockError.WithLockError["_tag"] | "StaleFence" | "DriverInvalid" | "CleanupFailed" | "CleanupTimeout"
    >()
  })

  it("R5 every error has code, backend, message and fix", () => {
    expect<LockError.LockError["backend"]>().type.toBe<string>()
    expect<LockError.LockError["message"]>().type.toBe<string>()
    expect<LockError.LockError["fix"]>().type.toBe<string>()
    expect<LockError.LockBusy["code"]>().type.toBe<"LOCK_BUSY">()
    expect<LockError.LockingClosed["code"]>().type.toBe<"CLOSED">()
    expect<LockError.WithLockError["code"]>().type.toBe<
      | "INVALID_OPTIONS"
      | "INVALID_KEY"
      | "LOCK_BUSY"
      | "WAIT_TIMEOUT"
      | "QUEUE_FULL"
      | "KEY_LIMIT"
      | "LOCK_REENTRY"
      | "CLOSED"
      | "PROVIDER_FAILED"
      | "OUTCOME_UNKNOWN"
      | "LEASE_LOST"
    >()
  })

  it("are caught by tag, and the rest stays", () => {
    expect(acquire.pipe(Effect.catchTag("LockBusy", (busy) => Effect.succeed(busy.waited)))).type.toBe<
      Effect.Effect<number | Duration.Duration, Exclude<LockError.AcquireError, LockError.LockBusy>>
    >()
    expect(acquire.pipe(
      Effect.catchTags({ WaitTimeout: () => Effect.succeed(0), QueueFull: () => Effect.succeed(1) })
    )).type.toBe<
      Effect.Effect<number, Exclude<LockError.AcquireError, LockError.WaitTimeout | LockError.QueueFull>>
    >()
  })

  it("tags and reasons narrow", () => {
    const error = {} as LockError.LockError
    if (error._tag === "LeaseLost") {
      expect(error).type.toBe<LockError.LeaseLost>()
      expect(error.reason).type.toBe<LockError.LeaseLostReason>()
    }
    if (error.code === "STALE_FENCE") expect(error).type.toBe<LockError.StaleFence>()
  })

  it("constructors want every field and no other", () => {
    expect(LockError.QueueFull).type.toBeConstructableWith({ backend: "orders", limit: 1 })
    expect(LockError.QueueFull).type.not.toBeConstructableWith({ backend: "orders" })
    expect(LockError.QueueFull).type.not.toBeConstructableWith({ backend: "orders", limit: 1, key: "orders:42" })
    expect(LockError.LockingClosed).type.not.toBeConstructableWith()
    expect(LockError.ProviderFailed).type.toBeConstructableWith({ backend: "orders" })
    expect(LockError.ProviderFailed).type.toBeConstructableWith({ backend: "orders", keyHash: undefined, cause: 1 })
  })

  it("isLockError and isTransient", () => {
    const u = {} as unknown
    if (LockError.isLockError(u)) expect(u).type.toBe<LockError.LockError>()
    expect(LockError.isTransient).type.toBeCallableWith({} as LockError.WithLockError)
  })

  it("yield as effects that fail with themselves", () => {
    expect(Effect.gen(function*() {
      return yield* new LockError.LockingClosed({ backend: "orders" })
    })).type.toBe<Effect.Effect<never, LockError.LockingClosed>>()
  })
})

describe("LockErrorSchema", () => {
  it("decodes to the classes and unions of LockError", () => {
    expect<Schema.Schema.Type<typeof LockErrorSchema.LockBusy>>().type.toBe<LockError.LockBusy>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.AcquireError>>().type.toBe<LockError.AcquireError>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.TryAcquireError>>().type.toBe<LockError.TryAcquireError>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.WithLockError>>().type.toBe<LockError.WithLockError>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.TryLockError>>().type.toBe<LockError.TryLockError>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.LockError>>().type.toBe<LockError.LockError>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.HolderSummary>>().type.toBe<LockError.HolderSummary>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.LeaseLostReason>>().type.toBe<LockError.LeaseLostReason>()
    expect<Schema.Schema.Type<typeof LockErrorSchema.Issue>>().type.toBe<LockError.Issue>()
  })

  it("the wire has strings for fences and numbers for durations", () => {
    type Wire = Schema.Schema.Encoded<typeof LockErrorSchema.LeaseLost>
    expect<Wire["_tag"]>().type.toBe<"LeaseLost">()
    expect<Wire["fence"]>().type.toBe<string>()
    expect<Wire["overrun"]>().type.toBe<number | "Infinity">()
    expect<Schema.Schema.Context<typeof LockErrorSchema.LockError>>().type.toBe<never>()
  })
})
