import type * as History from "@effect-locking/testing/History"
import { decode, now } from "@effect-locking/testing/History"
import * as OverlapOracle from "@effect-locking/testing/OverlapOracle"
import { assert, describe, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import type { LockMode } from "effect-locking/LockDriver"

const window = (
  process: string,
  fence: number,
  from: number,
  until: number,
  mode: LockMode = "exclusive",
  key = "k"
): History.Window => ({ _tag: "window", process, key, mode, fence: BigInt(fence), from, until })

const write = (
  process: string,
  fence: number,
  from: number,
  until: number | undefined,
  outcome: History.Write["outcome"] = "accepted"
): History.Write => ({ _tag: "write", process, resource: "r", fence: BigInt(fence), from, until, outcome })

let id = 0
const call = (
  at: number,
  end: number | undefined,
  invoke:
    | { readonly call: "acquire"; readonly mode: LockMode; readonly ttl?: number }
    | { readonly call: "renew"; readonly fence: bigint; readonly ttl?: number }
    | { readonly call: "release"; readonly fence: bigint },
  answer: History.Return["_tag"],
  fence?: bigint
): ReadonlyArray<History.Event> => {
  const name = `c${id++}`
  return [
    { _tag: "invoke", id: name, at, process: "p", key: "k", ...invoke },
    ...end === undefined ? [] : [{ _tag: answer, id: name, at: end, fence } as const]
  ]
}
const exclusive = { call: "acquire", mode: "exclusive" } as const
const shared = { call: "acquire", mode: "shared" } as const
const acquire = (at: number, end: number, fence: number, ttl?: number) =>
  call(at, end, ttl === undefined ? exclusive : { ...exclusive, ttl }, "ok", BigInt(fence))
const read = (at: number, end: number, fence: number) => call(at, end, shared, "ok", BigInt(fence))
const busy = (at: number, end: number) => call(at, end, exclusive, "busy")
const lost = (at: number) => call(at, undefined, exclusive, "info")
const renew = (at: number, end: number, fence: number, answer: "ok" | "fail", ttl: number) =>
  call(at, end, { call: "renew", fence: BigInt(fence), ttl }, answer)
const release = (at: number, end: number | undefined, fence: number, answer: "ok" | "fail" = "ok") =>
  call(at, end, { call: "release", fence: BigInt(fence) }, answer)

const found = (events: ReadonlyArray<History.Event>, options?: OverlapOracle.Options) =>
  OverlapOracle.judge(events, options).violations.map(({ what }) => what)

describe("windows of one key never overlap", () => {
  it("accepts them one after the other, on other keys, and readers together", () => {
    assert.deepStrictEqual(found([window("a", 1, 0, 10), window("b", 9, 10, 20)]), [])
    assert.deepStrictEqual(found([window("a", 1, 0, 10), window("b", 9, 5, 20, "exclusive", "other")]), [])
    assert.deepStrictEqual(found([window("a", 1, 0, 10, "shared"), window("b", 9, 5, 20, "shared")]), [])
    // parts of one window
    assert.deepStrictEqual(found([window("a", 1, 0, 10), window("a", 1, 5, 20), window("b", 9, 20, 30)]), [])
  })

  it("rejects two holders, and a reader beside a writer", () => {
    assert.deepStrictEqual(found([window("b", 9, 5, 20), window("a", 1, 0, 10)]), ["overlap"])
    assert.deepStrictEqual(found([window("a", 1, 0, 10, "shared"), window("b", 9, 5, 20)]), ["overlap"])
    assert.deepStrictEqual(found([window("a", 1, 0, 100), window("b", 9, 5, 7), window("c", 17, 50, 60)]), [
      "overlap",
      "overlap"
    ])
    assert.deepStrictEqual(found([window("a", 1, 0, 5), window("a", 1, 5, 30), window("b", 9, 20, 30)]), ["overlap"])
    const [violation] = OverlapOracle.judge([window("a", 1, 0, 10_000), window("b", 9, 5_000, 20_000)]).violations
    assert.strictEqual(violation!.message, "a (exclusive, fence 1) and b (exclusive, fence 9) for 5.000 ms")
  })
})

describe("fences rise in the order of grants", () => {
  it("says nothing of grants that overlapped in time", () => {
    const events = [...read(0, 10, 9), ...read(5, 15, 1), ...release(16, 17, 1), ...release(18, 19, 9)]
    assert.deepStrictEqual(found(events), [])
  })

  it("rejects a later grant with a smaller or the same fence", () => {
    const first = [...acquire(0, 1, 9), ...release(2, 3, 9)]
    assert.deepStrictEqual(found([...first, ...acquire(4, 5, 17)]), [])
    assert.deepStrictEqual(found([...first, ...acquire(4, 5, 8)]), ["fence", "lock"])
    assert.deepStrictEqual(found([...first, ...acquire(4, 5, 9)]), ["fence", "lock"])
  })

  it("two readers of one grant may have one fence, a writer may not have a reader's", () => {
    const readers = [...read(0, 1, 9), ...read(2, 3, 9)]
    assert.deepStrictEqual(found(readers), [])
    assert.include(found([...readers, ...release(4, 5, 9), ...release(6, 7, 9, "fail"), ...acquire(8, 9, 9)]), "fence")
  })
})

describe("a guarded resource never goes back", () => {
  it("accepts writes in order, equal fences, and refusals of old ones", () => {
    assert.deepStrictEqual(
      found([write("a", 1, 0, 1), write("a", 1, 2, 3), write("b", 9, 4, 5), write("a", 1, 6, 7, "refused")]),
      []
    )
    assert.deepStrictEqual(found([write("a", 1, 0, 10), write("b", 9, 0, 10)]), [])
  })

  it("rejects an old write after a new one, and the refusal of the newest", () => {
    assert.deepStrictEqual(found([write("b", 9, 0, 1), write("a", 1, 2, 3)]), ["stale-write", "register"])
    assert.deepStrictEqual(found([write("a", 1, 0, 1), write("b", 9, 2, 3, "refused")]), ["register"])
  })

  it("a write without an answer may have happened, or not", () => {
    const unanswered = write("b", 9, 0, undefined, "unknown")
    assert.deepStrictEqual(found([unanswered, write("a", 1, 2, 3)]), [])
    assert.deepStrictEqual(found([unanswered, write("a", 1, 2, 3, "refused")]), [])
    assert.deepStrictEqual(found([unanswered, write("a", 1, 2, 3, "refused"), write("a", 1, 4, 5)]), ["register"])
    assert.deepStrictEqual(found([write("a", 1, 2, 3, "refused")]), ["register"])
  })
})

describe("the answers of a lock have an order that explains them", () => {
  const held = acquire(0, 1, 1, 100)

  it("accepts a lock at work", () => {
    assert.deepStrictEqual(found([...held, ...busy(2, 3), ...release(4, 5, 1), ...acquire(6, 7, 9)]), [])
    assert.deepStrictEqual(
      found([...held, ...renew(90, 91, 1, "ok", 100), ...busy(150, 151), ...acquire(191, 192, 9)]),
      []
    )
    // it ended by itself, and whoever held it is told so
    assert.deepStrictEqual(found([...held, ...acquire(101, 102, 9), ...renew(103, 104, 1, "fail", 100)]), [])
    assert.deepStrictEqual(found([...read(0, 1, 1), ...read(2, 3, 9), ...busy(4, 5)]), [])
  })

  it("rejects two holders at once", () => {
    assert.deepStrictEqual(found([...held, ...acquire(50, 51, 9)]), ["lock"])
    assert.deepStrictEqual(found([...held, ...read(50, 51, 9)]), ["lock"])
  })

  it("rejects a lease that ends before its time, unless it may", () => {
    const early = [...held, ...renew(90, 91, 1, "ok", 100), ...acquire(120, 121, 9)]
    assert.deepStrictEqual(found(early), ["lock"])
    assert.deepStrictEqual(found(early, { tolerance: 80 }), [])
    assert.deepStrictEqual(found(early, { endsEarly: true }), [])
    // its holder believed in it for longer than the last answer says
    assert.deepStrictEqual(found([...held, window("p", 1, 1, 500), ...acquire(200, 201, 9)]), ["lock"])
  })

  it("rejects a renewal that takes a lost lock back", () => {
    const lostAndUsed = [...held, ...acquire(101, 102, 9, 100), ...release(103, 104, 9)]
    assert.deepStrictEqual(found([...lostAndUsed, ...renew(105, 106, 1, "fail", 100)]), [])
    assert.deepStrictEqual(found([...lostAndUsed, ...renew(105, 106, 1, "ok", 100)]), ["lock"])
  })

  it("rejects busy when nobody holds it, unless others may be in the way", () => {
    assert.deepStrictEqual(found(busy(0, 1)), ["lock"])
    assert.deepStrictEqual(found(busy(0, 1), { spuriousBusy: true }), [])
  })

  it("rejects a release of what was given up already", () => {
    const twice = [...held, ...release(2, 3, 1), ...release(4, 5, 1)]
    assert.deepStrictEqual(found(twice), ["lock"])
    assert.deepStrictEqual(found([...held, ...release(2, 3, 1), ...release(4, 5, 1, "fail")]), [])
  })

  it("an attempt without an answer may hold the lock, for as long as it likes", () => {
    assert.deepStrictEqual(found([...lost(0), ...busy(5, 6), ...acquire(7, 8, 9)]), [])
    // it holds it now, so it cannot have been free and be held again
    assert.deepStrictEqual(
      found([...lost(0), ...busy(1, 2), ...acquire(3, 4, 9), ...release(5, 6, 9), ...busy(7, 8)]),
      ["lock"]
    )
    assert.deepStrictEqual(found([...held, ...release(2, undefined, 1), ...acquire(50, 51, 9)]), [])
  })

  it("rejects a history that makes no sense", () => {
    assert.deepStrictEqual(found([{ _tag: "ok", id: "nobody", at: 1 }]), ["history"])
    const [invoke] = acquire(5, 6, 1)
    assert.deepStrictEqual(found([invoke!, invoke!]), ["history"])
    assert.include(found([invoke!, { _tag: "ok", id: (invoke as History.Invoke).id, at: 1, fence: 1n }]), "history")
    assert.include(found([invoke!, { _tag: "ok", id: (invoke as History.Invoke).id, at: 6 }]), "history")
  })
})

/** A lock that is one, used by processes that overlap: each takes effect between its call and its answer. */
const run = (moves: ReadonlyArray<{ readonly lead: number; readonly lag: number; readonly hold: number }>) => {
  const events: Array<History.Event> = []
  let at = 0
  let fence = 0
  for (const { hold, lag, lead } of moves) {
    const granted = at + 10
    const released = granted + 2 + hold
    fence += 8
    const process = `p${fence}`
    const of: ReadonlyArray<History.Event> = [
      ...acquire(granted - lead, granted + Math.min(lag, 1), fence),
      window(process, fence, granted + 1, released),
      write(process, fence, granted + 1, released),
      ...release(released, released + 1 + lag, fence)
    ]
    for (const event of of) events.push(event)
    at = released
  }
  return events
}

const moves = fc.array(
  fc.record({ lead: fc.integer({ min: 0, max: 40 }), lag: fc.integer({ min: 0, max: 8 }), hold: fc.nat(5) }),
  { minLength: 2, maxLength: 30 }
)

describe("random histories", () => {
  it("of a lock are accepted", () => {
    fc.assert(fc.property(moves, (moves) => {
      const { counts, violations } = OverlapOracle.judge(run(moves))
      assert.deepStrictEqual(violations, [])
      assert.deepStrictEqual(counts, {
        grants: moves.length,
        busy: 0,
        unknown: 0,
        windows: moves.length,
        accepted: moves.length,
        refused: 0
      })
    }))
  })

  it("with one holder too many are rejected", () => {
    fc.assert(fc.property(moves, fc.nat(), (moves, at) => {
      const events = run(moves)
      const windows = events.filter((event) => event._tag === "window")
      const victim = windows[at % windows.length]!
      const intruder = window("intruder", 999_999, victim.from, victim.until)
      assert.include(found([...events, intruder]), "overlap")
      const { fence: _, ...invoke } = { ...intruder, _tag: "invoke" } as any
      const grant: ReadonlyArray<History.Event> = [
        { ...invoke, id: "intruder", at: victim.from, call: "acquire" },
        { _tag: "ok", id: "intruder", at: victim.from + 0.5, fence: 999_999n }
      ]
      assert.include(found([...events, ...grant]), "lock")
    }))
  })
})

describe("History", () => {
  it("comes back from JSON", () => {
    const events: ReadonlyArray<History.Event> = [...acquire(1, 2, 9, 5), window("a", 9, 1, 2), write("a", 9, 1, 2)]
    const lines = JSON.parse(JSON.stringify(events, (_, part) => typeof part === "bigint" ? String(part) : part))
    assert.deepStrictEqual(decode([...lines, null, 1, { _tag: "other" }, {}]), events)
  })

  it("has times that rise", () => {
    const times = Array.from({ length: 100 }, now)
    assert.deepStrictEqual(times, [...times].sort((a, b) => a - b))
    assert.isTrue(times.every(Number.isInteger))
  })
})
