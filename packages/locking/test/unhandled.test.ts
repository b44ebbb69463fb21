import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { runChild } from "./child.js"

/** What each scene of `fixtures/unhandled.ts` says when nothing but the calls' own errors comes up. */
const scenes = {
  renewal: Array.from({ length: 7 }, () => "LeaseLost unconfirmed"),
  asleep: ["LeaseLost unconfirmed"],
  lease: ["valid: false", "valid: false"],
  cleanup: Array.from({ length: 7 }, () => "closed"),
  abandoned: ["closed"]
}

describe("unhandled", () => {
  it.live(
    "R7.3 B37 nothing but the errors of the calls, whatever fails behind the scenes",
    () =>
      Effect.gen(function*() {
        const { code, output, signal } = yield* runChild(
          "unhandled.ts",
          [],
          ["--unhandled-rejections=strict", "--trace-warnings"],
          60_000
        )
        const lines = output.split("\n").filter((line) => line !== "" && !line.startsWith("timestamp="))
        const expected = Object.entries(scenes).flatMap(([name, lines]) => [`# ${name}`, ...lines])
        assert.deepStrictEqual(lines, [...expected, "done"], output)
        assert.strictEqual(signal, null)
        assert.strictEqual(code, 0)
      }),
    90_000
  )
})
