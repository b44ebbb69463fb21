/**
 * Drivers that break one promise each, to show that the judge sees it.
 */
import { Effect, Queue } from "effect"
import type { Busy, Contention, Full, Grant, LockDriver, Renewal } from "effect-locking/LockDriver"

type Break = (driver: LockDriver) => LockDriver

const granting = (f: (grant: Grant) => Effect.Effect<Grant>): Break => (driver) => ({
  ...driver,
  contend: (request) => {
    const inner = driver.contend(request)
    return {
      attempt: (attempt) =>
        Effect.flatMap(
          inner.attempt(attempt),
          (answer): Effect.Effect<Grant | Busy | Full> => answer._tag === "Grant" ? f(answer) : Effect.succeed(answer)
        ),
      arm: (wake) => inner.arm(wake),
      withdraw: Effect.suspend(() => inner.withdraw)
    } satisfies Contention
  }
})

const confirmed: Renewal = { _tag: "Confirmed", contended: false }

/** It does not hear that its session has ended, and takes every lease for a good one. */
const deaf: Break = (driver) => ({
  ...driver,
  renew: (grants) => Effect.succeed(grants.map(() => confirmed)),
  losses: Effect.runSync(Queue.unbounded())
})

/** What it is granted it gives back at once. */
const leaky: Break = (driver) => granting((grant) => Effect.as(Effect.ignore(driver.release(grant)), grant))(driver)

/** Each process counts its own fences, so they are repeated. */
const counting: Break = (driver) => {
  let last = 0n
  return granting((grant) =>
    Effect.sync(() => ({ ...grant, fences: grant.fences.map(() => last += BigInt(grant.block)) }))
  )(
    driver
  )
}

export const breaks = { deaf, leaky, counting }

export type Broken = keyof typeof breaks
