/**
 * A cluster of three masters with a replica each.
 */
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, Queue, type Scope } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import { recordOf } from "../src/internal/records.js"
import * as RedisLocking from "../src/RedisLocking.js"
import * as cluster from "./cluster.js"
import * as kit from "./kit.js"

class Nodes extends Context.Tag("Nodes")<Nodes, ReadonlyArray<RedisServer.RedisServer>>() {
  static readonly live = Layer.scoped(Nodes, Effect.orDie(cluster.make({ replicas: true, nodeTimeout: 3_000 })))
}

const open = (major: kit.Major, keyPrefix = ""): Effect.Effect<LockDriver, never, Nodes | Scope.Scope> =>
  Effect.gen(function*() {
    const made = yield* cluster.client(yield* Nodes, major, { keyPrefix })
    const driver = yield* Effect.orDie(RedisLocking.driver({ client: made }))
    yield* Effect.orDie(driver.ready)
    // the client makes its connections anew when it has learnt who is a replica, and so does the one that listens
    const listening = kit.open(driver, [kit.key("warm")])
    const everywhere = Effect.forEach(
      Array.from({ length: 12 }, (_, i) => kit.key(`warm/${i}`)),
      (key) => driver.release({ keys: [key], token: kit.token(), mode: "exclusive" })
    )
    let calm = 0
    yield* kit.eventually(Effect.gen(function*() {
      const exit = yield* Effect.exit(Effect.zipRight(everywhere, listening.arm(() => {})))
      calm = exit._tag === "Success" ? calm + 1 : 0
      yield* Effect.sleep(50)
      return calm === 6
    }))
    yield* Effect.orDie(listening.withdraw)
    return driver
  })

/** The client's subscriber may still be moving from node to node, and what is told meanwhile is for the poll. */
const hears = (one: LockDriver, two: LockDriver) =>
  Effect.gen(function*() {
    const key = kit.key(`warm/${kit.token()}`)
    const grant = yield* kit.take(kit.open(one, [key]), kit.token())
    const woken = yield* Queue.unbounded<void>()
    const waiter = kit.open(two, [key])
    const token = kit.token()
    yield* waiter.arm(() => woken.unsafeOffer(undefined))
    yield* kit.isBusy(waiter, token)
    yield* one.release(grant)
    const heard = yield* Effect.timeoutOption(Queue.take(woken), "500 millis")
    yield* waiter.withdraw
    return heard._tag === "Some"
  }).pipe(Effect.orElseSucceed(() => false))

