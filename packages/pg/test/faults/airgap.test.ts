/** Everything is on the machine: where a process may have a network of its own, with nothing in it but loopback. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as childProcess from "node:child_process"
import { fileURLToPath } from "node:url"

const inside = "ip link set lo up && exec \"$@\""

/** Runs a program that reaches 127.0.0.1 and nothing else. */
const alone = (command: string, ...args: ReadonlyArray<string>) =>
  Effect.async<{ readonly code: number | null; readonly output: string }>((resume) => {
    const child = childProcess.spawn("unshare", ["-n", "--", "sh", "-c", inside, "sh", command, ...args], {
      cwd: fileURLToPath(new URL("../../../..", import.meta.url)),
      env: { ...process.env, NO_COLOR: "1", CI: "", PG_URL: "" },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let output = ""
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text
      })
    }
    child.once("error", (error) => resume(Effect.succeed({ code: -1, output: String(error) })))
    child.once("close", (code) => resume(Effect.succeed({ code, output })))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

const connects =
  "require('net').connect(80, '192.0.2.1').on('error', (e) => process.exit(e.code === 'ENETUNREACH' ? 0 : 1))"

const isPossible = childProcess.spawnSync("unshare", ["-n", "--", "sh", "-c", inside, "sh", "true"]).status === 0

describe.skipIf(!isPossible)("R8.7 without a network (needs `unshare -n`)", () => {
  it.live("the suite of the driver passes with loopback alone", () =>
    Effect.gen(function*() {
      assert.strictEqual((yield* alone(process.execPath, "-e", connects)).code, 0, "there is no network")
      const { code, output } = yield* alone(
        process.execPath,
        "node_modules/vitest/vitest.mjs",
        "run",
        "--project",
        "pg",
        "test/conformance.test.ts",
        "-t",
        "lock driver: PostgreSQL 18"
      )
      assert.strictEqual(code, 0, output.slice(-3000))
      assert.match(output, /lock driver PostgreSQL 18: \d\d+ tests ran/)
    }), 480_000)
})
