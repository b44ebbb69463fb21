/** What a planned operation does: a call of the public API around a body that looks at its leases. */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Lease from "../../src/Lease.js"
import type { Locking } from "../../src/Locking.js"
import type { AcquireOptions, TryOptions } from "../../src/LockOptions.js"
import type { Run } from "./facts.js"
import { Boom, defect } from "./outcome.js"
import type { Operation } from "./plan.js"

/** Told what sections do, at the instant at which they do it. */
export interface SectionWatcher {
  readonly entered: (run: Run, leases: ReadonlyArray<Lease.Lease>) => void
  readonly stepped: (run: Run) => void
  readonly finalizing: (run: Run) => void
  readonly left: (run: Run) => void
  readonly wrong: (run: Run, text: string) => void
}

const millis = (ms: number | "forever") => ms === "forever" ? Duration.infinity : Duration.millis(ms)

const tryOptions = (operation: Operation): TryOptions => ({
  mode: operation.mode,
  ttl: millis(operation.ttl),
  autoRenew: operation.autoRenew && operation.api !== "renewing",
  ...(operation.maxHold === null ? {} : { maxHold: millis(operation.maxHold) })
})

const acquireOptions = (operation: Operation): AcquireOptions => ({
  ...tryOptions(operation),
  waitTimeout: millis(operation.wait)
})

/** The call that a run makes. */
export const call = (locking: Locking, run: Run, watcher: SectionWatcher): Effect.Effect<unknown, unknown> => {
  const { operation } = run
  const key = operation.keys[0]
  const options = acquireOptions(operation)
  const body = (leases: ReadonlyArray<Lease.Lease>) => section(run, leases, watcher)
  switch (operation.api) {
    case "useLock":
    case "early":
    case "renewing":
      return locking.useLock(key, options, (lease) => body([lease]))
    case "withLock":
      return locking.withLock(Effect.flatMap(Lease.current, (lease) => body(Option.toArray(lease))), key, options)
    case "useLocks":
      return locking.useLocks(operation.keys, options, body)
    case "withLockIfAvailable":
      return locking.withLockIfAvailable(
        Effect.flatMap(Lease.current, (lease) => body(Option.toArray(lease))),
        key,
        tryOptions(operation)
      )
    case "tryAcquire":
      return Effect.scoped(
        Effect.flatMap(
          locking.tryAcquire(key, tryOptions(operation)),
          (lease) => Option.isSome(lease) ? body([lease.value]) : Effect.void
        )
      )
    case "acquire":
      return Effect.scoped(Effect.flatMap(locking.acquire(key, options), (lease) => body([lease])))
    case "guard":
      return Effect.scoped(Effect.flatMap(locking.acquire(key, options), (lease) => lease.guard(body([lease]))))
    case "nested":
      return locking.useLock(key, options, (lease) => {
        const inner = locking.useLock(key, { ...options, reentrant: true }, (same) =>
          same.fence === lease.fence
            ? Effect.void
            : Effect.sync(() => watcher.wrong(run, `joined ${lease.fence} and got ${same.fence}`)))
        return section(run, [lease], watcher, inner)
      })
  }
}

/** The body: so many steps, each followed by a sleep, then the end that the plan wants, then a finalizer. */
const section = (
  run: Run,
  leases: ReadonlyArray<Lease.Lease>,
  watcher: SectionWatcher,
  first: Effect.Effect<void, unknown> = Effect.void
): Effect.Effect<void, unknown> => {
  const { operation } = run
  const step = Effect.sync(() => watcher.stepped(run))
  const each: Array<Effect.Effect<unknown, unknown>> = [first]
  for (let i = 0; i < operation.steps; i++) {
    each.push(step, Effect.sleep(Duration.millis(operation.stepMs)))
    if (operation.api === "renewing") each.push(leases[0].renew)
    if (operation.api === "early" && i === operation.steps >> 1) {
      each.push(Effect.suspend(() => {
        run.gaveBack = true
        return leases[0].release
      }))
    }
  }
  if (operation.exit === "fail") each.push(Effect.fail(new Boom()))
  if (operation.exit === "die") each.push(Effect.die(defect))
  const steps = Effect.forEach(each, (effect) => effect, { discard: true })
  const finalizer = operation.finalMs === 0
    ? Effect.void
    : Effect.zipRight(Effect.sleep(Duration.millis(operation.finalMs)), step)
  return Effect.uninterruptibleMask((restore) => {
    watcher.entered(run, leases)
    return restore(steps).pipe(
      Effect.onExit((exit) => {
        run.bodyExit = exit
        watcher.finalizing(run)
        return Effect.zipRight(finalizer, Effect.sync(() => watcher.left(run)))
      })
    )
  })
}
