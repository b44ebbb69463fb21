import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Option, TestClock, Tracer } from "effect"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as util from "node:util"
import * as Faulty from "./faultyDriver.js"
import { world } from "./faultyDriver.js"

const settled = TestClock.adjust(0)

/** A tracer that keeps what it is told. */
const tracing = () => {
  const spans: Array<Tracer.Span & { ended: Exit.Exit<unknown, unknown> | undefined }> = []
  const tracer = Tracer.make({
    span: (name, parent, context, links, startTime, kind) => {
      const span = {
        _tag: "Span" as const,
        name,
        spanId: `${spans.length + 1}`.padStart(16, "0"),
        traceId: Option.match(parent, {
          onNone: () => `${spans.length + 1}`.padStart(32, "0"),
          onSome: (parent) => parent.traceId
        }),
        parent,
        context,
        links: [...links],
        status: { _tag: "Started" as const, startTime },
        attributes: new Map<string, unknown>(),
        sampled: true,
        kind,
        ended: undefined as Exit.Exit<unknown, unknown> | undefined,
        attribute(key: string, value: unknown) {
          span.attributes.set(key, value)
        },
        event() {},
        addLinks(more: ReadonlyArray<Tracer.SpanLink>) {
          for (const link of more) span.links.push(link)
        },
        end(_: bigint, exit: Exit.Exit<unknown, unknown>) {
          span.ended = exit
        }
      }
      spans.push(span)
      return span
    },
    context: (execute) => execute()
  })
  return { spans, provide: Effect.withTracer(tracer), names: () => spans.map((span) => span.name) }
}

const scene = (options: LockingOptions | undefined, name = "orders") => world({ backend: name, ...options })

