import type { Effect, Layer, Scope } from "effect"
import type { Holder } from "effect-locking/LockDriver"
import type * as LockError from "effect-locking/LockError"
import type * as Locking from "effect-locking/Locking"
import * as TestLocking from "effect-locking/TestLocking"
import { describe, expect, it } from "tstyche"

type Start = LockError.InvalidOptions | LockError.ProviderFailed | LockError.DriverInvalid
type Verb<A = void> = Effect.Effect<A, never, TestLocking.TestLocking>

describe("TestLocking", () => {
  it("R8.1 a layer fails by its options alone, and a node as any other", () => {
    expect(TestLocking.layer).type.toBe<Layer.Layer<TestLocking.TestLocking | Locking.Locking>>()
    expect(TestLocking.layerWith({ ttl: "1 second" })).type.toBe<
      Layer.Layer<TestLocking.TestLocking | Locking.Locking, Start>
    >()
    expect(TestLocking.layerStore).type.toBe<Layer.Layer<TestLocking.TestLocking>>()
    expect(TestLocking.node("one")).type.toBe<
      Effect.Effect<Locking.Locking, Start, Scope.Scope | TestLocking.TestLocking>
    >()
    expect(TestLocking.layerWith).type.not.toBeCallableWith({ timeToLive: 1 })
  })

  it("R5 verbs cannot fail, and need the store alone", () => {
    expect(TestLocking.kill("one")).type.toBe<Verb>()
    expect(TestLocking.loseLease("k", { reason: "expired" })).type.toBe<Verb<ReadonlyArray<Holder>>>()
    expect(TestLocking.mute("1 second", { node: "one" })).type.toBe<Verb>()
    expect(TestLocking.refuse({ op: "attempt" })).type.toBe<Verb>()
    expect(TestLocking.dropNextReply({ op: "grant" })).type.toBe<Verb>()
    expect(TestLocking.answerLate("1 second", { times: 1 })).type.toBe<Verb>()
    expect(TestLocking.delayWakeups("1 second")).type.toBe<Verb>()
    expect(TestLocking.dropWakeups()).type.toBe<Verb>()
    expect(TestLocking.jumpClock("1 hour", "back")).type.toBe<Verb>()
    expect(TestLocking.heal).type.toBe<Verb>()
    expect(TestLocking.holders("k")).type.toBe<Verb<ReadonlyArray<Holder>>>()
    expect(TestLocking.calls({ node: "one" })).type.toBe<Verb<TestLocking.Calls>>()
    expect(TestLocking.refuse).type.not.toBeCallableWith({ op: "grant" })
    expect(TestLocking.loseLease).type.not.toBeCallableWith("k", { reason: "taken" })
  })
})
