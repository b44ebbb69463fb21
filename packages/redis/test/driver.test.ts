/**
 * The driver by itself, with Redis as the witness.
 */
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Duration, Effect, Exit, Fiber, Layer, Queue } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import * as fs from "node:fs"
import * as path from "node:path"
import { recordOf } from "../src/internal/records.js"
import * as kit from "./kit.js"

class Redis extends Context.Tag("Redis")<Redis, {
  readonly server: RedisServer.RedisServer
  readonly one: LockDriver
  readonly two: LockDriver
}>() {}

const live = (major: kit.Major) =>
  Layer.scoped(
    Redis,
    Effect.gen(function*() {
      const server = yield* kit.server
      return {
        server,
        one: yield* kit.listener(server.url(), { major }),
        two: yield* kit.listener(server.url(), { major })
      }
    })
  )

const record = (name: string) => recordOf("", kit.key(name))

const evalsha = /cmdstat_evalsha:calls=(\d+)/

/** Scripts that the server has run. */
const scripts = (server: RedisServer.RedisServer) =>
  Effect.map(server.command("INFO", "commandstats"), (text: string) => Number(evalsha.exec(text)?.[1] ?? 0))

for (const major of [5, 6] as const) {
  layer(live(major), { excludeTestServices: true })(`ioredis ${major}`, (it) => {
    it.effect("R8.3 says what it can do", () =>
      Effect.gen(function*() {
        const { one } = yield* Redis
        assert.strictEqual(one.name, "redis")
        assert.deepStrictEqual(one.capabilities, {
          modes: ["exclusive", "shared"],
          fair: true,
          permits: true,
          push: true,
          expiry: "server",
          remote: true,
          ttl: { default: Duration.seconds(15), min: Duration.millis(100), infinite: false }
        })
      }))

    describe("grants", () => {
      it.effect("R3.1 every key of a grant has a block of fences, above all before it", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          let last = [0n, 0n]
          for (const driver of [one, two, one, two]) {
            const contention = kit.open(driver, [kit.key("fence/a"), kit.key("fence/b")])
            const grant = yield* kit.take(contention, kit.token())
            assert.strictEqual(grant.block, 8)
            assert.lengthOf(grant.fences, 2)
            grant.fences.forEach((fence, i) => assert.isAtLeast(Number(fence - last[i]!), 8))
            last = [...grant.fences]
            yield* driver.release(grant)
          }
        }))

      it.effect("R3.1 fences rise over a record that is gone, a flush and a clock part that is behind", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          const contention = kit.open(one, [kit.key("hybrid")])
          const first = yield* kit.take(contention, kit.token())
          yield* server.command("DEL", record("hybrid"))
          const second = yield* kit.take(contention, kit.token())
          assert.isTrue(second.fences[0]! > first.fences[0]!)
          yield* server.command("FLUSHALL")
          const third = yield* kit.take(contention, kit.token())
          assert.isTrue(third.fences[0]! > second.fences[0]!)
          yield* one.release(third)
          // a clock that was an hour ahead when it granted
          const ahead = third.fences[0]! + 3_600_000_000n
          yield* server.command("HSET", record("hybrid"), "f", String(ahead))
          const fourth = yield* kit.take(contention, kit.token())
          assert.strictEqual(fourth.fences[0], ahead + 1n)
          yield* one.release(fourth)
        }))

      it.effect("R1.7 a repeated attempt extends its own grant and answers the same fences", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          const token = kit.token()
          const contention = kit.open(one, [kit.key("again")], { ttl: 10_000 })
          const first = yield* kit.take(contention, token)
          const [before] = yield* one.inspect(kit.key("again"))
          yield* Effect.sleep(20)
          const second = yield* kit.take(contention, token)
          const [after] = yield* one.inspect(kit.key("again"))
          assert.deepStrictEqual(second.fences, first.fences)
          assert.strictEqual(after!.since, before!.since)
          assert.isAtLeast(after!.until!, before!.until! + 20)
          assert.isAbove(yield* server.command("PTTL", record("again")), 3_600_000 + 9_000)
          assert.strictEqual(yield* one.release(second), "released")
        }))

      it.effect("B13 an attempt whose caller has gone does nothing", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const late = yield* Effect.flip(kit.attempt(kit.open(one, [kit.key("late")]), kit.token(), 0))
          assert.strictEqual(late.executed, "no")
          assert.strictEqual(yield* server.command("EXISTS", record("late")), 0)
          // the server is stopped while the command is on its way
          yield* server.freeze
          const fiber = yield* Effect.fork(kit.attempt(kit.open(two, [kit.key("late")]), kit.token(), 100))
          yield* Effect.sleep(300)
          yield* server.thaw
          const error = yield* Effect.flip(Fiber.join(fiber))
          assert.strictEqual(error.executed, "no")
          assert.strictEqual(yield* server.command("EXISTS", record("late")), 0)
        }))

      it.effect("R7.2 an attempt that is interrupted leaves the connection as it was", () =>
        Effect.gen(function*() {
          const { one } = yield* Redis
          const claims: Array<string> = []
          for (let i = 0; i < 20; i++) {
            const token = kit.token()
            claims.push(token)
            const fiber = yield* Effect.fork(kit.attempt(kit.open(one, [kit.key(`interrupted/${i}`)]), token))
            if (i % 2 === 0) yield* Effect.yieldNow()
            yield* Fiber.interrupt(fiber)
          }
          for (let i = 0; i < 20; i++) {
            const keys = [kit.key(`interrupted/${i}`)]
            yield* one.release({ token: claims[i]!, keys, mode: "exclusive" })
            yield* one.release(yield* kit.take(kit.open(one, keys), kit.token()))
          }
        }))

      it.effect("R1.8 a grant ends by the server's clock, and tells when", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          yield* kit.take(kit.open(one, [kit.key("short")], { ttl: 150 }), kit.token())
          const contention = kit.open(two, [kit.key("short")])
          const busy = yield* kit.isBusy(contention, "next")
          assert.isAtMost(Duration.toMillis(busy.endsIn!), 150)
          yield* Effect.sleep(Duration.toMillis(busy.endsIn!) + 2)
          yield* kit.take(contention, "next")
        }))

      it.scoped("R6.5 the record goes with the retention of its fence", () =>
        Effect.gen(function*() {
          const { server } = yield* Redis
          const brief = yield* kit.driver(server.url(), { major, retention: 0 })
          const grant = yield* kit.take(kit.open(brief, [kit.key("brief")], { ttl: 100 }), kit.token())
          assert.isAtMost(yield* server.command("PTTL", record("brief")), 100)
          yield* brief.release(grant)
          yield* kit.eventually(Effect.map(server.command("EXISTS", record("brief")), (exists) => exists === 0))
        }))

      it.effect("R6.5 what has lapsed is swept by the next grant", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          const shared = kit.open(one, [kit.key("swept")], { mode: "shared", ttl: 100 })
          for (let i = 0; i < 5; i++) yield* kit.take(shared, kit.token())
          yield* Effect.sleep(120)
          const grant = yield* kit.take(shared, kit.token())
          const fields: ReadonlyArray<string> = yield* server.command("HKEYS", record("swept"))
          assert.sameMembers([...fields], ["f", `h${grant.token}`, `m${grant.token}`])
        }))

      it.effect("R1.6 a writer that waits stops the readers that come after it, for as long as it waits", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          const keys = [kit.key("intent")]
          const reader = yield* kit.take(kit.open(one, keys, { mode: "shared" }), kit.token())
          const early = kit.open(two, keys, { mode: "shared" })
          yield* early.arm(() => {})
          const writer = kit.open(two, keys)
          yield* writer.arm(() => {})
          yield* kit.isBusy(writer, "writer")
          const late = kit.open(one, keys, { mode: "shared" })
          const busy = yield* kit.isBusy(late, "late")
          assert.strictEqual(busy.holder?.token, reader.token)
          yield* one.release(reader)
          const again = yield* kit.isBusy(late, "late")
          assert.strictEqual(again.holder, undefined)
          yield* writer.withdraw
          yield* kit.take(late, "late")
          yield* one.release({ token: "late", keys, mode: "shared" })
        }))
    })

    describe("records", () => {
      const vector: Readonly<Record<string, string>> = JSON.parse(
        fs.readFileSync(path.join(import.meta.dirname, "vectors", "fields.json"), "utf8")
      )
      const fieldsOf = (server: RedisServer.RedisServer) =>
        Effect.map(
          server.command("HGETALL", record("fields")),
          (flat: ReadonlyArray<string>) =>
            Object.fromEntries(flat.flatMap((field, i) => i % 2 === 0 ? [[field, flat[i + 1]!]] : []))
        )

      it.effect("R4.5 B70 a holder, a waiter and one who was deposed are written as from the first release on", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const keys = [kit.key("fields")]
          const deposed = yield* kit.take(kit.open(one, keys), "deposed")
          yield* two.forceRelease(keys[0]!, { hard: false })
          const grant = yield* kit.take(kit.open(one, keys), "holder")
          const waiter = kit.open(two, keys, { fair: true })
          yield* waiter.arm(() => {})
          yield* kit.isBusy(waiter, "waiter")
          const found = yield* fieldsOf(server)
          const [holder] = yield* one.inspect(keys[0]!)
          const [, , arrival, until] = Object.entries(found).find(([field]) => field.startsWith("w"))![1].split(" ")
          // what differs each time, by its name
          const names: ReadonlyArray<readonly [unknown, string]> = [
            [grant.fences[0], "<fence>"],
            [grant.fences[0]! + 7n, "<last fence of the block>"],
            [holder!.until, "<until, milliseconds>"],
            [holder!.since, "<since, milliseconds>"],
            [arrival, "<arrival, microseconds>"],
            [until, "<place until, milliseconds>"],
            [found[`d${deposed.token}`], "<deposed until, milliseconds>"]
          ]
          const named = Object.entries(found).map(([field, value]) => [
            field.startsWith("w") ? "w<waiter>" : field,
            value.split(" ").map((part) => names.find(([own]) => String(own) === part)?.[1] ?? part).join(" ")
          ])
          assert.deepStrictEqual(Object.fromEntries(named), vector)
          yield* waiter.withdraw
          yield* one.release(grant)
        }))

      it.effect("R4.5 B70 and are read as that", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const [seconds] = yield* server.command("TIME")
          const now = Number(seconds) * 1_000
          const values: Readonly<Record<string, string>> = {
            "<fence>": "1000001",
            "<last fence of the block>": "1000008",
            "<until, milliseconds>": String(now + 30_000),
            "<since, milliseconds>": String(now - 1_000),
            "<arrival, microseconds>": String(now * 1_000),
            "<place until, milliseconds>": String(now + 20_000),
            "<deposed until, milliseconds>": String(now + 10_000)
          }
          const written = Object.entries(vector).flatMap(([field, value]) => [
            field.replace("<waiter>", "somebody"),
            value.replace(/<[^>]+>/g, (name) => values[name]!)
          ])
          yield* server.command("DEL", record("fields"))
          yield* server.command("HSET", record("fields"), ...written)
          const keys = [kit.key("fields")]
          assert.deepStrictEqual(yield* one.inspect(keys[0]!), [{
            mode: "exclusive",
            fence: 1_000_001n,
            token: "holder",
            since: now - 1_000,
            until: now + 30_000,
            session: "session",
            metadata: { job: "secret-job" }
          }])
          const grantOf = (token: string) => ({
            _tag: "Grant" as const,
            token,
            keys,
            mode: "exclusive" as const,
            fences: [1_000_001n],
            block: 8,
            ttl: Duration.seconds(30)
          })
          assert.deepStrictEqual(yield* one.renew([grantOf("holder"), grantOf("deposed")]), [
            { _tag: "Confirmed", contended: true },
            { _tag: "Lost", reason: "revoked" }
          ])
          // it is before whoever comes later
          assert.strictEqual(yield* one.release(grantOf("holder")), "woke")
          yield* kit.isBusy(kit.open(two, keys), "late")
          assert.strictEqual(yield* two.release({ token: "somebody", keys, mode: "exclusive" }), "gone")
          const next = yield* kit.take(kit.open(two, keys), "late")
          assert.isTrue(next.fences[0]! > 1_000_008n)
          yield* two.release(next)
        }))
    })

    describe("renewals", () => {
      it.effect("R2.3 extend, never revive, and answer in order", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          const short = yield* kit.take(kit.open(one, [kit.key("renew/short")], { ttl: 100 }), kit.token())
          const long = yield* kit.take(
            kit.open(one, [kit.key("renew/a"), kit.key("renew/b")], { ttl: 5_000 }),
            kit.token()
          )
          const [before] = yield* one.inspect(kit.key("renew/b"))
          const waiter = kit.open(two, [kit.key("renew/b")])
          yield* waiter.arm(() => {})
          yield* kit.isBusy(waiter, "waiter")
          yield* Effect.sleep(120)
          assert.deepStrictEqual(yield* one.renew([short, long]), [
            { _tag: "Lost", reason: "expired" },
            { _tag: "Confirmed", contended: true }
          ])
          const [after] = yield* one.inspect(kit.key("renew/b"))
          assert.isAbove(after!.until!, before!.until!)
          assert.deepStrictEqual(yield* one.inspect(kit.key("renew/short")), [])
          yield* waiter.withdraw
          assert.deepStrictEqual(yield* one.renew([long]), [{ _tag: "Confirmed", contended: false }])
          assert.deepStrictEqual(yield* one.renew([]), [])
          yield* one.release(long)
        }))

      it.effect("B09 match the token, not the name: taken, and all keys or none", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const keys = [kit.key("taken/a"), kit.key("taken/b")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          yield* server.command("DEL", record("taken/a"))
          const thief = yield* kit.take(kit.open(two, [keys[0]!]), kit.token())
          const [before] = yield* two.inspect(keys[1]!)
          assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Lost", reason: "taken" }])
          assert.deepStrictEqual(yield* two.inspect(keys[1]!), [before!])
          assert.strictEqual(yield* one.release(grant), "gone")
          assert.deepStrictEqual(yield* two.inspect(keys[1]!), [])
          assert.strictEqual(yield* two.release(thief), "released")
        }))

      it.effect("1 000 grants are confirmed by ten scripts", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          const grants = yield* Effect.forEach(
            Array.from({ length: 1_000 }, (_, i) => kit.key(`many/${i}`)),
            (key) => kit.take(kit.open(one, [key]), kit.token()),
            { concurrency: 50 }
          )
          const before = yield* scripts(server)
          const answers = yield* one.renew(grants)
          assert.isTrue(answers.every((answer) => answer._tag === "Confirmed"))
          assert.strictEqual((yield* scripts(server)) - before, 10)
          yield* Effect.forEach(grants, one.release, { concurrency: 50 })
        }))
    })

    describe("releases", () => {
      it.effect("answer what they found, and are harmless when repeated", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          const keys = [kit.key("release")]
          const grant = yield* kit.take(kit.open(one, keys, { ttl: 100 }), kit.token())
          assert.strictEqual(yield* two.release({ ...grant, token: "stranger" }), "gone")
          assert.strictEqual(yield* one.release(grant), "released")
          assert.strictEqual(yield* one.release(grant), "gone")
          const lapsing = yield* kit.take(kit.open(one, keys, { ttl: 100 }), kit.token())
          yield* Effect.sleep(110)
          assert.strictEqual(yield* one.release(lapsing), "lapsed")
        }))

      it.effect("B13 take a place in line away, too, and wake who is behind it", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const keys = [kit.key("abandoned")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const abandoned = kit.open(two, keys)
          yield* kit.isBusy(abandoned, "abandoned")
          yield* abandoned.arm(() => {})
          yield* kit.isBusy(abandoned, "abandoned")
          assert.strictEqual(yield* server.command("HEXISTS", record("abandoned"), "wabandoned"), 1)
          assert.strictEqual(yield* two.release({ token: "abandoned", keys, mode: "exclusive" }), "gone")
          assert.strictEqual(yield* server.command("HEXISTS", record("abandoned"), "wabandoned"), 0)
          assert.strictEqual(yield* one.release(grant), "released")
        }))
    })

    describe("wake-ups", () => {
      it.effect("R6.2 come with every release until the withdrawal; only where somebody waits", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const keys = [kit.key("wake")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const woken = yield* Queue.unbounded<void>()
          const waiter = kit.open(two, keys)
          yield* kit.isBusy(waiter, "waiter")
          yield* waiter.arm(() => woken.unsafeOffer(undefined))
          assert.deepStrictEqual(yield* server.command("PUBSUB", "NUMSUB", record("wake")), [record("wake"), 1])
          yield* kit.isBusy(waiter, "waiter")
          assert.strictEqual(yield* one.release(grant), "woke")
          yield* Queue.take(woken)
          const next = yield* kit.take(waiter, "waiter")
          yield* waiter.withdraw
          assert.strictEqual(yield* two.release(next), "released")
          yield* kit.eventually(
            Effect.map(server.command("PUBSUB", "CHANNELS", record("wake")), (channels) => channels.length === 0),
            10_000
          )
          assert.strictEqual(yield* Queue.size(woken), 0)
        }))

      it.effect("R6.4 the writer who has waited longest is woken, if it was seen lately; else everybody", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const keys = [kit.key("in turn")]
          const woken = yield* Queue.unbounded<string>()
          const waiting = (name: string) =>
            Effect.gen(function*() {
              const waiter = kit.open(two, keys)
              yield* waiter.arm(() => woken.unsafeOffer(name))
              yield* kit.isBusy(waiter, name)
              return waiter
            })
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const first = yield* waiting("first")
          const second = yield* waiting("second")
          const third = yield* waiting("third")
          assert.strictEqual(yield* one.release(grant), "woke")
          assert.strictEqual(yield* Queue.take(woken), "first")
          const next = yield* kit.take(first, "first")
          yield* first.withdraw
          assert.strictEqual(yield* two.release(next), "woke")
          // in the order of the channel: nobody else was told before
          assert.strictEqual(yield* Queue.take(woken), "second")
          const last = yield* kit.take(second, "second")
          yield* second.withdraw
          const fields: ReadonlyArray<string> = yield* server.command("HKEYS", record("in turn"))
          const [place] = fields.filter((field) => field.startsWith("w"))
          const fourth = yield* waiting("fourth")
          // as if the third were gone: it lives, and would give signs of life
          yield* kit.isBusy(third, "third")
          const value: string = yield* server.command("HGET", record("in turn"), place!)
          const [mode, order, at, until] = value.split(" ")
          yield* server.command("HSET", record("in turn"), place!, `${mode} ${order} ${at} ${Number(until) - 700}`)
          assert.strictEqual(yield* two.release(last), "woke")
          const all = [yield* Queue.take(woken), yield* Queue.take(woken)]
          assert.deepStrictEqual(all.toSorted(), ["fourth", "third"])
          yield* third.withdraw
          yield* fourth.withdraw
        }))

      it.effect("R6.4 who lets others go first has a place from then on, and may ask at once where there are none", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          const keys = [kit.key("let go first")]
          const woken = yield* Queue.unbounded<string>()
          const polite = (name: string) =>
            Effect.gen(function*() {
              const waiter = kit.open(two, keys)
              yield* waiter.arm(() => woken.unsafeOffer(name))
              return waiter
            })
          const alone = yield* polite("alone")
          assert.strictEqual(yield* Queue.take(woken), "alone")
          yield* alone.withdraw
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const first = kit.open(two, keys)
          yield* kit.isBusy(first, "first")
          yield* first.arm(() => woken.unsafeOffer("first"))
          yield* kit.isBusy(first, "first")
          const second = yield* polite("second")
          assert.strictEqual(yield* one.release(grant), "woke")
          assert.strictEqual(yield* Queue.take(woken), "first")
          // free, but wanted: it is not for who comes last
          const third = yield* polite("third")
          const next = yield* kit.take(first, "first")
          yield* first.withdraw
          assert.strictEqual(yield* two.release(next), "woke")
          assert.strictEqual(yield* Queue.take(woken), "second")
          yield* second.withdraw
          assert.strictEqual(yield* Queue.take(woken), "third")
          yield* third.withdraw
          assert.strictEqual(yield* Queue.size(woken), 0)
        }))

      it.scoped("R6.2 R6.4 who polls rarely gives signs of life, and an offer is a release to it", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          const two = yield* kit.driver(server.url(), { major })
          const keys = [kit.key("rarely")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const woken = yield* Queue.unbounded<void>()
          const waiter = kit.open(two, keys)
          yield* kit.isBusy(waiter, "rare")
          yield* waiter.arm(() => woken.unsafeOffer(undefined))
          yield* kit.isBusy(waiter, "rare")
          yield* Effect.sleep("2500 millis")
          assert.strictEqual(yield* one.offer!(grant), "woke")
          yield* Queue.take(woken)
          const next = yield* kit.take(waiter, "rare")
          yield* waiter.withdraw
          yield* two.release(next)
        }))

      it.effect("R6.2 a place that would come after the withdrawal is not taken", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const keys = [kit.key("withdrawn")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const waiter = kit.open(two, keys)
          yield* server.freeze
          const arming = yield* Effect.forkDaemon(Effect.exit(waiter.arm(() => {})))
          yield* Effect.yieldNow()
          yield* Fiber.interruptFork(arming)
          yield* waiter.withdraw
          yield* server.thaw
          // what the freeze has held up is answered by then
          yield* kit.eventually(Effect.as(two.inspect(keys[0]!), true))
          yield* Effect.sleep(100)
          const fields: ReadonlyArray<string> = yield* server.command("HKEYS", record("withdrawn"))
          assert.deepStrictEqual(fields.filter((field) => field.startsWith("w")), [])
          yield* one.release(grant)
        }))

      it.effect("R1.6 readers behind a writer that gives up are woken", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          const keys = [kit.key("given up")]
          const reader = yield* kit.take(kit.open(one, keys, { mode: "shared" }), kit.token())
          const writer = kit.open(two, keys)
          yield* writer.arm(() => {})
          yield* kit.isBusy(writer, "writer")
          const woken = yield* Queue.unbounded<void>()
          const late = kit.open(one, keys, { mode: "shared" })
          yield* late.arm(() => woken.unsafeOffer(undefined))
          yield* kit.isBusy(late, "late")
          yield* writer.withdraw
          yield* Queue.take(woken)
          yield* kit.take(late, "late")
          yield* late.withdraw
          yield* one.release(reader)
          yield* one.release({ token: "late", keys, mode: "shared" })
        }))

      it.effect("B22 come after the channel was lost: it is there again, and everybody is woken once", () =>
        Effect.gen(function*() {
          const { one, server, two } = yield* Redis
          const keys = [kit.key("lost channel")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const woken = yield* Queue.unbounded<void>()
          const waiter = kit.open(two, keys)
          yield* waiter.arm(() => woken.unsafeOffer(undefined))
          yield* kit.isBusy(waiter, "waiter")
          yield* server.command("CLIENT", "KILL", "TYPE", "pubsub")
          yield* Queue.take(woken)
          assert.deepStrictEqual(yield* server.command("PUBSUB", "NUMSUB", record("lost channel")), [
            record("lost channel"),
            1
          ])
          yield* one.release(grant)
          yield* Queue.take(woken)
          yield* waiter.withdraw
        }))
    })

    describe("operators", () => {
      it.effect("R10.3 forceRelease deposes: who held it hears of it, and learns `revoked`", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          const keys = [kit.key("deposed")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          const other = yield* kit.take(kit.open(one, [kit.key("not deposed")]), kit.token())
          // whoever has just started to listen may have missed it; a renewal tells it all the same
          yield* Effect.sleep(50)
          yield* Queue.takeAll(one.losses)
          const { holders, others } = yield* two.forceRelease(keys[0]!, { hard: false })
          assert.deepStrictEqual(holders.map(({ token }) => token), [grant.token])
          assert.deepStrictEqual(others, [])
          assert.deepStrictEqual(yield* Queue.take(one.losses), { token: grant.token, reason: "revoked" })
          const next = yield* kit.take(kit.open(two, keys), kit.token())
          assert.isTrue(next.fences[0]! >= grant.fences[0]! + 8n)
          assert.deepStrictEqual(yield* one.renew([grant, other]), [
            { _tag: "Lost", reason: "revoked" },
            { _tag: "Confirmed", contended: false }
          ])
          assert.deepStrictEqual((yield* two.forceRelease(kit.key("nobody's"), { hard: false })).holders, [])
          yield* two.release(next)
          yield* one.release(other)
        }))

      it.effect("R10.3 inspect and list tell holders as they were given", () =>
        Effect.gen(function*() {
          const { one, two } = yield* Redis
          const namespace = "odd*[name]?\\"
          const tenant = "acmé:1"
          const name = "a:{b}%7D"
          const id = `${Buffer.byteLength(namespace)}:${namespace}:tenant:${
            Buffer.byteLength(tenant)
          }:${tenant}:${name}`
          const key = { namespace, scope: "tenant", tenant, key: name, id } as const
          const grant = yield* kit.take(kit.open(one, [key], { mode: "shared", ttl: 20_000 }), kit.token())
          const [holder, ...more] = yield* two.inspect(key)
          assert.deepStrictEqual(more, [])
          assert.deepStrictEqual(holder, {
            mode: "shared",
            fence: grant.fences[0]!,
            token: grant.token,
            since: holder!.since!,
            until: holder!.since! + 20_000,
            session: "session",
            metadata: { job: "secret-job" }
          })
          const [held, ...others] = yield* two.list(namespace)
          assert.deepStrictEqual(others, [])
          assert.match(held!.hash, /^[0-9a-f]{12}$/)
          assert.deepStrictEqual(held, {
            namespace,
            scope: "tenant",
            tenant,
            key: name,
            hash: held!.hash,
            holders: [holder!]
          })
          assert.deepStrictEqual(yield* two.list("odd"), [])
          yield* one.release(grant)
          assert.deepStrictEqual(yield* two.list(namespace), [])
        }))

      it.effect("R10.4 check tells of what makes locks unsafe", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          const codes = () =>
            Effect.map(one.check!, (found) => found.map(({ code, severity }) => `${severity} ${code}`))
          assert.includeMembers([...yield* codes()], ["info SERVER_VERSION", "warning PERSISTENCE", "info MODE"])
          assert.notInclude(yield* codes(), "error EVICTION")
          yield* server.command("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "volatile-lru")
          assert.include(yield* codes(), "error EVICTION")
          yield* server.command("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
          assert.notInclude(yield* codes(), "error EVICTION")
        }))
    })

    describe("clients", () => {
      it.scoped("B50 a key prefix of the user's comes before every name, once", () =>
        Effect.gen(function*() {
          const { server } = yield* Redis
          const options = { major, client: { keyPrefix: "app:" } }
          const [one, two] = [yield* kit.listener(server.url(), options), yield* kit.listener(server.url(), options)]
          const apart = yield* kit.listener(server.url(), { major, client: { keyPrefix: "other:" } })
          const keys = [kit.key("prefixed")]
          const grant = yield* kit.take(kit.open(one, keys), kit.token())
          yield* apart.release(yield* kit.take(kit.open(apart, keys), kit.token()))
          const woken = yield* Queue.unbounded<void>()
          const waiter = kit.open(two, keys)
          yield* waiter.arm(() => woken.unsafeOffer(undefined))
          yield* kit.isBusy(waiter, "waiter")
          const names: Array<string> = yield* server.command("KEYS", "*prefixed*")
          assert.deepStrictEqual(names.sort(), [recordOf("app:", keys[0]!), recordOf("other:", keys[0]!)])
          assert.lengthOf(yield* two.list("test"), 1)
          yield* one.release(grant)
          yield* Queue.take(woken)
          yield* waiter.withdraw
        }))

      it.scoped("awkward options of the user's change nothing", () =>
        Effect.gen(function*() {
          const { server } = yield* Redis
          const odd = yield* kit.driver(server.url(), {
            major,
            client: { stringNumbers: true, enableAutoPipelining: true, commandTimeout: 1, lazyConnect: true }
          })
          const grant = yield* kit.take(kit.open(odd, [kit.key("odd")]), kit.token())
          assert.deepStrictEqual(yield* odd.renew([grant]), [{ _tag: "Confirmed", contended: false }])
          assert.strictEqual(yield* odd.release(grant), "released")
        }))

      it.effect("R7.2 scripts that the server has forgotten are sent again", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          yield* server.command("SCRIPT", "FLUSH")
          yield* one.release(yield* kit.take(kit.open(one, [kit.key("flushed")]), kit.token()))
        }))

      it.effect("R4.4 an error tells nothing of what was sent", () =>
        Effect.gen(function*() {
          const { one, server } = yield* Redis
          yield* server.command("SET", record("secret-key"), "not a hash")
          const error = yield* Effect.flip(kit.attempt(kit.open(one, [kit.key("secret-key")]), "secret-token"))
          assert.strictEqual(error.executed, "no")
          const { inspect } = yield* Effect.promise(() => import("node:util"))
          const text = inspect(error, { depth: 9, showHidden: true }) + JSON.stringify(error) + String(error.cause)
          for (const secret of ["secret-key", "secret-token", "secret-job"]) assert.notInclude(text, secret)
          assert.include(text, "WRONGTYPE")
          yield* server.command("DEL", record("secret-key"))
        }))
    })
  })
}