layer(Nodes.live, { excludeTestServices: true, timeout: 120_000 })("R8.3 a cluster", (it) => {
  for (const major of [5, 6] as const) {
    describe(`ioredis ${major}`, () => {
      it.scoped("grants, keeps out, renews, wakes, tells and gives back, on every node", () =>
        Effect.gen(function*() {
          const [one, two] = [yield* open(major), yield* open(major)]
          yield* kit.eventually(hears(one, two), 20_000)
          const keys = Array.from({ length: 12 }, (_, i) => kit.key(`spread/${major}/${i}`))
          const grants = yield* Effect.forEach(keys, (key) => kit.take(kit.open(one, [key]), kit.token()))
          assert.isTrue((yield* one.renew(grants)).every(({ _tag }) => _tag === "Confirmed"))
          assert.lengthOf((yield* two.list("test")).filter(({ key }) => key!.startsWith(`spread/${major}/`)), 12)
          for (const [i, key] of keys.entries()) {
            const woken = yield* Queue.unbounded<void>()
            const waiter = kit.open(two, [key])
            yield* kit.isBusy(waiter, `waiter/${i}`)
            yield* waiter.arm(() => woken.unsafeOffer(undefined))
            yield* kit.isBusy(waiter, `waiter/${i}`)
            assert.strictEqual(yield* one.release(grants[i]!), "woke")
            yield* Queue.take(woken)
            const next = yield* kit.take(waiter, `waiter/${i}`)
            assert.isTrue(next.fences[0]! > grants[i]!.fences[0]!)
            assert.strictEqual(yield* two.release(next), "released")
          }
          assert.include((yield* one.check!).map(({ code, message }) => `${code} ${message}`).join(), "MODE")
        }), 90_000)

      it.scoped("takes keys of several slots one by one: all or none, and nothing is left of none", () =>
        Effect.gen(function*() {
          const [one, two] = [yield* open(major), yield* open(major)]
          const keys = Array.from({ length: 8 }, (_, i) => kit.key(`several/${major}/${i}`))
          const last = yield* kit.take(kit.open(two, [keys[7]!]), kit.token())
          const contention = kit.open(one, keys)
          const busy = yield* kit.isBusy(contention, "all")
          assert.strictEqual(busy.holder?.token, last.token)
          for (const key of keys.slice(0, 7)) assert.deepStrictEqual(yield* two.inspect(key), [])
          yield* two.release(last)
          const grant = yield* kit.take(contention, "all")
          assert.lengthOf(grant.fences, 8)
          assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Confirmed", contended: false }])
          yield* two.forceRelease(keys[3]!, { hard: false })
          assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Lost", reason: "revoked" }])
          assert.strictEqual(yield* one.release(grant), "gone")
          for (const key of keys) assert.deepStrictEqual(yield* two.inspect(key), [])
        }))

      it.scoped("who waits for several keys is not woken alone for one of them", () =>
        Effect.gen(function*() {
          const [one, two] = [yield* open(major), yield* open(major)]
          yield* kit.eventually(hears(one, two), 20_000)
          const [a, b] = [kit.key(`several/${major}/a`), kit.key(`several/${major}/b`)]
          const grants = [
            yield* kit.take(kit.open(one, [a]), kit.token()),
            yield* kit.take(kit.open(one, [b]), kit.token())
          ]
          const both = kit.open(two, [a, b])
          yield* both.arm(() => {})
          const woken = yield* Queue.unbounded<void>()
          const single = kit.open(two, [b])
          yield* single.arm(() => woken.unsafeOffer(undefined))
          yield* kit.isBusy(single, "single")
          assert.strictEqual(yield* one.release(grants[1]!), "woke")
          yield* Queue.take(woken)
          yield* both.withdraw
          yield* single.withdraw
          yield* one.release(grants[0]!)
        }))

      it.scoped("takes them in one script where a prefix with a tag puts them in one slot", () =>
        Effect.gen(function*() {
          const one = yield* open(major, "{locks}:")
          const keys = [kit.key(`tagged/${major}/a`), kit.key(`tagged/${major}/b`)]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const nodes = yield* Nodes
          const found = yield* Effect.forEach(nodes.slice(0, 3), (node) => node.command("KEYS", "{locks}:*tagged*"))
          const records = found.flat().filter((record) => record.includes(`tagged/${major}`))
          assert.sameMembers(records, keys.map((key) => recordOf("{locks}:", key)))
          assert.lengthOf(found.filter((records) => records.length > 0), 1)
          assert.strictEqual(yield* one.release(grant), "released")
        }))
    })
  }

  it.scoped("locks of a slot work while it moves to another node", () =>
    Effect.gen(function*() {
      const one = yield* open(5)
      const [a, b, c] = yield* Nodes
      const key = kit.key("moving")
      const record = recordOf("", key)
      const slot: number = yield* a!.command("CLUSTER", "KEYSLOT", record)
      const owner = [a!, b!, c!][Math.floor(slot / cluster.share)]!
      const other = owner === a ? b! : a!
      const [from, to]: ReadonlyArray<string> = [
        yield* owner.command("CLUSTER", "MYID"),
        yield* other.command("CLUSTER", "MYID")
      ]
      const grant = yield* kit.take(kit.open(one, [key]), kit.token())
      yield* other.command("CLUSTER", "SETSLOT", slot, "IMPORTING", from!)
      yield* owner.command("CLUSTER", "SETSLOT", slot, "MIGRATING", to!)
      assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Confirmed", contended: false }])
      yield* owner.command("MIGRATE", "127.0.0.1", other.port, record, 0, 5_000)
      assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Confirmed", contended: false }])
      yield* one.release(grant)
      const next = yield* kit.take(kit.open(one, [key]), kit.token())
      assert.isTrue(next.fences[0]! > grant.fences[0]!)
      yield* other.command("CLUSTER", "SETSLOT", slot, "NODE", to!)
      yield* owner.command("CLUSTER", "SETSLOT", slot, "NODE", to!)
      assert.deepStrictEqual(yield* one.renew([next]), [{ _tag: "Confirmed", contended: false }])
      yield* one.release(next)
    }))

  it.scoped("through the engine: a master that is killed is replaced, and locks go on", () =>
    Effect.gen(function*() {
      const nodes = yield* Nodes
      const made = yield* cluster.client(nodes, 5)
      const locking = yield* Locking.make(yield* RedisLocking.driver({ client: made }), { namespace: "test" })
      const names = Array.from({ length: 30 }, (_, i) => `failover/${i}`)
      const before = yield* Effect.forEach(names, (name) =>
        locking.useLock(name, (lease) => Effect.succeed<bigint>(lease.fence)))
      yield* nodes[2]!.kill
      const after = yield* Effect.forEach(
        names,
        (name) =>
          locking.useLock(name, { waitTimeout: "30 seconds" }, (lease) => Effect.succeed<bigint>(lease.fence)),
        { concurrency: "unbounded" }
      )
      after.forEach((fence, i) => assert.isTrue(fence > before[i]!))
    }), 60_000)
})
