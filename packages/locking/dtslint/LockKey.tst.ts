import type { Effect } from "effect"
import * as LockKey from "effect-locking/LockKey"
import { describe, expect, it } from "tstyche"

declare const effect: Effect.Effect<number, "error", "service">

describe("LockKey", () => {
  it("withTenant adds nothing to the types", () => {
    expect(LockKey.withTenant(effect, "acme")).type.toBe<Effect.Effect<number, "error", "service">>()
    expect(LockKey.withTenant("acme")(effect)).type.toBe<Effect.Effect<number, "error", "service">>()
    expect(effect.pipe(LockKey.withTenant("acme"))).type.toBe<Effect.Effect<number, "error", "service">>()
    expect(LockKey.withTenant).type.not.toBeCallableWith(effect, 42)
    expect(LockKey.withTenant).type.not.toBeCallableWith(undefined)
  })

  it("the tenant in context needs nothing", () => {
    expect(LockKey.currentTenant).type.toBe<Effect.Effect<string | undefined>>()
  })

  it("a key is a string or made by a constructor", () => {
    expect<LockKey.Input>().type.toBeAssignableFrom<string>()
    expect<LockKey.Input>().type.toBeAssignableFrom(LockKey.platform("a"))
    expect<LockKey.Input>().type.not.toBeAssignableFrom<number>()
    expect<LockKey.Input>().type.not.toBeAssignableFrom<undefined>()
    expect<LockKey.Input>().type.not.toBeAssignableFrom<{ readonly scope: "platform"; readonly name: string }>()
  })

  it("isLockKey narrows", () => {
    const input = {} as LockKey.Input
    if (LockKey.isLockKey(input)) expect(input).type.toBe<LockKey.LockKey>()
    else expect(input).type.toBe<string>()
  })
})
