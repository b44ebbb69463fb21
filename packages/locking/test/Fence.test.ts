import { assert, describe, it } from "@effect/vitest"
import { Effect, Either, Option } from "effect"
import * as Fence from "effect-locking/Fence"
import * as FencedRegister from "effect-locking/FencedRegister"
import { StaleFence } from "effect-locking/LockError"
import * as fc from "fast-check"

const max = 2n ** 63n - 1n
const fence = fc.bigInt({ min: 1n, max }).map(Fence.unsafeMake)

describe("Fence", () => {
  it("R3.1 is a positive whole number of at most 63 bits", () => {
    for (const value of [1n, 2n, 2n ** 53n + 1n, max]) {
      assert.strictEqual(Option.getOrUndefined(Fence.make(value)), value)
      assert.strictEqual(Fence.unsafeMake(value), value)
      assert.isTrue(Fence.isFence(value))
    }
    for (const value of [0n, -1n, max + 1n, -(2n ** 63n), 1, "1", null, undefined] as Array<any>) {
      assert.isTrue(Option.isNone(Fence.make(value)))
      assert.throws(() => Fence.unsafeMake(value), RangeError)
      assert.throws(() => Fence.unsafeMakeShared(value), RangeError)
      assert.isFalse(Fence.isFence(value))
    }
  })

  it("R3.1 is a decimal string on the wire, exact beyond 2^53", () => {
    fc.assert(fc.property(fence, (fence) => {
      assert.strictEqual(Option.getOrUndefined(Fence.fromString(Fence.toString(fence))), fence)
    }))
    assert.strictEqual(Fence.toString(Fence.unsafeMake(9007199254740993n)), "9007199254740993")
    assert.strictEqual(Fence.toString(Fence.unsafeMakeShared(7n)), "7")
  })

  it("R3.1 reads that form only", () => {
    for (
      const text of [
        "",
        "0",
        "-1",
        "+1",
        "01",
        " 1",
        "1 ",
        "1\n",
        "1n",
        "1.0",
        "1e3",
        "0x10",
        "１",
        "9223372036854775808",
        "99999999999999999999",
        "NaN"
      ]
    ) {
      assert.isTrue(Option.isNone(Fence.fromString(text)), JSON.stringify(text))
    }
    for (const text of [1, 1n, null, undefined, ["1"]]) {
      assert.isTrue(Option.isNone(Fence.fromString(text as any)))
    }
    assert.strictEqual(Option.getOrUndefined(Fence.fromString("9223372036854775807")), max)
  })

  it("orders and compares", () => {
    fc.assert(fc.property(fence, fence, (a, b) => {
      assert.strictEqual(Fence.Order(a, b), a < b ? -1 : a > b ? 1 : 0)
      assert.strictEqual(Fence.Equivalence(a, b), a === b)
    }))
  })

  it.effect("R3.2 assert fails StaleFence for an older lock, equal passes", () =>
    Effect.gen(function*() {
      const lock = Fence.unsafeMake(12n)
      yield* Fence.assert(0n, lock)
      yield* Fence.assert(11n, lock)
      yield* Fence.assert(12n, lock)
      const error = yield* Effect.flip(Fence.assert(13n, lock, "files"))
      assert.instanceOf(error, StaleFence)
      assert.deepStrictEqual([error.resource, error.lock, error.backend, error.code], [
        13n,
        12n,
        "files",
        "STALE_FENCE"
      ])
      assert.include(error.message, "Fence 12 is older than 13")
    }))

  it.effect("R3.2 assert refuses what is no number", () =>
    Effect.gen(function*() {
      for (const lock of [undefined, null, NaN, "x"] as Array<any>) {
        assert.isTrue(Either.isLeft(yield* Effect.either(Fence.assert(1n, lock))))
      }
      assert.isTrue(Either.isLeft(yield* Effect.either(Fence.assert(undefined as any, Fence.unsafeMake(1n)))))
    }))

  it("R3.3 the header carries it", () => {
    const sent = Fence.toHeader(Fence.unsafeMake(12n))
    const headers = new Headers(sent)
    assert.deepStrictEqual(sent, { "lock-fence": "12" })
    assert.strictEqual(Option.getOrUndefined(Fence.fromHeader(headers.get(Fence.headerName))), 12n)
    headers.append("Lock-Fence", "13")
    assert.isTrue(Option.isNone(Fence.fromHeader(headers.get(Fence.headerName))))
    for (const value of [null, undefined, "", "x", ["12"] as any]) {
      assert.isTrue(Option.isNone(Fence.fromHeader(value)))
    }
  })
})

describe("FencedRegister", () => {
  const [one, two, three] = [1n, 2n, 3n].map(Fence.unsafeMake) as [Fence.Fence, Fence.Fence, Fence.Fence]

  it.effect("R3.3 49 refuses stale writes and keeps its value", () =>
    Effect.gen(function*() {
      const register = yield* FencedRegister.make("first")
      assert.isTrue(Option.isNone(yield* register.fence))
      assert.strictEqual(yield* register.get, "first")
      yield* register.set(two, "second")
      const error = yield* Effect.flip(register.set(one, "stale"))
      assert.deepStrictEqual([error._tag, error.resource, error.lock], ["StaleFence", 2n, 1n])
      assert.strictEqual((yield* Effect.flip(register.update(one, () => "stale")))._tag, "StaleFence")
      assert.strictEqual(yield* register.get, "second")
      assert.strictEqual(Option.getOrUndefined(yield* register.fence), two)
      yield* register.set(two, "again")
      assert.strictEqual(yield* register.update(three, (value) => `${value}!`), "again!")
      assert.strictEqual(yield* register.get, "again!")
      assert.strictEqual(Option.getOrUndefined(yield* register.fence), three)
    }))

  it.effect("a defect of the update changes nothing", () =>
    Effect.gen(function*() {
      const register = yield* FencedRegister.make(1)
      yield* Effect.exit(register.update(two, () => {
        throw new Error("no")
      }))
      assert.strictEqual(yield* register.get, 1)
      assert.isTrue(Option.isNone(yield* register.fence))
    }))

  it.effect("fences only rise over any writes, and the value is that of the last write that passed", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(fc.bigInt({ min: 1n, max: 5n })), (writes) =>
          Effect.runPromise(Effect.gen(function*() {
            const register = yield* FencedRegister.make(0n)
            let highest = 0n
            for (const write of writes) {
              const written = yield* Effect.either(register.set(Fence.unsafeMake(write), write))
              assert.strictEqual(Either.isRight(written), write >= highest)
              if (write > highest) highest = write
              assert.strictEqual(yield* register.get, highest)
            }
          })))
      )
    ))
})
