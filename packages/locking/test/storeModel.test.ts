import { assert, describe, it } from "@effect/vitest"
import type { Claim, LockMode, LossReason } from "effect-locking/LockDriver"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as fc from "fast-check"
import { encodeId } from "../src/internal/pure/keyEncoding.js"
import type { StoreRenewal, StoreRequest } from "../src/internal/pure/storeModel.js"
import { fenceBlock, Interest, interestWindow, StoreModel } from "../src/internal/pure/storeModel.js"

const key = (name: string): ResolvedKey => {
  const parts = { namespace: "test", scope: "none", tenant: undefined, key: name } as const
  return { ...parts, id: encodeId(parts) }
}
const a = key("a")
const b = key("b")

const request = (
  keys: ReadonlyArray<ResolvedKey>,
  options: { readonly mode?: LockMode; readonly ttl?: number; readonly onDeposed?: (token: string) => void } = {}
): StoreRequest => ({ keys, mode: "exclusive", ttl: 100, session: "s", metadata: {}, ...options })

const claim = (token: string, ...keys: ReadonlyArray<ResolvedKey>): Claim => ({ token, keys, mode: "exclusive" })
const readClaim = (token: string, ...keys: ReadonlyArray<ResolvedKey>): Claim => ({ token, keys, mode: "shared" })

const fences = (answer: ReturnType<StoreModel["acquire"]>): ReadonlyArray<number> => {
  assert(answer._tag === "Granted", "refused")
  return answer.fences
}
const isRefused = (answer: ReturnType<StoreModel["acquire"]>) => assert.strictEqual(answer._tag, "Refused")

/** Arms a waiter that counts its wake-ups. */
const wait = (model: StoreModel, now: number, of: StoreRequest) => {
  const waiter = Object.assign(new Interest(of), { woken: 0 })
  model.arm(now, waiter, () => waiter.woken++)
  return waiter
}

const idle = { keys: 0, grants: 0, interests: 0, deposed: 0 }
const lost = (reason: LossReason): StoreRenewal => ({ _tag: "Lost", reason })
const confirmed = (contended: boolean): StoreRenewal => ({ _tag: "Confirmed", contended })

