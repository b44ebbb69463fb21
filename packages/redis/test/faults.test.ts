/**
 * What production does to locks, through the engine, with a bad network between it and a real server. Redis is the
 * witness of what it holds.
 */
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Option, type Scope, Stream } from "effect"
import type { LockingOptions } from "effect-locking/LockOptions"
import { recordOf } from "../src/internal/records.js"
import * as kit from "./kit.js"

const record = (name: string) => recordOf("", kit.key(name))

const scripts = TcpProxy.named("effect-locking-scripts")
const wakeups = TcpProxy.named("effect-locking-wakeups")

/** A server, a process that reaches it by the proxy, and one that reaches it as it is. */
const world = (options: LockingOptions = {}) =>
  Effect.gen(function*() {
    const server = yield* kit.server
    const proxy = yield* TcpProxy.make({ port: server.port })
    return {
      server,
      proxy,
      far: yield* kit.node(server.url(proxy.port), options),
      near: yield* kit.node(server.url(), options)
    }
  })

/** Who holds it, as the server has it. */
const holders = (server: RedisServer.RedisServer, name: string) =>
  Effect.map(
    server.command("HKEYS", record(name)),
    (fields: ReadonlyArray<string>) => fields.filter((field) => field.startsWith("h"))
  )

const isFree = (server: RedisServer.RedisServer, name: string) =>
  Effect.map(holders(server, name), (found) => found.length === 0)

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.timed(effect), ([duration, value]) => [Duration.toMillis(duration), value] as const)

const codeOf = (exit: Exit.Exit<unknown, { readonly code: string }>): string =>
  Exit.match(exit, {
    onSuccess: () => "success",
    onFailure: (cause) => cause._tag === "Fail" ? cause.error.code : cause._tag
  })

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 60_000)

describe("replies that are lost", () => {
  it_("B13 a grant whose reply was lost is found again", () =>
    Effect.gen(function*() {
      const { far, proxy, server } = yield* world()
      yield* far.withLock(Effect.void, "warm")
      const lost = yield* proxy.dropNextReply({ who: scripts })
      const value = yield* far.withLock(
        Effect.flatMap(holders(server, "found"), (found) => Effect.succeed(found.length)),
        "found"
      )
      yield* lost
      assert.strictEqual(value, 1)
      assert.isTrue(yield* isFree(server, "found"))
    }))

  it_("B13 a grant that nobody waits for any more goes back long before its ttl", () =>
    Effect.gen(function*() {
      const { far, near, proxy, server } = yield* world({ ttl: "1 minute" })
      yield* far.withLock(Effect.void, "warm")
      yield* proxy.pause({ who: scripts, direction: "toClient" })
      const fiber = yield* Effect.fork(far.withLock(Effect.die("entered"), "orphan"))
      yield* kit.eventually(Effect.map(holders(server, "orphan"), (found) => found.length === 1))
      yield* Fiber.interrupt(fiber)
      yield* proxy.heal
      yield* kit.eventually(isFree(server, "orphan"))
      yield* near.withLock(Effect.void, "orphan")
    }))

  it_("a release whose reply was lost spoils nothing, and frees the lock at once", () =>
    Effect.gen(function*() {
      const { far, near, proxy, server } = yield* world({ ttl: "1 minute" })
      yield* far.withLock(Effect.void, "warm")
      const { end, fiber } = yield* kit.hold(far, "given back")
      const lost = yield* proxy.dropNextReply({ who: scripts })
      yield* end
      yield* Fiber.join(fiber)
      yield* lost
      assert.isTrue(yield* isFree(server, "given back"))
      yield* near.withLock(Effect.void, "given back")
    }))

  it_("a release that never arrived is repeated", () =>
    Effect.gen(function*() {
      const { far, near, proxy } = yield* world({ ttl: "1 minute" })
      yield* far.withLock(Effect.void, "warm")
      const { end, fiber } = yield* kit.hold(far, "repeated")
      const lost = yield* proxy.dropNextRequest({ who: scripts })
      yield* end
      yield* Fiber.join(fiber)
      yield* lost
      yield* near.withLock(Effect.void, "repeated", { waitTimeout: "10 seconds" })
    }))

  it_("a renewal whose reply was lost is repeated in time", () =>
    Effect.gen(function*() {
      const { far, proxy } = yield* world({ ttl: "1500 millis" })
      const { end, fiber } = yield* kit.hold(far, "renewed")
      yield* yield* proxy.dropNextReply({ who: scripts })
      yield* Effect.sleep("2 seconds")
      yield* end
      yield* Fiber.join(fiber)
    }))
})

