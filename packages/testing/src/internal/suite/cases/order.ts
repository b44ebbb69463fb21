import * as Effect from "effect/Effect"
import { assert } from "vitest"
import { type Contender, type Group, testIf, waits, type World } from "../world.js"

/** Three who came one after the other, from processes of their own, while somebody else holds the keys. */
const threeInLine = (world: World, keys: Effect.Effect.Success<ReturnType<World["keys"]>>) =>
  Effect.forEach([1, 2, 3], () =>
    Effect.gen(function*() {
      const process = yield* world.process
      const contender = process.contend(keys, { fair: true })
      return { ...contender, woken: yield* waits(contender), release: process.release(contender.claim) }
    }))

const tagOf = ({ attempt }: Contender) => Effect.map(attempt, ({ _tag }) => _tag)

export const order: Group = {
  name: "order of arrival",
  cases: [
    testIf(["fair"])(
      "R1.13 is kept across processes, whoever asks first after a release",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const holder = yield* world.process
          let release: Effect.Effect<unknown, unknown> = holder.release(yield* holder.grant(keys))
          const line = [...yield* threeInLine(world, keys)]
          while (line.length > 0) {
            yield* release
            for (const later of line.slice(1)) assert.strictEqual(yield* tagOf(later), "Busy")
            const first = line.shift()!
            yield* world.until("the first one's grant", Effect.map(tagOf(first), (tag) => tag === "Grant"))
            release = first.release
          }
          yield* release
          yield* holder.grant(keys)
        })
    ),

    testIf(["fair"])("R1.13 nobody passes those who wait, whatever is asked for", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [holder, other] = [yield* world.process, yield* world.process]
        const grant = yield* holder.grant(keys)
        const [first] = yield* threeInLine(world, keys)
        yield* holder.release(grant)
        yield* other.assertBusy(keys, "others wait", { waiting: false })
        yield* other.assertBusy(keys, "others wait", { waiting: true })
        assert.strictEqual(yield* tagOf(first!), "Grant")
        yield* first!.release
      })),

    testIf(["fair", "push"])("R1.13 R6.2 who leaves the line wakes the one behind", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const holder = yield* world.process
        const grant = yield* holder.grant(keys)
        const [first, second, third] = yield* threeInLine(world, keys)
        yield* holder.release(grant)
        yield* first!.contention.withdraw
        yield* world.within("the wake-up of the second", second!.woken)
        assert.strictEqual(yield* tagOf(third!), "Busy")
        assert.strictEqual(yield* tagOf(second!), "Grant")
        yield* second!.release
        yield* world.within("the wake-up of the third", third!.woken)
        assert.strictEqual(yield* tagOf(third!), "Grant")
        yield* third!.release
      }))
  ]
}