describe("storeModel", () => {
  describe("grants", () => {
    it("R1.1 one owner of a key; the refused one learns who and for how long", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a]))
      const refused = model.acquire(30, "B", request([a]))
      assert(refused._tag === "Refused")
      assert.strictEqual(refused.key, a)
      assert.strictEqual(refused.holder?.token, "A")
      assert.strictEqual(refused.endsIn, 70)
    })

    it("R1.8 a grant without end says so", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a], { ttl: Infinity }))
      const refused = model.acquire(1e12, "B", request([a]))
      assert(refused._tag === "Refused")
      assert.strictEqual(refused.endsIn, undefined)
    })

    it("R1.8 a grant lapses at its end, not before", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a]))
      isRefused(model.acquire(99.9, "B", request([a])))
      fences(model.acquire(100, "B", request([a])))
      assert.deepStrictEqual(model.inspect(100, a.id).map((grant) => grant.token), ["B"])
    })

    it("B51 a repeated attempt finds its own grant: same fences, later end", () => {
      const model = new StoreModel()
      const first = fences(model.acquire(0, "A", request([a, b])))
      assert.deepStrictEqual(fences(model.acquire(60, "A", request([a, b]))), first)
      assert.deepStrictEqual(model.inspect(60, a.id).map((grant) => grant.until), [160])
      assert.deepStrictEqual(fences(model.acquire(50, "A", request([a, b]))), first)
      assert.deepStrictEqual(model.inspect(50, b.id).map((grant) => grant.until), [160])
    })

    it("B51 a repeated attempt after the end is a new grant", () => {
      const model = new StoreModel()
      const [first] = fences(model.acquire(0, "A", request([a])))
      const [second] = fences(model.acquire(100, "A", request([a])))
      assert.isAtLeast(second!, first! + fenceBlock)
    })

    it("R1.5 all keys or none", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([b]))
      isRefused(model.acquire(0, "B", request([a, b])))
      assert.deepStrictEqual(model.inspect(0, a.id), [])
      assert.deepStrictEqual(model.sizes(), { ...idle, keys: 1, grants: 1 })
    })
  })

  describe("modes", () => {
    it("R1.6 readers together, writers alone", () => {
      const model = new StoreModel()
      const shared = request([a], { mode: "shared" })
      fences(model.acquire(0, "R1", shared))
      fences(model.acquire(50, "R2", shared))
      const refused = model.acquire(60, "W", request([a]))
      assert(refused._tag === "Refused")
      assert.strictEqual(refused.holder?.token, "R2", "the one that ends last")
      fences(model.acquire(150, "W", request([a])))
      isRefused(model.acquire(150, "R3", shared))
    })

    it("R1.6 a token's shared grant does not let it in alone", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a], { mode: "shared" }))
      model.acquire(0, "B", request([a], { mode: "shared" }))
      isRefused(model.acquire(0, "A", request([a])))
    })

    it("R1.6 new readers wait behind a waiting writer, earlier ones do not", () => {
      const model = new StoreModel()
      const shared = request([a], { mode: "shared" })
      model.acquire(0, "W1", request([a]))
      const early = wait(model, 0, shared)
      const writer = wait(model, 0, request([a]))
      const late = wait(model, 0, shared)
      model.release(0, claim("W1", a))
      isRefused(model.acquire(0, "new", shared))
      isRefused(model.acquire(0, "late", shared, late))
      fences(model.acquire(0, "early", shared, early))
      isRefused(model.acquire(0, "W2", request([a]), writer))
      model.release(0, readClaim("early", a))
      fences(model.acquire(0, "W2", request([a]), writer))
      model.release(0, claim("W2", a))
      fences(model.acquire(0, "late", shared, late))
      fences(model.acquire(0, "new", shared))
    })

    it("R1.6 a waiting writer does not stop readers that hold", () => {
      const model = new StoreModel()
      const shared = request([a], { mode: "shared" })
      const [first] = fences(model.acquire(0, "R", shared))
      wait(model, 0, request([a]))
      assert.deepStrictEqual(model.renew(50, readClaim("R", a), 100), confirmed(true))
      assert.deepStrictEqual(fences(model.acquire(60, "R", shared)), [first])
    })

    it("R1.6 a writer that withdraws or falls silent lets the readers in", () => {
      const model = new StoreModel()
      const shared = request([a], { mode: "shared", ttl: Infinity })
      model.acquire(0, "R1", shared)
      const writer = wait(model, 0, request([a]))
      const reader = wait(model, 0, shared)
      isRefused(model.acquire(0, "R2", shared, reader))
      model.withdraw(writer)
      assert.strictEqual(reader.woken, 1)
      fences(model.acquire(0, "R2", shared, reader))

      const silent = wait(model, 0, request([a]))
      isRefused(model.acquire(interestWindow - 1, "R3", shared))
      model.acquire(interestWindow - 1, "W", request([a]), silent)
      isRefused(model.acquire(2 * interestWindow - 2, "R3", shared))
      fences(model.acquire(2 * interestWindow - 1, "R3", shared))
    })
  })

  describe("renewal", () => {
    it("R2.3 extends from now", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a]))
      assert.deepStrictEqual(model.renew(90, claim("A", a), 100), confirmed(false))
      isRefused(model.acquire(189, "B", request([a])))
      fences(model.acquire(190, "B", request([a])))
    })

    it("B36 never revives what has ended, even while nobody took it", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a]))
      assert.deepStrictEqual(model.renew(100, claim("A", a), 100), lost("expired"))
      assert.deepStrictEqual(model.renew(100, claim("B", b), 100), lost("expired"), "never had it")
      fences(model.acquire(100, "B", request([a])))
      assert.deepStrictEqual(model.renew(100, claim("A", a), 100), lost("taken"))
    })

    it("R2.4 a reader among readers has expired, it was not taken", () => {
      const model = new StoreModel()
      model.acquire(0, "R1", request([a], { mode: "shared" }))
      model.acquire(50, "R2", request([a], { mode: "shared" }))
      assert.deepStrictEqual(model.renew(100, readClaim("R1", a), 100), lost("expired"))
    })

    it("B36 not even when the store's clock is set back", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a]))
      assert.deepStrictEqual(model.renew(100, claim("A", a), 100), lost("expired"))
      assert.deepStrictEqual(model.renew(50, claim("A", a), 100), lost("expired"))
      assert.strictEqual(model.release(50, claim("A", a)), "lapsed")
    })

    it("R1.5 one key lost: nothing is extended", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a, b]))
      model.forceRelease(10, a.id)
      assert.deepStrictEqual(model.renew(20, claim("A", a, b), 100), lost("revoked"))
      assert.deepStrictEqual(model.inspect(20, b.id).map((grant) => grant.until), [100])
    })

    it("R6.4 tells whether somebody waits elsewhere", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a, b], { ttl: Infinity }))
      const waiter = wait(model, 0, request([b]))
      assert.deepStrictEqual(model.renew(0, claim("A", a, b), Infinity), confirmed(true))
      assert.deepStrictEqual(model.renew(interestWindow, claim("A", a, b), Infinity), confirmed(false))
      model.acquire(interestWindow, "B", request([b]), waiter)
      assert.deepStrictEqual(model.renew(interestWindow, claim("A", a, b), Infinity), confirmed(true))
      model.withdraw(waiter)
      assert.deepStrictEqual(model.renew(interestWindow, claim("A", a, b), Infinity), confirmed(false))
    })
  })

  describe("release", () => {
    it("R1.3 tells what became of the grant", () => {
      const model = new StoreModel()
      assert.strictEqual(model.release(0, claim("A", a)), "gone")
      model.acquire(0, "A", request([a]))
      assert.strictEqual(model.release(99, claim("A", a)), "released")
      assert.strictEqual(model.release(99, claim("A", a)), "gone")
      model.acquire(100, "A", request([a]))
      assert.strictEqual(model.release(200, claim("A", a)), "lapsed")
      model.acquire(200, "A", request([a]))
      model.acquire(300, "B", request([a]))
      assert.strictEqual(model.release(300, claim("A", a)), "gone", "B17 and B keeps it")
      assert.deepStrictEqual(model.inspect(300, a.id).map((grant) => grant.token), ["B"])
    })

    it("R6.2 wakes all waiters of its keys, in order of arrival, once it has let go", () => {
      const model = new StoreModel()
      const order: Array<string> = []
      model.acquire(0, "A", request([a, b]))
      const waiter = (name: string, keys: ReadonlyArray<ResolvedKey>) => {
        const interest = new Interest(request(keys))
        model.arm(0, interest, () => order.push(`${name} ${model.inspect(0, a.id).length}`))
        return interest
      }
      waiter("first", [a, b])
      const second = waiter("second", [b])
      waiter("third", [key("c")])
      model.withdraw(waiter("fourth", [a]))
      assert.strictEqual(model.release(0, claim("A", a, b)), "woke")
      assert.deepStrictEqual(order, ["first 0", "second 0"])
      model.withdraw(second)
      model.acquire(0, "A", request([b]))
      assert.strictEqual(model.release(0, claim("A", b)), "woke")
      assert.deepStrictEqual(order, ["first 0", "second 0", "first 0"])
    })

    it("R6.2 a silent waiter is woken, but does not count", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a], { ttl: Infinity }))
      const waiter = wait(model, 0, request([a]))
      assert.strictEqual(model.release(interestWindow, claim("A", a)), "released")
      assert.strictEqual(waiter.woken, 1)
    })

    it("R6.2 who was granted waits no longer; who then finds it busy waits again", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a]))
      const waiter = wait(model, 0, request([a]))
      model.acquire(100, "B", request([a]), waiter)
      assert.deepStrictEqual(model.renew(100, claim("B", a), 100), confirmed(false))
      model.acquire(200, "C", request([a]))
      isRefused(model.acquire(200, "B", request([a]), waiter))
      assert.strictEqual(model.release(200, claim("C", a)), "woke")
      assert.strictEqual(waiter.woken, 1)
    })

    it("R6.5 arming after the withdrawal leaves nothing behind", () => {
      const model = new StoreModel()
      const waiter = wait(model, 0, request([a]))
      model.withdraw(waiter)
      model.arm(0, waiter, () => {})
      assert.deepStrictEqual(model.sizes(), idle)
    })
  })

  describe("administration", () => {
    it("R10.3 deposes the holders, who learn `revoked`, and wakes the waiters", () => {
      const model = new StoreModel()
      const deposed: Array<string> = []
      const shared = request([a], { mode: "shared", onDeposed: (token) => deposed.push(token) })
      model.acquire(0, "R1", shared)
      model.acquire(0, "R2", shared)
      const waiter = wait(model, 0, request([a]))
      assert.deepStrictEqual(model.forceRelease(10, a.id).map((grant) => grant.token), ["R1", "R2"])
      assert.deepStrictEqual(deposed, ["R1", "R2"])
      assert.strictEqual(waiter.woken, 1)
      fences(model.acquire(10, "W", request([a]), waiter))
      assert.deepStrictEqual(model.renew(20, readClaim("R1", a), 100), lost("revoked"))
      assert.strictEqual(model.release(20, readClaim("R1", a)), "gone")
      assert.deepStrictEqual(model.renew(20, readClaim("R1", a), 100), lost("taken"))
      assert.deepStrictEqual(model.forceRelease(20, b.id), [])
    })

    it("R6.5 remembers the deposed until their end, and only so many", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a]))
      model.forceRelease(10, a.id)
      assert.deepStrictEqual(model.renew(99, claim("A", a), 100), lost("revoked"))
      assert.deepStrictEqual(model.renew(100, claim("A", a), 100), lost("expired"))
      model.sweep(100)
      assert.deepStrictEqual(model.sizes(), idle)
      for (let i = 0; i < 5_000; i++) {
        model.acquire(0, `${i}`, request([a], { ttl: Infinity }))
        model.forceRelease(0, a.id)
      }
      assert.deepStrictEqual(model.sizes(), { ...idle, deposed: 1_024 })
      assert.deepStrictEqual(model.renew(0, claim("4999", a), 100), lost("revoked"))
    })

    it("R10.3 forgets a key without telling its holder", () => {
      const model = new StoreModel()
      const deposed: Array<string> = []
      model.acquire(0, "A", request([a], { onDeposed: (token) => deposed.push(token) }))
      assert.lengthOf(model.forget(10, a.id), 1)
      assert.deepStrictEqual(model.renew(10, claim("A", a), 100), lost("expired"))
      assert.deepStrictEqual(deposed, [])
    })

    it("R10.3 lists held keys of the namespace, lapsed ones excluded", () => {
      const model = new StoreModel()
      model.acquire(0, "A", request([a], { ttl: 10 }))
      model.acquire(0, "B", request([b], { ttl: 20 }))
      model.acquire(0, "C", request([{ ...key("c"), namespace: "other" }]))
      wait(model, 0, request([key("d")]))
      const list = (now: number) => model.list(now, "test").map(({ holders, key }) => [key.key, holders.length])
      assert.deepStrictEqual(list(5), [["a", 1], ["b", 1]])
      assert.deepStrictEqual(list(10), [["b", 1]])
    })
  })

  describe("fences", () => {
    it("R3.1 rise in blocks, positive from the first moment, and by the clock", () => {
      const model = new StoreModel()
      const take = (now: number, ...keys: ReadonlyArray<ResolvedKey>) => {
        const answer = fences(model.acquire(now, "A", request(keys)))
        model.release(now, claim("A", ...keys))
        return answer
      }
      assert.deepStrictEqual(take(0, a), [1])
      assert.deepStrictEqual(take(0, a, b), [9, 17])
      assert.deepStrictEqual(take(1.5, a), [1_500])
      assert.deepStrictEqual(take(0, a), [1_508], "the clock was set back")
      const [today] = take(1_790_000_000_123.456, a)
      assert.strictEqual(today, 1_790_000_000_123_456)
      assert.isTrue(Number.isSafeInteger(today))
    })

    it("R3.1 rise over a store that lost everything", () => {
      const [before] = fences(new StoreModel().acquire(1_000, "A", request([a])))
      const [after] = fences(new StoreModel().acquire(1_001, "B", request([a])))
      assert.isAtLeast(after!, before! + fenceBlock)
    })
  })

  describe("memory", () => {
    it("R6.5 idle keys vanish", () => {
      const model = new StoreModel()
      for (let i = 0; i < 1_000; i++) {
        model.acquire(0, "A", request([key(`${i}`), key(`${i}b`)]))
        const waiter = wait(model, 0, request([key(`${i}`), key(`${i}c`)]))
        model.release(0, claim("A", key(`${i}`), key(`${i}b`)))
        model.withdraw(waiter)
      }
      assert.deepStrictEqual(model.sizes(), idle)
    })

    it("R6.5 keys, grants and waiters of processes that died do not pile up", () => {
      const model = new StoreModel()
      for (let i = 0; i < 100_000; i++) {
        model.acquire(i * 1_000, `${i}`, request([key(`${i}`)]))
        wait(model, i * 1_000, request([key(`${i}`)]))
      }
      const { grants, interests, keys } = model.sizes()
      assert.isBelow(Math.max(grants, interests, keys), 1_000)
    })

    it("R6.2 a waiter that polls once a minute stays", () => {
      const model = new StoreModel()
      const waiter = wait(model, 0, request([a]))
      model.sweep(75_000)
      model.acquire(75_000, "A", request([a]))
      model.release(75_000, claim("A", a))
      assert.strictEqual(waiter.woken, 1)
      model.sweep(120_000)
      assert.deepStrictEqual(model.sizes(), idle)
    })
  })

  // ---------------------------------------------------------------------------------------------------------------------

  describe("any sequence of calls", () => {
    const tokens = ["A", "B", "C", "D"]
    const keys = [a, b]

    type Step =
      & { readonly token: string; readonly keys: ReadonlyArray<ResolvedKey>; readonly mode: LockMode }
      & {
        readonly op: "acquire" | "renew" | "release" | "forceRelease" | "arm" | "withdraw" | "sweep"
        readonly ttl: number
        readonly pass: number
      }

    const step: fc.Arbitrary<Step> = fc.record({
      op: fc.constantFrom("acquire", "acquire", "renew", "release", "forceRelease", "arm", "withdraw", "sweep"),
      token: fc.constantFrom(...tokens),
      keys: fc.constantFrom([a], [b], [a, b]),
      mode: fc.constantFrom("exclusive", "shared"),
      ttl: fc.constantFrom(1, 10, 30, Infinity),
      pass: fc.constantFrom(0, 0, 1, 9, 10, interestWindow, -5)
    })

    /** The same rules, as a flat list of facts: who owns which key until when. */
    class Facts {
      owned: Array<{ token: string; id: string; mode: LockMode; until: number; fence: number }> = []
      waiters: Array<Interest & { woken: number }> = []

      others = (token: string, id: string, now: number) =>
        this.owned.filter((fact) => fact.id === id && fact.token !== token && fact.until > now)
      own = (token: string, id: string, now: number) =>
        this.owned.find((fact) => fact.id === id && fact.token === token && fact.until > now)
    }

    it("R1.6 R3.1 R2.3 B36 keeps the rules", () => {
      const seen = { blocked: 0, expired: 0, revoked: 0, taken: 0, again: 0, woke: 0, lapsed: 0 }
      fc.assert(
        fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
          const model = new StoreModel()
          const facts = new Facts()
          const waiters = new Map<string, Interest & { woken: number }>()
          let now = 1_000
          let highest = 0
          for (const { keys: asked, mode, op, pass, token, ttl } of steps) {
            now += pass
            const of = request(asked, { mode, ttl })
            const interest = waiters.get(token)
            if (op === "acquire") {
              // a token belongs to one request
              if (facts.owned.some((fact) => fact.token === token && fact.until > now && fact.mode !== mode)) continue
              const answer = model.acquire(now, token, of, interest)
              const conflict = asked.some(({ id }) =>
                facts.others(token, id, now).some((fact) => mode === "exclusive" || fact.mode === "exclusive")
              )
              if (conflict) assert.strictEqual(answer._tag, "Refused")
              if (answer._tag === "Refused") {
                if (!conflict) {
                  seen.blocked++
                  assert.strictEqual(mode, "shared")
                  assert.isTrue(
                    [...waiters.values()].some((other) =>
                      other !== interest && other.arrival > 0 && other.request.mode === "exclusive" &&
                      now - other.lastSeen < interestWindow
                    ),
                    "only a waiting writer may be in the way"
                  )
                }
                continue
              }
              asked.forEach(({ id }, i) => {
                const fence = answer.fences[i]!
                const own = facts.own(token, id, now)
                facts.owned = facts.owned.filter((fact) => fact.id !== id || fact.until > now)
                if (own !== undefined) {
                  seen.again++
                  assert.strictEqual(fence, own.fence)
                  own.until = Math.max(own.until, now + ttl)
                  return
                }
                assert.isAbove(fence, highest)
                highest = fence + fenceBlock - 1
                facts.owned.push({ token, id, mode, until: now + ttl, fence })
              })
            } else if (op === "renew") {
              const answer = model.renew(now, { token, keys: asked, mode }, ttl)
              const own = asked.map(({ id }) => facts.own(token, id, now))
              assert.strictEqual(answer._tag, own.every((fact) => fact !== undefined) ? "Confirmed" : "Lost")
              if (answer._tag === "Confirmed") own.forEach((fact) => fact!.until = now + ttl)
              else {
                seen[answer.reason as "expired"]++
                facts.owned = facts.owned.filter((fact) =>
                  fact.token !== token || fact.until > now || !asked.some(({ id }) => id === fact.id)
                )
              }
            } else if (op === "release") {
              const live = asked.every(({ id }) => facts.own(token, id, now) !== undefined)
              const answer = model.release(now, { token, keys: asked, mode })
              assert.strictEqual(answer === "released" || answer === "woke", live)
              if (answer === "woke") seen.woke++
              if (answer === "lapsed") seen.lapsed++
              facts.owned = facts.owned.filter((fact) =>
                fact.token !== token || !asked.some(({ id }) => id === fact.id)
              )
            } else if (op === "forceRelease") {
              const { id } = asked[0]!
              const expected = facts.owned.filter((fact) => fact.id === id && fact.until > now)
              const answer = model.forceRelease(now, id)
              assert.sameMembers(answer.map((grant) => grant.token), expected.map((fact) => fact.token))
              facts.owned = facts.owned.filter((fact) => fact.id !== id)
            } else if (op === "arm" && interest === undefined) {
              waiters.set(token, wait(model, now, of))
            } else if (op === "withdraw" && interest !== undefined) {
              model.withdraw(interest)
              waiters.delete(token)
            } else if (op === "sweep") {
              model.sweep(now)
              facts.owned = facts.owned.filter((fact) => fact.until > now)
            }

            for (const { id } of keys) {
              const holders = model.inspect(now, id)
              const writers = holders.filter((grant) => grant.request.mode === "exclusive")
              assert.isTrue(writers.length === 0 || holders.length === 1, "a writer is alone")
              assert.sameDeepMembers(
                holders.map(({ fence, token, until }) => ({ token, fence, until })),
                facts.owned.filter((fact) => fact.id === id && fact.until > now)
                  .map(({ fence, token, until }) => ({ token, fence, until }))
              )
            }
          }
          // everybody goes: nothing stays
          for (const token of tokens) {
            model.release(now, { token, keys, mode: "exclusive" })
            const waiter = waiters.get(token)
            if (waiter !== undefined) model.withdraw(waiter)
          }
          assert.deepStrictEqual(model.sizes(), idle)
        }),
        { numRuns: 3_000 }
      )
      for (const [name, count] of Object.entries(seen)) assert.isAbove(count, 0, `never reached: ${name}`)
    })
  })
})
