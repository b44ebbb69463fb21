/**
 * Five independent servers, of which a majority grants.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Queue, type Scope } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import { recordOf } from "../src/internal/records.js"
import { release } from "../src/internal/scripts.js"
import * as RedisLocking from "../src/RedisLocking.js"
import * as kit from "./kit.js"

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>) => it.scopedLive(name, body, 120_000)

/** Servers with a proxy before each. */
const worldOf = (servers: ReadonlyArray<RedisServer.RedisServer>, longestTtl: Duration.Duration) =>
  Effect.gen(function*() {
    const proxies = yield* Effect.forEach(servers, ({ port }) => TcpProxy.make({ port }))
    const clients = Effect.forEach(proxies, ({ port }) => kit.client(`redis://127.0.0.1:${port}`))
    const open = Effect.flatMap(clients, (clients) => Effect.orDie(RedisLocking.driverQuorum({ clients, longestTtl })))
    const driver: Effect.Effect<LockDriver, never, Scope.Scope> = Effect.tap(open, (made) => Effect.orDie(made.ready))
    const node = (options: LockingOptions = {}) =>
      Effect.flatMap(driver, (made) => Locking.make(made, { namespace: "test", ...options }))
    return { servers, proxies, driver, node }
  })

/** Servers that are old enough to vote. */
const world = (count = 5, options: RedisServer.Options = {}) =>
  Effect.gen(function*() {
    const servers = yield* Effect.forEach(Array.from({ length: count }), () => Effect.orDie(RedisServer.make(options)))
    yield* Effect.sleep("2100 millis")
    return yield* worldOf(servers, Duration.seconds(1))
  })

/** Five servers whose clocks are 35 seconds apart; by those they have been there for a minute and longer. */
const skewed = Effect.gen(function*() {
  const servers = yield* Effect.forEach(
    Array.from({ length: 5 }),
    () => Effect.orDie(RedisServer.make({ movableClock: true }))
  )
  yield* Effect.forEach(servers, (server, i) => server.moveClock(60_000 + i * 8_750))
  return yield* worldOf(servers, Duration.seconds(5))
})

/**
 * Several processes take one key in turn, so many times each and for as long as they are disturbed. There is one inside
 * at a time, and fences rise in the order of grants.
 */
const contend = <E>(nodes: ReadonlyArray<Locking.Locking>, rounds: number, disturb: Effect.Effect<unknown, E>) =>
  Effect.gen(function*() {
    const section = kit.oneAtATime(1)
    const disturbance = yield* Effect.fork(disturb)
    yield* Effect.forEach(
      nodes,
      (locking) =>
        Effect.iterate(1, {
          while: (round) => round <= rounds || disturbance.unsafePoll() === null,
          body: (round) => Effect.as(locking.useLock("storm", { waitTimeout: "100 seconds" }, section), round + 1)
        }),
      { concurrency: "unbounded" }
    )
    yield* Fiber.join(disturbance)
  })

const record = (name: string) => recordOf("", kit.key(name))

const holdersAt = (server: RedisServer.RedisServer, name: string) =>
  Effect.map(
    server.command("HKEYS", record(name)),
    (fields: ReadonlyArray<string>) => fields.filter((field) => field.startsWith("h")).length
  )

