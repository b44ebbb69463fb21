import { assert, describe, it } from "@effect/vitest"
import { hunt, load } from "./mutants.js"

describe("mutants of the engine", () => {
  const mutants = load()

  it("are at least a dozen", () => {
    assert.isAtLeast(mutants.length, 12)
  })

  for (const mutant of mutants) {
    it(`the sweep finds: ${mutant.name}`, async () => {
      const { killed, output } = await hunt(mutant)
      assert.isTrue(killed, `${mutant.about}\n${output}`)
    }, 90_000)
  }
})
