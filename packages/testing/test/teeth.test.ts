/**
 * The suite has teeth: each of these drivers breaks one promise, and the cases that are named find it.
 */
import { type DriverUnderTest, type Options, settings } from "@effect-locking/testing/LockDriverSuite"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Exit, TestContext } from "effect"
import type { Busy, Contention, Full, Grant, Holder, LockDriver, Renewal } from "effect-locking/LockDriver"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as MemoryStore from "effect-locking/MemoryStore"
import { groups } from "../src/internal/suite/groups.js"
import { makeWorld } from "../src/internal/suite/world.js"
import * as Network from "./network.js"

const all = groups.flatMap(({ cases }) => cases)

/** Whether a driver passes a case; one that hangs does not. */
const passes = (name: string, store: Effect.Effect<DriverUnderTest>) =>
  Effect.gen(function*() {
    const found = all.find((one) => one.name === name)
    if (found === undefined) assert.fail(`there is no case ${name}`)
    const options: Options = {
      name: "broken",
      time: "virtual",
      make: store,
      knows: ["fence", "token", "since", "until", "session", "metadata", "keys", "waiters"]
    }
    const run = Effect.flatMap(store, (made) => found.run(makeWorld(settings(options), made)))
    const exit = yield* Effect.promise(() =>
      Promise.race([
        Effect.runPromiseExit(Effect.provide(Effect.scoped(run), TestContext.TestContext)),
        new Promise<"hangs">((resolve) => setTimeout(resolve, 5_000, "hangs"))
      ])
    )
    return exit !== "hangs" && Exit.isSuccess(exit)
  })

const memory = Effect.map(MemoryStore.make, (store): DriverUnderTest => ({ open: MemoryStore.driver(store) }))

type Break = (driver: LockDriver) => LockDriver

/** One promise is broken in every process at the store. */
const broken = (f: Break): Effect.Effect<DriverUnderTest> =>
  Effect.map(memory, (made) => ({ ...made, open: Effect.map(made.open, f) }))

const contention =
  (f: (contention: Contention, keys: ReadonlyArray<ResolvedKey>) => Partial<Contention>): Break => (driver) => ({
    ...driver,
    contend: (request) => {
      const inner = driver.contend(request)
      const whole: Contention = {
        attempt: (attempt) => inner.attempt(attempt),
        arm: (wake) => inner.arm(wake),
        withdraw: Effect.suspend(() => inner.withdraw)
      }
      return { ...whole, ...f(whole, request.keys) }
    }
  })

const granted = (f: (grant: Grant) => Grant): Break =>
  contention((inner) => ({
    attempt: (attempt) => Effect.map(inner.attempt(attempt), (answer) => answer._tag === "Grant" ? f(answer) : answer)
  }))

const requested = (f: (request: Parameters<LockDriver["contend"]>[0]) => typeof request): Break => (driver) => ({
  ...driver,
  contend: (request) => driver.contend(f(request))
})

/** Another key than the one that was asked for. */
const keyed = (f: (key: ResolvedKey) => ResolvedKey): Break => (driver) => ({
  ...driver,
  contend: (request) => driver.contend({ ...request, keys: request.keys.map(f) }),
  renew: (grants) => driver.renew(grants.map((grant) => ({ ...grant, keys: grant.keys.map(f) }))),
  release: (claim) => driver.release({ ...claim, keys: claim.keys.map(f) }),
  inspect: (key) => driver.inspect(f(key)),
  forceRelease: (key, options) => driver.forceRelease(f(key), options)
})

const confirmed: Renewal = { _tag: "Confirmed", contended: false }

const drivers: Record<
  string,
  { readonly store: Effect.Effect<DriverUnderTest>; readonly found: ReadonlyArray<string> }