describe("quorum", () => {
  it.effect("R5 an even number of servers, and fewer than three, are refused", () =>
    Effect.gen(function*() {
      for (const count of [0, 1, 2, 4]) {
        const clients = Array.from({ length: count }, () => ({}) as any)
        const error = yield* Effect.flip(Effect.scoped(RedisLocking.driverQuorum({ clients, longestTtl: -1 })))
        assert.deepStrictEqual(error.issues.map(({ path }) => path), ["longestTtl", "clients"])
      }
    }))

  it_(
    "R8.3 grants at all, keeps out, renews, gives back at all, and tells of a holder once",
    () =>
      Effect.gen(function*() {
        const { driver, servers } = yield* world(3)
        const [one, two] = [yield* driver, yield* driver]
        const keys = [kit.key("a"), kit.key("b")]
        const grant = yield* kit.take(kit.open(one, keys), kit.token())
        yield* kit.eventually(
          Effect.map(Effect.forEach(servers, (server) => holdersAt(server, "a")), (all) => all.join() === "1,1,1")
        )
        const busy = yield* kit.isBusy(kit.open(two, [keys[1]!]), kit.token())
        assert.strictEqual(busy.holder?.token, grant.token)
        assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Confirmed", contended: false }])
        const [holder, ...others] = yield* two.inspect(keys[0]!)
        assert.deepStrictEqual(others, [])
        assert.strictEqual(holder!.fence, grant.fences[0])
        assert.deepStrictEqual((yield* two.list("test")).map(({ key }) => key).toSorted(), ["a", "b"])
        assert.strictEqual(yield* one.release(grant), "released")
        assert.strictEqual(yield* one.release(grant), "gone")
        yield* kit.eventually(
          Effect.map(Effect.forEach(servers, (server) => holdersAt(server, "a")), (all) => all.join() === "0,0,0")
        )
        const next = yield* kit.take(kit.open(two, keys), kit.token())
        assert.isTrue(next.fences.every((fence, i) => fence >= grant.fences[i]! + 8n))
        assert.deepStrictEqual((yield* one.forceRelease(keys[0]!, { hard: false })).holders.map(({ token }) => token), [
          next.token
        ])
        assert.deepStrictEqual(yield* two.renew([next]), [{ _tag: "Lost", reason: "revoked" }])
        const codes = (yield* one.check!).map(({ code }) => code)
        assert.include(codes, "PERSISTENCE")
        assert.notInclude(codes, "CLOCK_OFFSET")
      })
  )

  it_("a minority that is down, mute or lost changes nothing", () =>
    Effect.gen(function*() {
      const { driver, servers } = yield* world()
      const [one, two] = [yield* driver, yield* driver]
      const keys = [kit.key("minority")]
      yield* servers[0]!.kill
      yield* servers[1]!.freeze
      const start = performance.now()
      const grant = yield* kit.take(kit.open(one, keys), kit.token())
      // not the time-out of the mute one
      assert.isBelow(performance.now() - start, 1_500)
      yield* kit.isBusy(kit.open(two, keys), kit.token())
      assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Confirmed", contended: false }])
      const woken = yield* Queue.unbounded<void>()
      const waiter = kit.open(two, keys)
      yield* waiter.arm(() => woken.unsafeOffer(undefined))
      yield* kit.isBusy(waiter, "waiter")
      assert.strictEqual(yield* one.release(grant), "woke")
      yield* Queue.take(woken)
      const next = yield* kit.take(waiter, "waiter")
      assert.isTrue(next.fences[0]! > grant.fences[0]!)
      // mute servers answer again, and give back what they are told to
      yield* servers[1]!.thaw
      yield* two.release(next)
      yield* kit.eventually(Effect.map(holdersAt(servers[1]!, "minority"), (count) => count === 0))
    }))

  it_("without a majority nobody is granted, and nothing is left behind", () =>
    Effect.gen(function*() {
      const { driver, servers } = yield* world()
      const one = yield* driver
      for (const server of servers.slice(0, 3)) yield* server.kill
      yield* kit.eventually(
        Effect.map(Effect.flip(one.inspect(kit.key("majority"))), (error) => error.executed === "no")
      )
      const error = yield* Effect.flip(kit.attempt(kit.open(one, [kit.key("majority")]), kit.token()))
      assert.include(error.message, "too few")
      for (const server of servers.slice(3)) {
        yield* kit.eventually(Effect.map(holdersAt(server, "majority"), (count) => count === 0))
      }
    }))

  it_(
    "R3.1 a server that was restarted empty takes no part until it can have forgotten nothing",
    () =>
      Effect.gen(function*() {
        const { driver, servers } = yield* world(3, { movableClock: true })
        // it tells its age in whole seconds of its clock: a moment after this it says that it is one second old
        const restartLate = (server: RedisServer.RedisServer) =>
          Effect.zipRight(Effect.suspend(() => server.moveClock(800 - Date.now() % 1_000)), server.start)
        const [one, two] = [yield* driver, yield* driver]
        // held by two of three: the third was down
        yield* servers[2]!.kill
        const start = performance.now()
        const grant = yield* kit.take(kit.open(one, [kit.key("young")], { ttl: 1_000 }), kit.token())
        yield* restartLate(servers[2]!)
        yield* servers[1]!.kill
        yield* restartLate(servers[1]!)
        const contention = kit.open(two, [kit.key("young")])
        yield* kit.eventually(Effect.as(two.ready, true))
        // two of three know nothing of the grant now, but are too young to say so until it has lapsed
        const isGranted = Effect.match(kit.attempt(contention, "thief", 200), {
          onFailure: () => false,
          onSuccess: (answer) => answer._tag === "Grant"
        })
        yield* kit.eventually(isGranted, 10_000)
        assert.isAtLeast(performance.now() - start, 1_000)
        const next = yield* kit.take(contention, "thief")
        assert.isTrue(next.fences[0]! > grant.fences[0]!)
      })
  )

  it_(
    "fences rise in the order of grants, whichever majorities grant and however they number",
    () =>
      Effect.gen(function*() {
        const { driver, servers } = yield* world()
        const drivers = [yield* driver, yield* driver]
        // as if clocks were half an hour apart: the numbers that servers have stored
        for (const [i, server] of servers.entries()) {
          yield* server.command("HSET", record("skewed"), "f", String(Date.now() * 1_000 + i * 360_000_000))
        }
        let last = 0n
        for (let i = 0; i < 25; i++) {
          const away = servers[i % 5]!
          yield* away.freeze
          const by = drivers[i % 2]!
          const grant = yield* kit.take(kit.open(by, [kit.key("skewed")]), kit.token())
          assert.isTrue(grant.fences[0]! >= last + 8n, `grant ${i}`)
          last = grant.fences[0]!
          yield* by.release(grant)
          yield* away.thaw
        }
      })
  )

  it_("R3.1 an answer of a lost round that comes late takes nothing from the next round", () =>
    Effect.gen(function*() {
      const { driver, proxies, servers } = yield* world()
      const one = yield* driver
      // two servers grant at once, one of them heard of late; three are taken, by nobody who has a majority
      yield* proxies[1]!.delay(300, { direction: "toClient" })
      const others = (command: string, ...values: ReadonlyArray<string>) =>
        Effect.forEach([2, 3, 4], (i) => servers[i]!.command(command, record("late"), `hother-${i}`, ...values))
      yield* others("HSET", `E ${Date.now() + 60_000} 1 1 0`)
      const contention = kit.open(one, [kit.key("late")])
      const token = kit.token()
      yield* kit.isBusy(contention, token)
      const attempts = yield* Effect.fork(
        Effect.repeat(kit.attempt(contention, token), { until: ({ _tag }) => _tag === "Grant" })
      )
      yield* others("HDEL")
      const answer = yield* Fiber.join(attempts)
      assert(answer._tag === "Grant")
      // by then all of them have been heard
      yield* Effect.sleep(500)
      assert.strictEqual(yield* holdersAt(servers[1]!, "late"), 1)
      assert.deepStrictEqual(yield* one.renew([answer]), [{ _tag: "Confirmed", contended: false }])
    }))

  it_(
    "R3.1 what is taken back of a lost round and read late takes nothing from the next round",
    () =>
      Effect.gen(function*() {
        const { driver, servers } = yield* world()
        const one = yield* driver
        const token = kit.token()
        const contention = kit.open(one, [kit.key("read late")])
        // a round that nobody wins, then one that is won
        const others = (command: string, ...values: ReadonlyArray<string>) =>
          Effect.forEach([2, 3, 4], (i) => servers[i]!.command(command, record("read late"), "hother", ...values))
        yield* others("HSET", `E ${Date.now() + 60_000} 1 1 0`)
        yield* kit.isBusy(contention, token)
        yield* others("HDEL")
        const grant = yield* kit.take(contention, token)
        // a command of the first round, as a server that was mute would read it from a connection that is long gone
        const late = (server: (typeof servers)[number], round: string) =>
          server.command("EVAL", release.source, "1", record("read late"), token, round)
        for (const server of servers) assert.strictEqual(yield* late(server, "1"), "gone")
        assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Confirmed", contended: false }])
        for (const server of servers) assert.strictEqual(yield* late(server, "2"), "released")
      })
  )

  it_(
    "H1 contenders with connections that die: one inside at a time, fences rise, everybody is served",
    () =>
      Effect.gen(function*() {
        const { node, proxies } = yield* world()
        const nodes = yield* Effect.forEach([1, 2, 3], () => node({ ttl: "5 seconds" }))
        const storm = Effect.forEach(proxies, (proxy) => Effect.zipRight(proxy.cut(), Effect.sleep(250)))
        yield* contend(nodes, 8, storm)
      })
  )

  for (
    const [what, disturb] of [
      ["", () => Effect.void],
      [" and one server is down", ({ servers }) => servers[4]!.kill],
      [" and one server is slow", ({ proxies }) => proxies[4]!.delay(400)],
      [" and one server is mute", ({ servers }) => servers[4]!.freeze],
      [
        " and one server after the other is restarted empty",
        ({ servers }) =>
          Effect.forEach([0, 4], (i) =>
            // until it may vote again
            Effect.zipRight(Effect.zipRight(servers[i]!.kill, servers[i]!.start), Effect.sleep("6500 millis")))
      ]
    ] satisfies ReadonlyArray<
      readonly [string, (world: Effect.Effect.Success<typeof skewed>) => Effect.Effect<unknown, unknown>]
    >
  ) {
    it_(
      `H1 R3.1 clocks are 35 seconds apart${what}: one inside at a time, fences rise, everybody is served`,
      () =>
        Effect.gen(function*() {
          const apart = yield* skewed
          const nodes = yield* Effect.forEach([1, 2, 3], () => apart.node({ ttl: "5 seconds" }))
          // all have been there before it begins
          yield* Effect.forEach(nodes, (locking) => locking.withLock(Effect.void, "storm"))
          yield* contend(nodes, 10, disturb(apart))
          const { check } = yield* apart.driver
          assert.include((yield* check!).map(({ code }) => code), "CLOCK_OFFSET")
        })
    )
  }
})
