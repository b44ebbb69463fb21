/**
 * What production does to locks, through the engine, with a bad network between it and a real server. Redis is the
 * witness of what it holds.
 */
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Metric, MetricState, Option, type Scope, Stream } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import type { LockEvent } from "effect-locking/LockEvent"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import { inspect } from "node:util"
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

/** Monotonic milliseconds. */
const clock = Effect.sync(() => performance.now())

/** A listener of the process waits for it at the server. */
const isListenedTo = (server: RedisServer.RedisServer, name: string) =>
  Effect.map(server.command("PUBSUB", "NUMSUB", record(name)), ([, count]) => count === 1)

/** Those who wait for it, as the server has them. */
const places = (server: RedisServer.RedisServer, name: string) =>
  Effect.map(
    server.command("HKEYS", record(name)),
    (fields: ReadonlyArray<string>) => fields.filter((field) => field.startsWith("w")).length
  )

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
      const { near, proxy, server } = yield* world({ ttl: "30 seconds" })
      // neither a poll nor a look of the driver's hides it
      const far = yield* kit.listening(server.url(proxy.port), { ttl: "30 seconds", pollInterval: "1 minute" })
      // before the server knows of it, and before we know that it does
      for (const direction of ["toServer", "toClient"] as const) {
        const { end, fiber } = yield* kit.hold(near, direction)
        yield* proxy.delay(500, { who: wakeups, direction })
        const waiter = yield* Effect.fork(timed(far.withLock(Effect.void, direction, { waitTimeout: "20 seconds" })))
        yield* kit.eventually(
          Effect.map(proxy.connections, (all) => all.some((one) => wakeups(one) && one.said.includes(direction)))
        )
        yield* end
        yield* Fiber.join(fiber)
        const [millis] = yield* Fiber.join(waiter)
        assert.isAtLeast(millis, 400)
        assert.isBelow(millis, 1_500)
        yield* proxy.heal
      }
    }))

  it_(
    "B22 R6.2 the channel dies: the waiters' poll serves them, one warning, and push is back with the channel",
    () =>
      Effect.gen(function*() {
        const { near, proxy, server } = yield* world({ ttl: "30 seconds" })
        const pollInterval = 4_000
        const { layer, withCode } = kit.captured()
        const far = yield* Effect.provide(
          kit.listening(server.url(proxy.port), { ttl: "30 seconds", pollInterval }),
          layer
        )
        const held = yield* kit.hold(near, "channel")
        const waiters = yield* Effect.forEach(
          [1, 2, 3],
          () => Effect.fork(far.withLock(clock, "channel", { waitTimeout: "20 seconds" }))
        )
        yield* kit.eventually(Effect.map(places(server, "channel"), (count) => count === 1))
        // and does not come back
        yield* proxy.blackHole({ who: wakeups })
        yield* proxy.cut(wakeups)
        yield* kit.eventually(Effect.map(isListenedTo(server, "channel"), (isListened) => !isListened))
        const left = yield* clock
        yield* held.end
        yield* Fiber.join(held.fiber)
        const [first] = yield* Effect.forEach(waiters, (waiter) => Fiber.join(waiter))
        assert.isBelow(first! - left, 1.25 * pollInterval + 1_000)
        assert.lengthOf(withCode("REDIS_CHANNEL_LOST"), 1)
        assert.lengthOf(withCode("REDIS_CHANNEL_RESTORED"), 0)
        yield* proxy.heal
        yield* kit.eventually(Effect.sync(() => withCode("REDIS_CHANNEL_RESTORED").length === 1))
        const again = yield* kit.hold(near, "channel")
        const waiter = yield* Effect.fork(far.withLock(clock, "channel", { waitTimeout: "20 seconds" }))
        yield* kit.eventually(Effect.map(places(server, "channel"), (count) => count === 1))
        const freed = yield* clock
        yield* again.end
        // long before a poll
        assert.isBelow((yield* Fiber.join(waiter)) - freed, 1_500)
        assert.lengthOf(withCode("REDIS_CHANNEL_LOST"), 1)
      })
  )

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
      assert.isBelow(millis, 1_500)
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
      assert.isBelow(millis, 1_500)
      yield* Effect.sleep("500 millis")
      yield* server.thaw
      yield* near.withLock(Effect.void, "warm", { waitTimeout: "10 seconds" })
      assert.isTrue(yield* isFree(server, "mute"))
    }))

  it_(
    "B44 a wait ends in time while every connection is good until it is used, and nothing stays granted",
    () =>
      Effect.gen(function*() {
        const { far, proxy, server } = yield* world({ ttl: "1 minute" })
        yield* far.withLock(Effect.void, "warm")
        let lost = 0
        const request = (bytes: string) => bytes.includes("quick")
        const storm = yield* Effect.fork(Effect.forever(
          Effect.tap(Effect.flatten(proxy.dropNextReply({ who: scripts, request })), () => Effect.sync(() => lost++))
        ))
        const [millis, exit] = yield* timed(
          Effect.exit(far.withLock(Effect.void, "quick", { waitTimeout: "1 second" }))
        )
        assert.strictEqual(codeOf(exit), "OUTCOME_UNKNOWN")
        assert.isBelow(millis, 1_500)
        // it came back, and was asked again
        assert.isAtLeast(lost, 3)
        yield* Fiber.interrupt(storm)
        yield* proxy.heal
        yield* kit.eventually(isFree(server, "quick"))
      })
  )

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

  /** Five processes, of which ten callers each wait for a key that somebody else holds. */
  const crowd = (key: string, nodes: ReadonlyArray<Locking.Locking>, server: RedisServer.RedisServer) =>
    Effect.gen(function*() {
      const holder = yield* kit.hold(yield* kit.node(server.url(), { ttl: "1 minute" }), key)
      const waiters = yield* Effect.forEach(nodes, (locking) =>
        Effect.replicateEffect(
          Effect.fork(locking.withLock(Effect.sleep(20), key, { waitTimeout: "50 seconds" })),
          10
        ))
      yield* kit.eventually(Effect.map(places(server, key), (count) => count === nodes.length))
      return {
        served: Effect.zipRight(holder.end, Effect.forEach(waiters.flat(), (waiter) => Fiber.join(waiter)))
      }
    })

  it_(
    "B28 R6.3 fifty waiters in five processes: what waiting and hand-overs cost the server",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const nodes = yield* Effect.replicateEffect(kit.node(server.url(), { ttl: "30 seconds" }), 5)
        const { served } = yield* crowd("hand-overs", nodes, server)
        const [since, before] = [yield* clock, yield* kit.commands(server)]
        yield* Effect.sleep("2 seconds")
        const idle = (yield* kit.commands(server)) - before
        // each of the five polls every 250 ms ± 25 %; and what keeps connections alive
        assert.isBelow(idle, 5 * ((yield* clock) - since) / 187 + 20)
        const start = yield* kit.commands(server)
        yield* served
        const each = ((yield* kit.commands(server)) - start) / 50
        assert.isBelow(each, 6, "commands for each grant, and not for each waiter")
      })
  )

  /** Tells when it asks for a grant. */
  const watched = (driver: LockDriver, asks: Array<number>): LockDriver => ({
    ...driver,
    contend: (request) => {
      const contention = driver.contend(request)
      return {
        attempt: (options) => {
          asks.push(performance.now())
          return contention.attempt(options)
        },
        arm: (wake) => contention.arm(wake),
        get withdraw() {
          return contention.withdraw
        }
      }
    }
  })

  it_(
    "B28 fifty waiters of a server that refuses do not hammer it, nor come together, and go on after it",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const asks = Array.from({ length: 5 }, (): Array<number> => [])
        const nodes = yield* Effect.forEach(asks, (own) =>
          Effect.flatMap(
            kit.driver(server.url()),
            (driver) => Locking.make(watched(driver, own), { namespace: "test", ttl: "30 seconds" })
          ))
        const { served } = yield* crowd("read-only", nodes, server)
        const stats = Effect.map(
          Effect.zip(server.command("INFO", "commandstats"), server.command("INFO", "stats")),
          ([commands, stats]: [string, string]) => ({
            scripts: Number(/cmdstat_evalsha:calls=(\d+)/.exec(commands)?.[1]),
            connections: Number(/total_connections_received:(\d+)/.exec(stats)?.[1])
          })
        )
        // a replica of nobody
        yield* server.command("REPLICAOF", "127.0.0.1", 1)
        const [since, before] = [yield* clock, yield* stats]
        yield* Effect.sleep("6 seconds")
        const after = yield* stats
        const seconds = ((yield* clock) - since) / 1_000
        // each of the five: an attempt a second or so, with a new connection and the server's time, and signs of life
        assert.isBelow(after.scripts - before.scripts, 5 * 8 * seconds)
        assert.isBelow(after.connections - before.connections, 5 * 4 * seconds)
        // when the pauses do not grow any more, they are of half a second to a whole one
        const grown = asks.flatMap((own) => {
          const during = own.filter((at) => at > since)
          return during.slice(5).map((at, i) => at - during[i + 4]!)
        })
        assert.isAtLeast(grown.length, 10)
        assert.isBelow(Math.min(...grown), 700)
        assert.isAbove(Math.max(...grown), 800)
        yield* server.command("REPLICAOF", "NO", "ONE")
        yield* served
      })
  )
})

