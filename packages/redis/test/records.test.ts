import { assert, describe, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as fs from "node:fs"
import * as path from "node:path"
import * as records from "../src/internal/records.js"

interface Vector {
  readonly namespace: string
  readonly scope: "none" | "tenant" | "platform"
  readonly tenant?: string
  readonly key: string
  readonly prefix?: string
  readonly record: string
}

const vectors: ReadonlyArray<Vector> = JSON.parse(
  fs.readFileSync(path.join(import.meta.dirname, "vectors", "records.json"), "utf8")
)

const resolved = ({ key, namespace, scope, tenant }: Omit<Vector, "record">): ResolvedKey => {
  const name = scope === "tenant" ? `tenant:${Buffer.byteLength(tenant!)}:${tenant}:${key}` : `${scope}:${key}`
  return { namespace, scope, tenant, key, id: `${Buffer.byteLength(namespace)}:${namespace}:${name}` }
}

const text = fc.fullUnicodeString({ minLength: 1, maxLength: 12 }).filter((_) => !_.includes("\u0000"))
const namespace = text.filter((_) => !/[{}]/.test(_))
const awkward = fc.oneof(text, fc.stringOf(fc.constantFrom("{", "}", "%", ":", "7", "B", "*", "a"), { minLength: 1 }))
const name = fc.record({
  namespace,
  scope: fc.constantFrom("none" as const, "platform" as const, "tenant" as const),
  tenant: awkward,
  key: awkward
})

describe("records", () => {
  it("R4.5 B70 are named as they have been from the first release on", () => {
    for (const vector of vectors) {
      const { prefix = "", record } = vector
      assert.strictEqual(records.recordOf(prefix, resolved(vector)), record)
      const { key, namespace, scope, tenant } = vector
      assert.deepStrictEqual(records.parse(prefix, namespace, record), { scope, tenant, key })
    }
  })

  it("R4.5 are read back to what they were made of, and differ where it does", () => {
    fc.assert(fc.property(name, name, (a, b) => {
      const [one, two] = [records.recordOf("", resolved(a)), records.recordOf("", resolved(b))]
      assert.strictEqual(one === two, resolved(a).id === resolved(b).id)
      assert.deepStrictEqual(records.parse("", a.namespace, one), {
        scope: a.scope,
        tenant: a.scope === "tenant" ? a.tenant : undefined,
        key: a.key
      })
    }))
  })

  it("have their whole name as the tag of a cluster, so that no key is in another's slot by accident", () => {
    fc.assert(fc.property(name, (a) => {
      const record = records.recordOf("", resolved(a))
      assert.strictEqual(`${a.namespace}:{${records.tagOf(record)}}`, record)
    }))
    assert.strictEqual(records.tagOf("{app}:ns:{none:a}"), "app")
    assert.strictEqual(records.tagOf("{}:a"), "{}:a")
    assert.strictEqual(records.tagOf("plain"), "plain")
  })

  it("what is not one of ours is not read", () => {
    for (
      const record of [
        "",
        "ns:{none:}",
        "ns:{other:a}",
        "other:{none:a}",
        "ns:{tenant:3:abc:}",
        "ns:{none:a",
        "ns:none"
      ]
    ) {
      assert.strictEqual(records.parse("", "ns", record), undefined, record)
    }
  })
})
