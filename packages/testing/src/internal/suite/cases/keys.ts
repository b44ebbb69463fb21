import type { ResolvedKey } from "effect-locking/LockKey"
import * as LockKey from "effect-locking/LockKey"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as FastCheck from "effect/FastCheck"
import { assert } from "vitest"
import { type Group, isGrant, type Process, test, type World } from "../world.js"

/** Names that some encoding, some escaping or some hash takes for one another. */
const awkward: ReadonlyArray<string> = [
  " ",
  "  ",
  "\t",
  "\n",
  "a",
  "A",
  "a ",
  " a",
  "a\nb",
  "a\r\nb",
  "\u00e9",
  "e\u0301",
  "\u212b",
  "\u00c5",
  "\u{1f512}",
  "\u{1f513}",
  "a\u200db",
  "ab",
  "\u202eab",
  "\ufeffab",
  "\ufffd",
  ":",
  "a:b",
  "a::b",
  "none:a",
  "tenant:1:a:b",
  "platform:a",
  "{}",
  "{a}b",
  "}a{",
  "%",
  "%7B",
  "%25",
  "*",
  "?",
  "[a]",
  "'",
  "\"",
  "\\",
  "\\\\",
  "''",
  "$1",
  "${a}",
  ";",
  "--",
  "a/b",
  "../a",
  "__proto__",
  "constructor",
  "toString",
  "0",
  "00",
  "-1",
  "1e3",
  "9223372036854775807",
  "-9223372036854775808",
  "null",
  "undefined",
  "true",
  "\u0001",
  "\u007f",
  "x".repeat(1_023),
  "x".repeat(1_024),
  "\u00e9".repeat(512)
]

/** Refused by every driver, before it is asked. */
const refused: ReadonlyArray<string> = [
  "",
  "\u0000",
  "a\u0000b",
  "\ud800",
  "\udc00",
  "a\ud800b",
  "\udc00\ud800",
  "x".repeat(1_025),
  "\u00e9".repeat(513)
]

/** All of them are different locks: one process holds them all at once, and the other one gets none of them. */
const assertDifferent = (one: Process, two: Process, keys: ReadonlyArray<ResolvedKey>) =>
  Effect.scoped(Effect.gen(function*() {
    const told = (key: ResolvedKey) => JSON.stringify([key.namespace, key.scope, key.tenant, key.key])
    for (const key of keys) {
      // by turns, since a store may not tell two keys of one process apart
      const answer = yield* one.attempt([key])
      if (!isGrant(answer)) assert.fail(`${told(key)} is taken for one of ${keys.map(told).join(" ")}`)
      yield* one.release(answer)
    }
    const [first, ...rest] = keys
    const held = yield* one.grant([first!])
    for (const key of rest) {
      const answer = yield* two.attempt([key])
      if (!isGrant(answer)) assert.fail(`${told(key)} is taken for ${told(first!)}`)
      yield* two.release(answer)
    }
    yield* two.assertBusy([first!], `${told(first!)} is held`)
    yield* one.release(held)
  }))

export const keys: Group = {
  name: "keys",
  cases: [
    test("R4.3 awkward names are names, and different ones are different locks", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.process, yield* world.process]
        const resolved = (yield* Effect.forEach(awkward, (name) => world.keys(name))).flat()
        assert.strictEqual(new Set(resolved.map(({ id }) => id)).size, awkward.length)
        // all at once, by two processes in turns: a name that is taken for another one is busy
        for (const [i, key] of resolved.entries()) {
          const answer = yield* (i % 2 === 0 ? one : two).attempt([key])
          if (!isGrant(answer)) assert.fail(`${JSON.stringify(key.key)} is taken for another one`)
        }
        for (const [i, key] of resolved.entries()) {
          yield* (i % 2 === 0 ? two : one).assertBusy([key], JSON.stringify(key.key))
        }
      })),

    test("R4.3 what is no name is refused before the store is asked", (world) =>
      Effect.gen(function*() {
        const { answered, locking } = yield* world.node()
        for (const name of refused) {
          const error = yield* Effect.flip(locking.withLock(Effect.void, name))
          assert.strictEqual(error._tag, "InvalidKey", JSON.stringify(name.slice(0, 10)))
        }
        assert.strictEqual(answered.attempt, 0)
      })),

    test("R4.1 R4.2 one name in every scope, tenant and namespace is as many locks", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.process, yield* world.process]
        const { namespace } = world
        const all = (yield* Effect.forEach([
          world.keysOf(["k"], {}),
          world.keysOf([LockKey.platform("k")], {}),
          world.keysOf(["k"], { tenant: "t" }),
          world.keysOf(["k"], { tenant: "T" }),
          world.keysOf(["k"], { tenant: "t:k" }),
          world.keysOf(["t:k"], {}),
          world.keysOf(["k:k"], { tenant: "t" }),
          world.keysOf(["k"], { namespace: `${namespace}:` }),
          world.keysOf([`:k`], {}),
          world.keysOf(["k"], { namespace: `${namespace}k` })
        ], (keys) => keys)).flat()
        for (const first of all) {
          yield* assertDifferent(one, two, [first, ...all.filter((key) => key !== first)])
        }
      })),

    test("R4.3 R4.5 different keys never collide (random)", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.process, yield* world.process]
        const seed = Math.floor(performance.now() * 1_000)
        const text = FastCheck.oneof(
          FastCheck.constantFrom(...awkward),
          FastCheck.string({ unit: "binary", minLength: 1, maxLength: 12 }),
          FastCheck.stringMatching(/^[:{}%\\0-9ab]{1,6}$/)
        )
        // what is joined without care reads the same wherever its parts were split
        const separators = ["", ":", "/", "{", "%", "\n"]
        const samples = FastCheck.sample(FastCheck.tuple(text, text, text), { numRuns: 4 * separators.length, seed })
        for (const [i, [x, y, z]] of samples.entries()) {
          const by = separators[i % separators.length]!
          const places: ReadonlyArray<Place> = [
            { tenant: x, name: `${y}${by}${z}` },
            { tenant: `${x}${by}${y}`, name: z },
            { tenant: y, name: `${x}${by}${z}` },
            { tenant: undefined, name: `${x}${by}${y}${by}${z}` },
            { tenant: undefined, name: y }
          ]
          const found = (yield* Effect.forEach(places, (place) => resolved(world, place))).filter((key) =>
            key !== undefined
          )
          const different = [...new Map(found.map((key) => [key.id, key])).values()]
          if (different.length > 1) {
            yield* Effect.catchAllDefect(assertDifferent(one, two, different), (defect) =>
              Effect.die(new Error(`seed ${seed}: ${defect}`)))
          }
        }
      })),

    test("R8.5 exclusionId is one string for one key", (world) =>
      Effect.gen(function*() {
        const driver = yield* world.open
        const { exclusionId } = driver
        if (exclusionId === undefined) return
        const [a, again, b] = [yield* world.keys("a"), yield* world.keys("a"), yield* world.keys("b")]
        assert.isString(exclusionId(a[0]!))
        assert.strictEqual(exclusionId(a[0]!), exclusionId(again[0]!))
        assert.notStrictEqual(exclusionId(a[0]!), exclusionId(b[0]!))
      }))
  ]
}

interface Place {
  readonly name: string
  readonly tenant: string | undefined
}

const resolved = (world: World, { name, tenant }: Place) =>
  Effect.map(
    Effect.either(world.keysOf([name], tenant === undefined ? {} : { tenant })),
    (keys) => Either.isRight(keys) ? keys.right[0] : undefined
  )
