/**
 * Arrival order across processes.
 */
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import * as Worker from "@effect-locking/testing/Worker"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Schedule, Schema, type Scope } from "effect"
import type { Locking } from "effect-locking/Locking"
import { recordOf } from "../src/internal/records.js"
import * as kit from "./kit.js"

const it_ = <E>(name: string, body: () => Effect.Effect<void, E, Scope.Scope>, timeout = 60_000) =>
  it.scopedLive(name, body, timeout)

const record = (name: string) => recordOf("", kit.key(name))

const Served = Schema.is(Schema.Struct({ served: Schema.Number, at: Schema.Number }))

const line = (name: string) =>
  Effect.gen(function*() {
    const server = yield* kit.server
    const nodes = yield* Effect.forEach([1, 2, 3], () => kit.node(server.url(), { ttl: "30 seconds" }))
    const served: Array<number> = []
    const places = Effect.map(
      server.command("HKEYS", record(name)),
      (fields: ReadonlyArray<string>) => fields.filter((field) => field.startsWith("w")).length
    )
    const arrive = (locking: Locking, number: number, options = {}) =>
      Effect.gen(function*() {
        const before = yield* places
        const fiber = yield* Effect.fork(
          locking.withLock(Effect.sync(() => served.push(number)), name, {
            fair: true,
            waitTimeout: "50 seconds",
            ...options
          })
        )
        yield* kit.eventually(Effect.map(places, (count) => count === before + 1))
        return fiber
      })
    const holder = yield* nodes[0]!.acquire(name, { fair: true }).pipe(Effect.map((lease) => lease.release))
    return { server, nodes, served, places, arrive, leave: holder }
  })

