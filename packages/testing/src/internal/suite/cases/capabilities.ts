import type { Capabilities } from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { assert } from "vitest"
import { type Group, test } from "../world.js"

export const capabilities: Group = {
  name: "capabilities",
  cases: [
    test("R8.5 are those that its author expects", (world) =>
      Effect.gen(function*() {
        const driver = yield* world.open
        const expected = world.options.capabilities ?? {}
        for (const name of Object.keys(expected) as Array<keyof Capabilities>) {
          assert.deepStrictEqual(driver.capabilities[name], expected[name], name)
        }
      })),

    test("R8.5 make sense", (world) =>
      Effect.gen(function*() {
        const { capabilities, name } = yield* world.open
        assert.isNotEmpty(name)
        assert.include(capabilities.modes, "exclusive")
        assert.isTrue(Duration.greaterThan(capabilities.ttl.min, Duration.zero))
        assert.isTrue(Duration.greaterThanOrEqualTo(capabilities.ttl.default, capabilities.ttl.min))
        assert.isTrue(capabilities.ttl.infinite || Duration.isFinite(capabilities.ttl.default))
        assert.isTrue(capabilities.maxKeys === undefined || capabilities.maxKeys > 0)
        // without an end of its own, what a dead process held would stay for ever
        if (capabilities.remote) assert.notStrictEqual(capabilities.expiry, "none")
      })),

    test("R1.7 is ready, and every process of the same store says the same", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.open, yield* world.open]
        yield* world.within("ready", one.ready)
        yield* world.within("ready", two.ready)
        assert.deepStrictEqual(one.capabilities, two.capabilities)
        assert.strictEqual(one.name, two.name)
      }))
  ]
}
