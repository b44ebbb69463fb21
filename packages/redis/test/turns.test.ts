/**
 * Whose turn it is when a lock is given up.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Queue } from "effect"
import type { LockDriver } from "effect-locking/LockDriver"
import { recordOf } from "../src/internal/records.js"
import * as kit from "./kit.js"

const record = recordOf("", kit.key("turns"))
const keys = [kit.key("turns")]

const world = Effect.gen(function*() {
  const server = yield* kit.server
  const one = yield* kit.driver(server.url())
  const two = yield* kit.driver(server.url())
  const woken = yield* Queue.unbounded<string>()
  const waiting = (driver: LockDriver, name: string, mode: "exclusive" | "shared") =>
    Effect.gen(function*() {
      const waiter = kit.open(driver, keys, { mode })
      yield* waiter.arm(() => woken.unsafeOffer(name))
      yield* kit.isBusy(waiter, name)
      return waiter
    })
  /** Whoever waits has just been seen, however slow this machine is. */
  const lately = Effect.gen(function*() {
    const values: ReadonlyArray<string> = yield* server.command("HGETALL", record)
    for (let i = 0; i < values.length; i += 2) {
      if (!values[i]!.startsWith("w")) continue
      const [mode, order, at, until] = values[i + 1]!.split(" ")
      yield* server.command("HSET", record, values[i]!, `${mode} ${order} ${at} ${Number(until) + 30_000}`)
    }
  })
  return { one, two, woken, waiting, lately }
})

describe("turns", () => {
  it.scopedLive("R1.6 a reader who waited first is told with all who read, and the writer behind it when it leaves", () =>
    Effect.gen(function*() {
      const { lately, one, two, waiting, woken } = yield* world
      const grant = yield* kit.take(kit.open(one, keys), kit.token())
      const reader = yield* waiting(two, "reader", "shared")
      const writer = yield* waiting(one, "writer", "exclusive")
      const late = yield* waiting(two, "late", "shared")
      yield* lately
      assert.strictEqual(yield* one.release(grant), "woke")
      const told = [yield* Queue.take(woken), yield* Queue.take(woken)]
      assert.deepStrictEqual(told.toSorted(), ["late", "reader"])
      const read = yield* kit.take(reader, "reader")
      yield* reader.withdraw
      yield* kit.isBusy(late, "late")
      yield* lately
      assert.strictEqual(yield* two.release(read), "woke")
      // in the order of the channel: the writer was not told before
      assert.strictEqual(yield* Queue.take(woken), "writer")
      yield* kit.take(writer, "writer")
    }))

  it.scopedLive("R1.6 a reader who was told and leaves without it hands its turn on", () =>
    Effect.gen(function*() {
      const { lately, one, two, waiting, woken } = yield* world
      const grant = yield* kit.take(kit.open(one, keys), kit.token())
      const reader = yield* waiting(two, "reader", "shared")
      const writer = yield* waiting(one, "writer", "exclusive")
      yield* lately
      yield* one.release(grant)
      assert.strictEqual(yield* Queue.take(woken), "reader")
      yield* reader.withdraw
      assert.strictEqual(yield* Queue.take(woken), "writer")
      yield* kit.take(writer, "writer")
    }))
})
