/** A network that swallows, delays and cuts, in front of a server that lives. */
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, Logger, Metric, Stream } from "effect"
import type { Fence } from "effect-locking/Fence"
import type { Locking } from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import Pg from "pg"
import {
  backends,
  clock,
  grants,
  type Held,
  keysHeld,
  ledger,
  listeners,
  node,
  nothingHeld,
  serve,
  serverMargin,
  slack,
  somebodyWaits,
  stay,
  tables,
  terminate,
  until,
  version
} from "./kit.js"

const sessionTtl = 1000

const patient = { waitTimeout: "25 seconds" } as const

const world = Effect.gen(function*() {
  const server = yield* serve()
  const proxy = yield* TcpProxy.make({ port: server.port })
  return { server, proxy, through: server.url({ port: proxy.port }) }
})

describe("a holder that is cut off", () => {
  it.scopedLive(
    "B01 R2.5 its backend lives: its section has ended before the server gives the key away",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl })
        const b = yield* node(server.url(), { sessionTtl })
        const holder = yield* stay(a, "k")
        const next = yield* Effect.fork(
          b.useLock("k", patient, ({ fence }) => Effect.map(clock, (at) => ({ at, fence })))
        )
        yield* somebodyWaits(server)
        const cut = yield* clock
        yield* proxy.blackHole()
        const ended = yield* holder.ended
        const entered = yield* Fiber.join(next)
        assert.strictEqual(ended.reason, "unconfirmed")
        assert.isBelow(ended.at - cut, sessionTtl + slack)
        assert.isBelow(ended.at, entered.at)
        assert.isTrue(entered.fence > holder.fence)
        yield* proxy.heal
        // on a new session, without a restart
        yield* a.withLock(Effect.void, "k", patient)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B01 B63 its backend is terminated: the next one is in at once, and no late write passes the guard",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        yield* tables(server)
        const write = yield* ledger(server.url())
        const a = yield* node(through, { sessionTtl })
        const b = yield* node(server.url(), { sessionTtl })
        const holder = yield* stay(a, "k")
        assert.strictEqual(yield* write("r", holder.fence), "accepted")
        const [{ pid }] = (yield* keysHeld(server)) as ReadonlyArray<Held> as readonly [Held]
        const cut = yield* clock
        yield* proxy.blackHole()
        yield* terminate(server, pid)
        yield* b.useLock("k", patient, ({ fence }) =>
          Effect.gen(function*() {
            assert.strictEqual(yield* write("r", fence as Fence), "accepted")
            // here both are inside: this is what the guard is for
            for (let i = 0; i < 5; i++) assert.strictEqual(yield* write("r", holder.fence), "refused")
            assert.strictEqual(yield* write("r", fence as Fence), "accepted")
          }))
        const ended = yield* holder.ended
        assert.strictEqual(ended.reason, "unconfirmed")
        assert.isBelow(ended.at - cut, sessionTtl + slack)
        assert.strictEqual(yield* write("r", holder.fence), "refused")
        yield* proxy.heal
        yield* a.withLock(Effect.void, "k", patient)
      }),
    60_000
  )

  it.scopedLive(
    "R7.2 R2.4 its connection is reset: it hears at once, and the key is free at once",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl: "1 minute" })
        const holder = yield* stay(a, "k")
        const cut = yield* clock
        yield* proxy.cut()
        const ended = yield* holder.ended
        assert.strictEqual(ended.reason, "session-ended")
        assert.isBelow(ended.at - cut, slack)
        yield* nothingHeld(server, slack)
        yield* a.withLock(Effect.void, "k", patient)
      }),
    60_000
  )

  it.scopedLive(
    "R7.2 half-open, the server was not told: it hears at once, and the server lets go after ttl and margin",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl })
        const b = yield* node(server.url(), { sessionTtl })
        const holder = yield* stay(a, "k")
        const cut = yield* clock
        yield* proxy.halfClose("client")
        const ended = yield* holder.ended
        assert.strictEqual(ended.reason, "session-ended")
        const entered = yield* b.withLock(clock, "k", patient)
        assert.isBelow(ended.at, entered)
        assert.isBelow(entered - cut, sessionTtl + serverMargin + slack)
      }),
    60_000
  )
})

