import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Logger, LogLevel, Option, Random } from "effect"
import type { Lease } from "effect-locking/Lease"
import * as Locking from "effect-locking/Locking"
import type { AcquireOptions } from "effect-locking/LockOptions"
import * as MemoryStore from "effect-locking/MemoryStore"
import { unsafeValidUntil } from "../src/internal/lease.js"
import { sizes } from "../src/internal/sizes.js"
import * as Faulty from "./faultyDriver.js"

/** What may befall a call. Most of them pass. */
const faults = (driver: Faulty.FaultyDriver): ReadonlyArray<readonly [number, Faulty.Fault]> => [
  [60, (execute) => execute],
  [10, Faulty.slow("3 millis")],
  [15, Faulty.late("30 millis")],
  [4, Faulty.late("150 millis")],
  [4, Faulty.stubborn(Faulty.slow("60 millis"))],
  [4, Faulty.refuse],
  [3, Faulty.broken],
  [2, Faulty.die],
  [2, driver.mute],
  [2, driver.lost]
]

const pick = <A>(weighted: ReadonlyArray<readonly [number, A]>, random: number): A => {
  let left = random * weighted.reduce((sum, [weight]) => sum + weight, 0)
  for (const [weight, value] of weighted) {
    left -= weight
    if (left < 0) return value
  }
  return weighted[weighted.length - 1]![1]
}

/** Renewals fail often, so that leases are lost. */
const faultsOfRenewals = (driver: Faulty.FaultyDriver): ReadonlyArray<readonly [number, Faulty.Fault]> => [
  [20, (execute) => execute],
  [30, Faulty.late("35 millis")],
  [10, driver.lost],
  [30, driver.mute],
  [10, Faulty.refuse]
]

const keys = ["a", "b", "c", "d", "e", "f"]

interface Inside {
  readonly key: string
  readonly lease: Lease
}

describe("chaos", () => {
  it.live("R7.2 whatever befalls the calls: no two believe in one key, fences rise, all calls end, nothing stays", () =>
    Effect.scoped(Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const watcher = yield* Locking.make(yield* MemoryStore.driver(store))
      const inside = new Set<Inside>()
      const lastFence = new Map<string, bigint>()
      const violations: Array<string> = []
      const ends = new Map<string, number>()
      let entered = 0

      const enter = (key: string, lease: Lease, now: number) => {
        entered++
        for (const other of inside) {
          if (other.key !== key || (other.lease.mode === "shared" && lease.mode === "shared")) continue
          const until = unsafeValidUntil(other.lease)
          if (now < until) violations.push(`two valid leases of ${key}`)
          // the machine may be slow, but not that slow
          else if (until > 0 && now > until + 300) violations.push(`nobody said that a lease of ${key} has ended`)
        }
        if (lease.mode === "exclusive") {
          if (lease.fence <= (lastFence.get(key) ?? 0n)) violations.push(`fence ${lease.fence} of ${key} does not rise`)
          lastFence.set(key, lease.fence)
        }
        const entry = { key, lease }
        inside.add(entry)
        return entry
      }

      const section = (key: string) => (lease: Lease) =>
        Effect.acquireUseRelease(
          Effect.map(Faulty.now, (now) => enter(key, lease, now)),
          // most are short, some need renewals
          () =>
            Effect.flatMap(Random.next, (random) => Effect.sleep(random < 0.6 ? random * 30 : (random - 0.55) * 3_500)),
          (entry) => Effect.sync(() => inside.delete(entry))
        )

      const processes: Array<{ driver: Faulty.FaultyDriver; locking: Locking.Locking }> = []
      for (let i = 0; i < 3; i++) {
        const driver = yield* Faulty.make(store)
        const locking = yield* Locking.make(driver, {
          backend: "chaos",
          ttl: "200 millis",
          attemptTimeout: "40 millis",
          waitTimeout: "400 millis"
        })
        for (const op of ["attempt", "arm", "withdraw", "renew", "release"] as const) {
          const possible = op === "renew" ? faultsOfRenewals(driver) : faults(driver)
          driver.always(
            op,
            (execute, call) => Effect.flatMap(Random.next, (random) => pick(possible, random)(execute, call))
          )
        }
        processes.push({ driver, locking })
      }

      const stopAt = (yield* Faulty.now) + 4_000
      const client = (locking: Locking.Locking) =>
        Effect.gen(function*() {
          while ((yield* Faulty.now) < stopAt) {
            const index = yield* Random.nextIntBetween(0, keys.length)
            const key = keys[index]!
            const options: AcquireOptions = { mode: (yield* Random.next) < 0.25 ? "shared" : "exclusive" }
            const call: Effect.Effect<unknown, { readonly _tag: string }> = (yield* Random.next) < 0.1
              ? locking.useLocks([key, keys[(index + 1) % keys.length]!], options, (leases) =>
                Effect.all(
                  leases.map((lease) => section(lease.key)(lease)),
                  { concurrency: "unbounded" }
                ))
              : locking.useLock(key, options, section(key))
            const fiber = yield* Effect.fork(call)
            if ((yield* Random.next) < 0.15) {
              yield* Effect.sleep(yield* Random.nextIntBetween(0, 60))
              yield* Fiber.interrupt(fiber)
            }
            const exit = yield* Fiber.await(fiber)
            const end = Exit.match(exit, {
              onSuccess: () => "success",
              onFailure: (cause) =>
                Option.match(Cause.failureOption(cause), {
                  onNone: () => Cause.isInterruptedOnly(cause) ? "interrupted" : "defect",
                  onSome: (error) => error._tag
                })
            })
            ends.set(end, (ends.get(end) ?? 0) + 1)
          }
        })
      const clients = yield* Effect.forEach(
        processes.flatMap(({ locking }) => Array.from({ length: 8 }, () => locking)),
        (locking) => Effect.fork(client(locking))
      )
      yield* Fiber.joinAll(clients)

      assert.deepStrictEqual(violations, [])
      // else nothing was shown
      assert.isAbove(entered, 40)
      assert.isAbove(ends.get("success") ?? 0, 20)
      assert.isAbove(ends.get("LeaseLost") ?? 0, 10)
      const expected = ["success", "interrupted", "WaitTimeout", "OutcomeUnknown", "ProviderFailed", "LeaseLost"]
      for (const end of ends.keys()) assert.include(expected, end)
      for (const { driver } of processes) driver.heal()
      // one ttl later nothing is held by nobody
      yield* Effect.sleep("700 millis")
      for (const { locking } of processes) {
        const { activities, grants, leases, records, waiters } = sizes(locking)
        assert.deepStrictEqual({ activities, grants, leases, records, waiters }, {
          activities: 0,
          grants: 0,
          leases: 0,
          records: 0,
          waiters: 0
        })
      }
      assert.deepStrictEqual(yield* watcher.list(), [])
    })).pipe(Effect.provide(Logger.minimumLogLevel(LogLevel.None))))
})
