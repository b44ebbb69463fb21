import * as FencedRegister from "effect-locking/FencedRegister"
import type { Grant } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { assert } from "vitest"
import { type Group, settle, test, testIf } from "../world.js"

/** The first number after a grant's block. */
const after = (grant: Grant, i = 0): bigint => grant.fences[i]! + BigInt(grant.block)

export const fences: Group = {
  name: "fences",
  cases: [
    test("R3.1 grow from grant to grant, and no number belongs to two", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const processes = [yield* world.process, yield* world.process, yield* world.process]
        let next = 1n
        for (let i = 0; i < 15; i++) {
          const process = processes[i % 3]!
          const grant = yield* process.grant(keys)
          assert.isTrue(grant.fences[0]! >= next, `${grant.fences[0]} after a block that ends before ${next}`)
          next = after(grant)
          yield* process.release(grant)
        }
      })),

    test("R3.1 R1.5 each of several keys has its own", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("a", "b", "c")
        const one = yield* world.process
        let next = keys.map(() => 1n)
        for (const part of [keys, [keys[1]!], keys, [keys[0]!, keys[2]!], keys]) {
          const grant = yield* one.grant(part)
          assert.lengthOf(grant.fences, part.length)
          const before = next
          next = keys.map((key, i) => {
            const at = part.indexOf(key)
            if (at < 0) return before[i]!
            assert.isTrue(grant.fences[at]! >= before[i]!, "it grows for each key")
            return after(grant, at)
          })
          yield* one.release(grant)
        }
      })),

    testIf(["expiry by the server"])("R3.1 grow over an end that nobody released", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const lapsed = yield* one.grant(keys, { ttl: world.ttl })
        yield* world.pass(world.ttl + 20)
        const next = yield* two.grant(keys)
        assert.isTrue(next.fences[0]! >= after(lapsed))
      })),

    test("R3.1 grow over the end of all processes", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        let next = 1n
        for (let i = 0; i < 3; i++) {
          const grant = yield* Effect.scoped(Effect.flatMap(world.process, (process) => process.grant(keys)))
          assert.isTrue(grant.fences[0]! >= next)
          next = after(grant)
        }
      })),

    test("R3.1 R6.4 leases that are handed over inside a process have numbers of their own", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const found: Array<bigint> = []
        const section = (node: typeof one) =>
          node.locking.useLock(
            "k",
            { waitTimeout: "50 seconds" },
            ({ fence }) => Effect.zipRight(Effect.sync(() => found.push(fence)), settle)
          )
        const fibers = yield* Effect.forEach(
          Array.from({ length: 40 }, (_, i) => i % 4 === 0 ? two : one),
          (node) => Effect.fork(section(node))
        )
        yield* world.within("all of them", Effect.forEach(fibers, Fiber.join), 20_000 * world.options.slack)
        for (let i = 1; i < found.length; i++) {
          assert.isTrue(found[i]! > found[i - 1]!, `${found[i]} after ${found[i - 1]}`)
        }
      })),

    testIf(["an end of grants"])(
      "R3.3 B63 a holder that wakes up late is refused by the resource",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node()]
          const register = yield* FencedRegister.make("nothing")
          const late = yield* one.locking.acquire("k", { ttl: world.ttl, autoRenew: false })
          yield* world.until(
            "the end of the lease",
            Effect.map(late.isValid, (valid) => !valid),
            3 * world.ttl + world.soon
          )
          yield* world.within(
            "the next one",
            two.locking.useLock("k", { waitTimeout: "50 seconds" }, ({ fence }) => register.set(fence, "next")),
            3 * world.ttl + world.soon
          )
          const error = yield* Effect.flip(register.set(late.fence, "late"))
          assert.strictEqual(error._tag, "StaleFence")
          assert.strictEqual(yield* register.get, "next")
        })
    ),

    testIf(["faults.restart"])("R3.1 grow over a restart of the store", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const before = yield* Effect.scoped(Effect.flatMap(world.process, (process) => process.grant(keys)))
        yield* world.store.faults!.restart!
        // a store that has forgotten may keep everybody out for one ttl
        const grant = yield* Effect.scoped(
          Effect.gen(function*() {
            const process = yield* world.process
            return yield* process.grant(keys)
          })
        ).pipe(Effect.sandbox, Effect.retry({ times: 20 }))
        assert.isTrue(grant.fences[0]! >= after(before))
      }))
  ]
}
