import type { Effect, Option } from "effect"
import * as Fence from "effect-locking/Fence"
import * as FencedRegister from "effect-locking/FencedRegister"
import type { StaleFence } from "effect-locking/LockError"
import { describe, expect, it } from "tstyche"

declare const fence: Fence.Fence
declare const shared: Fence.SharedFence
declare const register: FencedRegister.FencedRegister<string>

describe("Fence", () => {
  it("is a bigint, and no bigint is a fence", () => {
    expect<bigint>().type.toBeAssignableFrom(fence)
    expect<Fence.Fence>().type.not.toBeAssignableFrom<bigint>()
    expect<Fence.Fence>().type.not.toBeAssignableFrom<number>()
  })

  it("R1.6 a shared fence is refused by every guard", () => {
    expect<Fence.Fence>().type.not.toBeAssignableFrom(shared)
    expect<Fence.SharedFence>().type.not.toBeAssignableFrom(fence)
    expect(Fence.assert).type.not.toBeCallableWith(1n, shared)
    expect(Fence.toHeader).type.not.toBeCallableWith(shared)
    expect(Fence.Order).type.not.toBeCallableWith(fence, shared)
    expect(register.set).type.not.toBeCallableWith(shared, "a")
    expect(register.update).type.not.toBeCallableWith(shared, (value: string) => value)
    expect(Fence.toString).type.toBeCallableWith(shared)
  })

  it("R3.2 the sides of the check cannot be swapped", () => {
    expect(Fence.assert(1n, fence)).type.toBe<Effect.Effect<void, StaleFence>>()
    expect(Fence.assert).type.not.toBeCallableWith(fence, 1n)
  })

  it("what may be no fence is an Option", () => {
    expect(Fence.make(1n)).type.toBe<Option.Option<Fence.Fence>>()
    expect(Fence.fromString("1")).type.toBe<Option.Option<Fence.Fence>>()
    expect(Fence.fromHeader(null)).type.toBe<Option.Option<Fence.Fence>>()
    expect(Fence.unsafeMake(1n)).type.toBe<Fence.Fence>()
    expect(Fence.make).type.not.toBeCallableWith(1)
  })

  it("the header has its name", () => {
    expect(Fence.toHeader(fence)).type.toBe<{ readonly "lock-fence": string }>()
  })
})

describe("FencedRegister", () => {
  it("fails StaleFence on writes alone", () => {
    expect(FencedRegister.make("a")).type.toBe<Effect.Effect<FencedRegister.FencedRegister<string>>>()
    expect(register.get).type.toBe<Effect.Effect<string>>()
    expect(register.fence).type.toBe<Effect.Effect<Option.Option<Fence.Fence>>>()
    expect(register.set(fence, "a")).type.toBe<Effect.Effect<void, StaleFence>>()
    expect(register.update(fence, (value) => value)).type.toBe<Effect.Effect<string, StaleFence>>()
  })
})