describe.skipIf(version < 17)("a request that gets half way (a server before 17 needs its keep-alive for it)", () => {
  const sync = 5

  const ends = (request: RegExp, ask: (locking: Locking) => Effect.Effect<unknown, unknown>) =>
    Effect.gen(function*() {
      const { proxy, server, through } = yield* world
      const a = yield* node(through, { sessionTtl })
      const b = yield* node(server.url(), { sessionTtl })
      // what is prepared has been asked for before
      yield* a.withLock(Effect.void, "new")
      const holder = yield* stay(a, "k")
      const [{ pid }] = (yield* keysHeld(server)) as ReadonlyArray<Held> as readonly [Held]
      const broken = yield* proxy.breakNextRequest({
        who: grants,
        request: (bytes) => request.test(bytes),
        missing: sync
      })
      yield* Effect.forkScoped(Effect.exit(ask(a)))
      yield* broken
      const cut = yield* clock
      const next = yield* Effect.fork(b.withLock(clock, "k", patient))
      yield* until(
        "the server waits for the rest, and not for a request",
        Effect.map(
          server.query<{ readonly state: string }>("select state from pg_stat_activity where pid = $1", [pid]),
          ([session]) => session?.state === "active"
        )
      )
      const ended = yield* holder.ended
      assert.strictEqual(ended.reason, "unconfirmed")
      const entered = yield* Fiber.join(next)
      assert.isBelow(ended.at, entered)
      assert.isBelow(entered - cut, sessionTtl + serverMargin + slack)
      assert.include(yield* server.log, "due to transaction timeout")
      yield* nothingHeld(server)
    })

  it.scopedLive(
    "R7.2 a grant without its Sync: the server ends the session after ttl and margin, and the keys are free",
    () => ends(/effect_locking_lock/, (a) => a.withLock(Effect.void, "new", patient)),
    60_000
  )

  it.scopedLive(
    "R7.2 a beat without its Sync: the same",
    () => ends(/effect_locking_batch/, () => Effect.void),
    60_000
  )
})

