import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { Dictionary } from "../src/internal/pure/dictionary.js"

/** Names that objects have of their own, names that look like numbers, and whatever else. */
const names = fc.oneof(
  fc.constantFrom("__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "valueOf", "", "0", "1", "-1"),
  fc.string({ maxLength: 3, unit: "binary" })
)

const step = fc.oneof(
  fc.record({ _tag: fc.constant("set" as const), name: names }),
  fc.record({ _tag: fc.constant("delete" as const), name: names }),
  fc.record({ _tag: fc.constant("get" as const), name: names })
)

describe("Dictionary", () => {
  it("R6.5 R4.3 behaves as a Map does, whatever the names", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: "max" }), (steps) => {
        const dictionary = new Dictionary<number>()
        const model = new Map<string, number>()
        steps.forEach((step, i) => {
          if (step._tag === "set") {
            dictionary.set(step.name, i)
            model.set(step.name, i)
          } else if (step._tag === "delete") {
            dictionary.delete(step.name)
            model.delete(step.name)
          } else assert.strictEqual(dictionary.get(step.name), model.get(step.name))
          assert.strictEqual(dictionary.size, model.size)
          assert.sameMembers([...dictionary.values()], [...model.values()])
        })
        for (const [name, value] of model) assert.strictEqual(dictionary.get(name), value)
      }),
      { numRuns: 150 }
    )
  })

  it("knows nothing at first", () => {
    const dictionary = new Dictionary<number>()
    for (const name of ["__proto__", "constructor", "toString"]) assert.isUndefined(dictionary.get(name))
    dictionary.delete("toString")
    assert.strictEqual(dictionary.size, 0)
    assert.deepStrictEqual(dictionary.values(), [])
  })
})
