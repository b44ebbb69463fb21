/**
 * Processes of their own that die, freeze and block, at one server.
 */
import * as Worker from "@effect-locking/testing/Worker"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema, type Scope } from "effect"
import * as kit from "./kit.js"

const file = new URL("./fixtures/worker.ts", import.meta.url)

const spawn = (what: string, url: string, key: string) =>
  Worker.spawn(file, {
    args: [what, url, key],
    watchdog: "40 seconds",
    nodeOptions: ["--import", "tsx", "--unhandled-rejections=strict"]
  })

const Entered = Schema.is(Schema.Struct({ entered: Schema.String }))
const Ended = Schema.is(Schema.Struct({ ended: Schema.String, reason: Schema.optional(Schema.String) }))
const Counted = Schema.is(Schema.Struct({
  fence: Schema.String,
  from: Schema.String,
  until: Schema.String
}))

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 60_000)

describe("processes", () => {
  it_("B17 a holder that is killed holds nobody up for longer than its ttl", () =>
    Effect.gen(function*() {
      const server = yield* kit.server
      const worker = yield* spawn("hold", server.url(), "killed")
      const { entered } = yield* worker.takeUntil(Entered)
      yield* worker.kill
      const locking = yield* kit.node(server.url())
      const start = performance.now()
      const fence = yield* locking.useLock("killed", (lease) => Effect.succeed(lease.fence))
      assert.isBelow(performance.now() - start, 3_000)
      assert.isTrue(fence > BigInt(entered))
    }))

  it_(
    "B63 B34 a holder that was frozen beyond its lease is told so, and its write is refused",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const worker = yield* spawn("write", server.url(), "frozen")
        yield* worker.takeUntil(Entered)
        yield* worker.freeze
        const locking = yield* kit.node(server.url())
        const client = yield* kit.client(server.url())
        const { set } = yield* Effect.promise(() => import("../src/RedisFence.js"))
        yield* locking.useLock(
          "frozen",
          { waitTimeout: "20 seconds" },
          (lease) => set(client, "resource", "mine", lease)
        )
        yield* worker.thaw
        yield* worker.send("go")
        const { ended } = yield* worker.takeUntil(Ended)
        assert.strictEqual(ended, "StaleFence")
        assert.strictEqual(yield* server.command("GET", "resource"), "mine")
        assert.deepStrictEqual(yield* locking.inspect("frozen"), [])
      })
  )

  it_(
    "B34 B37 a holder that blocked its own loop loses the lease, and takes nothing back",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const worker = yield* spawn("block", server.url(), "blocked")
        yield* worker.takeUntil(Entered)
        yield* worker.send("go")
        const locking = yield* kit.node(server.url())
        yield* locking.withLock(Effect.void, "blocked", { waitTimeout: "20 seconds" })
        const { ended } = yield* worker.takeUntil(Ended)
        assert.strictEqual(ended, "LeaseLost")
        assert.deepStrictEqual(yield* locking.inspect("blocked"), [])
        assert.strictEqual((yield* worker.ended).code, 0)
      })
  )

  it_("B29 B37 a process whose server is killed or frozen closes, and ends by itself", () =>
    Effect.gen(function*() {
      for (const fault of ["kill", "freeze"] as const) {
        const server = yield* kit.server
        const worker = yield* spawn("close", server.url(), "closed")
        yield* worker.takeUntil(Schema.is(Schema.Struct({ waiting: Schema.Boolean })))
        yield* server[fault]
        const { code, signal } = yield* worker.ended
        assert.deepStrictEqual([code, signal], [0, null])
      }
    }))

  it_(
    "H1 three processes count to 120 under one lock: no update is lost, fences rise, nobody overlaps",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const workers = yield* Effect.forEach([1, 2, 3], () => spawn("count", server.url(), "counter"))
        yield* Effect.forEach(workers, (worker) => worker.ended)
        const entries = (yield* Effect.forEach(workers, (worker) => worker.written)).flat().filter((_) => Counted(_))
        assert.lengthOf(entries, 120)
        assert.strictEqual(yield* server.command("GET", "counter"), "120")
        const inTime = entries.map(({ fence, from, until }) => ({
          fence: BigInt(fence),
          from: BigInt(from),
          until: BigInt(until)
        }))
          .sort((a, b) => Number(a.from - b.from))
        for (let i = 1; i < inTime.length; i++) {
          assert.isTrue(inTime[i]!.from >= inTime[i - 1]!.until, "two were inside at once")
          assert.isTrue(inTime[i]!.fence > inTime[i - 1]!.fence, "a later grant has a lower fence")
        }
      })
  )
})