describe("connections that are lost", () => {
  it_("B21 a release before the subscription is in force is not missed", () =>
    Effect.gen(function*() {
      // polls that would hide it are far away
      const { far, near, proxy, server } = yield* world({ ttl: "30 seconds", pollInterval: "1 minute" })
      const { end, fiber } = yield* kit.hold(near, "early")
      yield* proxy.delay(500, { who: wakeups })
      const waiter = yield* Effect.fork(timed(far.withLock(Effect.void, "early", { waitTimeout: "20 seconds" })))
      yield* kit.eventually(
        Effect.map(server.command("PUBSUB", "NUMSUB", record("early")), ([, count]) => count === 1)
      )
      yield* end
      yield* Fiber.join(fiber)
      const [millis] = yield* Fiber.join(waiter)
      assert.isBelow(millis, 10_000)
    }))

  it_("B22 waiters go on when the channel dies: within the poll, and by push again", () =>
    Effect.gen(function*() {
      const { far, near, proxy, server } = yield* world({ ttl: "30 seconds" })
      const { end, fiber } = yield* kit.hold(near, "channel")
      const waiters = yield* Effect.fork(
        Effect.all(
          Array.from({ length: 3 }, () => far.withLock(Effect.void, "channel", { waitTimeout: "20 seconds" })),
          { concurrency: 3 }
        )
      )
      yield* kit.eventually(
        Effect.map(server.command("PUBSUB", "NUMSUB", record("channel")), ([, count]) => count === 1)
      )
      assert.strictEqual(yield* proxy.cut(wakeups), 1)
      yield* end
      yield* Fiber.join(fiber)
      yield* Fiber.join(waiters)
    }))

  it_(
    "a link that is dead without saying so is noticed, and what was held is renewed on another",
    () =>
      Effect.gen(function*() {
        const { far, proxy } = yield* world({ ttl: "10 seconds" })
        const { end, fiber } = yield* kit.hold(far, "dead link")
        const [old] = (yield* proxy.connections).filter(scripts)
        yield* proxy.blackHole({ who: TcpProxy.nth(old!.index) })
        yield* kit.eventually(
          Effect.map(proxy.connections, (all) => all.some((one) => scripts(one) && one.index > old!.index)),
          12_000
        )
        yield* end
        yield* Fiber.join(fiber)
        yield* far.withLock(Effect.void, "dead link")
      })
  )

  it_(
    "B01 B34 a partition ends the section by its own clock, and nothing is taken back later",
    () =>
      Effect.gen(function*() {
        const { far, near, proxy, server } = yield* world({ ttl: "1 second" })
        const { fiber } = yield* kit.hold(far, "partition")
        yield* proxy.blackHole()
        const [millis, exit] = yield* timed(Fiber.await(fiber))
        assert.strictEqual(codeOf(exit), "LEASE_LOST")
        assert.isBelow(millis, 1_500)
        // B comes and goes while A is cut off
        yield* near.withLock(Effect.void, "partition", { waitTimeout: "10 seconds" })
        yield* proxy.heal
        yield* Effect.sleep("1 second")
        assert.isTrue(yield* isFree(server, "partition"))
        yield* far.withLock(Effect.void, "partition", { waitTimeout: "10 seconds" })
      })
  )

  it_(
    "all connections of a process are killed, again and again: no lock is lost, none is left",
    () =>
      Effect.gen(function*() {
        const { far, near, server } = yield* world({ ttl: "5 seconds" })
        let inside = 0
        let done = 0
        const section = Effect.gen(function*() {
          assert.strictEqual(++inside, 1)
          yield* Effect.sleep(1)
          inside--
          done++
        })
        const storm = yield* Effect.fork(Effect.forever(
          Effect.zipRight(
            // one that goes on after the storm would meet who looks at the server
            Effect.uninterruptible(Effect.ignore(server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))),
            Effect.sleep(100)
          )
        ))
        yield* Effect.forEach(
          [far, near, far, near, far, near],
          (locking) => Effect.repeatN(locking.withLock(section, "storm", { waitTimeout: "30 seconds" }), 9),
          { concurrency: "unbounded" }
        )
        yield* Fiber.interrupt(storm)
        assert.strictEqual(done, 60)
        yield* kit.eventually(isFree(server, "storm"), 10_000)
      })
  )
})