describe("tracing", () => {
  it.scoped("R10.1 by default, what has to wait makes spans: for the wait and for the hold, in the caller's trace", () => {
    const { names, provide, spans } = tracing()
    return provide(Effect.gen(function*() {
      const { locking, other } = yield* scene(undefined)
      yield* locking.withLock(Effect.void, "k")
      assert.deepStrictEqual(names(), [])
      const lease = yield* other.acquire("k")
      const fiber = yield* Effect.fork(Effect.withSpan(locking.withLock(Effect.void, "k"), "request"))
      yield* settled
      yield* lease.release
      yield* settled
      yield* Fiber.join(fiber)
      const [request, acquire, hold] = spans
      assert.deepStrictEqual(names(), ["request", "effect-locking.acquire", "effect-locking.hold"])
      for (const span of [acquire!, hold!]) {
        assert.strictEqual(span.traceId, request!.traceId)
        assert.strictEqual(span.attributes.get("backend"), "orders")
        assert.match(String(span.attributes.get("lock")), /^[0-9a-f]{12}$/)
        assert(span.ended !== undefined && Exit.isSuccess(span.ended), span.name)
      }
    }))
  })

  it.scoped("R10.1 a wait behind a holder of the same process makes spans, too", () => {
    const { names, provide } = tracing()
    return provide(Effect.gen(function*() {
      const { locking } = yield* scene(undefined)
      const lease = yield* locking.acquire("k")
      const fiber = yield* Effect.fork(locking.withLock(Effect.void, "k"))
      yield* settled
      yield* lease.release
      yield* settled
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(names(), ["effect-locking.acquire", "effect-locking.hold"])
    }))
  })

  it.scoped("R10.1 a wait in vain ends its span with its error", () => {
    const { names, provide, spans } = tracing()
    return provide(Effect.gen(function*() {
      const { locking, other } = yield* scene(undefined)
      yield* other.acquire("k")
      const timeout = yield* Effect.fork(locking.withLock(Effect.void, "k", { waitTimeout: 10 }))
      yield* TestClock.adjust(10)
      yield* Fiber.await(timeout)
      const interrupted = yield* Effect.fork(locking.withLock(Effect.void, "k"))
      yield* settled
      yield* Fiber.interrupt(interrupted)
      assert.deepStrictEqual(names(), ["effect-locking.acquire", "effect-locking.acquire"])
      for (const span of spans) assert(span.ended !== undefined && Exit.isFailure(span.ended))
      assert.isTrue(Exit.isInterrupted(spans[1]!.ended!))
    }))
  })

  it.scoped("R10.1 all: acquire, hold and renew of every lock", () => {
    const { names, provide, spans } = tracing()
    return provide(Effect.gen(function*() {
      const { locking } = yield* scene({ tracing: "all" })
      const fiber = yield* Effect.fork(locking.withLock(Effect.sleep("6 seconds"), "k"))
      yield* TestClock.adjust("6 seconds")
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(names().sort(), ["effect-locking.acquire", "effect-locking.hold", "effect-locking.renew"])
      for (const span of spans) {
        assert.strictEqual(span.attributes.get("backend"), "orders")
        assert(span.ended !== undefined && Exit.isSuccess(span.ended), span.name)
      }
    }))
  })

  it.scoped("R10.1 off: none", () => {
    const { names, provide } = tracing()
    return provide(Effect.gen(function*() {
      const { driver, locking, other } = yield* scene({ tracing: "off" })
      const lease = yield* Effect.withSpan(other.acquire("k"), "theirs")
      const fiber = yield* Effect.fork(Effect.withSpan(locking.withLock(Effect.sleep("6 seconds"), "k"), "ours"))
      yield* settled
      yield* lease.release
      yield* TestClock.adjust("10 seconds")
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(names(), ["theirs", "ours"])
      // nor is a trace left at the store
      assert.deepStrictEqual(driver.of("attempt").map((call) => call.request!.holder.metadata), [{}, {}, {}])
    }))
  })

  for (const where of ["elsewhere", "here"] as const) {
    it.scoped(`R10.1 a link leads from who waits to who holds, ${where}`, () => {
      const { provide, spans } = tracing()
      return provide(Effect.gen(function*() {
        const { locking, other } = yield* scene(undefined)
        const go = yield* Deferred.make<void>()
        const holder = where === "here" ? locking : other
        yield* Effect.fork(Effect.withSpan(holder.withLock(Deferred.await(go), "k"), "holder"))
        yield* settled
        const waiter = yield* Effect.fork(locking.withLock(Effect.void, "k"))
        yield* settled
        yield* Deferred.succeed(go, undefined)
        yield* settled
        yield* Fiber.join(waiter)
        const holding = spans.find((span) => span.name === "holder")!
        const waiting = spans.find((span) => span.name === "effect-locking.acquire")!
        assert.deepStrictEqual(
          waiting.links.map(({ span }) => [span.traceId, span.spanId]),
          [[holding.traceId, holding.spanId]]
        )
      }))
    })
  }

  it.scoped("R10.1 a holder without a trace, or with garbage in its place, is no link and no error", () => {
    const { provide, spans } = tracing()
    return provide(Effect.gen(function*() {
      const { locking, other } = yield* scene(undefined)
      for (const metadata of [{}, { traceparent: "garbage" }, { traceparent: "" }, { traceparent: "00-a-b-01" }]) {
        const lease = yield* other.acquire("k", { metadata })
        const waiter = yield* Effect.fork(locking.withLock(Effect.void, "k"))
        yield* settled
        yield* lease.release
        yield* settled
        yield* Fiber.join(waiter)
      }
      const links = spans.filter((span) => span.name === "effect-locking.acquire").map((span) => span.links.length)
      assert.deepStrictEqual(links.slice(0, 3), [0, 0, 0])
    }))
  })

  it.scoped("R10.1 the section runs in the caller's context, under the span of the hold", () => {
    const { provide } = tracing()
    return provide(Effect.gen(function*() {
      class Service extends Context.Tag("test/Service")<Service, string>() {}
      const { locking } = yield* scene({ tracing: "all" })
      const seen = yield* Effect.provideService(
        locking.withLock(Effect.all([Service, Effect.map(Effect.currentSpan, (span) => span.name)]), "k"),
        Service,
        "mine"
      )
      assert.deepStrictEqual(seen, ["mine", "effect-locking.hold"])
    }))
  })

  it.scoped("R4.4 no key, tenant, token or metadata in spans", () => {
    const { provide, spans } = tracing()
    return provide(Effect.gen(function*() {
      const { driver, locking, other } = yield* scene({ tracing: "all" })
      const options = { metadata: { "secret name": "secret value" } }
      const lease = yield* other.acquire("secret", options)
      const waiter = yield* Effect.fork(locking.withLock(Effect.sleep("20 seconds"), "secret", options))
      yield* settled
      yield* lease.release
      yield* TestClock.adjust("20 seconds")
      yield* Fiber.join(waiter)
      driver.always("attempt", Faulty.refuse)
      yield* Effect.ignore(locking.withLock(Effect.void, "secret", { ...options, waitTimeout: 0 }))
      driver.heal()
      yield* Effect.ignore(locking.withLock(Effect.void, "secret \u0000", options))
      assert.isAbove(spans.length, 3)
      const told = spans.map(({ attributes, ended, links, name }) => [name, attributes, links, ended])
      const everything = util.inspect(told, { depth: 10 })
      assert.notInclude(everything, "secret")
      for (const token of driver.calls.flatMap((call) => call.tokens)) assert.notInclude(everything, token)
    }))
  })
})
