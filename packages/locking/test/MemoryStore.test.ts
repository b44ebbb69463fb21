import { assert, describe, it } from "@effect/vitest"
import { Chunk, Duration, Effect, Exit, Queue, Scope, TestClock } from "effect"
import type { Contention, Grant, LockDriver, LockMode, LockRequest } from "effect-locking/LockDriver"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as MemoryStore from "effect-locking/MemoryStore"
import { encodeId } from "../src/internal/pure/keyEncoding.js"

const key = (name: string): ResolvedKey => {
  const parts = { namespace: "test", scope: "tenant", tenant: "acme", key: name } as const
  return { ...parts, id: encodeId(parts) }
}
const [a, b] = [key("a"), key("b")]
const soft = { hard: false }

const open = (
  driver: LockDriver,
  keys: ReadonlyArray<ResolvedKey>,
  options: { readonly mode?: LockMode; readonly ttl?: Duration.DurationInput } = {}
): Contention => {
  const request: LockRequest = {
    keys,
    mode: options.mode ?? "exclusive",
    ttl: Duration.decode(options.ttl ?? Duration.infinity),
    fair: false,
    waiting: true,
    holder: { session: "session", metadata: { job: "42" } }
  }
  return driver.contend(request)
}

const attempt = (contention: Contention, token: string) => contention.attempt({ token, left: Duration.seconds(1) })

const take = (contention: Contention, token: string) =>
  Effect.map(attempt(contention, token), (answer): Grant => {
    assert(answer._tag === "Grant", "busy")
    return answer
  })

const isBusy = (contention: Contention, token: string) =>
  Effect.map(attempt(contention, token), (answer) => {
    assert(answer._tag === "Busy", "granted")
    return answer
  })

const twoProcesses = Effect.gen(function*() {
  const store = yield* MemoryStore.make
  return [yield* MemoryStore.driver(store), yield* MemoryStore.driver(store)] as const
})