describe("servers that are lost", () => {
  it_("B44 a wait ends in time while the server is down, and nothing is granted later", () =>
    Effect.gen(function*() {
      const { far, near, server } = yield* world()
      yield* server.kill
      // from the moment that the process knows
      yield* kit.eventually(Effect.map(Effect.exit(near.inspect("down")), (exit) => codeOf(exit) === "PROVIDER_FAILED"))
      const [millis, exit] = yield* timed(Effect.exit(near.withLock(Effect.void, "down", { waitTimeout: "1 second" })))
      assert.strictEqual(codeOf(exit), "PROVIDER_FAILED")
      assert.isBelow(millis, 3_000)
      assert.isAtLeast(millis, 1_000)
      yield* server.start
      yield* far.withLock(Effect.void, "up", { waitTimeout: "10 seconds" })
      assert.strictEqual(yield* server.command("EXISTS", record("down")), 0)
    }))

  it_("B44 a wait ends in time while the server is mute, and nothing is granted later", () =>
    Effect.gen(function*() {
      const { near, server } = yield* world()
      yield* near.withLock(Effect.void, "warm")
      yield* server.freeze
      const [millis, exit] = yield* timed(Effect.exit(near.withLock(Effect.void, "mute", { waitTimeout: "1 second" })))
      assert.strictEqual(codeOf(exit), "OUTCOME_UNKNOWN")
      assert.isBelow(millis, 3_000)
      yield* Effect.sleep("500 millis")
      yield* server.thaw
      yield* near.withLock(Effect.void, "warm", { waitTimeout: "10 seconds" })
      assert.isTrue(yield* isFree(server, "mute"))
    }))

  it_(
    "B65 what the section says is what the caller hears, though the server is down at its end",
    () =>
      Effect.gen(function*() {
        const { near, server } = yield* world()
        const failed = yield* Effect.exit(
          near.withLock(Effect.zipRight(server.kill, Effect.fail("mine" as const)), "a")
        )
        assert.isTrue(Exit.isFailure(failed) && failed.cause._tag === "Fail" && failed.cause.error === "mine")
        yield* server.start
        const value = yield* near.withLock(Effect.as(server.kill, 42), "b", { waitTimeout: "10 seconds" })
        assert.strictEqual(value, 42)
      })
  )

  it_(
    "R7.2 a restart without persistence loses the lease, and says so; fences rise all the same",
    () =>
      Effect.gen(function*() {
        const { near, server } = yield* world({ ttl: "3 seconds" })
        const before = yield* near.useLock("forgotten", (lease) => Effect.succeed(lease.fence))
        const { fiber } = yield* kit.hold(near, "forgotten")
        yield* server.kill
        yield* server.start
        assert.strictEqual(codeOf(yield* Fiber.await(fiber)), "LEASE_LOST")
        const after = yield* near.useLock("forgotten", (lease) => Effect.succeed(lease.fence))
        assert.isTrue(after > before)
      })
  )

  it_("R7.2 a restart with an append-only file loses nothing", () =>
    Effect.gen(function*() {
      const server = yield* kit.durableServer
      const locking = yield* kit.node(server.url(), { ttl: "5 seconds" })
      const { end, fiber } = yield* kit.hold(locking, "kept")
      yield* server.kill
      yield* server.start
      assert.isFalse(yield* isFree(server, "kept"))
      yield* Effect.sleep("3 seconds")
      yield* end
      yield* Fiber.join(fiber)
      assert.isTrue(yield* isFree(server, "kept"))
    }))

  it_("FLUSHALL and a DEL by hand are noticed by the next renewal", () =>
    Effect.gen(function*() {
      const { near, server } = yield* world({ ttl: "1500 millis" })
      const { fiber } = yield* kit.hold(near, "flushed")
      yield* server.command("FLUSHALL")
      const [millis, exit] = yield* timed(Fiber.await(fiber))
      assert.strictEqual(codeOf(exit), "LEASE_LOST")
      assert.isBelow(millis, 1_500)
    }))

  it_("a server without memory refuses new locks, and keeps and ends the old ones", () =>
    Effect.gen(function*() {
      const { near, server } = yield* world({ ttl: "1 second" })
      const { end, fiber } = yield* kit.hold(near, "kept")
      yield* server.command("CONFIG", "SET", "maxmemory", "1")
      const exit = yield* Effect.exit(near.withLock(Effect.void, "refused", { waitTimeout: 200 }))
      assert.strictEqual(codeOf(exit), "PROVIDER_FAILED")
      yield* Effect.sleep("1500 millis")
      yield* end
      yield* Fiber.join(fiber)
      assert.isTrue(yield* isFree(server, "kept"))
      yield* server.command("CONFIG", "SET", "maxmemory", "0")
      yield* near.withLock(Effect.void, "refused")
    }))

  it_(
    "R7.2 a lock that the server evicts is lost, its holder hears of it, and the next one has a higher fence",
    () =>
      Effect.gen(function*() {
        const { far, near, server } = yield* world({ ttl: "6 seconds" })
        const begun = yield* Deferred.make<bigint>()
        const holder = yield* Effect.fork(
          near.useLock("evicted", (lease) => Effect.zipRight(Deferred.succeed(begun, lease.fence), Effect.never))
        )
        const before = yield* Deferred.await(begun)
        const memory: string = yield* server.command("INFO", "memory")
        const used = Number(/^used_memory:(\d+)/m.exec(memory)?.[1])
        const settings = { "maxmemory-policy": "volatile-lru", maxmemory: String(used + 2_000_000) }
        for (const [name, value] of Object.entries(settings)) yield* server.command("CONFIG", "SET", name, value)
        // a cache beside the locks, until one of them has to go
        const fill = "for i=1,200 do redis.call('SET',KEYS[1]..i,string.rep('x',1000)) end"
        let filled = 0
        yield* kit.eventually(Effect.zipRight(
          Effect.ignore(Effect.suspend(() => server.command("EVAL", fill, 1, `cache/${filled++}/`))),
          Effect.map(server.command("EXISTS", record("evicted")), (exists) => exists === 0)
        ))
        const exit = yield* Fiber.await(holder)
        assert.strictEqual(codeOf(exit), "LEASE_LOST")
        yield* server.command("CONFIG", "SET", "maxmemory", "0")
        const after = yield* far.useLock("evicted", (lease) => Effect.succeed(lease.fence))
        assert.isTrue(after > before)
      })
  )

  it_("B28 waiters of a server that refuses do not hammer it", () =>
    Effect.gen(function*() {
      const { far, near, server } = yield* world()
      const { end, fiber } = yield* kit.hold(near, "read-only")
      const waiters = yield* Effect.fork(
        Effect.forEach(
          [far, near, far, near],
          (locking) => locking.withLock(Effect.void, "read-only", { waitTimeout: "20 seconds" }),
          { concurrency: "unbounded" }
        )
      )
      yield* Effect.sleep("500 millis")
      const calls = Effect.map(
        server.command("INFO", "commandstats"),
        (text: string) => Number(/cmdstat_evalsha:calls=(\d+)/.exec(text)?.[1])
      )
      const before = yield* calls
      yield* Effect.sleep("2 seconds")
      // two processes that contend, each with a poll of 250 ms; nobody else asks
      assert.isBelow((yield* calls) - before, 30)
      yield* end
      yield* Fiber.join(fiber)
      yield* Fiber.join(waiters)
    }))
})

