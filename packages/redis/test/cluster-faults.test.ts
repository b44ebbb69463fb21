/**
 * A cluster behind a bad network: replies that are lost, and commands that are executed when nobody waits for them any
 * more. The masters are the witnesses of what they hold.
 */
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Option, Schedule } from "effect"
import type { DriverError, Grant } from "effect-locking/LockDriver"
import * as Locking from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import type { Cluster } from "ioredis"
import { recordOf } from "../src/internal/records.js"
import * as scripts from "../src/internal/scripts.js"
import * as RedisLocking from "../src/RedisLocking.js"
import * as cluster from "./cluster.js"
import * as kit from "./kit.js"

class Masters extends Context.Tag("Masters")<Masters, {
  readonly servers: ReadonlyArray<RedisServer.RedisServer>
  /** One before each of them. */
  readonly proxies: ReadonlyArray<TcpProxy.TcpProxy>
}>() {
  static readonly live = Layer.scoped(
    Masters,
    Effect.gen(function*() {
      // a master that is frozen for seconds is not given up by the others
      const servers = yield* cluster.make({ replicas: false, nodeTimeout: 30_000 })
      for (const server of servers) {
        // so that each question is one execution
        for (const script of Object.values(scripts)) {
          if (typeof script === "object") yield* server.command("SCRIPT", "LOAD", script.source)
        }
      }
      return { servers, proxies: yield* Effect.forEach(servers, (server) => TcpProxy.make(server)) }
    }).pipe(Effect.orDie)
  )
}

const farClient = (major: kit.Major) =>
  Effect.flatMap(Masters, ({ proxies, servers }) =>
    cluster.client(proxies, major, {
      natMap: Object.fromEntries(
        servers.map(({ port }, i) => [`127.0.0.1:${port}`, { host: "127.0.0.1", port: proxies[i]!.port }])
      )
    }))

/** A process that reaches the masters by the proxies, and one that reaches them as they are. */
const drivers = (major: kit.Major) =>
  Effect.gen(function*() {
    const { proxies, servers } = yield* Masters
    yield* Effect.addFinalizer(() => Effect.forEach(proxies, ({ heal }) => heal))
    const open = (client: Cluster) => Effect.tap(RedisLocking.driver({ client }), ({ ready }) => ready)
    const [far, near] = [yield* open(yield* farClient(major)), yield* open(yield* cluster.client(servers, major))]
    // both are connected everywhere, and know what time it is there
    for (const i of servers.keys()) {
      const { key } = yield* at(i)
      for (const one of [far, near]) yield* one.release(yield* kit.take(kit.open(one, [key]), kit.token()))
    }
    return { far, near }
  })

/** The same, with the engine. */
const nodes = (major: kit.Major, options: LockingOptions) =>
  Effect.gen(function*() {
    const { far, near } = yield* drivers(major)
    return {
      far: yield* Locking.make(far, { namespace: "test", ...options }),
      near: yield* Locking.make(near, { namespace: "test", ...options })
    }
  })

/** A key nobody had before, at this master, and what can be seen and done there. */
const at = (i: number) =>
  Effect.gen(function*() {
    const { proxies, servers } = yield* Masters
    const [server, proxy] = [servers[i]!, proxies[i]!]
    const find = Effect.suspend(() => {
      const key = kit.key(kit.token())
      return Effect.map(
        server.command("CLUSTER", "KEYSLOT", recordOf("", key)),
        (slot) => Math.floor(slot / cluster.share) === i ? [key] : []
      )
    })
    const [key] = yield* Effect.repeat(find, { until: ({ length }) => length > 0 })
    const record = recordOf("", key!)
    return {
      key: key!,
      server,
      proxy,
      /** The next reply of this script for this key; ends when it is lost. */
      lose: (script: scripts.Script) =>
        proxy.dropNextReply({ request: (bytes) => bytes.includes(script.sha) && bytes.includes(record) }),
      /** Who holds it, by their tokens: until when, and the fence. */
      holders: Effect.map(server.command("HGETALL", record), (hash: ReadonlyArray<string>) =>
        Object.fromEntries(hash.flatMap((field, j) => {
          const [, until, fence] = hash[j + 1]?.split(" ") ?? []
          return j % 2 === 0 && field.startsWith("h") ? [[field.slice(1), { until: Number(until), fence }]] : []
        })))
    }
  })

/** How many scripts a master has run. */
const runs = (server: RedisServer.RedisServer) =>
  Effect.map(
    server.command("INFO", "commandstats"),
    (text: string) =>
      [...text.matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)].reduce((sum, [, calls]) => sum + Number(calls), 0)
  )

