import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import * as trust from "../src/internal/pure/trust.js"

const ttls = fc.oneof(
  fc.double({ min: 1, max: 365 * 86_400_000, noNaN: true }),
  fc.integer({ min: 1, max: 60_000 })
)
const instants = fc.double({ min: 0, max: 1e10, noNaN: true })

const held = (state: trust.Trust) => {
  assert(state._tag === "Held")
  return state
}

describe("trust", () => {
  it("R2.5 the margin is one percent and five milliseconds", () => {
    assert.strictEqual(trust.margin(15_000), 155)
    assert.strictEqual(trust.margin(100), 6)
    assert.strictEqual(trust.trustedUntil(1_000, 15_000), 15_845)
  })

  it("R2.5 a very short lease is believed for half of it", () => {
    assert.strictEqual(trust.margin(4), 2)
    assert.strictEqual(trust.trustedUntil(0, 1), 0.5)
  })

  it("R1.8 a lease without end needs neither margin nor renewal", () => {
    const state = held(trust.granted(123, Infinity))
    assert.strictEqual(state.until, Infinity)
    assert.strictEqual(state.renewAt, Infinity)
    assert.isTrue(trust.isTrusted(state, Number.MAX_SAFE_INTEGER))
    assert.isTrue(trust.isFresh(state, Number.MAX_SAFE_INTEGER, Infinity))
    assert.strictEqual(trust.confirmed(state, 5, Infinity), state)
  })

  it("R1.8 a year is exact", () => {
    const year = 365 * 86_400_000
    assert.strictEqual(held(trust.granted(7, year)).until, 7 + year - year / 100 - 5)
  })

  it("R2.5 B42 never later than the store's own end, counted from the start of the attempt", () => {
    fc.assert(fc.property(instants, ttls, (start, ttl) => {
      const { renewAt, until } = held(trust.granted(start, ttl))
      assert.isAtMost(until, start + ttl - Math.min(5, ttl / 2) + 1e-3)
      assert.isAtLeast(until, start + ttl / 2 - 1e-3)
      assert.isAtLeast(renewAt, start)
      // time for a second try
      assert.isBelow(renewAt, until)
    }))
  })

  it("R2.5 longer leases are believed for longer, and later attempts until later", () => {
    fc.assert(fc.property(instants, instants, ttls, ttls, (start, start2, ttl, ttl2) => {
      const [early, late] = [Math.min(start, start2), Math.max(start, start2)]
      const [short, long] = [Math.min(ttl, ttl2), Math.max(ttl, ttl2)]
      assert.isAtMost(trust.trustedUntil(early, ttl), trust.trustedUntil(late, ttl))
      assert.isAtMost(trust.trustedUntil(start, short), trust.trustedUntil(start, long) + 1e-6)
    }))
  })

  it("R2.5 is believed up to the last moment, and not at it", () => {
    const state = trust.granted(0, 1000)
    assert.isTrue(trust.isTrusted(state, 984.999))
    assert.isFalse(trust.isTrusted(state, 985))
    assert.isFalse(trust.isTrusted(trust.lost, 0))
    assert.isFalse(trust.isTrusted(trust.released, 0))
  })

  const step = fc.oneof(
    fc.record({
      _tag: fc.constant("confirmed" as const),
      wait: fc.double({ min: 0, max: 2, noNaN: true }),
      took: fc.double({ min: 0, max: 2, noNaN: true })
    }),
    fc.record({
      _tag: fc.constant("unanswered" as const),
      wait: fc.double({ min: 0, max: 2, noNaN: true }),
      jitter: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
    })
  )

  it("R2.5 the end is that of the latest confirmed attempt, whatever the order of the answers", () => {
    fc.assert(fc.property(instants, ttls, fc.array(step, { maxLength: 30, size: "max" }), (start, ttl, steps) => {
      let state = trust.granted(start, ttl)
      let now = start
      let latest = start
      for (const step of steps) {
        now += step.wait * ttl
        if (step._tag === "confirmed") {
          const began = Math.max(start, now - step.took * ttl)
          state = trust.confirmed(state, began, ttl)
          latest = Math.max(latest, began)
        } else {
          const before = held(state)
          state = trust.unanswered(state, now, step.jitter)
          assert.strictEqual(held(state).until, before.until)
          assert.isAbove(held(state).renewAt, now)
          assert.isAtMost(held(state).renewAt, now + 1000)
        }
        assert.strictEqual(held(state).until, trust.trustedUntil(latest, ttl))
      }
    }))
  })

  it("R2.3 nothing revives what was lost or released", () => {
    fc.assert(fc.property(instants, ttls, (now, ttl) => {
      for (const ended of [trust.lost, trust.released]) {
        assert.strictEqual(trust.confirmed(ended, now, ttl), ended)
        assert.strictEqual(trust.unanswered(ended, now, 0.5), ended)
        assert.isFalse(trust.isFresh(ended, now, ttl))
      }
    }))
  })

  it("R2.5 unanswered renewals are tried again several times before the end, and not without a pause", () => {
    fc.assert(
      fc.property(
        fc.double({ min: 100, max: 60_000, noNaN: true }),
        fc.array(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), { minLength: 64, maxLength: 64 }),
        (ttl, jitters) => {
          let state = held(trust.granted(0, ttl))
          let tries = 0
          while (state.renewAt < state.until && tries < jitters.length) {
            const now = state.renewAt
            state = held(trust.unanswered(state, now, jitters[tries]!))
            assert.isAtLeast(state.renewAt, now + 1)
            tries++
          }
          assert.isAtLeast(tries, 4)
        }
      )
    )
  })

  it("R6.4 fresh: two thirds of the ttl are left", () => {
    const state = trust.granted(0, 3000)
    assert.isTrue(trust.isFresh(state, 0, 3000))
    assert.isTrue(trust.isFresh(state, 1000, 3000))
    assert.isFalse(trust.isFresh(state, 1001, 3000))
    // just renewed, hence fresh again
    assert.isTrue(trust.isFresh(trust.confirmed(state, 1000, 3000), 1001, 3000))
  })
})
