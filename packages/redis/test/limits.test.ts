/**
 * What bounds a lock: how long it is held, who inherits it, and what is left of it.
 */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Option, type Scope } from "effect"
import * as Locking from "effect-locking/Locking"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import * as kit from "./kit.js"

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 60_000)

const patient = { waitTimeout: "25 seconds" } as const

const clock = Effect.sync(() => performance.now())

const range = (n: number) => Array.from({ length: n }, (_, i) => i)

const world = (options = {}) =>
  Effect.gen(function*() {
    const server = yield* kit.server
    return { server, a: yield* kit.node(server.url(), options), b: yield* kit.node(server.url(), options) }
  })

describe("a section that never ends", () => {
  const maxHold = 3_000
  const options = { ttl: "1 second" } as const

  it_("B78 R1.10 is interrupted at its limit, and the next one enters", () =>
    Effect.gen(function*() {
      const { a, b } = yield* world(options)
      const start = yield* clock
      const { fiber } = yield* kit.hold(a, "hung", { maxHold })
      const entered = yield* b.withLock(clock, "hung", patient)
      const exit = yield* Fiber.await(fiber)
      assert(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost")
      assert.strictEqual(exit.cause.error.reason, "max-hold")
      assert.isAtLeast(entered - start, maxHold)
      assert.isBelow(entered - start, maxHold + 1_000)
    }))

  it_(
    "B78 R1.11 that cannot be interrupted loses its lease all the same, and the log says that it still runs",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const log = kit.captured()
        const a = yield* Effect.provide(kit.node(server.url(), options), log.layer)
        const b = yield* kit.node(server.url(), options)
        const begun = yield* Deferred.make<void>()
        const end = yield* Deferred.make<void>()
        const start = yield* clock
        const holder = yield* Effect.fork(a.withLock(
          Effect.uninterruptible(Effect.zipRight(Deferred.succeed(begun, undefined), Deferred.await(end))),
          "hung",
          { maxHold }
        ))
        yield* Deferred.await(begun)
        const entered = yield* b.withLock(clock, "hung", patient)
        assert.isNull(yield* Effect.map(Fiber.poll(holder), Option.getOrNull))
        assert.isAtLeast(entered - start, maxHold)
        // what the last renewal gave it, and a poll
        assert.isBelow(entered - start, maxHold + 1_000 + 1_000)
        yield* kit.eventually(Effect.sync(() => log.withCode("LEASE_OVERRUN").length > 0))
        assert.include(String(log.withCode("LEASE_OVERRUN")[0]!["message"]), "still runs")
        yield* Deferred.succeed(end, undefined)
        const exit = yield* Fiber.await(holder)
        assert(Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost")
        assert.isAbove(Duration.toMillis(exit.cause.error.overrun), 0)
      })
  )

  it_(
    "B78 R10.3 without a limit is renewed, and can be seen to hold since when it entered",
    () =>
      Effect.gen(function*() {
        const { a, b } = yield* world(options)
        const { end, fiber } = yield* kit.hold(a, "hung")
        const [before] = yield* b.inspect("hung")
        yield* Effect.sleep("2 seconds")
        const [after] = yield* b.inspect("hung")
        assert.strictEqual(after!.since, before!.since)
        assert.isAbove(after!.until!, before!.until! + 1_000)
        assert.isAbove(after!.until! - after!.since!, 2_000)
        yield* end
        yield* Fiber.join(fiber)
      })
  )
})