const isUnknown = <A>(effect: Effect.Effect<A, DriverError>) =>
  Effect.map(Effect.flip(effect), ({ executed }) => assert.strictEqual(executed, "unknown"))

/** Asks until that reply is lost: who asks several masters may have lost the connection to another, and stops there. */
const loses = <A>(effect: Effect.Effect<A, DriverError>, lost: Effect.Effect<void>): Effect.Effect<void> =>
  Effect.gen(function*() {
    const { executed } = yield* Effect.orDie(Effect.flip(effect))
    if (Option.isNone(yield* Effect.timeoutOption(lost, 1_000))) return yield* loses(effect, lost)
    assert.strictEqual(executed, "unknown")
  })

/** As the engine does, until there is an answer. */
const again = <A>(effect: Effect.Effect<A, DriverError>) =>
  Effect.retry(effect, { schedule: Schedule.spaced(20), times: 500 })

/** From now on what the process sends on its connections to this master waits at the proxy; new connections are good. */
const holdBack = (proxy: TcpProxy.TcpProxy) =>
  Effect.gen(function*() {
    const old = (yield* proxy.connections).length
    yield* proxy.pause({ who: ({ index }) => index < old, direction: "toServer" })
  })

const ttl = "1 minute"

layer(Masters.live, { excludeTestServices: true, timeout: 120_000 })("a cluster with a bad network", (it) => {
  for (const major of [5, 6] as const) {
    describe(`ioredis ${major}`, () => {
      it.scoped("B13 an acquire whose reply is lost has granted once, and its repetition finds that", () =>
        Effect.gen(function*() {
          const { far, near } = yield* drivers(major)
          const { holders, key, lose, server } = yield* at(1)
          const [contention, token] = [kit.open(far, [key], { ttl }), kit.token()]
          const before = yield* runs(server)
          const lost = yield* lose(scripts.acquire)
          yield* isUnknown(kit.attempt(contention, token))
          yield* lost
          assert.strictEqual(yield* runs(server), before + 1)
          const granted = yield* holders
          assert.hasAllKeys(granted, [token])
          yield* kit.isBusy(kit.open(near, [key]), kit.token())
          const grant = yield* again(kit.take(contention, token))
          assert.strictEqual(String(grant.fences[0]), granted[token]!.fence)
          assert.hasAllKeys(yield* holders, [token])
          assert.strictEqual(yield* far.release(grant), "released")
          assert.isEmpty(yield* holders)
        }))

      it.scoped("B13 of keys on several masters none is granted twice or left, whichever reply is lost", () =>
        Effect.gen(function*() {
          const { far, near } = yield* drivers(major)
          for (const i of [0, 1, 2]) {
            const places = yield* Effect.forEach([0, 1, 2], at)
            const keys = places.map(({ key }) => key)
            const [contention, token] = [kit.open(far, keys, { ttl }), kit.token()]
            yield* loses(kit.attempt(contention, token), yield* places[i]!.lose(scripts.acquire))
            // those before it went back, and those behind it were not asked for
            for (const [j, { holders }] of places.entries()) {
              assert.deepStrictEqual(Object.keys(yield* holders), i === j ? [token] : [])
            }
            const [kept] = Object.values(yield* places[i]!.holders)
            const grant = yield* again(kit.take(contention, token))
            assert.strictEqual(String(grant.fences[i]), kept!.fence)
            yield* kit.isBusy(kit.open(near, keys), kit.token())
            yield* loses(far.release(grant), yield* places[i]!.lose(scripts.release))
            for (const { holders } of places) assert.isEmpty(yield* holders)
            const next = yield* kit.take(kit.open(near, keys), kit.token())
            assert.strictEqual(yield* again(far.release(grant)), "gone")
            assert.deepStrictEqual(yield* near.renew([next]), [{ _tag: "Confirmed", contended: false }])
            yield* near.release(next)
          }
        }))

      it.scoped("a release whose reply is lost frees once, and its repetition takes nothing from the next", () =>
        Effect.gen(function*() {
          const { far, near } = yield* drivers(major)
          const { holders, key, lose, server } = yield* at(2)
          const grant = yield* kit.take(kit.open(far, [key], { ttl }), kit.token())
          const before = yield* runs(server)
          const lost = yield* lose(scripts.release)
          yield* isUnknown(far.release(grant))
          yield* lost
          assert.strictEqual(yield* runs(server), before + 1)
          assert.isEmpty(yield* holders)
          const next = yield* kit.take(kit.open(near, [key], { ttl }), kit.token())
          const held = yield* holders
          assert.strictEqual(yield* again(far.release(grant)), "gone")
          assert.deepStrictEqual(yield* holders, held)
          assert.strictEqual(yield* near.release(next), "released")
        }))

      it.scoped("a renewal whose reply is lost has extended once, and is not known of; those elsewhere are", () =>
        Effect.gen(function*() {
          const { far } = yield* drivers(major)
          const [here, there] = [yield* at(0), yield* at(1)]
          const grants = yield* Effect.forEach(
            [here, there],
            ({ key }) => kit.take(kit.open(far, [key], { ttl }), kit.token())
          )
          const [{ token }] = grants as [Grant]
          const granted = yield* here.holders
          const before = yield* runs(here.server)
          const lost = yield* here.lose(scripts.renew)
          assert.deepStrictEqual(yield* far.renew(grants), [{ _tag: "Unknown" }, {
            _tag: "Confirmed",
            contended: false
          }])
          yield* lost
          assert.strictEqual(yield* runs(here.server), before + 1)
          const renewed = yield* here.holders
          assert.isAbove(renewed[token]!.until, granted[token]!.until)
          assert.strictEqual(renewed[token]!.fence, granted[token]!.fence)
          yield* kit.eventually(Effect.map(far.renew(grants), (all) => all.every(({ _tag }) => _tag === "Confirmed")))
          yield* Effect.forEach(grants, far.release)
          for (const { holders } of [here, there]) assert.isEmpty(yield* holders)
        }))

      it.scoped("R6.4 an offer whose reply is lost keeps the key once, under one new fence", () =>
        Effect.gen(function*() {
          const { far, near } = yield* drivers(major)
          const { holders, key, lose, server } = yield* at(0)
          const grant = yield* kit.take(kit.open(far, [key], { ttl }), kit.token())
          const before = yield* runs(server)
          const lost = yield* lose(scripts.offer)
          yield* isUnknown(far.offer!(grant))
          yield* lost
          assert.strictEqual(yield* runs(server), before + 1)
          const kept = yield* holders
          assert.hasAllKeys(kept, [grant.token])
          assert.isTrue(BigInt(kept[grant.token]!.fence!) > grant.fences[0]!)
          yield* kit.isBusy(kit.open(near, [key]), kit.token())
          const answer = yield* again(far.offer!(grant))
          assert(typeof answer !== "string", "given up")
          assert.strictEqual(String(answer.fences[0]), kept[grant.token]!.fence)
          assert.deepStrictEqual(yield* holders, kept)
          assert.strictEqual(yield* far.release(answer), "released")
          assert.isEmpty(yield* holders)
        }))

      it.scoped("R6.4 an offer whose reply is lost gives up once where another process waits", () =>
        Effect.gen(function*() {
          const { far, near } = yield* drivers(major)
          const { holders, key, lose } = yield* at(1)
          const grant = yield* kit.take(kit.open(far, [key], { ttl }), kit.token())
          const [waiter, token] = [kit.open(near, [key], { ttl }), kit.token()]
          yield* again(waiter.arm(() => {}))
          yield* kit.isBusy(waiter, token)
          const lost = yield* lose(scripts.offer)
          yield* isUnknown(far.offer!(grant))
          yield* lost
          assert.isEmpty(yield* holders)
          const next = yield* kit.take(waiter, token)
          yield* waiter.withdraw
          const held = yield* holders
          assert.strictEqual(yield* again(far.offer!(grant)), "gone")
          assert.deepStrictEqual(yield* holders, held)
          assert.strictEqual(yield* near.release(next), "released")
        }))

      it.scoped("B13 an attempt that arrives when its caller has gone and given it back does nothing", () =>
        Effect.gen(function*() {
          const { far, near } = yield* drivers(major)
          const { holders, key, proxy, server } = yield* at(2)
          const token = kit.token()
          yield* holdBack(proxy)
          const before = yield* runs(server)
          const waiting = yield* Effect.fork(kit.attempt(kit.open(far, [key], { ttl }), token, "300 millis"))
          yield* Effect.sleep("500 millis")
          // by another way
          assert.strictEqual(yield* near.release({ keys: [key], token, mode: "exclusive" }), "gone")
          assert.strictEqual(yield* runs(server), before + 1)
          yield* proxy.heal
          const late = yield* Effect.flip(Fiber.join(waiting))
          assert.strictEqual(late.executed, "no")
          assert.strictEqual(yield* runs(server), before + 2)
          assert.isEmpty(yield* holders)
        }))

      it.scoped("B13 an attempt that a mute master executes when its caller has gone does nothing", () =>
        Effect.gen(function*() {
          const { far } = yield* drivers(major)
          const { holders, key, server } = yield* at(1)
          const before = yield* runs(server)
          yield* Effect.acquireRelease(server.freeze, () => server.thaw)
          const waiting = yield* Effect.fork(kit.attempt(kit.open(far, [key], { ttl }), kit.token(), "300 millis"))
          yield* Effect.sleep("500 millis")
          yield* server.thaw
          const late = yield* Effect.flip(Fiber.join(waiting))
          assert.strictEqual(late.executed, "no")
          assert.strictEqual(yield* runs(server), before + 1)
          assert.isEmpty(yield* holders)
        }))

      it.scoped("B13 B44 a master that is mute: the call ends in time, others go on, and nothing is granted later", () =>
        Effect.gen(function*() {
          const { far, near } = yield* nodes(major, { ttl })
          const [here, there] = [yield* at(0), yield* at(1)]
          const before = yield* runs(here.server)
          yield* Effect.acquireRelease(here.server.freeze, () => here.server.thaw)
          const exits = yield* Effect.all(
            [far, near].map((one) =>
              Effect.exit(one.withLock(Effect.die("entered"), here.key.key, { waitTimeout: "1 second" }))
            ),
            { concurrency: 2 }
          )
          for (const exit of exits) {
            assert(Exit.isFailure(exit) && exit.cause._tag === "Fail", "entered")
            assert.strictEqual(exit.cause.error.code, "OUTCOME_UNKNOWN")
          }
          for (const one of [far, near]) yield* one.withLock(Effect.void, there.key.key)
          yield* here.server.thaw
          // both attempts and both releases
          yield* kit.eventually(Effect.map(runs(here.server), (now) => now >= before + 4))
          assert.isEmpty(yield* here.holders)
          for (const one of [far, near]) yield* one.withLock(Effect.void, here.key.key, { waitTimeout: "10 seconds" })
        }))

      it.scoped("what is executed when others hold the keys by then touches nothing", () =>
        Effect.gen(function*() {
          const { far, near } = yield* drivers(major)
          const places = yield* Effect.forEach([1, 1, 1], at)
          const [{ proxy, server }] = places as [typeof places[number]]
          const grants = yield* Effect.forEach(
            places,
            ({ key }) => kit.take(kit.open(far, [key], { ttl }), kit.token())
          )
          const [renewed, released, offered] = grants as [Grant, Grant, Grant]
          yield* holdBack(proxy)
          const answers = yield* Effect.all(
            [
              Effect.map(far.renew([renewed]), ([answer]) => answer!._tag),
              Effect.map(Effect.flip(far.release(released)), ({ executed }) => executed),
              Effect.map(Effect.flip(far.offer!(offered)), ({ executed }) => executed)
            ],
            { concurrency: 3 }
          )
          assert.deepStrictEqual(answers, ["Unknown", "unknown", "unknown"])
          for (const grant of grants) assert.strictEqual(yield* again(far.release(grant)), "released")
          const others = yield* Effect.forEach(
            places,
            ({ key }) => kit.take(kit.open(near, [key], { ttl }), kit.token())
          )
          const held = yield* Effect.forEach(places, ({ holders }) => holders)
          const before = yield* runs(server)
          yield* proxy.heal
          yield* kit.eventually(Effect.map(runs(server), (now) => now >= before + 3))
          assert.deepStrictEqual(yield* Effect.forEach(places, ({ holders }) => holders), held)
          for (const other of others) assert.strictEqual(yield* near.release(other), "released")
        }))

      it.scoped(
        "B13 R6.4 any reply may be lost: one is inside at a time, everybody gets in, nothing is left",
        () =>
          Effect.gen(function*() {
            const { far, near } = yield* nodes(major, { ttl })
            const { proxies } = yield* Masters
            const places = yield* Effect.forEach([0, 1, 2], at)
            let [asked, lost] = [0, 0]
            const losing = yield* Effect.fork(Effect.forEach(
              proxies,
              (proxy) =>
                Effect.forever(Effect.gen(function*() {
                  yield* yield* proxy.dropNextReply({ request: (bytes) => /evalsha/i.test(bytes) && ++asked % 5 === 0 })
                  lost++
                })),
              { concurrency: 3 }
            ))
            yield* Effect.forEach(
              places,
              ({ key }) => {
                const section = kit.oneAtATime(1)
                return Effect.forEach(
                  [far, far, near, far, far, near],
                  (one) => Effect.repeatN(one.useLock(key.key, { waitTimeout: "50 seconds" }, section), 11),
                  { concurrency: "unbounded" }
                )
              },
              { concurrency: 3 }
            )
            yield* Fiber.interrupt(losing)
            assert.isAtLeast(lost, 10)
            for (const { holders } of places) {
              yield* kit.eventually(Effect.map(holders, (held) => Object.keys(held).length === 0))
            }
          }),
        60_000
      )
    })
  }
})
