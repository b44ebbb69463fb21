/**
 * Many leases of one layer: they are renewed together. In virtual time, so that half a minute takes a moment.
 */
import type { LockDriver } from "effect-locking"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/TestClock"
import * as TestContext from "effect/TestContext"
import type { Benchmark } from "../figure.js"
import { Locking, MemoryStore } from "../library.js"

const leases = 1000
const ttl = 3

const counting = (driver: LockDriver.LockDriver, seen: { calls: number; grants: number }): LockDriver.LockDriver => ({
  ...driver,
  renew: (grants) => {
    seen.calls++
    seen.grants += grants.length
    return driver.renew(grants)
  }
})

const program = Effect.scoped(Effect.gen(function*() {
  const seen = { calls: 0, grants: 0 }
  const driver = counting(yield* MemoryStore.driver(yield* MemoryStore.make), seen)
  const locking = yield* Locking.make(driver, { ttl: `${ttl} seconds`, holdWarning: Number.POSITIVE_INFINITY })
  // taken over more than a third of the ttl, so that each would be due at a moment of its own
  for (let i = 0; i < leases; i++) {
    yield* locking.acquire(`k${i}`)
    if (i % 5 === 4) yield* TestClock.adjust("7 millis")
  }
  yield* TestClock.adjust("5 seconds")
  const before = { ...seen }
  const seconds = 10
  for (let i = 0; i < seconds * 20; i++) yield* TestClock.adjust("50 millis")
  return { calls: (seen.calls - before.calls) / seconds, grants: (seen.grants - before.grants) / seconds }
})).pipe(Effect.provide(TestContext.TestContext))

export const renewals: Benchmark = async () => {
  const { calls, grants } = await Effect.runPromise(program)
  return [{
    name: `renew calls for ${leases} leases at a ttl of ${ttl} s`,
    value: calls,
    unit: "per second",
    note: `they renew ${grants.toFixed(0)} leases per second, ${(grants / calls).toFixed(0)} per call`
  }]
}