describe("leases", () => {
  it_("B76 what has lapsed is swept, and nothing else, however many sweep", () =>
    Effect.gen(function*() {
      const { far, near, server } = yield* world({ ttl: "2 seconds" })
      const shared = { mode: "shared" } as const
      // readers that renew, and some that have died
      const readers = yield* Effect.forEach([far, near, far, near], (locking) =>
        Effect.fork(locking.withLock(Effect.sleep("5 seconds"), "swept", shared)))
      const dead = yield* kit.driver(server.url())
      const corpses = kit.open(dead, [kit.key("swept")], { mode: "shared", ttl: "1 second" })
      for (let i = 0; i < 10; i++) {
        yield* kit.take(corpses, kit.token())
      }
      // each grant sweeps; processes of their own, as others would join what their process holds
      const others = [yield* kit.node(server.url(), { ttl: 200 }), yield* kit.node(server.url(), { ttl: "1 minute" })]
      const sweepers = yield* Effect.fork(Effect.forever(Effect.delay(
        Effect.forEach(others, (locking) =>
          locking.withLock(Effect.void, "swept", shared)),
        50
      )))
      // grants of the sweepers come and go
      yield* kit.eventually(Effect.map(holders(server, "swept"), (found) => found.length <= 6))
      yield* Effect.forEach(readers, (reader) => Fiber.join(reader))
      yield* Fiber.interrupt(sweepers)
      yield* kit.eventually(isFree(server, "swept"))
      assert.strictEqual(yield* server.command("HEXISTS", record("swept"), "f"), 1)
    }))

  it_("B68 R10.2 renewals without an answer are told, once, and so is the recovery", () =>
    Effect.gen(function*() {
      const { far, proxy } = yield* world({ ttl: "6 seconds", attemptTimeout: 300 })
      const seen: Array<string> = []
      yield* Effect.forkScoped(
        Stream.runForEach(yield* far.events, ({ _tag }) => Effect.sync(() => void seen.push(_tag)))
      )
      const count = (tag: string) => seen.filter((one) => one === tag).length
      yield* far.withLock(
        Effect.gen(function*() {
          yield* proxy.pause({ who: scripts })
          yield* kit.eventually(Effect.sync(() => count("RenewalFailed") > 0))
          yield* Effect.sleep(500)
          yield* proxy.heal
          yield* kit.eventually(Effect.sync(() => count("Recovered") > 0))
        }),
        "told"
      )
      assert.deepStrictEqual([count("RenewalFailed"), count("Recovered"), count("Lost")], [1, 1, 0])
    }))

  it_(
    "B33 a release and a renewal that is on the wire: nothing is renewed afterwards, nothing is lost",
    () =>
      Effect.gen(function*() {
        const { far, proxy, server } = yield* world({ ttl: "600 millis" })
        yield* proxy.delay(40)
        yield* Effect.forEach(
          Array.from({ length: 20 }, (_, i) => i),
          (i) => far.withLock(Effect.sleep(180 + 7 * i), `crossing/${i}`),
          { concurrency: 10 }
        )
        yield* Effect.sleep(200)
        for (let i = 0; i < 20; i++) assert.isTrue(yield* isFree(server, `crossing/${i}`))
      })
  )

  it_(
    "B42 the lease is counted from the attempt that was granted: never beyond the server's own end",
    () =>
      Effect.gen(function*() {
        const { far, near, proxy, server } = yield* world({ ttl: "2 seconds" })
        yield* proxy.delay(150)
        const { end, fiber } = yield* kit.hold(near, "counted")
        const waiter = yield* Effect.fork(far.useLock("counted", { waitTimeout: "20 seconds" }, (lease) =>
          Effect.gen(function*() {
            const remaining = Duration.toMillis(yield* lease.remaining)
            const [name] = yield* holders(server, "counted")
            const value: string = yield* server.command("HGET", record("counted"), name!)
            const [seconds, micros] = yield* server.command("TIME")
            const left = Number(value.split(" ")[1]) - (Number(seconds) * 1000 + Number(micros) / 1000)
            return [remaining, left] as const
          })))
        yield* Effect.sleep("1 second")
        yield* end
        yield* Fiber.join(fiber)
        const [remaining, left] = yield* Fiber.join(waiter)
        assert.isAtMost(remaining, 2_000)
        assert.isAtLeast(remaining, 1_000)
        // what remains was read before the server was asked
        assert.isBelow(remaining - 1_000, left)
      })
  )

  it_("R10.3 the holder of a lock that is taken from it learns it at once", () =>
    Effect.gen(function*() {
      const { far, near } = yield* world({ ttl: "1 minute" })
      const { fiber } = yield* kit.hold(far, "deposed")
      const { holders } = yield* near.forceRelease("deposed")
      assert.lengthOf(holders, 1)
      const [millis, exit] = yield* timed(Fiber.await(fiber))
      assert.isBelow(millis, 5_000)
      assert.isTrue(
        Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost" &&
          exit.cause.error.reason === "revoked"
      )
    }))

  it_("B12 an acquire that is interrupted at any step leaves nothing", () =>
    Effect.gen(function*() {
      const { near, server } = yield* world({ ttl: "1 minute" })
      for (let steps = 0; steps < 40; steps++) {
        const fiber = yield* Effect.fork(near.withLock(Effect.void, "swept"))
        for (let i = 0; i < steps; i++) yield* Effect.yieldNow()
        yield* Fiber.interrupt(fiber)
        const entered = yield* near.withLock(Effect.succeed(true), "swept")
        assert.isTrue(entered)
      }
      yield* kit.eventually(isFree(server, "swept"))
      assert.deepStrictEqual(yield* near.list, [])
    }))

  it_("R1.4 a single attempt never waits", () =>
    Effect.gen(function*() {
      const { far, near } = yield* world()
      const { end, fiber } = yield* kit.hold(near, "busy")
      assert.isTrue(Option.isNone(yield* far.withLockIfAvailable(Effect.void, "busy")))
      yield* end
      yield* Fiber.join(fiber)
      assert.isTrue(Option.isSome(yield* far.withLockIfAvailable(Effect.void, "busy")))
    }))
})