> = {
  "every process has a store of its own": {
    store: Effect.succeed({ open: Effect.flatMap(MemoryStore.make, MemoryStore.driver) }),
    found: [
      "R1.1 what one process holds another does not get, until it is released",
      "R1.6 who excludes whom, between processes",
      "R1.9 R2.2 a section outlasts its ttl by renewal, and nobody else gets in"
    ]
  },
  "release does not look at the token": {
    store: broken((driver) => ({
      ...driver,
      release: (claim) =>
        Effect.zipRight(
          Effect.forEach(claim.keys, (key) =>
            Effect.flatMap(driver.inspect(key), (holders) =>
              Effect.forEach(holders, ({ mode, token }) =>
                driver.release({ token: token!, keys: [key], mode })))),
          driver.release(claim)
        )
    })),
    found: [
      "R8.5 by a token that was never granted frees nothing",
      "R8.5 of an attempt that was told busy frees nothing",
      "R8.5 a release after the end says so, and harms no successor"
    ]
  },
  "release does nothing": {
    store: broken((driver) => ({ ...driver, release: () => Effect.succeed("released") })),
    found: ["R1.1 what one process holds another does not get, until it is released", "R8.5 may be repeated"]
  },
  "release never says that it is gone": {
    store: broken((driver) => ({ ...driver, release: (claim) => Effect.as(driver.release(claim), "released") })),
    found: ["R8.5 may be repeated", "R6.2 B21 armed, then released elsewhere: it is woken"]
  },
  "renewal takes a lost one back": {
    store: broken((driver) => ({
      ...driver,
      renew: (grants) =>
        Effect.forEach(grants, (grant) =>
          Effect.gen(function*() {
            const [answer] = yield* driver.renew([grant])
            if (answer!._tag === "Confirmed") return answer!
            const request = {
              ...grant,
              fair: false,
              waiting: false,
              holder: { session: "", metadata: {} }
            }
            const again = yield* driver.contend(request).attempt({ token: grant.token, left: Duration.seconds(1) })
            return again._tag === "Grant" ? confirmed : answer!
          }))
    })),
    found: ["R2.3 B34 renewal never takes a lapsed one back"]
  },
  "renewal goes by the key": {
    store: broken((driver) => ({
      ...driver,
      renew: (grants) =>
        Effect.forEach(grants, (grant) =>
          Effect.gen(function*() {
            const [holder] = yield* driver.inspect(grant.keys[0]!)
            const [answer] = yield* driver.renew([{ ...grant, token: holder?.token ?? grant.token }])
            return answer!
          }))
    })),
    found: [
      "R2.3 B09 renewal by another token extends nothing and ends nothing",
      "R2.3 B09 renewal by another token does not lengthen the holder's time"
    ]
  },
  "renewal extends nothing": {
    store: broken((driver) => ({ ...driver, renew: (grants) => Effect.succeed(grants.map(() => confirmed)) })),
    found: [
      "R1.9 renewal keeps it for many times its ttl",
      "R1.9 R2.2 a section outlasts its ttl by renewal, and nobody else gets in",
      "R1.5 R2.3 several keys are lost together"
    ]
  },
  "renewals are answered in another order": {
    store: broken((driver) => ({
      ...driver,
      renew: (grants) =>
        Effect.map(
          driver.renew(grants),
          (answers) => [...answers].reverse().slice().sort((a, b) => a._tag < b._tag ? -1 : 1)
        )
    })),
    found: ["R2.3 many renewals at once: each its own answer, in order"]
  },
  "a repeated attempt is in its own way": {
    store: broken((driver) => {
      const seen = new Set<string>()
      return contention((inner) => ({
        attempt: (attempt) =>
          seen.has(attempt.token)
            ? Effect.succeed<Busy>({ _tag: "Busy" })
            : Effect.tap(inner.attempt(attempt), (answer) => {
              if (answer._tag === "Grant") seen.add(attempt.token)
            })
      }))(driver)
    }),
    found: ["R1.7 a repeated attempt finds its own grant, with the same fences", "R1.7 a repeated attempt extends it"]
  },
  "a repeated attempt draws new fences": {
    store: broken((driver) => {
      let drawn = 0n
      return granted((grant) => ({ ...grant, fences: grant.fences.map((fence) => fence + (drawn += 8n)) }))(driver)
    }),
    found: ["R1.7 a repeated attempt finds its own grant, with the same fences"]
  },
  "a repeated attempt extends nothing": {
    store: broken((driver) => {
      const first = new Map<string, Grant | Busy | Full>()
      return contention((inner) => ({
        attempt: (attempt) =>
          Effect.suspend(() => {
            const known = first.get(attempt.token)
            return known !== undefined ? Effect.succeed(known) : Effect.tap(inner.attempt(attempt), (answer) => {
              if (answer._tag === "Grant") first.set(attempt.token, answer)
            })
          })
      }))(driver)
    }),
    found: ["R1.7 a repeated attempt extends it"]
  },
  "fences repeat": {
    store: broken(granted((grant) => ({ ...grant, fences: grant.fences.map(() => 1n) }))),
    found: [
      "R3.1 grow from grant to grant, and no number belongs to two",
      "R3.1 grow over an end that nobody released",
      "R3.1 R6.4 leases that are handed over inside a process have numbers of their own",
      "R3.3 B63 a holder that wakes up late is refused by the resource"
    ]
  },
  "fences run backwards": {
    store: broken(granted((grant) => ({ ...grant, fences: grant.fences.map((fence) => 10n ** 16n - fence) }))),
    found: ["R3.1 grow from grant to grant, and no number belongs to two", "R3.1 grow over the end of all processes"]
  },
  "blocks of fences overlap": {
    store: broken(granted((grant) => ({ ...grant, block: 2 * grant.block }))),
    found: ["R3.1 grow from grant to grant, and no number belongs to two"]
  },
  "several keys are taken one by one, and kept": {
    store: broken((driver) => ({
      ...driver,
      contend: (request) => {
        const inner = driver.contend(request)
        return {
          arm: (wake) => inner.arm(wake),
          withdraw: Effect.suspend(() => inner.withdraw),
          attempt: (attempt) =>
            Effect.gen(function*() {
              for (const key of request.keys) {
                const answer = yield* driver.contend({ ...request, keys: [key] }).attempt(attempt)
                if (answer._tag !== "Grant") return answer
              }
              return yield* inner.attempt(attempt)
            })
        }
      }
    })),
    found: ["R1.5 several keys: all of them or none"]
  },
  "nobody is woken": {
    store: broken(contention((inner) => ({ arm: () => inner.arm(() => {}) }))),
    found: [
      "R6.2 B21 armed, then released elsewhere: it is woken",
      "R6.2 every process that waits is woken in its turn, and so is who waits for one of several keys",
      "R1.6 R6.2 readers and writers wake each other"
    ]
  },
  "only the first of several keys wakes": {
    store: broken((driver) => ({
      ...driver,
      contend: (request) => {
        const inner = driver.contend(request)
        const first = driver.contend({ ...request, keys: request.keys.slice(0, 1) })
        return {
          attempt: (attempt) => inner.attempt(attempt),
          arm: (wake) => first.arm(wake),
          withdraw: Effect.suspend(() => first.withdraw)
        }
      }
    })),
    found: ["R6.2 every process that waits is woken in its turn, and so is who waits for one of several keys"]
  },
  "an offer keeps what others wait for": {
    store: broken((driver) => ({
      ...driver,
      offer: (grant) => Effect.succeed({ ...grant, fences: grant.fences.map((fence) => fence + BigInt(grant.block)) })
    })),
    found: ["R6.4 R6.2 an offer that somebody wants is a release"]
  },
  "an offer brings no numbers of its own": {
    store: broken((driver) => ({
      ...driver,
      offer: (grant) => Effect.as(Effect.asVoid(driver.renew([grant])), grant)
    })),
    found: ["R6.4 R3.1 an offer that nobody wants grants anew, under higher fences"]
  },
  "an offer that comes twice is a second one": {
    store: broken((driver) => ({
      ...driver,
      offer: (grant) => driver.release(grant)
    })),
    found: ["R6.4 an offer that comes twice only answers what came of it"]
  },
  "who withdraws is not forgotten": {
    store: Effect.map(Network.make, (made) => ({
      ...made,
      open: Effect.map(made.open, contention(() => ({ withdraw: Effect.void })))
    })),
    found: [
      "R6.2 who withdraws is forgotten by the store",
      "R6.5 a waiter that times out is forgotten by the store"
    ]
  },
  "readers pass a waiting writer": {
    store: broken((driver) => ({
      ...driver,
      contend: (request) => {
        const inner = driver.contend(request)
        const reader = driver.contend({ ...request, mode: "shared" })
        return {
          attempt: (attempt) => inner.attempt(attempt),
          arm: (wake) => reader.arm(wake),
          withdraw: Effect.suspend(() => reader.withdraw)
        }
      }
    })),
    found: ["R1.6 a waiting writer is not passed by new readers, and leaves no trace"]
  },
  "readers are writers": {
    store: broken(requested((request) => ({ ...request, mode: "exclusive" }))),
    found: ["R1.6 who excludes whom, between processes"]
  },
  "writers are readers": {
    store: broken(requested((request) => ({ ...request, mode: "shared" }))),
    found: ["R1.6 who excludes whom, between processes", "R1.1 no update is lost between processes"]
  },
  "grants end early": {
    store: broken(requested((request) => ({ ...request, ttl: Duration.times(request.ttl, 0.5) }))),
    found: [
      "R1.8 without renewal it is held for its ttl, and no longer",
      "R6.2 nobody releases: a waiter gets it when the holder's time is over"
    ]
  },
  "grants do not end": {
    store: broken(requested((request) => ({ ...request, ttl: Duration.infinity }))),
    found: [
      "R1.8 without renewal it is held for its ttl, and no longer",
      "R6.2 nobody releases: a waiter gets it when the holder's time is over",
      "R10.3 inspect and list do not tell of what has ended"
    ]
  },
  "a grant is said to last longer than asked for": {
    store: broken(granted((grant) => ({ ...grant, ttl: Duration.times(grant.ttl, 2) }))),
    found: ["R1.1 R3.1 a free key is granted, with what was asked for"]
  },
  "an interrupted attempt acts later": {
    store: broken(contention((inner) => ({
      attempt: (attempt) =>
        Effect.flatten(Effect.flatMap(
          Effect.forkDaemon(Effect.zipRight(
            Effect.forEach(Array.from({ length: 30 }), () => Effect.yieldNow()),
            inner.attempt(attempt)
          )),
          (fiber) => fiber.await
        ))
    }))),
    found: ["B12 B13 an attempt that is interrupted at any step, then given back, leaves nothing"]
  },
  "names are normalised": {
    store: broken(keyed((key) => ({ ...key, id: key.id.normalize("NFC") }))),
    found: ["R4.3 awkward names are names, and different ones are different locks"]
  },
  "names are cut": {
    store: broken(keyed((key) => ({ ...key, id: key.id.slice(0, 200) }))),
    found: ["R4.3 awkward names are names, and different ones are different locks"]
  },
  "the tenant does not count": {
    store: broken(keyed((key) => ({ ...key, id: `${key.namespace}${key.key}` }))),
    found: ["R4.1 R4.2 one name in every scope, tenant and namespace is as many locks"]
  },
  "tenant and name are joined by a colon": {
    store: broken(
      keyed((key) => ({
        ...key,
        id: [key.namespace, key.scope === "platform" ? "!" : "", key.tenant, key.key].filter((part) =>
          part !== undefined
        ).join(":")
      }))
    ),
    found: [
      "R4.1 R4.2 one name in every scope, tenant and namespace is as many locks",
      "R4.3 R4.5 different keys never collide (random)"
    ]
  },
  "nobody is told that he was deposed": {
    store: Effect.map(MemoryStore.make, (store): DriverUnderTest => ({
      open: Effect.flatMap(
        MemoryStore.driver(store),
        (driver) => Effect.map(MemoryStore.driver(store), ({ losses }) => ({ ...driver, losses }))
      )
    })),
    found: ["R10.3 R2.4 forceRelease frees it, and the holder learns that it was revoked"]
  },
  "inspect tells another fence": {
    store: broken((driver) => ({
      ...driver,
      inspect: (key) =>
        Effect.map(
          driver.inspect(key),
          (holders) => holders.map((holder): Holder => ({ ...holder, fence: holder.fence! + 1n }))
        )
    })),
    found: ["R10.3 inspect tells of the holder, and of nobody where it is free"]
  },
  "inspect knows less than it is said to": {
    store: broken((driver) => ({
      ...driver,
      inspect: (key) => Effect.map(driver.inspect(key), (holders) => holders.map(({ mode }) => ({ mode })))
    })),
    found: ["R10.3 inspect tells of the holder, and of nobody where it is free"]
  },
  "list tells of all namespaces": {
    store: Effect.map(MemoryStore.make, (store): DriverUnderTest => {
      const namespaces = new Set<string>()
      return {
        open: Effect.map(MemoryStore.driver(store), (driver) => ({
          ...driver,
          contend: (request) => {
            namespaces.add(request.keys[0]!.namespace)
            return driver.contend(request)
          },
          list: () =>
            Effect.map(Effect.forEach(namespaces, (namespace) => driver.list(namespace)), (held) => held.flat())
        }))
      }
    }),
    found: ["R10.3 list tells what is held in a namespace"]
  },
  "a lost reply is taken for a refusal": {
    store: Effect.map(Network.make, (made) => ({
      ...made,
      open: Effect.map(
        made.open,
        contention((inner) => ({
          attempt: (attempt) => Effect.catchAll(inner.attempt(attempt), () => Effect.succeed<Busy>({ _tag: "Busy" }))
        }))
      )
    })),
    found: ["R1.7 B13 a grant whose reply is lost is found again, or given back"]
  }
}

describe("teeth", () => {
  for (const [name, { found, store }] of Object.entries(drivers)) {
    it.live(
      name,
      () =>
        Effect.forEach(
          found,
          (one) => Effect.map(passes(one, store), (passed) => assert.isFalse(passed, `not found by: ${one}`))
        ),
      60_000
    )
  }

  it.live(
    "the cases that find them pass over a driver that is right",
    () =>
      Effect.forEach(
        new Set(Object.values(drivers).flatMap(({ found }) => found)),
        (one) => Effect.map(passes(one, Network.make), (passed) => assert.isTrue(passed, one))
      ),
    120_000
  )
})