describe("a server that does not answer", () => {
  it.scopedLive(
    "B13 B44 R1.7 the wait is over in time, no body runs, and what the server grants late goes back at once",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl: "30 seconds" })
        const b = yield* node(server.url(), { sessionTtl: "30 seconds" })
        let ran = 0
        const body = Effect.sync(() => ran++)
        yield* proxy.pause({ who: grants, direction: "toClient" })
        const start = yield* clock
        const timedOut = yield* Effect.flip(a.withLock(body, "k", { waitTimeout: "1 second" }))
        const took = (yield* clock) - start
        assert.strictEqual(timedOut._tag, "OutcomeUnknown")
        assert.isAtLeast(took, 990)
        assert.isBelow(took, 1000 + slack)
        const interrupted = yield* Effect.fork(a.withLock(body, "l", { waitTimeout: "1 minute" }))
        yield* Effect.sleep(100)
        yield* Fiber.interrupt(interrupted)
        // the server did grant it
        assert.lengthOf(yield* keysHeld(server), 1)
        yield* proxy.heal
        yield* nothingHeld(server, slack)
        yield* b.withLock(Effect.void, "k", { waitTimeout: 0 })
        yield* b.withLock(Effect.void, "l", { waitTimeout: 0 })
        assert.strictEqual(ran, 0)
      }),
    60_000
  )

  it.scopedLive(
    "B44 R1.7 frozen or down: an acquire ends in time with a typed error, and nothing is granted later",
    () =>
      Effect.gen(function*() {
        const { server, through } = yield* world
        const a = yield* node(through, { sessionTtl: 1500 })
        const timed = Effect.gen(function*() {
          const start = yield* clock
          const error = yield* Effect.flip(a.withLock(Effect.die("the body ran"), "k", { waitTimeout: "1 second" }))
          return { tag: error._tag, took: (yield* clock) - start }
        })
        yield* server.freeze
        const frozen = yield* timed
        assert.strictEqual(frozen.tag, "OutcomeUnknown")
        assert.isBelow(frozen.took, 1000 + slack)
        yield* server.thaw
        yield* nothingHeld(server)
        yield* server.stop()
        const down = yield* timed
        assert.strictEqual(down.tag, "ProviderFailed")
        assert.isBelow(down.took, 1000 + slack)
        yield* server.start
        yield* a.withLock(Effect.void, "k", patient)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "R7.2 B65 the answer to a grant is lost: what it took goes, the wait goes on, and other leases are lost at once",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl: "30 seconds" })
        const other = yield* stay(a, "other")
        const start = yield* clock
        const lost = yield* proxy.dropNextReply({ who: grants })
        const fence = yield* a.useLock("k", patient, (lease) =>
          Effect.map(keysHeld(server), (held) => {
            assert.lengthOf(held, 1)
            return lease.fence
          }))
        yield* lost
        assert.isTrue(fence > other.fence)
        const ended = yield* other.ended
        assert.strictEqual(ended.reason, "session-ended")
        // before its renewal is due
        assert.isBelow(ended.at - start, slack)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B65 the server does not answer a release: the section's own result stands, and the call returns in time",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl: "30 seconds", attemptTimeout: 500 })
        const timed = <A, E>(body: Effect.Effect<A, E>, key: string) =>
          Effect.gen(function*() {
            let left = 0
            const exit = yield* Effect.exit(a.withLock(
              Effect.ensuring(
                Effect.zipRight(proxy.pause({ who: grants }), body),
                Effect.map(clock, (at) => left = at)
              ),
              key,
              patient
            ))
            const took = (yield* clock) - left
            yield* proxy.heal
            return { exit, took }
          })
        const failed = yield* timed(Effect.fail("own"), "k")
        assert.deepStrictEqual(failed.exit, Exit.fail("own"))
        assert.isBelow(failed.took, 500 + slack)
        yield* nothingHeld(server)
        const succeeded = yield* timed(Effect.succeed(7), "l")
        assert.deepStrictEqual(succeeded.exit, Exit.succeed(7))
        assert.isBelow(succeeded.took, 500 + slack)
        // repeated in the background
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B44 R1.7 connections that break as soon as they are there: an acquire ends in time, and nothing is granted later",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl: "30 seconds" })
        yield* a.withLock(Effect.void, "k")
        // the server answers, and each session gets half way into its start
        const cutter = yield* Effect.fork(Effect.forever(Effect.zipRight(proxy.cut(), Effect.sleep(25))))
        const before = (yield* proxy.connections).length
        const start = yield* clock
        const error = yield* Effect.flip(a.withLock(Effect.die("the body ran"), "k", { waitTimeout: "1 second" }))
        const took = (yield* clock) - start
        assert.include(["ProviderFailed", "OutcomeUnknown"], error._tag)
        assert.isAtLeast(took, 990)
        assert.isBelow(took, 1000 + slack)
        assert.isAbove((yield* proxy.connections).length, before + 1, "it did reconnect")
        yield* Fiber.interrupt(cutter)
        yield* nothingHeld(server)
        yield* a.withLock(Effect.void, "k", patient)
        yield* nothingHeld(server)
      }),
    60_000
  )

  it.scopedLive(
    "B68 R10.1 R10.2 R10.6 renewals without an answer are told, once, and so is the recovery: events, counters, gauges, logs",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const logged: Array<Readonly<Record<string, unknown>>> = []
        const logger = Logger.make(({ annotations }) => {
          logged.push(Object.fromEntries(annotations))
        })
        const options = { sessionTtl: 6000, ttl: 3000, attemptTimeout: 300, backend: "told", session: "holder" }
        const a = yield* Effect.provide(node(through, options), Logger.replace(Logger.defaultLogger, logger))
        const seen: Array<string> = []
        const events = yield* a.events
        yield* Effect.forkScoped(Stream.runForEach(events, ({ _tag }) => Effect.sync(() => seen.push(_tag))))
        const count = (tag: string) => seen.filter((one) => one === tag).length
        const metric = (name: string, tag = "told") =>
          Effect.map(Metric.snapshot, (all) => {
            const found = all.find(({ metricKey }) =>
              metricKey.name === `effect_locking_${name}` && metricKey.tags.some(({ value }) => value === "told") &&
              metricKey.tags.some(({ value }) => value === tag)
            )
            const state = found?.metricState as { readonly value?: number; readonly count?: number }
            return state.value ?? state.count
          })
        yield* a.withLock(
          Effect.gen(function*() {
            const waiter = yield* Effect.forkDaemon(a.withLock(Effect.void, "k", { ...patient, reentrant: "wait" }))
            yield* until("it waits", Effect.map(metric("waiters"), (waiters) => waiters === 1))
            assert.strictEqual(yield* metric("leases"), 1)
            yield* proxy.pause({ who: grants })
            yield* until("told", Effect.sync(() => count("RenewalFailed") > 0))
            yield* Effect.sleep(500)
            yield* proxy.heal
            yield* until("recovered", Effect.sync(() => count("Recovered") > 0))
            return waiter
          }),
          "k"
        ).pipe(Effect.flatMap(Fiber.join))
        assert.deepStrictEqual([count("RenewalFailed"), count("Recovered"), count("Lost")], [1, 1, 0])
        assert.isAbove((yield* metric("renewals_total", "unknown"))!, 0)
        assert.isAbove((yield* metric("renewals_total", "confirmed"))!, 0)
        const lock = LockKey.shortHash(yield* a.resolveKey("k"))
        assert.deepStrictEqual(
          logged.filter(({ code }) => String(code).startsWith("RENEWAL")),
          [
            { backend: "told", code: "RENEWAL_FAILED", lock, locks: 1, session: "holder" },
            { backend: "told", code: "RENEWAL_RECOVERED", session: "holder" }
          ]
        )
        assert.deepStrictEqual([yield* metric("leases"), yield* metric("waiters")], [0, 0])
        // and a loss
        yield* nothingHeld(server)
        const holder = yield* stay(a, "k")
        yield* proxy.cut(grants)
        assert.strictEqual((yield* holder.ended).reason, "session-ended")
        assert.strictEqual(yield* metric("leases_lost_total", "session-ended"), 1)
        assert.deepInclude(
          logged.find(({ code }) => code === "LEASE_LOST"),
          { backend: "told", session: "holder", lock }
        )
      }),
    60_000
  )
})