describe("closing", () => {
  it_("B29 R7.1 ends in time whatever the server does, and the waiters hear of it", () =>
    Effect.gen(function*() {
      const server = yield* kit.server
      yield* Effect.forEach(["freeze", "kill"] as const, (fault) =>
        Effect.gen(function*() {
          const fibers = yield* Effect.scoped(Effect.gen(function*() {
            const locking = yield* kit.node(server.url(), { shutdownTimeout: "1 second", ttl: "1 minute" })
            const begun = yield* Deferred.make<void>()
            const holder = yield* Effect.forkDaemon(
              locking.withLock(Effect.zipRight(Deferred.succeed(begun, undefined), Effect.never), fault)
            )
            yield* Deferred.await(begun)
            const waiter = yield* Effect.forkDaemon(locking.withLock(Effect.void, fault, { waitTimeout: "1 minute" }))
            yield* Effect.sleep(50)
            yield* server[fault]
            return [holder, waiter] as const
          })).pipe(
            timed,
            Effect.map(([millis, fibers]) => {
              assert.isBelow(millis, 5_000)
              return fibers
            })
          )
          const [holder, waiter] = yield* Effect.forEach(fibers, (fiber) => Fiber.await(fiber))
          assert.strictEqual(codeOf(holder!), "LEASE_LOST")
          assert.strictEqual(codeOf(waiter!), "CLOSED")
          yield* server.thaw
          yield* server.start
        }))
    }))
})
