import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, TestClock } from "effect"
import { promptly } from "../src/internal/connection.js"

describe("promptly", () => {
  it.effect("R7.2 what was ready in time is not destroyed when its time would have been over", () =>
    Effect.gen(function*() {
      let destroyed = 0
      assert.strictEqual(yield* promptly(Effect.succeed("ready"), () => destroyed++, 5000), "ready")
      yield* TestClock.adjust(5000)
      assert.strictEqual(destroyed, 0)
    }))

  it.effect("R7.2 what is given up is not destroyed later, when something else may be in its place", () =>
    Effect.gen(function*() {
      let destroyed = 0
      const waiting = yield* Effect.fork(promptly(Effect.never, () => destroyed++, 5000))
      yield* TestClock.adjust(4999)
      yield* Fiber.interrupt(waiting)
      yield* TestClock.adjust(1)
      assert.strictEqual(destroyed, 0)
    }))

  it.effect("R7.2 what is not ready in time is destroyed then", () =>
    Effect.gen(function*() {
      let destroyed = 0
      const waiting = yield* Effect.fork(promptly(Effect.never, () => destroyed++, 5000))
      yield* TestClock.adjust(4999)
      assert.strictEqual(destroyed, 0)
      yield* TestClock.adjust(1)
      assert.strictEqual(destroyed, 1)
      yield* Fiber.interrupt(waiting)
    }))
})