describe("a slow network", () => {
  it.scopedLive(
    "B42 R2.5 the lease counts from the start of the request, not from the late answer",
    () =>
      Effect.gen(function*() {
        const { proxy, through } = yield* world
        const a = yield* node(through, { sessionTtl: 2000, attemptTimeout: 1500, pollInterval: 10 })
        yield* proxy.delay(700, { who: grants, direction: "toClient" })
        const remaining = yield* a.useLock("k", { ...patient, autoRenew: false }, (lease) => lease.remaining)
        assert.isBelow(Duration.toMillis(remaining), 1300)
        assert.isAbove(Duration.toMillis(remaining), 0)
      }),
    60_000
  )

  it.scopedLive(
    "B33 a release meets a renewal on its way: no loss is told, and the key is gone and stays gone",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(through, { sessionTtl: 2000 })
        yield* proxy.delay(100, { who: grants })
        const sections = yield* Effect.forEach(
          Array.from({ length: 40 }, (_, i) => i),
          (i) => Effect.exit(a.withLock(Effect.sleep(500 + i * 20), `k${i}`, patient)),
          { concurrency: 40 }
        )
        assert.lengthOf(sections.filter(Exit.isFailure), 0)
        yield* nothingHeld(server)
        yield* Effect.sleep(1000)
        assert.deepStrictEqual(yield* keysHeld(server), [])
      }),
    60_000
  )

  it.scopedLive(
    "B21 R6.2 released before the LISTEN is confirmed: the try after the confirmation finds it free",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(server.url(), { sessionTtl: "30 seconds" })
        const b = yield* node(through, { sessionTtl: "30 seconds", pollInterval: "20 seconds" })
        const gate = yield* Deferred.make<void>()
        const inside = yield* Deferred.make<void>()
        yield* Effect.fork(a.withLock(Effect.zipRight(Deferred.succeed(inside, undefined), Deferred.await(gate)), "k"))
        yield* Deferred.await(inside)
        yield* proxy.delay(500, { who: listeners })
        const start = yield* clock
        const waiter = yield* Effect.fork(b.withLock(clock, "k", patient))
        yield* until("it has begun to listen", Effect.map(proxy.connections, (all) => all.some(listeners)))
        yield* Deferred.succeed(gate, undefined)
        const entered = (yield* Fiber.join(waiter)) - start
        assert.isAbove(entered, 400)
        assert.isBelow(entered, 1500 + slack)
      }),
    60_000
  )
})

