import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { InvalidKey } from "effect-locking/LockError"
import * as LockKey from "effect-locking/LockKey"
import * as fc from "fast-check"
import * as util from "node:util"
import { type KeySettings, maxKeysPerCall, resolveKey, resolveKeys } from "../src/internal/keys.js"
import { compareIds, encodeId } from "../src/internal/pure/keyEncoding.js"

const settings: KeySettings = { backend: "orders", namespace: "effect-locking", tenancy: "optional", maxKeyBytes: 1024 }
const required: KeySettings = { ...settings, tenancy: "required" }

const accept = (result: LockKey.ResolvedKey | InvalidKey): LockKey.ResolvedKey => {
  if (result instanceof InvalidKey) assert.fail(result.message)
  return result
}

const refuse = (result: unknown): InvalidKey => {
  assert.instanceOf(result, InvalidKey)
  return result as InvalidKey
}

const pathsOf = (error: InvalidKey): ReadonlyArray<string> => error.issues.map((issue) => issue.path)

describe("LockKey", () => {
  describe("R4.1 tenants", () => {
    it.effect("are read from the context", () =>
      Effect.gen(function*() {
        assert.isUndefined(yield* LockKey.currentTenant)
        assert.strictEqual(yield* LockKey.withTenant(LockKey.currentTenant, "acme"), "acme")
        assert.strictEqual(yield* LockKey.currentTenant.pipe(LockKey.withTenant("acme")), "acme")
        assert.isUndefined(yield* LockKey.currentTenant)
      }))

    it.effect("travel into forked fibers, and the innermost counts", () =>
      Effect.gen(function*() {
        const inner = LockKey.currentTenant.pipe(LockKey.withTenant("inner"))
        const program = Effect.all([Effect.fork(LockKey.currentTenant).pipe(Effect.flatMap(Fiber.join)), inner])
        assert.deepStrictEqual(yield* LockKey.withTenant(program, "outer"), ["outer", "inner"])
      }))

    it("no tenant is a scope of its own", () => {
      const none = accept(resolveKey("orders", settings, undefined))
      const acme = accept(resolveKey("orders", settings, "acme"))
      assert.deepStrictEqual([none.scope, none.tenant], ["none", undefined])
      assert.deepStrictEqual([acme.scope, acme.tenant], ["tenant", "acme"])
      for (const tenant of ["undefined", "none", "null", " "]) {
        assert.notStrictEqual(accept(resolveKey("orders", settings, tenant)).id, none.id)
      }
    })

    it("may be required", () => {
      const error = refuse(resolveKey("orders", required, undefined))
      assert.deepStrictEqual(pathsOf(error), ["tenant"])
      assert.match(error.message, /withTenant.*platform/)
      assert.strictEqual(accept(resolveKey("orders", required, "acme")).scope, "tenant")
      assert.strictEqual(accept(resolveKey(LockKey.platform("orders"), required, undefined)).scope, "platform")
    })
  })

  describe("R4.2 platform keys", () => {
    it("R4.3 a key that was asked for before is the same one, and never another tenant's or layer's", () => {
      const other = { ...settings, namespace: "other" }
      const names = Array.from({ length: 3000 }, (_, i) => `k${i}`)
      const idsOf = (layer: typeof settings, tenant: string | undefined) =>
        names.map((name) => accept(resolveKey(name, layer, tenant)).id)
      const all = () => [
        ...idsOf(settings, undefined),
        ...idsOf(settings, "acme"),
        ...idsOf(settings, "k1"),
        ...idsOf(other, "acme")
      ]
      const ids = all()
      assert.strictEqual(new Set(ids).size, 12_000)
      assert.deepStrictEqual(all(), ids)
      assert.strictEqual(resolveKey("k0", settings, "acme"), resolveKey("k0", settings, "acme"))
      // a layer that asks for a tenant does so again
      refuse(resolveKey("k0", { ...settings, tenancy: "required" }, undefined))
    })

    it("are the same inside and outside of a tenant, and never a tenant's", () => {
      const outside = accept(resolveKey(LockKey.platform("orders"), settings, undefined))
      const inside = accept(resolveKey(LockKey.platform("orders"), settings, "acme"))
      assert.deepStrictEqual(inside, outside)
      assert.notStrictEqual(outside.id, accept(resolveKey("orders", settings, undefined)).id)
      assert.notStrictEqual(outside.id, accept(resolveKey("orders", settings, "platform")).id)
    })

    it("do not ask for a valid tenant", () => {
      assert.strictEqual(accept(resolveKey(LockKey.platform("orders"), settings, "")).scope, "platform")
    })

    it("a string is the same as make of it", () => {
      for (const tenant of [undefined, "acme"]) {
        assert.deepStrictEqual(
          resolveKey(LockKey.make("orders"), settings, tenant),
          resolveKey("orders", settings, tenant)
        )
      }
    })
  })

  it("isLockKey", () => {
    assert.isTrue(LockKey.isLockKey(LockKey.make("a")))
    assert.isTrue(LockKey.isLockKey(LockKey.platform("a")))
    for (const other of ["a", null, undefined, {}, { scope: "none", name: "a" }]) {
      assert.isFalse(LockKey.isLockKey(other))
    }
  })

  describe("R4.3 the one rule", () => {
    const faults: ReadonlyArray<readonly [what: string, text: string, message: RegExp]> = [
      ["empty", "", /must not be empty/],
      ["U+0000", "a\u0000b", /U\+0000/],
      ["half a pair", "a\ud83d", /well-formed/],
      ["one byte too long", "é".repeat(512) + "x", /at most 1024 bytes/]
    ]

    for (const [what, text, message] of faults) {
      it(`refuses ${what} in keys and tenants, all issues at once`, () => {
        const error = refuse(resolveKey(text, settings, text))
        assert.deepStrictEqual(pathsOf(error), ["key", "tenant"])
        for (const issue of error.issues) assert.match(issue.message, message)
        assert.deepStrictEqual(pathsOf(refuse(resolveKey(LockKey.make(text), settings, "acme"))), ["key"])
        assert.deepStrictEqual(pathsOf(refuse(resolveKey(LockKey.platform(text), settings, text))), ["key"])
        assert.deepStrictEqual(pathsOf(refuse(resolveKey("orders", settings, text))), ["tenant"])
      })
    }

    it("accepts everything else exactly as it is", () => {
      for (const text of [" ", "\n", "{}", "ＡＢ", "é", "e\u0301", "🔒", "x".repeat(1024), "é".repeat(512)]) {
        assert.strictEqual(accept(resolveKey(text, settings, text)).key, text)
        assert.strictEqual(accept(resolveKey(text, settings, text)).tenant, text)
      }
      assert.notStrictEqual(
        accept(resolveKey("é", settings, undefined)).id,
        accept(resolveKey("e\u0301", settings, undefined)).id
      )
    })

    it("follows maxKeyBytes", () => {
      const short = { ...settings, maxKeyBytes: 4 }
      assert.strictEqual(accept(resolveKey("abcd", short, undefined)).key, "abcd")
      assert.match(refuse(resolveKey("abcde", short, undefined)).message, /at most 4 bytes/)
    })

    it("refuses what is no key by its kind alone", () => {
      for (const input of [undefined, null, 42, {}, [], () => "a", Symbol("a"), { [LockKey.TypeId]: LockKey.TypeId }]) {
        assert.deepStrictEqual(pathsOf(refuse(resolveKey(input as any, settings, undefined))), ["key"])
      }
      assert.deepStrictEqual(pathsOf(refuse(resolveKey("orders", settings, 42 as any))), ["tenant"])
    })

    it("R4.3 68 accepts or refuses anything, never a defect", () => {
      const anything = fc.anything({ withBigInt: true, withNullPrototype: true, withObjectString: true })
      fc.assert(fc.property(anything, anything, (key, tenant) => {
        const result = resolveKey(key as any, settings, tenant as any)
        if (!(result instanceof InvalidKey)) assert.strictEqual(result.id, encodeId(result))
      }))
    })

    it("R4.4 the error holds neither key nor tenant", () => {
      const key = "secret-key\u0000"
      const tenant = "secret-tenant\u0000"
      for (
        const error of [
          refuse(resolveKey(key, settings, tenant)),
          refuse(resolveKeys(["fine", key, LockKey.platform(key)], settings, tenant))
        ]
      ) {
        const seen = util.inspect(error, { depth: Infinity, showHidden: true }) + JSON.stringify(error) + String(error)
        assert.notInclude(seen, "secret")
      }
    })
  })

  it("ids are the encoding, for strings of every width", () => {
    const text = fc.string({ unit: "binary", minLength: 1 }).filter((text) => !text.includes("\u0000"))
    fc.assert(fc.property(text, text, fc.option(text, { nil: undefined }), (namespace, name, tenant) => {
      const resolved = accept(resolveKey(name, { ...settings, namespace }, tenant))
      assert.strictEqual(resolved.id, encodeId(resolved))
      assert.strictEqual(resolved.namespace, namespace)
    }))
  })

  describe("R1.5 lists of keys", () => {
    const resolve = (inputs: ReadonlyArray<LockKey.Input>): ReadonlyArray<LockKey.ResolvedKey> => {
      const result = resolveKeys(inputs, settings, undefined)
      if (result instanceof InvalidKey) assert.fail(result.message)
      return result
    }

    it("are sorted and folded, whatever order they come in", () => {
      const name = fc.string({ unit: "binary", minLength: 1, maxLength: 4 }).filter((text) => !text.includes("\u0000"))
      fc.assert(fc.property(fc.array(name, { maxLength: maxKeysPerCall }), (names) => {
        const ids = resolve(names).map((key) => key.id)
        assert.deepStrictEqual(ids, [...ids].sort(compareIds))
        assert.deepStrictEqual(
          new Set(ids),
          new Set(names.map((name) => accept(resolveKey(name, settings, undefined)).id))
        )
        assert.strictEqual(new Set(ids).size, ids.length)
        assert.deepStrictEqual(resolve([...names].reverse()).map((key) => key.id), ids)
      }))
    })

    it("may mix strings and keys", () => {
      assert.deepStrictEqual(
        resolve([LockKey.platform("a"), "a", LockKey.make("a")]).map((key) => key.scope),
        ["none", "platform"]
      )
    })

    it("may be empty", () => assert.deepStrictEqual(resolve([]), []))

    it("hold at most 64 different keys", () => {
      const names = Array.from({ length: maxKeysPerCall }, (_, i) => `key-${i}`)
      assert.strictEqual(resolve([...names, ...names]).length, 64)
      const error = refuse(resolveKeys([...names, "one more"], settings, undefined))
      assert.deepStrictEqual(error.issues, [{ path: "keys", message: "must be at most 64 different keys, got 65" }])
    })

    it("tell which key is wrong, and a wrong tenant once", () => {
      const error = refuse(resolveKeys(["a", "", "b", "\u0000"], settings, ""))
      assert.deepStrictEqual([...pathsOf(error)].sort(), ["keys[1]", "keys[3]", "tenant"])
    })

    it("are arrays: a string is not a list of its letters", () => {
      for (const input of ["abc", undefined, null, new Set(["a"]), {}]) {
        assert.deepStrictEqual(pathsOf(refuse(resolveKeys(input as any, settings, undefined))), ["keys"])
      }
      // eslint-disable-next-line no-sparse-arrays -- a hole is what is tested
      assert.deepStrictEqual(pathsOf(refuse(resolveKeys(["a", , "b"] as any, settings, undefined))), ["keys[1]"])
    })
  })
})
