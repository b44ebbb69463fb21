/**
 * A store that must not be used as it is deployed, that has room for a few keys only, or that has something to tell.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, TestClock } from "effect"
import { DriverError, type Finding, type LockDriver } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"

const driver = Effect.flatMap(MemoryStore.make, MemoryStore.driver)

const started = (patch: Partial<LockDriver>, options: LockingOptions = {}) =>
  Effect.flatMap(driver, (inner) => Locking.make({ ...inner, ...patch }, { backend: "orders", ...options }))

const finding = (severity: Finding["severity"], code: string): Finding => ({
  severity,
  code,
  message: `a deployment with ${code}`,
  fix: `Mend ${code}.`
})

describe("a deployment that does not fit", () => {
  const unfit = Effect.fail(
    new DriverError({ executed: "no", message: "a pooler stands before it", fix: "Give the direct URL." })
  )

  it.scoped("R5 the layer fails DriverInvalid with the remedy", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(started({ ready: unfit }))
      assert(error._tag === "DriverInvalid")
      assert.strictEqual(error.code, "DRIVER_INVALID")
      assert.match(error.message, /"orders".*a pooler stands before it/)
      assert.strictEqual(error.fix, "Give the direct URL.")
    }))

  it.scoped("R1.7 a lazy layer starts, and its calls tell", () =>
    Effect.gen(function*() {
      const inner = yield* driver
      const attempt = Effect.zipRight(unfit, Effect.dieMessage("asked although it is unfit"))
      const locking = yield* started(
        { ready: unfit, contend: (request) => ({ ...inner.contend(request), attempt: () => attempt }) },
        { start: "lazy" }
      )
      const error = yield* Effect.flip(locking.withLock(Effect.dieMessage("has begun"), "k", { waitTimeout: 0 }))
      assert(error._tag === "ProviderFailed")
      assert.match(error.message, /a pooler stands before it/)
    }))
})

describe("check", () => {
  it.scoped("R10.4 answers what the driver finds; nothing where it looks for nothing", () =>
    Effect.gen(function*() {
      const findings = [finding("error", "POOLER"), finding("info", "VERSION")]
      const locking = yield* started({ check: Effect.succeed(findings) })
      assert.deepStrictEqual(yield* locking.check, findings)
      assert.deepStrictEqual(yield* (yield* started({})).check, [])
    }))

  it.scoped("R10.4 a failed question is a failed question", () =>
    Effect.gen(function*() {
      const locking = yield* started({ check: Effect.fail(new DriverError({ executed: "no", message: "down" })) })
      assert.strictEqual((yield* Effect.flip(locking.check))._tag, "ProviderFailed")
    }))

  for (const severity of ["error", "warning"] as const) {
    it.scoped(`R10.4 strict: the layer does not start where there is an ${severity}`, () =>
      Effect.gen(function*() {
        const check = Effect.succeed([
          finding("info", "VERSION"),
          finding(severity, "EVICTION"),
          finding(severity, "AOF")
        ])
        const error = yield* Effect.flip(started({ check }, { start: "strict" }))
        assert(error._tag === "DriverInvalid")
        assert.match(error.message, /a deployment with EVICTION \(EVICTION\); a deployment with AOF \(AOF\)$/)
        assert.strictEqual(error.fix, "Mend EVICTION. Mend AOF.")
        yield* started({ check })
      }))
  }

  it.scoped("R10.4 strict: facts alone do not stop it, and a store that is down does", () =>
    Effect.gen(function*() {
      yield* started({ check: Effect.succeed([finding("info", "VERSION")]) }, { start: "strict" })
      const down = Effect.fail(new DriverError({ executed: "no", message: "down" }))
      assert.strictEqual((yield* Effect.flip(started({ check: down }, { start: "strict" })))._tag, "ProviderFailed")
      assert.strictEqual((yield* Effect.flip(started({ ready: down }, { start: "strict" })))._tag, "ProviderFailed")
    }))
})

describe("a store that is mute when it is asked of itself", () => {
  it.scoped("R1.7 R10.4 strict: the layer fails, and does not wait for ever", () =>
    Effect.gen(function*() {
      const { capabilities } = yield* driver
      const mute = { capabilities: { ...capabilities, remote: true }, check: Effect.never }
      const starting = yield* Effect.fork(Effect.flip(started(mute, { start: "strict" })))
      yield* TestClock.adjust("1 minute")
      assert.strictEqual((yield* Fiber.join(starting))._tag, "ProviderFailed")
    }))
})

describe("a store with little room", () => {
  it.scoped("R6.6 its driver says how many keys: that is the default and the limit of the option", () =>
    Effect.gen(function*() {
      const { capabilities } = yield* driver
      const locking = yield* started({ capabilities: { ...capabilities, maxKeys: 1 } })
      yield* locking.acquire("a")
      const error = yield* Effect.flip(locking.acquire("b"))
      assert(error._tag === "KeyLimit")
      assert.strictEqual(error.limit, 1)
      const refused = yield* Effect.flip(started({ capabilities: { ...capabilities, maxKeys: 500 } }, { maxKeys: 501 }))
      assert(refused._tag === "InvalidOptions")
      assert.deepStrictEqual(refused.issues.map(({ path }) => path), ["maxKeys"])
    }))

  it.scoped("R5 R6.6 it refuses a key: KeyLimit at once, and nothing is kept for the call", () =>
    Effect.gen(function*() {
      const inner = yield* driver
      const full = { attempt: () => Effect.succeed({ _tag: "Full", limit: 640 } as const) }
      const locking = yield* started({
        contend: (request) => ({ arm: () => Effect.void, withdraw: Effect.void, ...full, request })
      })
      const error = yield* Effect.flip(locking.acquire("a", { waitTimeout: "1 hour" }))
      assert(error._tag === "KeyLimit")
      assert.strictEqual(error.limit, 640)
      assert.deepStrictEqual(yield* inner.list("effect-locking"), [])
    }))
})
