import type { Effect, Scope } from "effect"
import type {
  Busy,
  Claim,
  Contention,
  Deposed,
  DriverError,
  Finding,
  Full,
  Grant,
  HeldKey,
  Holder,
  LockDriver,
  Released,
  Renewal
} from "effect-locking/LockDriver"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as MemoryStore from "effect-locking/MemoryStore"
import { describe, expect, it } from "tstyche"

declare const driver: LockDriver
declare const contention: Contention
declare const claim: Claim
declare const grant: Grant
declare const key: ResolvedKey
declare const store: MemoryStore.MemoryStore
declare const attempt: Parameters<Contention["attempt"]>[0]

describe("the SPI", () => {
  it("R8.5 every call fails DriverError alone, and needs nothing", () => {
    expect(driver.ready).type.toBe<Effect.Effect<void, DriverError>>()
    expect(contention.attempt(attempt)).type.toBe<Effect.Effect<Grant | Busy | Full, DriverError>>()
    expect(contention.arm(() => {})).type.toBe<Effect.Effect<void, DriverError>>()
    expect(contention.withdraw).type.toBe<Effect.Effect<void, DriverError>>()
    expect(driver.renew([grant])).type.toBe<Effect.Effect<ReadonlyArray<Renewal>, DriverError>>()
    expect(driver.release(claim)).type.toBe<Effect.Effect<Released, DriverError>>()
    expect(driver.offer!(grant)).type.toBe<Effect.Effect<Grant | Released, DriverError>>()
    expect(driver.inspect(key)).type.toBe<Effect.Effect<ReadonlyArray<Holder>, DriverError>>()
    expect(driver.list("namespace")).type.toBe<Effect.Effect<ReadonlyArray<HeldKey>, DriverError>>()
    expect(driver.forceRelease(key, { hard: false })).type.toBe<Effect.Effect<Deposed, DriverError>>()
    expect(driver.check!).type.toBe<Effect.Effect<ReadonlyArray<Finding>, DriverError>>()
  })

  it("R8.1 a memory store is there at once", () => {
    expect(MemoryStore.make).type.toBe<Effect.Effect<MemoryStore.MemoryStore>>()
    expect(MemoryStore.driver(store)).type.toBe<Effect.Effect<LockDriver, never, Scope.Scope>>()
  })
})
