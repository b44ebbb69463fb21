/**
 * A replica that is promoted although it has not heard of the last locks, and two masters at once. That one holds a lock
 * at a time is not promised then; that fences rise, and that a late write is refused by them, is.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, type Scope } from "effect"
import * as Fence from "effect-locking/Fence"
import type { Lease } from "effect-locking/Lease"
import { recordOf } from "../src/internal/records.js"
import * as RedisFence from "../src/RedisFence.js"
import * as kit from "./kit.js"

/** A master, and a replica that follows it by a proxy. */
const pair = (settings: Readonly<Record<string, string>> = {}) =>
  Effect.gen(function*() {
    const master = yield* RedisServer.make({ settings })
    const link = yield* TcpProxy.make(master)
    const replica = yield* RedisServer.make({ settings: { ...settings, replicaof: `127.0.0.1 ${link.port}` } })
    yield* kit.eventually(kit.follows(replica), 20_000)
    return { master, link, replica }
  })

const cutOff = ({ cut, refuse }: TcpProxy.TcpProxy) => Effect.zipRight(refuse, cut())

const promote = (replica: RedisServer.RedisServer) => replica.command("REPLICAOF", "NO", "ONE")

const isMaster = (server: RedisServer.RedisServer) =>
  Effect.map(server.command("ROLE"), ([role]) => assert.strictEqual(role, "master"))

/** A process that holds the lock at this server. */
const holder = (server: RedisServer.RedisServer) =>
  Effect.flatMap(kit.node(server.url(), { ttl: "1 minute" }), (locking) => locking.acquire("promoted"))

const key = kit.key("promoted")

const isHeldUnder = (server: RedisServer.RedisServer, fence: bigint) =>
  Effect.map(
    server.command("HVALS", recordOf("", key)),
    (values: ReadonlyArray<string>) => assert.include(values.map((value) => value.split(" ")[2]), String(fence))
  )

/** Where the data is, under a lease. */
const write = (server: RedisServer.RedisServer, value: string, lease: Lease<"exclusive"> | Fence.Fence) =>
  Effect.scoped(Effect.flatMap(kit.client(server.url()), (client) => RedisFence.set(client, "data", value, lease)))

const isStale = <E extends { readonly _tag: string }>(late: Effect.Effect<void, E>) =>
  Effect.map(Effect.flip(late), ({ _tag }) => assert.strictEqual(_tag, "StaleFence"))

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 60_000)

describe("a replica that is promoted", () => {
  it_(
    "R3.1 R3.3 without the last lock: it is free there, and the late write of its first holder is refused",
    () =>
      Effect.gen(function*() {
        const { link, master, replica } = yield* pair()
        yield* cutOff(link)
        const [old, heir] = [yield* kit.driver(master.url()), yield* kit.driver(replica.url())]
        const first = yield* kit.take(kit.open(old, [key], { ttl: "1 minute" }), kit.token())
        yield* promote(replica)
        // what its holder hears at the new master
        assert.deepStrictEqual(yield* heir.renew([first]), [{ _tag: "Lost", reason: "expired" }])
        const second = yield* kit.take(kit.open(heir, [key], { ttl: "1 minute" }), kit.token())
        // two holders
        yield* isHeldUnder(master, first.fences[0]!)
        yield* isHeldUnder(replica, second.fences[0]!)
        assert.isTrue(second.fences[0]! > first.fences[0]!)
        yield* write(replica, "of the second", Fence.unsafeMake(second.fences[0]!))
        yield* isStale(write(replica, "of the first", Fence.unsafeMake(first.fences[0]!)))
        assert.strictEqual(yield* replica.command("GET", "data"), "of the second")
        assert.deepStrictEqual(yield* heir.renew([first, second]), [
          { _tag: "Lost", reason: "taken" },
          { _tag: "Confirmed", contended: false }
        ])
      })
  )

  it_(
    "R3.1 R3.3 while the old master wakes up: two grant at once, and whoever is later has the higher fence",
    () =>
      Effect.gen(function*() {
        const { link, master, replica } = yield* pair()
        yield* link.pause()
        const first = yield* holder(master)
        yield* master.freeze
        yield* promote(replica)
        const second = yield* holder(replica)
        yield* master.thaw
        for (const [server, lease] of [[master, first], [replica, second]] as const) {
          yield* isMaster(server)
          yield* lease.renew
          assert.isTrue(yield* lease.isValid)
          yield* isHeldUnder(server, lease.fence)
        }
        assert.isTrue(second.fence > first.fence)
        yield* write(replica, "of the second", second)
        yield* isStale(write(replica, "of the first", first))
        // the old one goes on granting
        yield* first.release
        const third = yield* holder(master)
        assert.isTrue(third.fence > second.fence)
        yield* write(replica, "of the third", third)
        yield* isStale(write(replica, "of the second", second))
        assert.strictEqual(yield* replica.command("GET", "data"), "of the third")
      })
  )

  it_(
    "`min-replicas-to-write 1`: a master that is cut off refuses new locks and renewals, and so does the new one",
    () =>
      Effect.gen(function*() {
        const { link, master, replica } = yield* pair({ "min-replicas-to-write": "1", "min-replicas-max-lag": "1" })
        const [old, heir] = [yield* kit.node(master.url(), { ttl: "2 seconds" }), yield* kit.node(replica.url())]
        const { fiber } = yield* kit.hold(old, "held")
        yield* cutOff(link)
        yield* promote(replica)
        const refuses = (locking: typeof old) =>
          Effect.match(locking.withLock(Effect.void, "new", { waitTimeout: "1 second" }), {
            onSuccess: () => false,
            onFailure: (error) => error._tag === "ProviderFailed" && /NOREPLICAS/.test(String(error.cause))
          })
        // once it has noticed
        yield* kit.eventually(refuses(old))
        yield* kit.eventually(refuses(heir))
        for (const server of [master, replica]) {
          const fields: ReadonlyArray<string> = yield* server.command("HKEYS", recordOf("", kit.key("new")))
          assert.isEmpty(fields.filter((field) => field.startsWith("h")))
        }
        const exit = yield* Fiber.await(fiber)
        assert(Exit.isFailure(exit) && exit.cause._tag === "Fail", "it went on")
        assert(exit.cause.error._tag === "LeaseLost", exit.cause.error._tag)
        assert.strictEqual(exit.cause.error.reason, "unconfirmed")
        // a replica again: locks again
        yield* link.heal
        yield* replica.command("REPLICAOF", "127.0.0.1", link.port)
        yield* old.withLock(Effect.void, "new", { waitTimeout: "20 seconds" })
      })
  )
})