describe("MemoryStore", () => {
  it.scoped("R8.1 every driver is a process of its own at the store", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoProcesses
      const grant = yield* take(open(one, [a]), "one")
      yield* isBusy(open(two, [a]), "two")
      yield* take(open(two, [b]), "two")
      const [, apart] = yield* twoProcesses
      yield* take(open(apart, [a]), "apart")
      assert.strictEqual(yield* two.release({ ...grant, token: "two" }), "gone")
      assert.strictEqual(yield* one.release(grant), "released")
      yield* take(open(two, [a]), "two")
    }))

  it.scoped("R1.8 R3.1 a grant carries what was asked for and fences of its own per key", () =>
    Effect.gen(function*() {
      const [one] = yield* twoProcesses
      yield* TestClock.setTime(1_790_000_000_000)
      const grant = yield* take(open(one, [a, b], { mode: "shared", ttl: "15 seconds" }), "one")
      assert.deepStrictEqual(grant, {
        _tag: "Grant",
        token: "one",
        keys: [a, b],
        mode: "shared",
        fences: [1_790_000_000_000_000n, 1_790_000_000_000_008n],
        block: 8,
        ttl: Duration.seconds(15)
      })
    }))

  it.scoped("R1.7 R10.3 who is refused learns what is known of the holder", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoProcesses
      yield* TestClock.setTime(1_000)
      const { fences } = yield* take(open(one, [a], { ttl: 100 }), "one")
      yield* TestClock.adjust(40)
      const busy = yield* isBusy(open(two, [a]), "two")
      assert.deepStrictEqual(busy.endsIn, Duration.millis(60))
      const holder = {
        mode: "exclusive",
        fence: fences[0]!,
        token: "one",
        since: 1_000,
        until: 1_100,
        session: "session",
        metadata: { job: "42" }
      } as const
      assert.deepStrictEqual(busy.holder, holder)
      assert.deepStrictEqual(yield* two.inspect(a), [holder])
      const [held, ...others] = yield* two.list("test")
      assert.deepStrictEqual(others, [])
      assert.match(held!.hash, /^[0-9a-f]{12}$/)
      assert.deepStrictEqual(held, {
        namespace: "test",
        scope: "tenant",
        tenant: "acme",
        key: "a",
        hash: held!.hash,
        holders: [holder]
      })
      assert.deepStrictEqual(yield* two.list("other"), [])
    }))

  it.scoped("R1.8 a grant without end has no end to tell", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoProcesses
      yield* take(open(one, [a]), "one")
      yield* TestClock.adjust("400 days")
      const busy = yield* isBusy(open(two, [a]), "two")
      assert.strictEqual(busy.endsIn, undefined)
      assert.strictEqual(busy.holder?.until, undefined)
    }))

  it.scoped("R2.3 renewal extends, never revives, and answers in order", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoProcesses
      const short = yield* take(open(one, [a], { ttl: 100 }), "short")
      const long = yield* take(open(one, [b], { ttl: 1_000 }), "long")
      yield* TestClock.adjust(90)
      assert.deepStrictEqual(yield* one.renew([short]), [{ _tag: "Confirmed", contended: false }])
      yield* TestClock.adjust(100)
      const waiter = open(two, [b])
      yield* waiter.arm(() => {})
      assert.deepStrictEqual(yield* one.renew([short, long]), [
        { _tag: "Lost", reason: "expired" },
        { _tag: "Confirmed", contended: true }
      ])
      assert.deepStrictEqual(yield* one.renew([]), [])
    }))

  it.scoped("R6.2 a release wakes who is armed, until the withdrawal", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoProcesses
      let woken = 0
      const grant = yield* take(open(one, [a]), "one")
      const waiter = open(two, [a])
      yield* waiter.arm(() => woken++)
      yield* isBusy(waiter, "two")
      assert.strictEqual(yield* one.release(grant), "woke")
      assert.strictEqual(woken, 1)
      yield* take(open(one, [a]), "one")
      yield* waiter.withdraw
      assert.strictEqual(yield* one.release(grant), "released")
      assert.strictEqual(woken, 1)
    }))

  it.scoped("R10.3 forceRelease tells the process that held it, and only that", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoProcesses
      const grant = yield* take(open(one, [a]), "one")
      yield* take(open(two, [b]), "two")
      assert.deepStrictEqual((yield* two.forceRelease(a, soft)).holders.map((holder) => holder.token), ["one"])
      assert.deepStrictEqual(Chunk.toReadonlyArray(yield* Queue.takeAll(one.losses)), [
        { token: "one", reason: "revoked" }
      ])
      assert.strictEqual(yield* Queue.size(two.losses), 0)
      yield* take(open(two, [a]), "two")
      assert.deepStrictEqual(yield* one.renew([grant]), [{ _tag: "Lost", reason: "revoked" }])
    }))

  it.effect("R7.1 closing the scope ends the losses, and what happens to its grants later hurts nobody", () =>
    Effect.gen(function*() {
      const store = yield* MemoryStore.make
      const scope = yield* Scope.make()
      const one = yield* Scope.extend(MemoryStore.driver(store), scope)
      yield* take(open(one, [a]), "one")
      yield* Scope.close(scope, Exit.void)
      assert.isTrue(yield* Queue.isShutdown(one.losses))
      const two = yield* Scope.extend(MemoryStore.driver(store), yield* Scope.make())
      assert.lengthOf((yield* two.forceRelease(a, soft)).holders, 1)
    }))

  it.scopedLive("R2.5 on the real clock, time runs and is near the wall's", () =>
    Effect.gen(function*() {
      const [one, two] = yield* twoProcesses
      yield* take(open(one, [a], { ttl: 20 }), "one")
      const [holder] = yield* two.inspect(a)
      assert.closeTo(holder!.since!, Date.now(), 60_000)
      yield* isBusy(open(two, [a]), "two")
      yield* Effect.sleep(30)
      yield* take(open(two, [a]), "two")
    }))

  it.scoped("R8.1 says what it can do", () =>
    Effect.gen(function*() {
      const [one] = yield* twoProcesses
      yield* one.ready
      assert.strictEqual(one.name, "memory")
      assert.deepStrictEqual(one.capabilities, {
        modes: ["exclusive", "shared"],
        fair: false,
        push: true,
        expiry: "server",
        remote: false,
        ttl: { default: Duration.infinity, min: Duration.millis(1), infinite: true }
      })
    }))
})