describe("children of a section", () => {
  /** How many are inside at once, and with which fences. */
  const counted = () => {
    let [inside, most] = [0, 0]
    const fences: Array<bigint> = []
    const section = (lease: { readonly fence: bigint }) =>
      Effect.gen(function*() {
        most = Math.max(most, ++inside)
        fences.push(lease.fence)
        yield* Effect.sleep(20)
        inside--
      })
    return { section, fences, most: () => most }
  }

  it_("B60 R1.12 are refused at once, unless they say what they want", () =>
    Effect.gen(function*() {
      const { a, b } = yield* world()
      const tags = yield* a.withLock(
        Effect.forEach(
          range(5),
          () => Effect.map(Effect.flip(a.withLock(Effect.die("entered"), "k", patient)), ({ _tag }) => _tag),
          { concurrency: "unbounded" }
        ),
        "k"
      )
      assert.deepStrictEqual(tags, range(5).map(() => "LockReentry"))
      yield* b.withLock(Effect.void, "k", patient)
    }))

  it_("B60 R1.12 share its lease one at a time", () =>
    Effect.gen(function*() {
      const { a, b } = yield* world()
      const { fences, most, section } = counted()
      const own = yield* a.useLock("k", (lease) =>
        Effect.as(
          Effect.forEach(range(5), () => a.useLock("k", { ...patient, reentrant: true }, section), {
            concurrency: "unbounded"
          }),
          lease.fence
        ))
      assert.deepStrictEqual(fences, range(5).map(() => own))
      assert.strictEqual(most(), 1)
      assert.isTrue(yield* b.useLock("k", patient, (lease) => Effect.succeed(lease.fence > own)))
    }))

  it_(
    "B60 R1.12 queue as strangers, and a daemon has nothing of the section once that has ended",
    () =>
      Effect.gen(function*() {
        const { a, b } = yield* world()
        const { fences, most, section } = counted()
        const end = yield* Deferred.make<void>()
        const begun = yield* Deferred.make<bigint>()
        const holder = yield* Effect.fork(a.useLock("k", (lease) =>
          Effect.gen(function*() {
            const strangers = yield* Effect.forEach(
              range(5),
              () => Effect.forkDaemon(a.useLock("k", { ...patient, reentrant: "wait" }, section))
            )
            const daemon = yield* Effect.forkDaemon(
              Effect.zipRight(Deferred.await(end), a.useLock("k", { ...patient, reentrant: true }, section))
            )
            yield* Deferred.succeed(begun, lease.fence)
            yield* Effect.sleep(300)
            assert.deepStrictEqual(fences, [])
            return [...strangers, daemon]
          })))
        const own = yield* Deferred.await(begun)
        const daemons = yield* Fiber.join(holder)
        yield* Deferred.succeed(end, undefined)
        yield* b.useLock("k", patient, section)
        for (const daemon of daemons) yield* Fiber.join(daemon)
        assert.strictEqual(most(), 1)
        assert.lengthOf(new Set(fences), 7)
        assert.isTrue(fences.every((fence) => fence > own))
      })
  )
})

/** What the program reaches, after everything else was collected. */
const heap = Effect.sync(() => {
  setFlagsFromString("--expose-gc")
  const collect: () => void = runInNewContext("gc")
  collect()
  collect()
  return process.memoryUsage().heapUsed
})

describe("what stays", () => {
  it_(
    "B40 R6.5 ten thousand keys, some of them waited for in vain, leave nothing here or at the server",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        // keys at once, of which there are as many as callers: those that were there before do not count
        const node = Effect.flatMap(
          kit.driver(server.url(), { retention: "1 second" }),
          (driver) =>
            Locking.make(driver, { namespace: "test", maxKeys: 300, ttl: "2 seconds", attemptTimeout: "5 seconds" })
        )
        const [a, b] = [yield* node, yield* node]
        const round = (name: string, keys: number) =>
          Effect.forEach(range(keys), (i) => {
            const key = `${name}/${i}`
            return i % 50 === 0
              ? Effect.scoped(Effect.zipRight(
                b.acquire(key),
                // interrupted while it waits at the server
                Effect.timeoutOption(a.withLock(Effect.void, key, patient), 20)
              ))
              : a.withLock(Effect.void, key)
          }, { concurrency: 64, discard: true })
        // records, what is in them beside the fences, and for how long the last of them is kept
        const records: Effect.Effect<[number, number, number], unknown> = server.command(
          "EVAL",
          `local all,fields,longest=redis.call('KEYS','*'),0,0 for _,k in ipairs(all) do
          fields=fields+redis.call('HLEN',k)-redis.call('HEXISTS',k,'f')
          local left=redis.call('PTTL',k)
          longest=math.max(longest,left==-1 and 1e12 or left)
        end return {#all,fields,longest}`,
          0
        )
        const nothingLeft = (waitedFor: number) =>
          Effect.gen(function*() {
            // a lease and the retention later; a key that was waited for has two minutes more, should the waiter come back
            yield* kit.eventually(Effect.map(records, ([all, fields]) => all <= waitedFor && fields === 0))
            const [, , longest] = yield* records
            assert.isBelow(longest, 130_000)
            // the channels of keys have a separator in their names, unlike the one on which holders hear of their end
            yield* kit.eventually(
              Effect.map(server.command("PUBSUB", "CHANNELS", "*/*"), (channels) => channels.length === 0)
            )
          })
        // compiled code, and whatever is kept within bounds
        yield* round("warm", 3_000)
        yield* nothingLeft(60)
        const before = yield* heap
        yield* round("key", 10_000)
        yield* nothingLeft(260)
        const grown = (yield* heap) - before
        // a record has several hundred bytes
        assert.isBelow(grown, 10_000 * 100)
        // nobody's key holds up another one's, and the limit counts what is held now
        yield* Effect.scoped(Effect.gen(function*() {
          for (const [locking, name] of [[a, "a"], [b, "b"]] as const) {
            yield* Effect.forEach(range(300), (i) => locking.acquire(`${name}/${i}`, { waitTimeout: 0 }), {
              concurrency: 50,
              discard: true
            })
          }
          assert.strictEqual((yield* Effect.flip(a.acquire("one more")))._tag, "KeyLimit")
        }))
        yield* nothingLeft(260)
      })
  )
})
