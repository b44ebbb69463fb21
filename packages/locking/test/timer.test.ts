import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, LogLevel, TestClock } from "effect"
import * as timer from "../src/internal/timer.js"
import { settableClock } from "./kit.js"

const quietly = Effect.provide(Logger.minimumLogLevel(LogLevel.None))

/** A timer, and what it ran when. */
const make = Effect.gen(function*() {
  const clock = yield* timer.make(() => {})
  const ran: Array<readonly [string, number]> = []
  const note = (name: string) => () => void ran.push([name, clock.now()])
  return { clock, ran, note }
})

describe("timer", () => {
  it.effect("R1.8 runs what is due, in the order of time, whatever the order of addition", () =>
    Effect.gen(function*() {
      const { clock, note, ran } = yield* make
      for (const at of [30, 10, 20, 10.5]) clock.add(at, note(`${at}`))
      assert.strictEqual(clock.size(), 4)
      yield* TestClock.adjust(9)
      assert.deepStrictEqual(ran, [])
      yield* TestClock.adjust(100)
      // never early, and to the millisecond
      assert.deepStrictEqual(ran, [["10", 10], ["10.5", 11], ["20", 20], ["30", 30]])
      assert.strictEqual(clock.size(), 0)
    }))

  it.effect("R1.8 an earlier one that comes later is run in time; one without end never", () =>
    Effect.gen(function*() {
      const { clock, note, ran } = yield* make
      clock.add(1_000, note("late"))
      yield* TestClock.adjust(1)
      clock.add(100, note("early"))
      assert.isUndefined(clock.add(Infinity, note("never")))
      yield* TestClock.adjust(99)
      assert.deepStrictEqual(ran, [["early", 100]])
      yield* TestClock.adjust("10 days")
      assert.deepStrictEqual(ran, [["early", 100], ["late", 1_000]])
    }))

  it.effect("R6.5 what is cancelled does not run, by whatever name and however often", () =>
    Effect.gen(function*() {
      const { clock, note, ran } = yield* make
      const first = clock.add(10, note("first"))
      clock.add(10, note("second"))
      const third = clock.add(10, () => {
        note("third")()
        clock.cancel(fourth)
      })
      const fourth = clock.add(11, note("fourth"))
      clock.cancel(first)
      clock.cancel(first)
      clock.cancel(undefined)
      yield* TestClock.adjust(20)
      clock.cancel(third)
      assert.sameDeepMembers(ran, [["second", 10], ["third", 10]])
      assert.strictEqual(clock.size(), 0)
    }))

  it.effect("never runs an entry inside of `add`, however late it is", () =>
    Effect.gen(function*() {
      const { clock, note, ran } = yield* make
      yield* TestClock.adjust(50)
      for (const at of [0, 49, 50]) {
        clock.add(at, note(`${at}`))
        assert.deepStrictEqual(ran, [])
      }
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(ran, [["0", 50], ["49", 50], ["50", 50]])
    }))

  it.effect("entries may add entries, due at once or later", () =>
    Effect.gen(function*() {
      const { clock, note, ran } = yield* make
      clock.add(10, () => {
        note("a")()
        clock.add(5, note("overdue"))
        clock.add(10, note("now"))
        clock.add(15, note("later"))
      })
      yield* TestClock.adjust(10)
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(ran, [["a", 10], ["overdue", 10], ["now", 10]])
      yield* TestClock.adjust(5)
      assert.deepStrictEqual(ran[3], ["later", 15])
    }))

  it.effect("one that throws takes no other with it", () =>
    quietly(Effect.gen(function*() {
      const { clock, note, ran } = yield* make
      clock.add(10, note("before"))
      clock.add(10.5, () => {
        throw new Error("boom")
      })
      clock.add(10.6, note("beside"))
      clock.add(20, note("after"))
      yield* TestClock.adjust(15)
      clock.add(16, note("added"))
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(ran.map(([name]) => name), ["before", "beside", "added", "after"])
    })))

  it.effect("what ticks is asked before the entries of each moment", () =>
    Effect.gen(function*() {
      const log: Array<string> = []
      const clock = yield* timer.make(() => void log.push("tick"))
      clock.add(10, () => void log.push("a"))
      clock.add(20, () => void log.push("b"))
      yield* TestClock.adjust(30)
      assert.deepStrictEqual(log, ["tick", "a", "tick", "b"])
    }))

  it.effect("R2.5 ticks at least once a second while there are entries, and not at all without", () =>
    Effect.gen(function*() {
      const { clock: settable } = yield* settableClock
      let ticks = 0
      const clock = yield* Effect.withClock(timer.make(() => void ticks++), settable)
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(ticks, 0)
      const entry = clock.add(100_000, () => {})
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(ticks, 10)
      clock.cancel(entry)
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(ticks, 11)
    }))

  it.live("R7.1 trim: a sleep that only cancelled entries asked for ends", () =>
    Effect.gen(function*() {
      const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length
      const { clock } = yield* make
      const before = timers()
      clock.cancel(clock.add(clock.now() + 3_600_000, () => {}))
      assert.strictEqual(timers(), before + 1)
      clock.trim()
      yield* Effect.sleep(1)
      assert.isAtMost(timers(), before)
    }))

  it.live("R1.8 on the real clock: in order, never early, and a year is not at once", () =>
    Effect.gen(function*() {
      const { clock, note, ran } = yield* make
      const start = clock.now()
      const year = clock.add(start + 365 * 86_400_000, note("year"))
      for (const after of [30, 5, 15, 0]) clock.add(start + after, note(`${after}`))
      yield* Effect.sleep(60)
      assert.deepStrictEqual(ran.map(([name]) => name), ["0", "5", "15", "30"])
      for (const [name, at] of ran) assert.isAtLeast(at, start + Number(name))
      clock.cancel(year)
      clock.trim()
    }))
})