describe("leases", () => {
  it_("B76 what has lapsed is swept, and nothing else of any kind, however many sweep", () =>
    Effect.gen(function*() {
      const { far, near, server } = yield* world({ ttl: "4 seconds" })
      const other = yield* kit.node(server.url(), { ttl: "4 seconds", namespace: "other" })
      const driver = yield* kit.driver(server.url())
      const shared = { mode: "shared" } as const
      const limited = (count: number, ttl: number) =>
        kit.open(driver, [kit.key("permits")], { permits: { count, limit: 40 }, ttl })
      // readers of two namespaces and a writer that renew
      const live = yield* Effect.forEach([far, near, far, near, other, other], (locking) =>
        Effect.fork(locking.withLock(Effect.sleep("9 seconds"), "swept", shared)))
      const plain = yield* Effect.fork(near.withLock(Effect.sleep("9 seconds"), "plain"))
      // permits, and somebody who waits for more than there are
      const permits = yield* Effect.replicateEffect(
        Effect.suspend(() =>
          kit.take(limited(1, 5_000), kit.token())
        ),
        4
      )
      const waiter = limited(38, 5_000)
      yield* waiter.arm(() => {})
      const renewals = yield* Effect.fork(Effect.forever(Effect.delay(
        Effect.tap(driver.renew(permits), (answers) => {
          assert.isTrue(answers.every(({ _tag }) => _tag === "Confirmed"))
          return kit.isBusy(waiter, "waiter")
        }),
        400
      )))
      // and some of each that have died
      yield* Effect.replicateEffect(
        Effect.suspend(() =>
          Effect.all([
            kit.take(kit.open(driver, [kit.key("swept")], { ...shared, ttl: 1_000 }), kit.token()),
            kit.take(kit.open(driver, [kit.key("swept", "other")], { ...shared, ttl: 1_000 }), kit.token()),
            kit.take(limited(1, 1_000), kit.token())
          ])
        ),
        10
      )
      // each grant sweeps; processes of their own, as others would join what their process holds
      const sweeping = yield* Effect.forEach([200, 60_000, 700], (ttl) =>
        Effect.gen(function*() {
          const ours = yield* kit.node(server.url(), { ttl })
          const theirs = yield* kit.node(server.url(), { ttl, namespace: "other" })
          return Effect.all([
            // so short a lease may end on a busy machine
            Effect.ignore(ours.withLock(Effect.void, "swept", shared)),
            Effect.ignore(theirs.withLock(Effect.void, "swept", shared)),
            Effect.flatMap(kit.take(limited(1, ttl), kit.token()), driver.release),
            Effect.map(ours.withLockIfAvailable(Effect.die("entered"), "plain"), Option.isNone)
          ])
        }))
      const sweepers = yield* Effect.fork(
        Effect.forEach(sweeping, (sweep) => Effect.forever(Effect.delay(sweep, 100)), { concurrency: "unbounded" })
      )
      const count = (key: string, kind: string) =>
        Effect.map(
          server.command("HKEYS", key),
          (fields: ReadonlyArray<string>) => fields.filter((field) => field.startsWith(kind)).length
        )
      const [permitted] = (yield* server.command("KEYS", "*permits*")) as ReadonlyArray<string>
      for (const [key, most] of [[record("swept"), 7], [recordOf("", kit.key("swept", "other")), 5], [permitted!, 7]]) {
        yield* kit.eventually(Effect.map(count(String(key), "h"), (found) => found <= Number(most)))
      }
      for (const fiber of [...live, plain]) yield* Fiber.join(fiber)
      // a failure of theirs would be that of the test
      assert.isNull(yield* Effect.map(Fiber.poll(renewals), Option.getOrNull))
      assert.isNull(yield* Effect.map(Fiber.poll(sweepers), Option.getOrNull))
      assert.strictEqual(yield* count(permitted!, "w"), 1)
      yield* Fiber.interrupt(sweepers)
      yield* Fiber.interrupt(renewals)
      assert.isTrue((yield* driver.renew(permits)).every(({ _tag }) => _tag === "Confirmed"))
      yield* kit.eventually(isFree(server, "swept"))
      // the fences stay
      for (const key of [record("swept"), record("plain"), permitted!]) {
        assert.strictEqual(yield* server.command("HEXISTS", key, "f"), 1)
      }
    }))

  it_(
    "B68 R10.1 R10.2 the server is away and comes back, and goes for good: told once, counted and logged, without secrets",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const proxy = yield* TcpProxy.make({ port: server.port })
        const log = kit.captured()
        const options = { ttl: "6 seconds", attemptTimeout: 300, backend: "away", session: "patient" } as const
        const far = yield* Effect.provide(kit.node(server.url(proxy.port), options), log.layer)
        const seen: Array<LockEvent> = []
        yield* Effect.forkScoped(Stream.runForEach(yield* far.events, (event) => Effect.sync(() => seen.push(event))))
        const events = (tag: LockEvent["_tag"]) => seen.filter(({ _tag }) => _tag === tag)
        const measured = (name: string, label = "away") =>
          Effect.map(Metric.snapshot, (metrics) => {
            const found = metrics.find(({ metricKey }) =>
              metricKey.name === `effect_locking_${name}` &&
              metricKey.tags.some(({ value }) => value === "away") && metricKey.tags.some(({ value }) =>
                value === label
              )
            )
            const state = found?.metricState
            return MetricState.isCounterState(state)
              ? state.count
              : MetricState.isGaugeState(state)
              ? state.value
              : undefined
          })
        const holder = yield* kit.hold(far, "secret-key")
        const waiting = Effect.fork(far.withLock(Effect.void, "secret-key", { waitTimeout: "50 seconds" }))
        const first = yield* waiting
        yield* kit.eventually(Effect.map(measured("waiters"), (waiters) => waiters === 1))
        const since = Number(yield* measured("oldest_wait_start_time_seconds"))
        assert.approximately(since, Date.now() / 1000, 20)

        yield* proxy.pause({ who: scripts })
        yield* kit.eventually(Effect.map(measured("renewals_total", "unknown"), (failed) => failed! >= 2))
        const second = yield* waiting
        yield* kit.eventually(Effect.map(measured("waiters"), (waiters) => waiters === 2))
        assert.strictEqual(yield* measured("leases"), 1)
        // that of the first one
        assert.approximately(Number(yield* measured("oldest_wait_start_time_seconds")), since, 0.1)
        yield* proxy.heal
        yield* kit.eventually(Effect.sync(() => events("Recovered").length > 0))
        assert.deepStrictEqual([events("RenewalFailed").length, events("Recovered").length, events("Lost").length], [
          1,
          1,
          0
        ])
        assert.deepStrictEqual(log.withCode("RENEWAL_FAILED").map(({ session }) => session), ["patient"])
        assert.deepStrictEqual(log.withCode("RENEWAL_RECOVERED").map(({ session }) => session), ["patient"])

        yield* proxy.pause({ who: scripts })
        assert.strictEqual(codeOf(yield* Fiber.await(holder.fiber)), "LEASE_LOST")
        assert.strictEqual(yield* measured("leases"), 0)
        assert.strictEqual(yield* measured("leases_lost_total", "unconfirmed"), 1)
        yield* kit.eventually(Effect.sync(() => events("Lost").length > 0))
        const [lost] = events("Lost")
        assert(lost?._tag === "Lost")
        assert.deepStrictEqual(
          log.withCode("LEASE_LOST").map(({ lock, reason, session }) => ({ lock, reason, session })),
          [{ lock: lost.keyHash, reason: "unconfirmed", session: "patient" }]
        )
        assert.notInclude(inspect([log.lines, seen], { depth: 9 }), "secret")
        yield* Fiber.interruptAll([first, second])
      })
  )

  it_(
    "B33 500 releases meet renewals that are on the wire: nothing is renewed afterwards, nothing is lost",
    () =>
      Effect.gen(function*() {
        const log = kit.captured()
        const { far, proxy, server } = yield* Effect.provide(
          world({ ttl: "3 seconds", attemptTimeout: "2 seconds" }),
          log.layer
        )
        yield* proxy.delay(200, { who: scripts })
        const asked = Effect.map(
          server.command("INFO", "commandstats"),
          (text: string) => Number(/cmdstat_evalsha:calls=(\d+)/.exec(text)?.[1])
        )
        // renewals leave a second after the request for the grant, whose answer takes 400 ms, as theirs does
        yield* Effect.forEach(
          Array.from({ length: 500 }, (_, i) => i),
          (i) => far.withLock(Effect.sleep(600 + (37 * i) % 400), `crossing/${i}`, { waitTimeout: "20 seconds" }),
          { concurrency: 80 }
        )
        // what was on its way has arrived
        yield* Effect.sleep("1 second")
        const before = yield* asked
        // of each key, the fence is left
        const left = server.command(
          "EVAL",
          "local n=0 for _,k in ipairs(redis.call('KEYS',ARGV[1])) do n=n+redis.call('HLEN',k)-1 end return n",
          0,
          "*crossing*"
        )
        assert.strictEqual(yield* left, 0)
        yield* Effect.sleep("1500 millis")
        assert.strictEqual(yield* left, 0)
        assert.strictEqual(yield* asked, before)
        assert.deepStrictEqual(log.withCode("LEASE_LOST"), [])
      })
  )

  it_(
    "B42 R2.5 the lease counts from the start of the attempt that was granted: not from that of the wait",
    () =>
      Effect.gen(function*() {
        const { far, near, server } = yield* world({ ttl: "2 seconds" })
        const { end, fiber } = yield* kit.hold(near, "counted")
        const waiter = yield* Effect.fork(
          far.useLock("counted", { waitTimeout: "20 seconds" }, (lease) => Effect.zip(lease.remaining, left(server)))
        )
        // longer than the ttl
        yield* Effect.sleep("3 seconds")
        yield* end
        yield* Fiber.join(fiber)
        const [remaining, atServer] = yield* Fiber.join(waiter)
        assert.isAbove(Duration.toMillis(remaining), 1_000)
        assert.isAtMost(Duration.toMillis(remaining), 2_000)
        assert.isAbove(atServer, 1_000)
      })
  )

  /** What is left of it by the server's clock. */
  const left = (server: RedisServer.RedisServer) =>
    Effect.gen(function*() {
      const [name] = yield* holders(server, "counted")
      const value: string = yield* server.command("HGET", record("counted"), name!)
      const [seconds, micros] = yield* server.command("TIME")
      return Number(value.split(" ")[1]) - (Number(seconds) * 1_000 + Number(micros) / 1_000)
    })

  it_(
    "B42 R2.5 nor does it count from the late answer: it ends here before it ends at the server",
    () =>
      Effect.gen(function*() {
        const { far, proxy, server } = yield* world({ ttl: "2 seconds", attemptTimeout: "1500 millis" })
        yield* proxy.delay(700, { who: scripts, direction: "toClient" })
        const [atServer, remaining] = yield* far.useLock(
          "counted",
          { autoRenew: false },
          // the server first: what is left here is less, however long it takes to ask
          (lease) => Effect.zip(left(server), lease.remaining)
        )
        assert.isBelow(Duration.toMillis(remaining), 1_300)
        assert.isAbove(Duration.toMillis(remaining), 0)
        assert.isAtMost(Duration.toMillis(remaining), atServer)
      })
  )

  it_("B42 a grant that is used up when it arrives is given back, and asked for anew", () =>
    Effect.gen(function*() {
      const { far, near, proxy, server } = yield* world({ ttl: "500 millis", attemptTimeout: "2 seconds" })
      yield* proxy.delay(700, { who: scripts, direction: "toClient" })
      const waiter = yield* Effect.fork(
        far.useLock("counted", { waitTimeout: "20 seconds" }, (lease) => lease.remaining)
      )
      // granted again and again, and entered by nobody
      yield* Effect.sleep("2 seconds")
      assert.isNull(yield* Fiber.poll(waiter).pipe(Effect.map(Option.getOrNull)))
      yield* proxy.heal
      const remaining = yield* Fiber.join(waiter)
      assert.isAbove(Duration.toMillis(remaining), 0)
      yield* kit.eventually(isFree(server, "counted"))
      yield* near.withLock(Effect.void, "counted")
    }))

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
      assert.deepStrictEqual(yield* near.list(), [])
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
