/**
 * Processes of their own that die, freeze and block, at one server.
 */
import * as History from "@effect-locking/testing/History"
import type { RedisServer } from "@effect-locking/testing/RedisServer"
import * as Worker from "@effect-locking/testing/Worker"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Schema, type Scope } from "effect"
import type { Locking } from "effect-locking/Locking"
import { recordOf } from "../src/internal/records.js"
import * as RedisFence from "../src/RedisFence.js"
import * as kit from "./kit.js"

const file = new URL("./fixtures/worker.ts", import.meta.url)

const spawn = (what: string, url: string, key: string, ...rest: ReadonlyArray<string>) =>
  Worker.spawn(file, {
    args: [what, url, key, ...rest],
    watchdog: "100 seconds",
    nodeOptions: ["--import", "tsx", "--unhandled-rejections=strict"]
  })

const Entered = Schema.is(Schema.Struct({ entered: Schema.String, name: Schema.optional(Schema.String) }))
const Wrote = Schema.is(Schema.Struct({ wrote: Schema.String, valid: Schema.Boolean }))
const Cleaned = Schema.is(Schema.Struct({ cleaned: Schema.Number }))
const Ended = Schema.is(Schema.Struct({ ended: Schema.String, reason: Schema.optional(Schema.String) }))
const Counted = Schema.is(Schema.Struct({
  fence: Schema.String,
  from: Schema.String,
  until: Schema.String
}))

/** Somebody who waits for it, as the server sees it: ends with when it entered. */
const waits = (locking: Locking, server: RedisServer, key: string) =>
  Effect.gen(function*() {
    const waiter = yield* Effect.fork(locking.withLock(Effect.sync(History.now), key, { waitTimeout: "25 seconds" }))
    yield* kit.eventually(
      Effect.map(
        server.command("HKEYS", recordOf("", kit.key(key))),
        (fields: ReadonlyArray<string>) => fields.some((field) => field.startsWith("w"))
      )
    )
    return waiter
  })

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 120_000)

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
    "B63 B34 R3.1 R3.3 holders that were frozen beyond their leases are told so, a hundred times: no late write is taken",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const worker = yield* spawn("write", server.url(), "frozen")
        const locking = yield* kit.node(server.url())
        const client = yield* kit.client(server.url())
        const names = Array.from({ length: 20 }, (_, i) => `frozen/${i}`)
        const fences = new Map<string, bigint>()
        const rises = (name: string, fence: bigint) => {
          assert.isTrue(fence > (fences.get(name) ?? 0n))
          fences.set(name, fence)
        }
        for (let round = 0; round < 5; round++) {
          yield* worker.send(names.length)
          for (const _ of names) {
            const { entered, name } = yield* worker.takeUntil(Entered)
            rises(name!, BigInt(entered))
          }
          yield* worker.freeze
          yield* Effect.forEach(names, (name) =>
            locking.useLock(name, { waitTimeout: "20 seconds" }, (lease) =>
              Effect.sync(() =>
                rises(name, lease.fence)
              ).pipe(
                Effect.zipRight(RedisFence.set(client, `resource/${name}`, `mine ${round}`, lease))
              )), { concurrency: "unbounded" })
          yield* worker.thaw
          for (const _ of names) {
            const { valid, wrote } = yield* worker.takeUntil(Wrote)
            assert.deepStrictEqual([wrote, valid], ["StaleFence", false])
          }
          yield* worker.send("next")
          for (const _ of names) {
            assert.strictEqual((yield* worker.takeUntil(Ended)).ended, "LeaseLost")
          }
          const values = yield* Effect.forEach(names, (name) =>
            server.command("GET", `resource/${name}`))
          assert.deepStrictEqual(
            values,
            names.map(() =>
              `mine ${round}`
            )
          )
          assert.deepStrictEqual(yield* locking.list(), [])
        }
        yield* worker.send("end")
        assert.strictEqual((yield* worker.ended).code, 0)
        assert.notInclude(JSON.stringify(yield* worker.written), "passed")
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

  it_(
    "B08 R7.1 SIGTERM: the key is given up after the section's finalizer has ended, and not before",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const worker = yield* spawn("finish", server.url(), "leader", "1000", "5000")
        yield* worker.takeUntil(Entered)
        const next = yield* waits(yield* kit.node(server.url()), server, "leader")
        yield* worker.signal("SIGTERM")
        const { cleaned } = yield* worker.takeUntil(Cleaned)
        const entered = yield* Fiber.join(next)
        assert.isAbove(entered, cleaned)
        // by push: long before the lease would have ended
        assert.isBelow(entered - cleaned, 900_000)
        assert.deepStrictEqual(yield* worker.ended, { code: 0, signal: null })
      })
  )

  it_(
    "B08 R7.1 SIGTERM: a finalizer that is stuck keeps the key as long as its lease, and not for ever",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const [finalizer, shutdownTimeout] = [9_000, 500]
        const worker = yield* spawn("finish", server.url(), "leader", String(finalizer), String(shutdownTimeout))
        yield* worker.takeUntil(Entered)
        const next = yield* waits(yield* kit.node(server.url()), server, "leader")
        const start = History.now()
        yield* worker.signal("SIGTERM")
        const millis = ((yield* Fiber.join(next)) - start) / 1_000
        // until then it was renewed, and nobody was let in beside it
        assert.isAtLeast(millis, shutdownTimeout)
        // its ttl later
        assert.isBelow(millis, shutdownTimeout + 1_000 + 3_000)
        const { ended, reason } = yield* worker.takeUntil(Ended)
        assert.deepStrictEqual([ended, reason], ["LeaseLost", "closed"])
        assert.include(yield* worker.errors, "CLEANUP_TIMEOUT")
        assert.deepStrictEqual(yield* worker.ended, { code: 0, signal: null })
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
