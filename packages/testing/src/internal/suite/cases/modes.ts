import type { LockMode } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import { assert } from "vitest"
import { type Group, isGrant, settle, testIf } from "../world.js"

const test = testIf(["shared mode"])
const modes: ReadonlyArray<LockMode> = ["exclusive", "shared"]

export const sharedModes: Group = {
  name: "modes",
  cases: [
    test("R1.6 who excludes whom, between processes", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.process, yield* world.process]
        for (const held of modes) {
          for (const asked of modes) {
            const keys = yield* world.keys(`${held} then ${asked}`)
            yield* one.grant(keys, { mode: held })
            if (held === "shared" && asked === "shared") {
              assert.isTrue(isGrant(yield* two.attempt(keys, { mode: asked })), "readers are together")
            } else yield* two.assertBusy(keys, `${asked} beside ${held}`, { mode: asked })
          }
        }
      })),

    test("R1.6 several keys, readers and writers: all of them or none", (world) =>
      Effect.gen(function*() {
        const all = yield* world.keys("a", "b", "c")
        const [one, two, three] = [yield* world.process, yield* world.process, yield* world.process]
        const reader = yield* one.grant(all, { mode: "shared" })
        yield* two.assertBusy(all, "they are read")
        yield* two.grant(all, { mode: "shared" })
        yield* one.release(reader)
        for (const key of all) yield* three.assertBusy([key], "two still reads it")
      })),

    test("R1.6 a writer gets it when the last reader has left", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two, writer] = [yield* world.process, yield* world.process, yield* world.process]
        const [first, second] = [yield* one.grant(keys, { mode: "shared" }), yield* two.grant(keys, { mode: "shared" })]
        yield* one.release(first)
        yield* writer.assertBusy(keys, "two still reads")
        yield* two.release(second)
        const grant = yield* writer.grant(keys)
        yield* one.assertBusy(keys, "it is being written", { mode: "shared" })
        yield* writer.release(grant)
        yield* one.grant(keys, { mode: "shared" })
      })),

    test("R1.6 a waiting writer is not passed by new readers, and leaves no trace", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [reader, writer, late] = [yield* world.process, yield* world.process, yield* world.process]
        const held = yield* reader.grant(keys, { mode: "shared" })
        const waiting = writer.contend(keys)
        assert.strictEqual((yield* waiting.attempt)._tag, "Busy")
        yield* waiting.contention.arm(() => {})
        assert.strictEqual((yield* waiting.attempt)._tag, "Busy")
        yield* late.assertBusy(keys, "a writer waits", { mode: "shared" })
        // who reads already is not thrown out, and finds its grant again
        const again = yield* reader.attempt(keys, { mode: "shared", token: held.token })
        assert.isTrue(isGrant(again), "a reader finds its own grant")
        const [renewal] = yield* reader.renew(held)
        assert.strictEqual(renewal!._tag, "Confirmed")
        yield* waiting.contention.withdraw
        yield* writer.release(waiting.claim)
        yield* late.grant(keys, { mode: "shared" })
      })),

    test("R1.6 a writer gets in while readers of two processes take turns", (world) =>
      Effect.gen(function*() {
        const [one, two, writer] = [yield* world.node(), yield* world.node(), yield* world.node()]
        const stop = { now: false }
        const section = world.options.time === "virtual" ? Effect.sleep(5) : Effect.sleep(20)
        const read = (locking: typeof one.locking) =>
          Effect.gen(function*() {
            while (!stop.now) {
              yield* locking.withLock(section, "k", { mode: "shared", waitTimeout: "50 seconds" })
            }
          })
        // two in each process that overlap, so that the key is never free by itself
        const readers = yield* Effect.forEach([one, two, one, two], ({ locking }) => Effect.fork(read(locking)))
        yield* world.until(
          "readers of both",
          Effect.sync(() => one.answered.attempt > 0 && two.answered.attempt > 0)
        )
        yield* world.within(
          "the writer's turn",
          writer.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }),
          15_000 * world.options.slack
        )
        stop.now = true
        yield* world.within("the readers' end", Effect.forEach(readers, Fiber.join), 15_000 * world.options.slack)
      })),

    test("R1.6 in one process: readers together, a writer alone, in the order of arrival", (world) =>
      Effect.gen(function*() {
        const { locking } = yield* world.node()
        const order: Array<string> = []
        const reading = yield* locking.acquire("k", { mode: "shared" })
        const other = yield* locking.acquire("k", { mode: "shared" })
        const enter = (name: string, mode: LockMode) =>
          Effect.zipLeft(
            Effect.fork(
              locking.withLock(Effect.sync(() => order.push(name)), "k", { mode, waitTimeout: "50 seconds" })
            ),
            settle
          )
        const fibers = [yield* enter("writer", "exclusive"), yield* enter("reader", "shared")]
        assert.isTrue(Option.isNone(yield* locking.tryAcquire("k")))
        yield* reading.release
        yield* other.release
        yield* world.within("both", Effect.forEach(fibers, Fiber.join))
        assert.deepStrictEqual(order, ["writer", "reader"])
      })),

    test("R3.1 a writer's fence is larger than the readers' before it", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        let highest = 0n
        for (const mode of ["shared", "exclusive", "shared", "exclusive"] as const) {
          const process = mode === "shared" ? one : two
          const grant = yield* process.grant(keys, { mode })
          assert.isTrue(grant.fences[0]! > highest, `${grant.fences[0]} after ${highest}`)
          highest = grant.fences[0]! + BigInt(grant.block - 1)
          yield* process.release(grant)
        }
      }))
  ]
}
