import type { Grant, Holder } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { assert } from "vitest"
import type { Knowledge } from "../../../LockDriverSuite.js"
import { type Group, settle, test, testIf, type World } from "../world.js"

/** What is told has to be right; what the driver is said to know has to be told. */
const assertHolder = (
  world: World,
  holder: Holder | undefined,
  grant: Grant,
  expected: { readonly session: string; readonly metadata: Readonly<Record<string, string>> }
) => {
  assert.isDefined(holder, "the holder")
  assert.strictEqual(holder!.mode, grant.mode)
  const facts: Partial<Record<Knowledge, (value: any) => void>> = {
    fence: (value) => assert.strictEqual(value, grant.fences[0]),
    token: (value) => assert.strictEqual(value, grant.token),
    session: (value) => assert.strictEqual(value, expected.session),
    metadata: (value) => assert.deepStrictEqual(value, expected.metadata),
    since: (value) => assert.isTrue(Number.isFinite(value)),
    until: (value) => assert.isTrue(Number.isFinite(value) && value > (holder!.since ?? 0))
  }
  for (const [name, check] of Object.entries(facts)) {
    const value = holder![name as keyof Holder]
    if (value !== undefined) check(value)
    else assert.isFalse(world.options.knows.includes(name as Knowledge), `it is said to know ${name}`)
  }
}

/** All that the driver is said to know. Where the holder is asked, it may take a moment until it can be. */
const told = (world: World, holders: Effect.Effect<ReadonlyArray<Holder>, unknown>) =>
  Effect.gen(function*() {
    let last: ReadonlyArray<Holder> = []
    yield* world.until(
      `it tells ${world.options.knows.join(", ")}`,
      Effect.map(holders, (all) => {
        last = all
        return all.length > 0 && all.every((holder) => world.options.knows.every((name) => isTold(holder, name)))
      })
    )
    return last
  })

const isTold = (holder: Holder, name: Knowledge): boolean =>
  name === "keys" || name === "waiters" || holder[name] !== undefined

export const inspection: Group = {
  name: "inspection",
  cases: [
    test("R10.3 inspect tells of the holder, and of nobody where it is free", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        assert.deepStrictEqual(yield* two.driver.inspect(keys[0]!), [])
        const about = { session: "session of one", metadata: { job: "nightly" } }
        const grant = yield* one.grant(keys, about)
        for (const process of [one, two]) {
          const holders = yield* told(world, process.driver.inspect(keys[0]!))
          assert.lengthOf(holders, 1)
          assertHolder(world, holders[0], grant, about)
        }
        yield* one.release(grant)
        yield* world.until("nobody", Effect.map(two.driver.inspect(keys[0]!), ({ length }) => length === 0))
      })),

    testIf(["shared mode"])("R10.3 inspect tells of every reader", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const processes = [yield* world.process, yield* world.process, yield* world.process]
        for (const process of processes) yield* process.grant(keys, { mode: "shared" })
        const holders = yield* processes[0]!.driver.inspect(keys[0]!)
        assert.deepStrictEqual(holders.map(({ mode }) => mode), ["shared", "shared", "shared"])
      })),

    testIf(["expiry by the server"])(
      "R10.3 inspect and list do not tell of what has ended",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const one = yield* world.process
          yield* one.grant(keys, { ttl: world.ttl })
          yield* world.pass(world.ttl + 20)
          yield* world.until("nobody", Effect.map(one.driver.inspect(keys[0]!), ({ length }) => length === 0))
          assert.deepStrictEqual(yield* one.driver.list(world.namespace), [])
        })
    ),

    test("R10.3 list tells what is held in a namespace", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.process, yield* world.process]
        const [a, b] = [yield* world.keys("a"), yield* world.keys("b")]
        const elsewhere = yield* world.keysOf(["a"], { namespace: `${world.namespace}-other` })
        yield* one.grant(a)
        yield* two.grant(b)
        yield* two.grant(elsewhere)
        yield* told(
          world,
          Effect.map(one.driver.list(world.namespace), (held) => held.flatMap(({ holders }) => holders))
        )
        const held = yield* one.driver.list(world.namespace)
        for (const { hash, holders } of held) {
          assert.isNotEmpty(hash)
          assert.isNotEmpty(holders)
        }
        assert.strictEqual(new Set(held.map(({ hash }) => hash)).size, held.length, "no hash stands for two keys")
        const ours = held.filter(({ namespace }) => namespace === world.namespace)
        if (world.options.knows.includes("keys")) {
          assert.deepStrictEqual(ours.map(({ key }) => key).sort(), ["a", "b"])
          assert.strictEqual(held.filter(({ namespace }) => namespace !== undefined).length, ours.length)
        }
      })),

    test("R10.3 R2.4 forceRelease frees it, and the holder learns that it was revoked", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys)
        const other = yield* one.grant(yield* world.keys("other"))
        const deposed = yield* two.driver.forceRelease(keys[0]!, { hard: false })
        assert.lengthOf(deposed.holders, 1)
        assertHolder(world, deposed.holders[0], grant, { session: "suite", metadata: {} })
        assert.deepStrictEqual(deposed.others, [])
        assert.strictEqual(yield* one.loss(grant.token), "revoked")
        const next = yield* two.grant(keys)
        assert.isTrue(next.fences[0]! > grant.fences[0]!)
        assert.strictEqual((yield* one.renew(grant))[0]!._tag, "Lost")
        assert.include(["gone", "lapsed"], yield* one.release(grant))
        assert.strictEqual((yield* one.renew(other))[0]!._tag, "Confirmed", "what else it holds stays its own")
        assert.strictEqual((yield* two.renew(next))[0]!._tag, "Confirmed")
      })),

    test("R10.3 forceRelease of a free key deposes nobody", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const one = yield* world.process
        for (const hard of [false, true]) {
          assert.deepStrictEqual(yield* one.driver.forceRelease(keys[0]!, { hard }), { holders: [], others: [] })
        }
      })),

    test("R10.3 R2.4 the section of a deposed holder is interrupted", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const section = yield* Effect.fork(one.locking.withLock(Effect.sleep("1 hour"), "k"))
        yield* world.until("the grant", Effect.sync(() => one.answered.attempt > 0))
        yield* settle
        yield* two.locking.forceRelease("k")
        const exit = yield* world.within("its end", Fiber.await(section))
        assert.isTrue(
          Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "LeaseLost" &&
            exit.cause.error.reason === "revoked"
        )
        yield* world.within("the next one", two.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }))
      })),

    test("R10.4 check answers findings, each with a remedy", (world) =>
      Effect.gen(function*() {
        const driver = yield* world.open
        for (const { code, fix, message, severity } of yield* driver.check ?? Effect.succeed([])) {
          assert.include(["error", "warning", "info"], severity)
          assert.match(code, /^[A-Z][A-Z0-9_]*$/)
          assert.isNotEmpty(message)
          assert.isNotEmpty(fix)
        }
      }))
  ]
}
