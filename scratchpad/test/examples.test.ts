import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fs from "node:fs"
import * as path from "node:path"
import * as fence from "../examples/fence.js"
import * as firstLock from "../examples/first-lock.js"
import * as tenants from "../examples/tenants.js"
import * as testing from "../examples/testing.js"
import * as transfer from "../examples/transfer.js"
import * as tryLock from "../examples/try.js"
import { capture, run, scratchpad } from "./support.js"

const examples = path.join(scratchpad, "examples")

describe("examples", () => {
  it.live("R1.1 first-lock: one at a time, released when interrupted, and the wait has a limit", () =>
    Effect.gen(function*() {
      const [ada, ben, cleo, timeout, ...rest] = yield* capture(firstLock.program)
      assert.strictEqual(ada, "Ada takes 30, 70 are left")
      assert.strictEqual(ben, "Ben takes 20, 50 are left")
      assert.strictEqual(cleo, "Cleo takes 10, 40 are left")
      assert.match(timeout ?? "", /^Waited \d+ms for lock [0-9a-f]{12}: held by this process since /)
      assert.deepStrictEqual(rest, [])
    }))

  it.live("R1.5 transfer: opposite orders do not deadlock, and nothing is lost", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* capture(transfer.program), [
        "30 from alice to bob",
        "50 from bob to alice",
        "alice has 120, bob has 80"
      ])
    }))

  it.live("R1.4 try: one of three fetches, the others do not wait", () =>
    Effect.gen(function*() {
      const lines = yield* capture(tryLock.program)
      assert.lengthOf(lines.filter((line) => line.includes("10 from the cache")), 2)
      assert.lengthOf(lines.filter((line) => line.includes("11, fetched anew")), 1)
      assert.strictEqual(lines.at(-1), "fetched 1 time")
    }))

  it.live("R4.1 R4.2 tenants: apart by default, together for the platform, required on demand", () =>
    Effect.gen(function*() {
      const [apart, together, refused, ...rest] = yield* capture(tenants.program)
      assert.strictEqual(apart, `"invoices": 2 tenants at once`)
      assert.strictEqual(together, `platform "nightly": 1 tenant at once`)
      assert.match(refused ?? "", /^Invalid key: tenant is missing/)
      assert.deepStrictEqual(rest, [])
    }))

  it.live("R3.3 fence: the late write of a frozen holder is refused", () =>
    Effect.gen(function*() {
      const [frozen, next, refused, report, ...rest] = yield* capture(fence.program)
      assert.strictEqual(frozen, "the first one holds the lock, and freezes")
      assert.strictEqual(next, "its lease is over: the next one holds the lock, and writes")
      assert.match(refused ?? "", /^the first one wakes up and writes\. Fence \d+ is older than \d+/)
      assert.strictEqual(report, "the report says: news")
      assert.deepStrictEqual(rest, [])
    }))

  it.live("R8.1 testing: faults on a clock that nobody waits for", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* capture(testing.program), [
        "nothing happens: imported",
        "somebody takes the lock away: stopped, revoked",
        "the store is away for 5 seconds: imported",
        "the store is away for 20 seconds: stopped, unconfirmed",
        "another node imports: not now"
      ])
    }))

  it.live("run by themselves when they are executed", () =>
    Effect.gen(function*() {
      const { status, stdout } = yield* run("examples/first-lock.ts")
      assert.strictEqual(status, 0)
      assert.match(stdout, /^Ada takes 30, 70 are left\n/)
      // the others have the same last line; a process for each would take long to start
      for (const name of fs.readdirSync(examples)) {
        const lines = fs.readFileSync(path.join(examples, name), "utf8").split("\n")
        assert.strictEqual(lines.at(-2), "if (process.argv[1] === import.meta.filename) Effect.runPromise(program)")
        assert.isBelow(lines.length, 50, name)
      }
    }), 60_000)

  it.live("there are no others", () =>
    Effect.sync(() => {
      const tested = ["fence.ts", "first-lock.ts", "tenants.ts", "testing.ts", "transfer.ts", "try.ts"]
      assert.deepStrictEqual(fs.readdirSync(examples).sort(), tested)
    }))
})
