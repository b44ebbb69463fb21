/**
 * A memory store behind a network that can fail, in virtual time: what a driver of a server looks like to the suite.
 */
import type { DriverUnderTest } from "@effect-locking/testing/LockDriverSuite"
import { Duration, Effect } from "effect"
import { type Claim, type Contention, DriverError, type LockDriver } from "effect-locking/LockDriver"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as MemoryStore from "effect-locking/MemoryStore"

const silence = new DriverError({ executed: "unknown", message: "the connection has ended" })
const refusal = new DriverError({ executed: "no", message: "connection refused" })

/** The driver of each process, and the world around them. */
export const make: Effect.Effect<DriverUnderTest> = Effect.gen(function*() {
  const store = yield* MemoryStore.make
  const namespaces = new Set<string>()
  const interests = new Set<Contention>()
  const waiting = new Set<() => void>()
  const state = { isMute: false, isDown: false, losesNextReply: false }

  /** Without faults it takes no time, as nobody would move the clock for it. */
  const call = <A>(execute: Effect.Effect<A, DriverError>): Effect.Effect<A, DriverError> =>
    Effect.gen(function*() {
      if (state.isDown) return yield* refusal
      if (state.isMute) return yield* ended
      const answer = yield* execute
      if (state.losesNextReply) {
        state.losesNextReply = false
        return yield* silence
      }
      return answer
    })

  const ended: Effect.Effect<never, DriverError> = Effect.async((resume) => {
    const end = () => resume(Effect.fail(silence))
    waiting.add(end)
    return Effect.sync(() => waiting.delete(end))
  })

  const open = Effect.map(MemoryStore.driver(store), (inner): LockDriver => ({
    ...inner,
    name: "network",
    capabilities: {
      ...inner.capabilities,
      remote: true,
      ttl: { default: Duration.seconds(15), min: Duration.millis(100), infinite: false },
      maxKeys: 1_000
    },
    contend: (request) => {
      namespaces.add(request.keys[0]!.namespace)
      const contention = inner.contend(request)
      return {
        attempt: (attempt) => call(contention.attempt(attempt)),
        arm: (wake) =>
          call(Effect.zipRight(
            Effect.sync(() => interests.add(contention)),
            contention.arm(wake)
          )),
        withdraw: call(Effect.zipRight(
          Effect.sync(() => interests.delete(contention)),
          contention.withdraw
        ))
      }
    },
    renew: (grants) => call(inner.renew(grants)),
    release: (claim: Claim) => call(inner.release(claim)),
    inspect: (key: ResolvedKey) => call(inner.inspect(key)),
    list: (namespace) => call(inner.list(namespace)),
    forceRelease: (key, options) => call(inner.forceRelease(key, options)),
    check: Effect.succeed([{ severity: "warning", code: "TOY", message: "it forgets", fix: "use another one" }])
  }))

  const drop = Effect.sync(() => {
    for (const end of [...waiting]) end()
  })
  return {
    open,
    storeView: {
      grants: Effect.scoped(Effect.flatMap(MemoryStore.driver(store), (driver) =>
        Effect.map(
          Effect.forEach(namespaces, (namespace) => driver.list(namespace)),
          (held) => held.flat().flatMap(({ holders }) => holders).length
        ))),
      interests: Effect.sync(() => interests.size)
    },
    faults: {
      dropConnections: drop,
      loseNextReply: Effect.sync(() => void (state.losesNextReply = true)),
      stall: Effect.acquireRelease(
        Effect.sync(() => void (state.isMute = true)),
        () => Effect.zipRight(Effect.sync(() => state.isMute = false), drop)
      ),
      restart: Effect.gen(function*() {
        state.isDown = true
        yield* drop
        state.isDown = false
      })
    }
  }
})
