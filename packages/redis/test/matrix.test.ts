/**
 * Every way to hold a key, and every way to wait for it in the order of arrival, against every way to ask for it: one
 * family of scripts, so none of them may miss another.
 */
import { assert, describe, layer } from "@effect/vitest"
import { Context, Duration, Effect, Layer } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import * as RedisLocking from "../src/RedisLocking.js"
import * as kit from "./kit.js"

class Two extends Context.Tag("Two")<Two, {
  readonly one: LockDriver
  readonly two: LockDriver
}>() {
  static readonly atOneServer = Layer.scoped(
    Two,
    Effect.gen(function*() {
      const server = yield* kit.anyServer
      const open = kit.driver(server.url(), { fairPatience })
      return { one: yield* open, two: yield* open }
    })
  )

  static readonly atQuorum = Layer.scoped(
    Two,
    Effect.gen(function*() {
      const servers = yield* Effect.forEach([1, 2, 3], () => kit.server)
      const open = Effect.gen(function*() {
        const clients = yield* Effect.forEach(servers, (server) => kit.client(server.url()))
        return yield* Effect.tap(
          RedisLocking.driverQuorum({ clients, longestTtl: ttl, fairPatience }),
          ({ ready }) => ready
        )
      })
      // until they may vote
      yield* Effect.sleep(Duration.sum(ttl, "1100 millis"))
      return { one: yield* open, two: yield* open }
    })
  )
}

/** No test takes as long. */
const ttl = Duration.seconds(3)

/** Nobody loses its place, however slow the machine. */
const fairPatience = "1 minute"

interface Way {
  readonly name: string
  readonly options: kit.OpenOptions
  /** Which keys it takes, of which the first is contended. */
  readonly keys: (name: string) => ReadonlyArray<string>
}

const alone = (name: string) => [name]
const several = (name: string) => [`${name}/a`, name, `${name}/z`]

const ways: ReadonlyArray<Way> = [
  { name: "exclusive", options: {}, keys: alone },
  { name: "shared", options: { mode: "shared" }, keys: alone },
  { name: "fair", options: { fair: true }, keys: alone },
  { name: "fair shared", options: { mode: "shared", fair: true }, keys: alone },
  { name: "one attempt", options: { waiting: false }, keys: alone },
  { name: "several keys", options: {}, keys: several },
  { name: "several keys, shared", options: { mode: "shared" }, keys: several },
  { name: "several keys, fair", options: { fair: true }, keys: several },
  { name: "the only permit", options: { mode: "shared", permits: { count: 1, limit: 1 } }, keys: alone },
  { name: "all permits", options: { mode: "shared", permits: { count: 3, limit: 3 }, fair: true }, keys: alone },
  { name: "one of two permits", options: { mode: "shared", permits: { count: 1, limit: 2 } }, keys: alone }
]

/** Whether both have room: readers beside readers, and a lock beside a semaphore of its name. */
const fitTogether = (held: Way, wanted: Way): boolean => {
  const [a, b] = [held.options.permits, wanted.options.permits]
  if (a !== undefined && b !== undefined) return a.count + b.count <= b.limit
  return a !== b || (held.options.mode === "shared" && wanted.options.mode === "shared")
}

const matrix = (name: string, live: Layer.Layer<Two, unknown>, ways: ReadonlyArray<Way>): void =>
  layer(live, { excludeTestServices: true, timeout: 60_000 })(name, (it) => {
    for (const held of ways) {
      describe(held.name, () => {
        for (const wanted of ways) {
          const goesTogether = fitTogether(held, wanted)
          it.effect(`${goesTogether ? "lets in" : "keeps out"}: ${wanted.name}`, () =>
            Effect.gen(function*() {
              const { one, two } = yield* Two
              const name = `${kit.token()}|${held.name}|${wanted.name}`
              const holder = yield* kit.take(
                kit.open(one, held.keys(name).map((_) => kit.key(_)), { ttl, ...held.options }),
                kit.token()
              )
              const contention = kit.open(two, wanted.keys(name).map((_) => kit.key(_)), { ttl, ...wanted.options })
              const token = kit.token()
              const answer = yield* kit.attempt(contention, token)
              assert.strictEqual(answer._tag, goesTogether ? "Grant" : "Busy")
              if (answer._tag === "Busy") {
                assert.strictEqual(answer.holder?.token, holder.token)
                // none of several keys is kept when one is refused
                for (const key of wanted.keys(name)) {
                  const holders = yield* two.inspect(kit.key(key))
                  assert.notInclude(holders.map((_) => _.token), token)
                }
              }
              yield* one.release(holder)
              const then = yield* kit.take(contention, token)
              assert.isTrue(then.fences.every((fence) => fence > 0n))
              assert.oneOf(yield* two.release(then), ["released", "woke"])
            }))
        }
      })
    }
  })

/** Whether who asks later may come in before who waits: as a reader beside readers, and to a semaphore beside a lock. */
const goBeside = (waiting: Way, wanted: Way): boolean =>
  waiting.options.permits === undefined || wanted.options.permits === undefined
    ? fitTogether(waiting, wanted)
    : false

const lines = (name: string, live: Layer.Layer<Two, unknown>, ways: ReadonlyArray<Way>): void =>
  layer(live, { excludeTestServices: true, timeout: 60_000 })(name, (it) => {
    for (const waiting of ways.filter(({ options }) => options.fair)) {
      describe(waiting.name, () => {
        for (const wanted of ways) {
          const goesBeside = goBeside(waiting, wanted)
          it.effect(`${goesBeside ? "goes beside it" : "does not pass it"}: ${wanted.name}`, () =>
            Effect.gen(function*() {
              const { one, two } = yield* Two
              const name = `${kit.token()}|${waiting.name}|${wanted.name}`
              const { mode, permits } = waiting.options
              const holder = yield* kit.take(
                kit.open(one, [kit.key(name)], permits === undefined ? { ttl } : { ttl, mode: mode!, permits }),
                kit.token()
              )
              const first = kit.open(one, waiting.keys(name).map((_) => kit.key(_)), { ttl, ...waiting.options })
              const second = kit.open(two, wanted.keys(name).map((_) => kit.key(_)), { ttl, ...wanted.options })
              const [tokenOfFirst, tokenOfSecond] = [kit.token(), kit.token()]
              yield* kit.isBusy(first, tokenOfFirst)
              yield* one.release(holder)
              // nobody holds it, and somebody waits for it
              const answer = yield* kit.attempt(second, tokenOfSecond)
              assert.strictEqual(answer._tag, goesBeside ? "Grant" : "Busy")
              if (!goesBeside) {
                assert.deepStrictEqual(answer, { _tag: "Busy", holder: undefined, endsIn: undefined })
                for (const key of wanted.keys(name)) assert.isEmpty(yield* two.inspect(kit.key(key)))
              }
              const grant = yield* kit.take(first, tokenOfFirst)
              yield* one.release(grant)
              yield* two.release(yield* kit.take(second, tokenOfSecond))
            }))
        }
      })
    }
  })

const ofLocks = ways.filter(({ options }) => options.permits === undefined)

matrix("R1.6 what is held at one server", Two.atOneServer, ways)
// which counts no permits
matrix("R1.6 what is held at a quorum", Two.atQuorum, ofLocks)
lines("R1.13 who waits in the order of arrival at one server", Two.atOneServer, ways)
lines("R1.13 who waits in the order of arrival at a quorum", Two.atQuorum, ofLocks)