describe("R1.13 fair mode", () => {
  it_("serves 60 waiters of three processes in the exact order of their arrival", () =>
    Effect.gen(function*() {
      const { leave, places, server } = yield* line("order")
      const workers = yield* Effect.forEach([1, 2, 3], () =>
        Worker.spawn(new URL("./fixtures/worker.ts", import.meta.url), {
          args: ["line", server.url(), "order"],
          watchdog: "2 minutes"
        }))
      yield* Effect.forEach(workers, (worker) =>
        worker.take)
      const numbers = Array.from({ length: 60 }, (_, i) =>
        i)
      for (const number of numbers) {
        // one that goes round, and each of them twice in a row now and then
        yield* workers[(number * 7 + Math.floor(number / 5)) % 3]!.send(number)
        yield* kit.eventually(Effect.map(places, (count) => count === number + 1))
      }
      for (const worker of workers) yield* worker.send("end")
      yield* leave
      yield* Effect.forEach(workers, (worker) => worker.ended)
      const written = yield* Effect.forEach(workers, (worker) => worker.written)
      const served = written.flat().filter((_) => Served(_)).sort((one, other) => one.at - other.at)
      assert.deepStrictEqual(served.map(({ served }) => served), numbers)
      assert.strictEqual(yield* places, 0)
    }), 150_000)

  it_("lets nobody pass who did not ask for it", () =>
    Effect.gen(function*() {
      const { arrive, leave, nodes, served } = yield* line("pass")
      const first = yield* arrive(nodes[1]!, 1)
      const second = yield* arrive(nodes[2]!, 2)
      const other = yield* Effect.fork(
        nodes[0]!.withLock(Effect.sync(() => served.push(3)), "pass", { waitTimeout: "50 seconds" })
      )
      yield* Effect.sleep(100)
      yield* leave
      yield* Effect.forEach([first, second, other], (fiber) => Fiber.join(fiber))
      assert.deepStrictEqual(served, [1, 2, 3])
    }))

  it_("R6.3 one waiter of a process keeps the places of all, as long as they wait", () =>
    Effect.gen(function*() {
      const { arrive, leave, nodes, places, served, server } = yield* line("together")
      const fibers = []
      for (let i = 0; i < 40; i++) fibers.push(yield* arrive(nodes[1]!, i))
      // each has asked since it listened
      yield* Effect.sleep(500)
      const before = yield* kit.commands(server)
      yield* Effect.sleep(4_000)
      const commands = (yield* kit.commands(server)) - before
      assert.strictEqual(yield* places, 40)
      // 16 polls of 250 ms, of one where each by itself would have made 640; and what keeps connections alive
      assert.isBelow(commands, 80)
      // who was the first goes, and another one keeps the places from now on
      yield* Fiber.interrupt(fibers[0]!)
      yield* Effect.sleep(2_500)
      assert.strictEqual(yield* places, 39)
      yield* leave
      yield* Effect.forEach(fibers.slice(1), (fiber) => Fiber.join(fiber))
      assert.deepStrictEqual(served, Array.from({ length: 39 }, (_, i) => i + 1))
    }))

  it_("R6.3 who has lost its place takes one at the end", () =>
    Effect.gen(function*() {
      const { arrive, leave, nodes, places, served, server } = yield* line("lost")
      const first = yield* arrive(nodes[1]!, 1)
      const [own] = ((yield* server.command("HKEYS", record("lost"))) as ReadonlyArray<string>)
        .filter((field) => field.startsWith("w"))
      const second = yield* arrive(nodes[1]!, 2)
      const fields: ReadonlyArray<string> = yield* server.command("HKEYS", record("lost"))
      const [lost] = fields.filter((field) => field.startsWith("w") && field !== own)
      const third = yield* arrive(nodes[1]!, 3)
      yield* server.command("HDEL", record("lost"), lost!)
      yield* kit.eventually(Effect.map(places, (count) => count === 3))
      yield* leave
      yield* Effect.forEach([first, second, third], (fiber) => Fiber.join(fiber))
      assert.deepStrictEqual(served, [1, 3, 2])
    }))

  it_(
    "R1.7 who may have been granted without hearing of it asks, whoever is before it here",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const proxy = yield* TcpProxy.make({ port: server.port })
        const [one, two] = [yield* kit.driver(server.url()), yield* kit.driver(server.url(proxy.port))]
        const keys = [kit.key("unheard")]
        const holder = yield* kit.take(kit.open(one, keys), kit.token())
        const wait = (token: string) =>
          Effect.gen(function*() {
            const woken = yield* Deferred.make<void>()
            const contention = kit.open(two, keys, { fair: true })
            yield* kit.isBusy(contention, token)
            yield* contention.arm(() => Deferred.unsafeDone(woken, Effect.void))
            yield* kit.isBusy(contention, token)
            return { contention, woken: Deferred.await(woken) }
          })
        const first = yield* wait("first")
        const second = yield* wait("second")
        // the server has forgotten the first one, and wakes the second
        yield* server.command("HDEL", record("unheard"), "wfirst")
        yield* one.release(holder)
        yield* second.woken
        const lost = yield* proxy.dropNextReply()
        const unheard = yield* Effect.fork(Effect.flip(kit.attempt(second.contention, "second")))
        yield* lost
        assert.strictEqual((yield* Fiber.join(unheard)).executed, "unknown")
        const grant = yield* kit.take(second.contention, "second").pipe(
          // until the connection is back
          Effect.retry({ times: 100, schedule: Schedule.spaced(50) })
        )
        assert.strictEqual((yield* two.inspect(keys[0]!))[0]?.fence, grant.fences[0])
        yield* two.release(grant)
        yield* first.contention.withdraw
        yield* second.contention.withdraw
      })
  )

  it_(
    "R6.3 nobody keeps the place of who is before it at the server, and would not ask by itself",
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const [one, two] = [yield* kit.driver(server.url()), yield* kit.driver(server.url())]
        const keys = [kit.key("forgotten")]
        yield* kit.take(kit.open(one, keys), kit.token())
        const line = [kit.open(two, keys, { fair: true }), kit.open(two, keys, { fair: true })] as const
        const ask = (i: 0 | 1) => kit.attempt(line[i], `${i}`)
        for (const i of [0, 1] as const) {
          yield* ask(i)
          yield* line[i].arm(() => {})
          yield* ask(i)
        }
        // the server has lost its memory, and the second comes back before the first
        yield* Effect.sleep(1_000)
        yield* server.command("FLUSHALL")
        yield* kit.take(kit.open(one, keys, { ttl: "1 second" }), kit.token())
        assert.strictEqual((yield* ask(1))._tag, "Busy")
        assert.strictEqual((yield* ask(0))._tag, "Busy")
        // as the engine polls; nobody releases, so nobody is woken
        yield* kit.eventually(
          Effect.delay(Effect.map(Effect.all([ask(0), ask(1)]), (all) => all.some(({ _tag }) => _tag === "Grant")), 250)
        )
        yield* Effect.forEach(line, ({ withdraw }) => withdraw)
      })
  )

  it_("R6.6 R1.13 who is refused before it listens leaves no place behind", () =>
    Effect.gen(function*() {
      const { arrive, leave, nodes, places, server } = yield* line("refused")
      const first = yield* arrive(nodes[1]!, 1)
      const node = yield* kit.node(server.url(), { maxWaiters: 1 })
      const second = yield* arrive(node, 2)
      for (let i = 0; i < 3; i++) {
        const error = yield* Effect.flip(node.withLock(Effect.void, "refused", { fair: true }))
        assert.strictEqual(error._tag, "QueueFull")
      }
      yield* kit.eventually(Effect.map(places, (count) => count === 2))
      yield* leave
      yield* Effect.forEach([first, second], (fiber) => Fiber.join(fiber))
    }))

  it_(
    "waiters that give up are passed at once, and any number that died cost the rest one patience",
    () =>
      Effect.gen(function*() {
        const { arrive, leave, nodes, served, server } = yield* line("gone")
        const proxy = yield* TcpProxy.make({ port: server.port })
        // of several processes, between others
        const dead = yield* Effect.replicateEffect(kit.node(server.url(proxy.port), { shutdownTimeout: 0 }), 5)
        const quitters = []
        for (const [i, locking] of dead.entries()) {
          yield* arrive(locking, i)
          quitters.push(yield* arrive(nodes[1]!, 10 + i))
        }
        const last = yield* arrive(nodes[2]!, 20)
        yield* proxy.refuse
        yield* proxy.blackHole()
        yield* Fiber.interruptAll(quitters)
        const start = performance.now()
        yield* leave
        yield* Fiber.join(last)
        assert.deepStrictEqual(served, [20])
        // the patience, and a beat of who is next
        assert.isBelow(performance.now() - start, 1_500 + 500 + 1_000)
      })
  )
})
