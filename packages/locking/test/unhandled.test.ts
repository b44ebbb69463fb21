import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { runChild } from "./child.js"

/** What each program of `fixtures/unhandled.ts` says when nothing but the calls' own errors comes up. */
const scenes = {
  renewal: Array.from({ length: 7 }, () => "LeaseLost unconfirmed"),
  asleep: ["LeaseLost unconfirmed"],
  lease: ["valid: false", "valid: false"],
  cleanup: Array.from({ length: 7 }, () => "closed"),
  abandoned: ["closed"]
}

describe("unhandled", () => {
  for (const [scene, expected] of Object.entries(scenes)) {
    it.live(`R7.3 B37 nothing but the errors of the calls: ${scene}`, () =>
      Effect.gen(function*() {
        const { code, output, signal } = yield* runChild(
          "unhandled.ts",
          [scene],
          ["--unhandled-rejections=strict", "--trace-warnings"]
        )
        const lines = output.split("\n").filter((line) => line !== "" && !line.startsWith("timestamp="))
        assert.deepStrictEqual(lines, [...expected, "done"], output)
        assert.strictEqual(signal, null)
        assert.strictEqual(code, 0)
      }))
  }
})