describe("a server that is not there", () => {
  it.scopedLive("R1.7 ready fails, and says that nothing was done", () =>
    Effect.gen(function*() {
      const server = yield* kit.server
      yield* server.kill
      const { driver } = yield* Effect.promise(() => import("../src/RedisLocking.js"))
      const made = yield* driver({ client: yield* kit.client(server.url()) })
      const error = yield* Effect.flip(made.ready)
      assert.strictEqual(error.executed, "no")
      // a server that is being killed resets what it has not refused yet
      assert.match(String(error.cause), /ECONN(REFUSED|RESET)/)
      const refused = yield* Effect.flip(kit.attempt(kit.open(made, [kit.key("down")]), "token"))
      assert.strictEqual(refused.executed, "no")
      yield* server.start
      yield* kit.eventually(Effect.as(made.ready, true))
      yield* kit.take(kit.open(made, [kit.key("down")]), "token")
    }))

  it.scopedLive("R7.1 closing does not wait for it", () =>
    Effect.gen(function*() {
      const server = yield* kit.server
      const made = yield* Effect.scoped(kit.driver(server.url()))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(Queue.take(made.losses))))
      assert.strictEqual(yield* Queue.isShutdown(made.losses), true)
      yield* kit.eventually(Effect.map(
        server.command("CLIENT", "LIST"),
        (clients: string) => clients.trim().split("\n").length === 1
      ))
    }))
})
