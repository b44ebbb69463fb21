import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import { assert } from "vitest"
import { type Contender, type Group, settle, test, testIf, waits, type World } from "../world.js"

const knows = (world: World, what: World["options"]["knows"][number]): boolean => world.options.knows.includes(what)

export const waiting: Group = {
  name: "waiting",
  cases: [
    testIf(["push"])("R6.2 B21 armed, then released elsewhere: it is woken", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [holder, waiter] = [yield* world.process, yield* world.process]
        for (let round = 0; round < 5; round++) {
          const grant = yield* holder.grant(keys)
          const contender = waiter.contend(keys)
          const woken = yield* waits(contender)
          const released = yield* holder.release(grant)
          if (knows(world, "waiters")) assert.strictEqual(released, "woke")
          else assert.include(["woke", "released"], released)
          yield* world.within("the wake-up", woken)
          yield* world.until("the grant", Effect.map(contender.attempt, ({ _tag }) => _tag === "Grant"))
          yield* contender.contention.withdraw
          yield* waiter.release(contender.claim)
        }
      })),

    testIf(["push"])(
      "R6.2 every process that waits is woken in its turn, and so is who waits for one of several keys",
      (world) =>
        Effect.gen(function*() {
          const both = yield* world.keys("a", "b")
          const holder = yield* world.process
          const grants = [yield* holder.grant([both[0]!]), yield* holder.grant([both[1]!])]
          const woken = new Set<Contender>()
          const releases = new Map<Contender, Effect.Effect<unknown, unknown>>()
          const contend = (keys: typeof both) =>
            Effect.gen(function*() {
              const process = yield* world.process
              const contender = process.contend(keys)
              releases.set(contender, process.release(contender.claim))
              yield* contender.attempt
              yield* contender.contention.arm(() => woken.add(contender))
              assert.strictEqual((yield* contender.attempt)._tag, "Busy")
              yield* Effect.addFinalizer(() => Effect.ignore(contender.contention.withdraw))
              return contender
            })
          const all = new Set([
            yield* contend(both),
            yield* contend([both[0]!]),
            yield* contend(both),
            yield* contend([both[0]!])
          ])
          /** Nobody asks but for a wake-up, so that without one nobody ever gets it. */
          const serve = Effect.gen(function*() {
            let served: Contender | undefined
            yield* world.until(
              "somebody is woken who can have it",
              Effect.gen(function*() {
                for (const contender of woken) {
                  const answer = yield* contender.attempt
                  if (answer._tag === "Grant") served = contender
                  if (served !== undefined) return true
                  woken.delete(contender)
                }
                return false
              })
            )
            all.delete(served!)
            woken.delete(served!)
            yield* served!.contention.withdraw
            return served!
          })
          // the first in line wants both, of which one is still held: it is in nobody's way
          yield* holder.release(grants[0]!)
          for (let i = 0; i < 2; i++) {
            const served = yield* serve
            assert.strictEqual(served.claim.keys.length, 1)
            yield* releases.get(served)!
          }
          for (const contender of woken) assert.strictEqual((yield* contender.attempt)._tag, "Busy")
          woken.clear()
          yield* holder.release(grants[1]!)
          while (all.size > 0) yield* releases.get(yield* serve)!
        })
    ),

    testIf(["push"])(
      "R6.2 B21 released before it was armed: the attempt after that sees it",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [holder, waiter] = [yield* world.process, yield* world.process]
          const grant = yield* holder.grant(keys)
          const contender = waiter.contend(keys)
          assert.strictEqual((yield* contender.attempt)._tag, "Busy")
          yield* holder.release(grant)
          yield* contender.contention.arm(() => {})
          yield* world.until("the grant", Effect.map(contender.attempt, ({ _tag }) => _tag === "Grant"))
          yield* contender.contention.withdraw
          yield* waiter.release(contender.claim)
        })
    ),

    testIf(["shared mode", "push"])("R1.6 R6.2 readers and writers wake each other", (world) =>
      Effect.gen(function*() {
        const [holder, waiter] = [yield* world.process, yield* world.process]
        for (const [held, asked] of [["exclusive", "shared"], ["shared", "exclusive"]] as const) {
          const keys = yield* world.keys(`${held} then ${asked}`)
          const grant = yield* holder.grant(keys, { mode: held })
          const contender = waiter.contend(keys, { mode: asked })
          const woken = yield* waits(contender)
          yield* holder.release(grant)
          yield* world.within(`the wake-up of ${asked}`, woken)
          yield* world.until("the grant", Effect.map(contender.attempt, ({ _tag }) => _tag === "Grant"))
          yield* waiter.release(contender.claim)
        }
      })),

    test("R6.4 a renewal and a release tell whether others wait, where the store knows", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [holder, waiter] = [yield* world.process, yield* world.process]
        const grant = yield* holder.grant(keys)
        const alone = (yield* holder.renew(grant))[0]!
        assert.isTrue(alone._tag === "Confirmed" && !alone.contended, "nobody waits")
        yield* Effect.asVoid(waits(waiter.contend(keys)))
        const contended = (yield* holder.renew(grant))[0]!
        assert.strictEqual(contended._tag, "Confirmed")
        if (knows(world, "waiters")) assert.deepStrictEqual(contended, { _tag: "Confirmed", contended: true })
      })),

    testIf(["storeView.interests"])("R6.2 who withdraws is forgotten by the store", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const interests = world.store.storeView!.interests!
        const [holder, waiter] = [yield* world.process, yield* world.process]
        const grant = yield* holder.grant(keys)
        const contender = waiter.contend(keys)
        yield* contender.attempt
        yield* contender.contention.arm(() => {})
        yield* contender.attempt
        yield* world.until("the interest", Effect.map(interests, (count) => count > 0))
        yield* contender.contention.withdraw
        yield* waiter.release(contender.claim)
        yield* holder.release(grant)
        yield* world.until("no interest", Effect.map(interests, (count) => count === 0))
      })),

    test("R5 a busy answer tells nothing that is wrong", (world) =>
      Effect.gen(function*() {
        const keys = yield* world.keys("k")
        const [one, two] = [yield* world.process, yield* world.process]
        const grant = yield* one.grant(keys)
        const busy = yield* two.assertBusy(keys, "one holds it")
        if (busy.holder !== undefined) {
          assert.strictEqual(busy.holder.mode, "exclusive")
          if (busy.holder.fence !== undefined) assert.strictEqual(busy.holder.fence, grant.fences[0])
          if (busy.holder.token !== undefined) assert.strictEqual(busy.holder.token, grant.token)
        }
        if (busy.endsIn !== undefined) {
          assert.isAtMost(Duration.toMillis(busy.endsIn), world.longTtl)
          assert.isAtLeast(Duration.toMillis(busy.endsIn), 0)
        }
      })),

    testIf(["push"])(
      "R6.2 a waiter of another process is served by push, not by its poll",
      (world) =>
        Effect.gen(function*() {
          const [one, two] = [yield* world.node(), yield* world.node({ pollInterval: "1 minute" })]
          for (let round = 0; round < 5; round++) {
            const lease = yield* one.locking.acquire("k", { waitTimeout: "50 seconds" })
            const attempts = two.answered.attempt
            const fiber = yield* Effect.fork(two.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }))
            // attempt, arm, attempt: from then on it sleeps
            yield* world.until("the waiter", Effect.sync(() => two.answered.attempt >= attempts + 2))
            yield* lease.release
            yield* world.within("its turn", Fiber.join(fiber))
          }
        })
    ),

    test("R1.7 B45 waitTimeout: one attempt at zero; in vain neither early nor late", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        assert.isTrue(Option.isSome(yield* two.locking.withLockIfAvailable(Effect.void, "free")))
        yield* two.locking.withLock(Effect.void, "free", { waitTimeout: 0 })
        yield* one.locking.acquire("k")
        const busy = yield* Effect.flip(two.locking.withLock(Effect.void, "k", { waitTimeout: 0 }))
        assert.strictEqual(busy._tag, "LockBusy")
        const before = yield* world.now
        const error = yield* world.within(
          "the time-out",
          Effect.flip(two.locking.withLock(Effect.void, "k", { waitTimeout: 600 })),
          1_800 + world.soon
        )
        assert.strictEqual(error._tag, "WaitTimeout")
        assert.isAtLeast((yield* world.now) - before, 600)
      })),

    test("R1.13 FIFO in one process, while another one holds it", (world) =>
      Effect.gen(function*() {
        const [one, two] = [yield* world.node(), yield* world.node()]
        const lease = yield* one.locking.acquire("k")
        const order: Array<number> = []
        const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
        for (let i = 0; i < 8; i++) {
          fibers.push(
            yield* Effect.fork(
              two.locking.withLock(Effect.sync(() => order.push(i)), "k", { waitTimeout: "50 seconds" })
            )
          )
          yield* settle
        }
        yield* world.until("the first waiter", Effect.sync(() => two.answered.arm > 0))
        // a place that is given up costs nobody else his own
        yield* Fiber.interrupt(fibers[3]!)
        yield* lease.release
        yield* world.within(
          "all of them",
          Effect.forEach(fibers.filter((_, i) => i !== 3), Fiber.join),
          10_000 * world.options.slack
        )
        assert.deepStrictEqual(order, [0, 1, 2, 4, 5, 6, 7])
      })),

    testIf(["expiry by the server"])(
      "R6.2 nobody releases: a waiter gets it when the holder's time is over",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const [dead, two] = [yield* world.process, yield* world.node()]
          const before = yield* world.now
          yield* dead.grant(keys, { ttl: world.ttl })
          yield* world.within(
            "the waiter's turn",
            two.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" }),
            3 * world.ttl + world.soon
          )
          assert.isAtLeast((yield* world.now) - before, world.ttl)
        })
    ),

    testIf(["expiry by the session"])(
      "R6.2 the holder's session ends: a waiter gets it",
      (world) =>
        Effect.gen(function*() {
          const keys = yield* world.keys("k")
          const two = yield* world.node()
          yield* Effect.scoped(Effect.gen(function*() {
            const holder = yield* world.open
            const token = "of a session that ends"
            const contention = holder.contend({
              keys,
              mode: "exclusive",
              ttl: Duration.millis(world.longTtl),
              fair: false,
              waiting: false,
              holder: { session: "suite", metadata: {} }
            })
            const answer = yield* contention.attempt({ token, left: Duration.seconds(5) })
            assert.strictEqual(answer._tag, "Grant")
          }))
          yield* world.within(
            "the waiter's turn",
            two.locking.withLock(Effect.void, "k", { waitTimeout: "50 seconds" })
          )
        })
    )
  ]
}
