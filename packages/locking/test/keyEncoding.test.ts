import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import * as fs from "node:fs"
import {
  compareIds,
  decodeId,
  encodeId,
  Fault,
  isWellFormed,
  type KeyParts,
  measure,
  shortHash,
  utf8Length
} from "../src/internal/pure/keyEncoding.js"

interface Vector extends KeyParts {
  readonly id: string
  readonly hash: string
}

const golden: { readonly vectors: ReadonlyArray<Vector>; readonly canonicalOrderOfHashes: ReadonlyArray<string> } = JSON
  .parse(fs.readFileSync(new URL("./vectors/keys.json", import.meta.url), "utf8"))

const partsOf = (vector: Vector): KeyParts => ({
  namespace: vector.namespace,
  scope: vector.scope,
  tenant: vector.tenant,
  key: vector.key
})

/** Strings that look like the encoding itself, mixed with what people and Unicode have to offer. */
const oddUnit = fc.constantFrom(
  ":",
  "none",
  "tenant",
  "platform",
  "1:",
  "2:a:",
  "4:acme:",
  "{",
  "}",
  " ",
  "\n",
  "\u0001",
  "a"
)
const odd = fc.oneof(
  fc.array(oddUnit, { minLength: 1, maxLength: 6 }).map((units) => units.join("")),
  fc.string({ unit: "binary", minLength: 1, maxLength: 12 }),
  fc.string({ unit: "grapheme", minLength: 1, maxLength: 6 })
).filter((text) => measure(text, 1024) >= 0)

const parts: fc.Arbitrary<KeyParts> = fc.oneof(
  fc.record({ namespace: odd, scope: fc.constant("tenant" as const), tenant: odd, key: odd }),
  fc.record({
    namespace: odd,
    scope: fc.constantFrom("none" as const, "platform" as const),
    tenant: fc.constant(undefined),
    key: odd
  })
)

const anyText = fc.oneof(
  odd,
  fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)) })
)