describe.concurrent("a connection that falls silent while it is being opened", () => {
  const starting = { sessionTtl: 1000, start: "lazy" } as const

  /** What lasts until the fault is over, and then works without a restart. */
  const heals = (
    who: TcpProxy.Who,
    connection: (url: string) => Parameters<typeof node>[0] = (url) => url
  ) =>
    Effect.gen(function*() {
      const { proxy, server, through } = yield* world
      yield* proxy.blackHole({ who, direction: "toClient" })
      const a = yield* node(connection(through), starting)
      const error = yield* Effect.flip(a.withLock(Effect.void, "k", { waitTimeout: "1 second" }))
      assert.include(["ProviderFailed", "OutcomeUnknown"], error._tag)
      yield* proxy.heal
      yield* a.withLock(Effect.void, "k", { waitTimeout: "15 seconds" })
      yield* nothingHeld(server)
      assert.lengthOf(yield* backends(server), 1)
    })

  it.scopedLive("R7.2 B44 the session, before it is claimed", () => heals(() => true), 60_000)

  it.scopedLive("R7.2 B44 the session, after it is claimed", () => heals(grants), 60_000)

  it.scopedLive(
    "R7.2 B44 a client of the user's own, which knows no time-out",
    () => heals(() => true, (url) => Effect.sync(() => new Pg.Client({ connectionString: url }))),
    60_000
  )

  it.scopedLive(
    "R7.2 the second connection of the start: the layer is ready all the same, within a bound",
    () =>
      Effect.gen(function*() {
        const { proxy, through } = yield* world
        yield* proxy.blackHole({ who: ({ said }) => said.includes("begin\0"), direction: "toClient" })
        const start = yield* clock
        const a = yield* node(through, { sessionTtl: 1000 })
        assert.isBelow((yield* clock) - start, 5000 + slack)
        yield* a.withLock(Effect.void, "k")
      }),
    60_000
  )

  it.scopedLive(
    "R7.2 B22 R6.2 the connection for wake-ups: waiters poll, and later ones are woken again",
    () =>
      Effect.gen(function*() {
        const { proxy, server, through } = yield* world
        const a = yield* node(server.url(), { sessionTtl: "30 seconds" })
        const b = yield* node(through, { sessionTtl: "30 seconds", pollInterval: "20 seconds", session: "waiter" })
        yield* proxy.blackHole({ who: listeners, direction: "toClient" })
        const held = (keep: Effect.Effect<unknown>) =>
          Effect.gen(function*() {
            const inside = yield* Deferred.make<void>()
            const holder = yield* Effect.fork(
              a.withLock(Effect.zipRight(Deferred.succeed(inside, undefined), keep), "k", patient)
            )
            yield* Deferred.await(inside)
            return holder
          })
        const ears = Effect.map(backends(server), (all) =>
          all.filter(({ listens, name }) => listens && name.endsWith("/waiter")).map(({ pid }) => pid))
        const first = yield* held(Effect.sleep(500))
        // without wake-ups it looks again by itself
        yield* b.withLock(Effect.void, "k", patient)
        yield* Fiber.join(first)
        const mute = yield* ears
        assert.lengthOf(mute, 1)
        yield* proxy.heal
        // once it is known to be dead
        yield* until(
          "it listens again",
          Effect.gen(function*() {
            const holder = yield* held(Effect.sleep(100))
            yield* b.withLock(Effect.void, "k", patient)
            yield* Fiber.join(holder)
            return (yield* ears).some((pid) =>
              !mute.includes(pid)
            )
          })
        )
        const gate = yield* Deferred.make<void>()
        const second = yield* held(Deferred.await(gate))
        const waiter = yield* Effect.fork(b.withLock(clock, "k", patient))
        yield* somebodyWaits(server)
        const released = yield* clock
        yield* Deferred.succeed(gate, undefined)
        yield* Fiber.join(second)
        assert.isBelow((yield* Fiber.join(waiter)) - released, slack)
      }),
    60_000
  )
})
