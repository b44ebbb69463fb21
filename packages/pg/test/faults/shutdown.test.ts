/** Processes that end while the server lives, is mute or was never there. */
import type * as PostgresServer from "@effect-locking/testing/PostgresServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope } from "effect"
import { agent, backends, clock, node, nothingHeld, serve, slack, somebodyWaits, stay } from "./kit.js"

const patient = { waitTimeout: "25 seconds" } as const

const shutdownTimeout = 1500

describe("closing", () => {
  const stories = {
    "lives": () => Effect.void,
    "is frozen": (server: PostgresServer.PostgresServer) => server.freeze,
    "is gone": (server: PostgresServer.PostgresServer) => server.kill
  }
  for (const [state, story] of Object.entries(stories)) {
    it.scopedLive(
      `R7.1 B29 R7.3 the server ${state}: holder and waiters end in time, and the process exits by itself`,
      () =>
        Effect.gen(function*() {
          const server = yield* serve()
          const options = { sessionTtl: "20 seconds", shutdownTimeout } as const
          const a = yield* agent({ name: "a", url: server.url(), options })
          const b = yield* node(server.url(), { sessionTtl: "20 seconds" })
          yield* a.ready
          const other = yield* Effect.fork(Effect.exit(b.withLock(Effect.never, "other")))
          yield* Effect.sleep(100)
          yield* a.tell({ do: "hold", key: "k" })
          yield* a.hear("entered")
          for (let i = 0; i < 2; i++) yield* a.tell({ do: "hold", key: "other", options: patient })
          yield* somebodyWaits(server)
          yield* story(server)
          yield* Effect.sleep(100)
          yield* a.tell({ do: "close" })
          const closed = yield* a.hear("closed")
          assert.isBelow(closed.millis, shutdownTimeout + slack)
          const asked = yield* clock
          assert.deepStrictEqual(yield* a.ended, { code: 0, signal: null })
          assert.isBelow((yield* clock) - asked, slack)
          const left = (yield* a.told).filter((told) => told._tag === "left")
          assert.lengthOf(left, 3)
          for (const { key, outcome } of left) {
            assert.include(key === "k" ? ["LeaseLost"] : ["LockingClosed", "OutcomeUnknown"], outcome)
          }
          assert.deepStrictEqual((yield* a.told).filter(({ _tag }) => _tag === "crash"), [])
          assert.strictEqual(yield* a.errors, "")
          yield* Fiber.interrupt(other)
          if (state === "lives") {
            yield* nothingHeld(server)
            assert.lengthOf((yield* backends(server)).filter(({ name }) => name.endsWith("/a")), 0)
          }
          yield* server.thaw
        }),
      60_000
    )
  }

  it.scopedLive(
    "B08 R7.1 the key is given up after the section's finalizer has ended, and not before",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* agent({ name: "a", url: server.url(), options: { sessionTtl: 2000 } })
        const b = yield* node(server.url(), { sessionTtl: 2000 })
        yield* a.ready
        yield* a.tell({ do: "hold", key: "k", finalizer: 1000 })
        yield* a.hear("entered")
        const next = yield* Effect.fork(
          b.withLock(Effect.sync(() => Number(process.hrtime.bigint() / 1000n)), "k", patient)
        )
        yield* somebodyWaits(server)
        yield* a.tell({ do: "close" })
        const cleaned = yield* a.hear("cleaned")
        const entered = yield* Fiber.join(next)
        assert.isAbove(entered, cleaned.at)
        assert.isBelow(entered - cleaned.at, slack * 1000)
        assert.deepStrictEqual(yield* a.ended, { code: 0, signal: null })
      }),
    60_000
  )

  it.scopedLive(
    "B08 R7.1 a finalizer that takes longer than the shutdown may: reported, and the process ends",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const a = yield* agent({ name: "a", url: server.url(), options: { sessionTtl: 2000, shutdownTimeout: 300 } })
        yield* a.ready
        yield* a.tell({ do: "hold", key: "k", finalizer: 1500 })
        yield* a.hear("entered")
        yield* a.tell({ do: "close" })
        yield* nothingHeld(server, 300 + slack)
        assert.deepStrictEqual(yield* a.ended, { code: 0, signal: null })
        const warnings = (yield* a.told).flatMap((told) => told._tag === "warned" ? [told.message] : [])
        assert.isTrue(warnings.length > 0, "the overlap is reported")
      }),
    60_000
  )

  it.scopedLive(
    "B29 R1.7 a server that was never there, or takes connections and is mute: typed, in time, and it exits",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const proxy = yield* TcpProxy.make({ port: server.port })
        const through = server.url({ port: proxy.port })
        yield* proxy.refuse
        const absent = yield* agent({ name: "a", url: through })
        assert.strictEqual((yield* absent.hear("unfit")).error, "ProviderFailed")
        assert.deepStrictEqual(yield* absent.ended, { code: 0, signal: null })
        yield* proxy.heal
        yield* proxy.blackHole()
        const start = yield* clock
        const mute = yield* agent({ name: "a", url: through })
        assert.strictEqual((yield* mute.hear("unfit")).error, "ProviderFailed")
        assert.isBelow((yield* clock) - start, 5000 + 2 * slack)
        assert.deepStrictEqual(yield* mute.ended, { code: 0, signal: null })
      }),
    60_000
  )

  it.scopedLive(
    "R7.1 B29 closed while it opens: the scope ends at once, and nothing is left connected",
    () =>
      Effect.gen(function*() {
        const server = yield* serve()
        const proxy = yield* TcpProxy.make({ port: server.port })
        // one of its connections in turn, the second one opened for the probe
        for (const who of [TcpProxy.nth(0), TcpProxy.nth(2)]) {
          yield* proxy.pause({ who, direction: "toClient" })
          const scope = yield* Scope.make()
          const building = yield* Effect.fork(Scope.extend(node(server.url({ port: proxy.port })), scope))
          yield* Effect.sleep(400)
          const start = yield* clock
          yield* Fiber.interrupt(building)
          yield* Scope.close(scope, Exit.void)
          assert.isBelow((yield* clock) - start, 1000)
          yield* proxy.heal
        }
        yield* Effect.sleep(200)
        assert.deepStrictEqual(yield* backends(server), [])
      }),
    60_000
  )

  it.scopedLive("R7.1 a layer that closes leaves other layers of the process alone", () =>
    Effect.gen(function*() {
      const server = yield* serve()
      const scope = yield* Scope.make()
      const a = yield* Scope.extend(node(server.url(), { sessionTtl: "20 seconds" }), scope)
      const b = yield* node(server.url(), { sessionTtl: "20 seconds" })
      const mine = yield* stay(a, "a")
      const kept = yield* Effect.fork(b.withLock(Effect.as(Effect.sleep(800), "kept"), "b"))
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* mine.ended).reason, "closed")
      assert.strictEqual(yield* Fiber.join(kept), "kept")
      yield* nothingHeld(server)
    }), 60_000)
})
