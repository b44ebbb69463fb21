import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { Fifo, type Member } from "../src/internal/pure/fifo.js"

const step = fc.oneof(
  { weight: 4, arbitrary: fc.constant({ _tag: "push" as const }) },
  { weight: 1, arbitrary: fc.constant({ _tag: "pushFirst" as const }) },
  { weight: 2, arbitrary: fc.constant({ _tag: "removeFirst" as const }) },
  { weight: 3, arbitrary: fc.record({ _tag: fc.constant("remove" as const), which: fc.nat() }) }
)

/** From the first to the last, and back. */
const values = (queue: Fifo<number>): ReadonlyArray<number> => {
  const forth: Array<number> = []
  let last: Member<number> | undefined
  for (let member = queue.first; member !== undefined; member = member.next) {
    forth.push(member.value)
    assert.strictEqual(member.previous, last)
    last = member
  }
  return forth
}

describe("Fifo", () => {
  it("R1.13 behaves as an array does, whoever leaves", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100, size: "max" }), (steps) => {
        const queue = new Fifo<number>()
        const all: Array<Member<number>> = []
        let model: Array<number> = []
        const leave = (member: Member<number>) => {
          assert.strictEqual(queue.remove(member), model.includes(member.value))
          model = model.filter((value) => value !== member.value)
        }
        for (const step of steps) {
          const value = all.length
          switch (step._tag) {
            case "push":
              all.push(queue.push(value))
              model.push(value)
              break
            case "pushFirst":
              all.push(queue.pushFirst(value))
              model.unshift(value)
              break
            case "removeFirst":
              if (queue.first !== undefined) leave(queue.first)
              break
            case "remove":
              if (all.length > 0) leave(all[step.which % all.length]!)
              break
          }
          assert.deepStrictEqual(values(queue), model)
          assert.deepStrictEqual([...queue], model)
          assert.strictEqual(queue.size, model.length)
        }
      }),
      { numRuns: 150 }
    )
  })

  it("whoever leaves while they are visited is visited all the same, whoever comes is not", () => {
    const queue = new Fifo<number>()
    const members = [1, 2, 3].map((value) => queue.push(value))
    const seen: Array<number> = []
    for (const value of queue) {
      seen.push(value)
      queue.remove(members[1]!)
      queue.push(value + 10)
    }
    assert.deepStrictEqual(seen, [1, 2, 3])
    assert.deepStrictEqual([...queue], [1, 3, 11, 12, 13])
    assert.deepStrictEqual([...new Fifo<number>()], [])
  })

  it("R1.13 one that left twice removes nobody else", () => {
    const queue = new Fifo<string>()
    const a = queue.push("a")
    queue.push("b")
    assert.isTrue(queue.remove(a))
    assert.isFalse(queue.remove(a))
    assert.strictEqual(queue.first?.value, "b")
    assert.strictEqual(queue.size, 1)
  })
})
