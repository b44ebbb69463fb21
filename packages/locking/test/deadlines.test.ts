import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { type Deadline, Deadlines } from "../src/internal/pure/deadlines.js"

const nothing = () => {}

const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ _tag: fc.constant("add" as const), at: fc.integer({ min: 0, max: 50 }) }) },
  { weight: 2, arbitrary: fc.record({ _tag: fc.constant("cancel" as const), which: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ _tag: fc.constant("due" as const), now: fc.integer({ min: -1, max: 51 }) }) }
)

describe("Deadlines", () => {
  it("R1.8 behave as a sorted array does", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: "max" }), (steps) => {
        const heap = new Deadlines()
        /** All that were ever added, and those that are still in. */
        const all: Array<Deadline> = []
        let model: Array<Deadline> = []
        for (const step of steps) {
          switch (step._tag) {
            case "add": {
              const entry = heap.add(step.at, nothing)
              assert.strictEqual(entry.at, step.at)
              all.push(entry)
              model.push(entry)
              break
            }
            case "cancel": {
              if (all.length === 0) break
              // as often one that has left already
              const entry = all[step.which % all.length]!
              heap.cancel(entry)
              model = model.filter((other) => other !== entry)
              break
            }
            case "due": {
              const entry = heap.due(step.now)
              const earliest = Math.min(...model.map((other) => other.at))
              if (earliest > step.now) assert.isUndefined(entry)
              else {
                assert.strictEqual(entry?.at, earliest)
                assert.include(model, entry!)
                model = model.filter((other) => other !== entry)
              }
              break
            }
          }
          assert.strictEqual(heap.size, model.length)
          assert.strictEqual(heap.next(), Math.min(Infinity, ...model.map((entry) => entry.at)))
        }
        const rest: Array<number> = []
        for (let entry = heap.due(Infinity); entry !== undefined; entry = heap.due(Infinity)) rest.push(entry.at)
        assert.deepStrictEqual(rest, model.map((entry) => entry.at).sort((a, b) => a - b))
      }),
      { numRuns: 150 }
    )
  })

  it("R1.8 take times of a year apart, and fractions of a millisecond", () => {
    const heap = new Deadlines()
    const year = 365 * 86_400_000
    const times = [year, 0.5, year + 0.25, 0.25, 2 ** 31]
    for (const at of times) heap.add(at, nothing)
    const order: Array<number> = []
    for (let entry = heap.due(Infinity); entry !== undefined; entry = heap.due(Infinity)) order.push(entry.at)
    assert.deepStrictEqual(order, [0.25, 0.5, 2 ** 31, year, year + 0.25])
  })

  it("R6.5 forget what was cancelled: a hundred thousand short leases leave nothing behind", () => {
    const heap = new Deadlines()
    const stays = heap.add(5, nothing)
    for (let i = 0; i < 100_000; i++) heap.cancel(heap.add(60_000 + i, nothing))
    assert.strictEqual(heap.size, 1)
    assert.strictEqual(heap.due(5), stays)
  })
})
