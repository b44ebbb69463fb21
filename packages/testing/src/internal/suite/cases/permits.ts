import type { Permits } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import { assert } from "vitest"
import { type Group, type RequestOptions, testIf, waits } from "../world.js"

const of = (count: number, limit: number, options: RequestOptions = {}): RequestOptions => ({
  mode: "shared",
  permits: { count, limit } satisfies Permits,
  ...options
})

export const permits: Group = {
  name: "permits",
  cases: [
    testIf(["permits"])("R9.2 as many as there are, of all processes together", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const first = yield* one.grant(keys, of(1, 3))
        yield* two.grant(keys, of(1, 3))
        yield* one.grant(keys, of(1, 3))
        yield* two.assertBusy(keys, "three of three are out", of(1, 3))
        assert.strictEqual(first.permits?.count, 1)
        assert.oneOf(yield* one.release(first), ["released", "woke"])
        yield* two.grant(keys, of(1, 3))
        yield* one.assertBusy(keys, "three of three are out again", of(1, 3))
      })),

    testIf(["permits"])("R9.2 several of them count as several", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const three = yield* one.grant(keys, of(3, 5))
        yield* two.assertBusy(keys, "two of five are left", of(3, 5))
        yield* two.grant(keys, of(2, 5))
        yield* two.assertBusy(keys, "none is left", of(1, 5))
        assert.strictEqual((yield* one.renew(three))[0]!._tag, "Confirmed")
        yield* one.release(three)
        yield* two.assertBusy(keys, "three of five are left", of(4, 5))
        yield* two.grant(keys, of(3, 5))
      })),

    testIf(["permits"])("R9.2 R1.7 a repeated attempt takes no more of them", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys, of(1, 2))
        for (let i = 0; i < 3; i++) {
          const again = yield* one.grant(keys, of(1, 2, { token: grant.token }))
          assert.deepStrictEqual(again.fences, grant.fences)
        }
        yield* two.grant(keys, of(1, 2))
        yield* one.release(grant)
        assert.strictEqual(yield* one.release(grant), "gone")
        yield* two.grant(keys, of(1, 2))
        yield* one.assertBusy(keys, "a repeated release gives back one", of(1, 2))
      })),

    testIf(["permits"])(
      "R9.2 each request is judged by its own limit, and nobody is evicted",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const one = yield* world.process
          const grants = [yield* one.grant(keys, of(1, 3)), yield* one.grant(keys, of(1, 3))]
          yield* one.assertBusy(keys, "two are out", of(1, 2))
          grants.push(yield* one.grant(keys, of(1, 3)))
          for (const answer of yield* one.renew(...grants)) assert.strictEqual(answer._tag, "Confirmed")
        })
    ),

    testIf(["permits"])("R9.2 a semaphore and a lock of one name do not meet", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const lock = yield* one.grant(keys)
        const permit = yield* two.grant(keys, of(1, 1))
        yield* two.assertBusy(keys, "one holds the lock")
        yield* one.assertBusy(keys, "two holds the permit", of(1, 1))
        yield* two.release(permit)
        assert.strictEqual((yield* one.renew(lock))[0]!._tag, "Confirmed")
        yield* two.grant(keys, of(1, 1))
      })),

    testIf(["permits", "expiry by the server"])(
      "R9.2 each lapses by itself, and does not come back",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [one, two] = [yield* world.process, yield* world.process]
          const short = yield* one.grant(keys, of(1, 2, { ttl: world.ttl }))
          const long = yield* one.grant(keys, of(1, 2))
          yield* two.assertBusy(keys, "two of two are out", of(1, 2))
          yield* world.until(
            "the end of one",
            Effect.map(two.attempt(keys, of(1, 2)), ({ _tag }) => _tag === "Grant"),
            world.ttl + world.soon
          )
          assert.deepStrictEqual((yield* one.renew(short, long)).map(({ _tag }) => _tag), ["Lost", "Confirmed"])
          yield* two.assertBusy(keys, "two of two are out", of(1, 2))
        })
    ),

    testIf(["permits", "push"])(
      "R9.2 R6.2 everybody is woken for whom there is enough",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [holder, waiter] = [yield* world.process, yield* world.process]
          for (const fair of waiter.driver.capabilities.fair ? [false, true] : [false]) {
            const grant = yield* holder.grant(keys, of(2, 2))
            const waiting = yield* Effect.forEach([1, 2], () =>
              Effect.gen(function*() {
                const contender = waiter.contend(keys, of(1, 2, { fair }))
                return { ...contender, woken: yield* waits(contender) }
              }))
            yield* holder.release(grant)
            for (const { attempt, claim, contention, woken } of waiting) {
              yield* world.within("the wake-up", woken)
              yield* world.until("the grant", Effect.map(attempt, ({ _tag }) => _tag === "Grant"))
              yield* contention.withdraw
              yield* Effect.addFinalizer(() => Effect.ignore(waiter.release(claim)))
            }
            for (const { claim } of waiting) yield* waiter.release(claim)
          }
        })
    ),

    testIf(["permits", "fair"])(
      "R9.2 in the order of arrival, also past those who want less",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [holder, waiter, other] = [yield* world.process, yield* world.process, yield* world.process]
          const grants = [yield* holder.grant(keys, of(1, 2)), yield* holder.grant(keys, of(1, 2))]
          const both = waiter.contend(keys, of(2, 2, { fair: true }))
          assert.strictEqual((yield* both.attempt)._tag, "Busy")
          yield* holder.release(grants[0]!)
          yield* other.assertBusy(keys, "somebody waits for both", of(1, 2))
          yield* holder.release(grants[1]!)
          yield* other.assertBusy(keys, "somebody waits for both", of(1, 2))
          yield* world.until("its turn", Effect.map(both.attempt, ({ _tag }) => _tag === "Grant"))
          yield* both.contention.withdraw
          yield* waiter.release(both.claim)
          yield* other.grant(keys, of(1, 2))
        })
    )
  ]
}