describe("keyEncoding", () => {
  describe("R4.5 B70 golden vectors", () => {
    it("covers every scope", () => {
      assert.deepStrictEqual([...new Set(golden.vectors.map((vector) => vector.scope))].sort(), [
        "none",
        "platform",
        "tenant"
      ])
    })

    for (const vector of golden.vectors) {
      it(`${vector.scope} ${vector.hash}`, () => {
        assert.strictEqual(encodeId(partsOf(vector)), vector.id)
        assert.strictEqual(shortHash(vector.id), vector.hash)
      })
    }

    it("R1.5 canonical order", () => {
      const sorted = golden.vectors.map((vector) => vector.id).sort(compareIds)
      assert.deepStrictEqual(sorted.map(shortHash), golden.canonicalOrderOfHashes)
    })
  })

  describe("R4.2 ids", () => {
    it("equal ids have equal parts, whatever the strings", () => {
      fc.assert(
        fc.property(parts, parts, (a, b) => {
          assert.strictEqual(encodeId(a) === encodeId(b), JSON.stringify(a) === JSON.stringify(b))
        }),
        { numRuns: 2000 }
      )
    })

    it("an id tells its parts, so that no two keys share one", () => {
      fc.assert(
        fc.property(parts, (key) => {
          assert.deepStrictEqual(decodeId(encodeId(key)), key)
        }),
        { numRuns: 2000 }
      )
    })

    it("the same characters cut differently are different keys", () => {
      const text = "1:a:tenant:1:b:none:c"
      const ids = new Set<string>()
      let made = 0
      for (let i = 1; i < text.length - 1; i++) {
        for (const scope of ["none", "platform"] as const) {
          ids.add(encodeId({ namespace: text.slice(0, i), scope, tenant: undefined, key: text.slice(i) }))
          made++
        }
        for (let j = i + 1; j < text.length; j++) {
          ids.add(
            encodeId({ namespace: text.slice(0, i), scope: "tenant", tenant: text.slice(i, j), key: text.slice(j) })
          )
          made++
        }
      }
      assert.strictEqual(ids.size, made)
    })

    it("decoding refuses what encoding never answers", () => {
      for (
        const id of [
          "",
          "orders",
          "none:orders",
          "1:a:",
          "1:a:none:",
          "1:a:other:k",
          "1:a:tenant:k",
          "1:a:tenant:9:t:k",
          "1:a:tenant:1:t:",
          "0::none:k",
          "01:a:none:k",
          "1:é:none:k",
          "9999999999:a:none:k"
        ]
      ) {
        assert.isUndefined(decodeId(id), id)
      }
    })

    it("decoding is the inverse of encoding on every string", () => {
      fc.assert(fc.property(fc.oneof(anyText, parts.map(encodeId)), (text) => {
        const decoded = decodeId(text)
        if (decoded !== undefined && isWellFormed(text)) assert.strictEqual(encodeId(decoded), text)
      }))
    })
  })

  describe("R4.3 lengths", () => {
    it("are those of the UTF-8 form", () => {
      fc.assert(
        fc.property(fc.string({ unit: "binary" }).filter((text) => text !== "" && !text.includes("\u0000")), (text) => {
          assert.strictEqual(measure(text, 1024), Buffer.byteLength(text))
          assert.strictEqual(utf8Length(text), Buffer.byteLength(text))
        }),
        { numRuns: 1000 }
      )
    })

    it("limit at the exact byte", () => {
      for (const character of ["a", "é", "日", "🔒"]) {
        const bytes = Buffer.byteLength(character)
        const text = character.repeat(10)
        assert.strictEqual(measure(text, 10 * bytes), 10 * bytes)
        assert.strictEqual(measure(text, 10 * bytes - 1), Fault.tooLong)
      }
    })

    it("name every fault", () => {
      assert.strictEqual(measure("", 8), Fault.empty)
      assert.strictEqual(measure("a\u0000b", 8), Fault.nul)
      for (const text of ["\ud800", "a\ud800", "\ud800a", "\udc00", "\udc00\ud800", "🔒\ud83d"]) {
        assert.strictEqual(measure(text, 8), Fault.illFormed, JSON.stringify(text))
      }
    })

    it("well-formed is what survives UTF-8", () => {
      fc.assert(
        fc.property(anyText, (text) => {
          assert.strictEqual(isWellFormed(text), Buffer.from(text, "utf8").toString("utf8") === text)
        }),
        { numRuns: 1000 }
      )
    })

    it("a very long string is refused without being read", () => {
      const text = "x".repeat(50_000_000)
      const start = process.hrtime.bigint()
      for (let i = 0; i < 1000; i++) assert.strictEqual(measure(text, 1024), Fault.tooLong)
      assert.isBelow(Number(process.hrtime.bigint() - start) / 1e6, 500)
    })
  })

  describe("R1.5 canonical order", () => {
    it("is that of the UTF-8 bytes", () => {
      const text = fc.oneof(
        odd,
        fc.string({ unit: fc.constantFrom("a", "\ud7ff", "\ue000", "\uffff", "🔒", "\u{10ffff}") })
      )
      fc.assert(
        fc.property(text, text, (a, b) => {
          assert.strictEqual(compareIds(a, b), Buffer.compare(Buffer.from(a), Buffer.from(b)))
        }),
        { numRuns: 3000 }
      )
    })

    it("puts what needs surrogates above the rest of Unicode", () => {
      assert.isTrue("🔒" < "\uffff")
      assert.strictEqual(compareIds("🔒", "\uffff"), 1)
    })
  })

  it("R4.4 the short hash is 12 hexadecimal characters and salted", () => {
    assert.match(shortHash("15:effect-locking:none:orders"), /^[0-9a-f]{12}$/)
    // sha256("abc") starts with ba7816bf8f01
    assert.notStrictEqual(shortHash("abc"), "ba7816bf8f01")
  })
})
