import { assert, describe, it } from "@effect/vitest"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as fs from "node:fs"
import { int64, lockIds } from "../src/internal/pure/lockId.js"

interface Vector extends ResolvedKey {
  readonly int64: Readonly<Record<string, string>>
}

const golden: { readonly vectors: ReadonlyArray<Vector> } = JSON.parse(
  fs.readFileSync(new URL("./vectors/locks.json", import.meta.url), "utf8")
)

const whole = ([high, low]: readonly [number, number]): bigint =>
  (BigInt(high) << 32n) | BigInt.asUintN(32, BigInt(low))

describe("lockId", () => {
  describe("R4.5 B48 B70 golden vectors", () => {
    for (const vector of golden.vectors) {
      it(`${vector.scope} ${vector.int64["lock"]}`, () => {
        for (const [salt, number] of Object.entries(vector.int64)) {
          assert.strictEqual(int64(salt, vector), BigInt(number))
        }
        const ids = lockIds(vector)
        assert.strictEqual(ids.lock, vector.int64["lock"])
        assert.strictEqual(whole(ids.interest), int64("interest", vector))
        assert.strictEqual(whole(ids.intent), int64("intent", vector))
      })
    }
  })

  it("B48 300,000 names give as many numbers, all of them signed 64-bit integers", () => {
    const numbers = new Set<bigint>()
    let beyondDouble = 0
    let negative = 0
    for (let i = 0; i < 300_000; i++) {
      const number = int64("lock", {
        namespace: `namespace-${i % 3}`,
        scope: "none",
        tenant: undefined,
        key: `orders:${Math.floor(i / 3)}`
      })
      if (number < -(2n ** 63n) || number >= 2n ** 63n) assert.fail(`${number} is no int8`)
      if (BigInt(Number(number)) !== number) beyondDouble++
      if (number < 0n) negative++
      numbers.add(number)
    }
    assert.strictEqual(numbers.size, 300_000)
    // none of them went through a double, and the sign is used
    assert.isAbove(beyondDouble, 290_000)
    assert.closeTo(negative, 150_000, 5_000)
  })

  it("B48 the salt and every part change the number", () => {
    const key = { namespace: "n", scope: "tenant", tenant: "t", key: "k" } as const
    const numbers = [
      int64("lock", key),
      int64("interest", key),
      int64("lock", { ...key, namespace: "m" }),
      int64("lock", { ...key, scope: "none", tenant: undefined }),
      int64("lock", { ...key, scope: "platform", tenant: undefined }),
      int64("lock", { ...key, tenant: "u" }),
      int64("lock", { ...key, key: "l" }),
      // the same bytes, cut differently
      int64("lock", { ...key, tenant: "tk", key: "" }),
      int64("lockn", { ...key, namespace: "" })
    ]
    assert.strictEqual(new Set(numbers).size, numbers.length)
  })
})
