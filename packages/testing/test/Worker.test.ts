import * as Worker from "@effect-locking/testing/Worker"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Predicate, Scope } from "effect"
import { isRunning } from "../src/internal/processes.js"

const worker = (what: string, options?: Worker.Options) =>
  Worker.spawn(new URL("fixtures/worker.ts", import.meta.url), { args: [what], ...options })

describe("Worker", () => {
  it.scopedLive("speaks, listens and ends by itself", () =>
    Effect.gen(function*() {
      const it = yield* worker("echo")
      assert.deepStrictEqual(yield* it.take, { ready: true, fence: "12" })
      yield* it.send(["a", 1])
      assert.deepStrictEqual(yield* it.take, { said: ["a", 1] })
      assert.deepStrictEqual(yield* it.ended, { code: 0, signal: null })
      assert.lengthOf(yield* it.written, 2)
      // the end is told to everybody who asks
      for (let i = 0; i < 2; i++) assert.include((yield* Effect.flip(it.take)).message, "ended with 0")
    }))

  it.scopedLive("a kill loses no line", () =>
    Effect.gen(function*() {
      const it = yield* worker("flood")
      assert.strictEqual((yield* it.ended).signal, "SIGKILL")
      assert.lengthOf(yield* it.written, 20_000)
    }))

  it.live("is frozen and thawed, and gone with the scope even when it is frozen", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const it = yield* Scope.extend(worker("tick"), scope)
      yield* it.takeUntil(Predicate.isString)
      yield* it.freeze
      yield* Effect.sleep(100)
      const before = (yield* it.written).length
      yield* Effect.sleep(100)
      assert.lengthOf(yield* it.written, before)
      yield* it.thaw
      for (let i = 0; i <= before; i++) yield* it.take
      yield* it.freeze
      yield* Scope.close(scope, Exit.void)
      assert.isFalse(isRunning(it.pid))
    }))

  it.scopedLive("the watchdog bites", () =>
    Effect.gen(function*() {
      const it = yield* worker("tick", { watchdog: "1 second" })
      assert.include((yield* Effect.flip(it.ended)).message, "watchdog")
    }))

  it.scopedLive("what it wrote to its errors is in the failure, and its code is known", () =>
    Effect.gen(function*() {
      const it = yield* worker("fail")
      assert.include((yield* Effect.flip(it.take)).message, "something is wrong")
      assert.deepStrictEqual(yield* it.ended, { code: 3, signal: null })
      const garbage = yield* worker("garbage")
      assert.include((yield* Effect.flip(garbage.take)).message, "not json")
    }))
})
