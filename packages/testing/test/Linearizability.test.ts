import * as Linearizability from "@effect-locking/testing/Linearizability"
import { assert, describe, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"

type Operation = Linearizability.Operation<number>

const register: Linearizability.Model<number> = { initial: 0, keyOf: String }

const write = (value: number, call: number, end: number): Operation => ({
  name: `write ${value}`,
  call,
  end,
  apply: () => [value]
})
const read = (value: number, call: number, end: number): Operation => ({
  name: `read ${value}`,
  call,
  end,
  apply: (state) => state === value ? [state] : []
})

const verdict = (...operations: ReadonlyArray<Operation>) => Linearizability.check(operations, register)

/** Every order, tried one by one. */
const bruteForce = (operations: ReadonlyArray<Operation>, state = register.initial): boolean => {
  const must = operations.filter(({ end }) => end !== Infinity)
  if (must.length === 0) return true
  const firstEnd = Math.min(...operations.map(({ end }) => end))
  return operations.some((operation, i) =>
    operation.call <= firstEnd &&
    operation.apply(state).some((next) => bruteForce(operations.filter((_, j) => j !== i), next))
  )
}

describe("Linearizability", () => {
  it("accepts what an order explains", () => {
    assert.deepStrictEqual(verdict(), { _tag: "Linearizable", order: [] })
    assert.deepStrictEqual(verdict(write(1, 0, 1), read(1, 2, 3)), {
      _tag: "Linearizable",
      order: ["write 1", "read 1"]
    })
    // both reads overlap the write, and see it in different ways
    assert.strictEqual(verdict(write(1, 0, 10), read(0, 1, 2), read(1, 3, 4))._tag, "Linearizable")
  })

  it("rejects what none explains, and tells where it got stuck", () => {
    assert.deepStrictEqual(verdict(write(1, 0, 1), read(0, 2, 3)), {
      _tag: "NotLinearizable",
      explained: 1,
      stuckOn: ["read 0"]
    })
    // once the new value was seen, the old one is gone
    assert.strictEqual(verdict(write(1, 0, 10), read(1, 1, 2), read(0, 3, 4))._tag, "NotLinearizable")
  })

  it("an unknown outcome may have happened at any time after its call, or never", () => {
    const lost = write(1, 5, Infinity)
    assert.strictEqual(verdict(lost, read(0, 6, 7), read(1, 8, 9))._tag, "Linearizable")
    assert.strictEqual(verdict(lost, read(0, 6, 7), read(0, 8, 9))._tag, "Linearizable")
    assert.strictEqual(verdict(lost, read(1, 1, 2))._tag, "NotLinearizable")
    assert.strictEqual(verdict(lost, read(1, 6, 7), read(0, 8, 9))._tag, "NotLinearizable")
  })

  it("agrees with the trial of every order", () => {
    const operation = fc.record({
      value: fc.integer({ min: 0, max: 2 }),
      isRead: fc.boolean(),
      call: fc.integer({ min: 0, max: 10 }),
      takes: fc.integer({ min: 0, max: 6 }),
      isUnknown: fc.integer({ min: 0, max: 5 }).map((n) => n === 0)
    }).map(({ call, isRead, isUnknown, takes, value }) =>
      (isRead ? read : write)(value, call, isUnknown && !isRead ? Infinity : call + takes)
    )
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 6 }), (operations) => {
        const { _tag } = verdict(...operations)
        assert.strictEqual(_tag, bruteForce(operations) ? "Linearizable" : "NotLinearizable")
      }),
      { numRuns: 2_000 }
    )
  })

  it("gives up when it is told to", () => {
    const many = Array.from({ length: 12 }, (_, i) => write(i, 0, 100))
    const found = Linearizability.check([...many, read(99, 0, 100)], register, { maxSteps: 500 })
    assert.strictEqual(found._tag, "Undecided")
  })

  it("takes thousands of operations", () => {
    const operations: Array<Operation> = []
    for (let i = 0; i < 3_000; i++) {
      operations.push(write(i, 3 * i, 3 * i + 5), read(i, 3 * i + 2, 3 * i + 4))
    }
    assert.strictEqual(verdict(...operations)._tag, "Linearizable")
  })
})
