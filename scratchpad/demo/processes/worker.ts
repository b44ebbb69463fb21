/** One of the processes: does what it is told, and says what happened. */
import * as History from "@effect-locking/testing/History"
import * as Worker from "@effect-locking/testing/Worker"
import { Effect, Logger, Queue, Random } from "effect"
import type { Transfer } from "../ledger.js"
import { patience } from "../workers.js"
import * as Backends from "./backends.js"
import type { Change } from "./bank.js"
import type { Order, Report, Role, Visit } from "./protocol.js"
import { deposit, till, turnTakes } from "./story.js"

const role: Role = JSON.parse(process.argv[2]!)

const say = (report: Report) => Effect.sync(() => Worker.emit(report))

const program = Effect.gen(function*() {
  const backend = Backends.find(role.driver)!
  const bank = yield* backend.bank(role.url)
  const locksOf = (ttl: number) => backend.locking(role.url, { session: role.name, ttl })
  const inbox = yield* Worker.inbox

  /** Two balances are read, and written back a moment later. */
  const apply = ({ amount, from, to }: Transfer, fences?: ReadonlyMap<string, Change["fence"]>) =>
    Effect.gen(function*() {
      const [payer, payee] = [yield* bank.read(from), yield* bank.read(to)]
      yield* Effect.sleep(yield* Random.nextRange(1, 3))
      return yield* bank.write([
        { account: from, read: payer, balance: payer - amount, fence: fences?.get(from) },
        { account: to, read: payee, balance: payee + amount, fence: fences?.get(to) }
      ])
    })

  const transfers = ({ callers, locked, transfers }: Extract<Order, { readonly order: "transfer" }>) =>
    Effect.gen(function*() {
      const locking = locked ? yield* locksOf(15_000) : undefined
      const visits: Array<Visit> = []
      let next = 0
      const transfer = (caller: number) =>
        Effect.gen(function*() {
          const one = transfers[next++]!
          const asked = History.now()
          const noted = (start: number, work: ReturnType<typeof apply>) =>
            Effect.map(work, (undid) => {
              visits.push({ caller, from: one.from, to: one.to, asked, start, end: History.now(), undid })
            })
          yield* locking === undefined
            ? noted(asked, apply(one))
            : locking.useLocks([one.from, one.to], { waitTimeout: patience }, (leases) =>
              noted(History.now(), apply(one, new Map(leases.map(({ fence, key }) => [key, fence])))))
        })
      yield* Effect.forEach(
        Array.from({ length: callers }, (_, i) => i + 1),
        (caller) =>
          Effect.whileLoop({ while: () => next < transfers.length, body: () => transfer(caller), step: () => {} }),
        { concurrency: "unbounded", discard: true }
      )
      yield* say({ report: "transferred", visits })
    }).pipe(Effect.scoped)

  const pay = (ttl: number) =>
    Effect.gen(function*() {
      const locking = yield* locksOf(ttl)
      let isOver = false
      yield* Effect.forkScoped(Effect.zipRight(Queue.take(inbox), Effect.sync(() => isOver = true)))
      const turn = Effect.gen(function*() {
        yield* say({ report: "asks", at: History.now() })
        const section = locking.useLock(till, { waitTimeout: patience }, (lease) =>
          Effect.gen(function*() {
            const found = yield* bank.read(till)
            yield* say({ report: "begins", at: History.now(), fence: String(lease.fence), found })
            yield* Effect.forkScoped(
              Effect.catchAll(lease.lost, ({ message }) => say({ report: "lost", at: History.now(), message }))
            )
            // what a process was doing when it froze goes on before any interruption can reach it
            yield* Effect.uninterruptible(Effect.gen(function*() {
              yield* Effect.sleep(turnTakes)
              const balance = found + deposit
              const refused = yield* bank.write([{ account: till, read: found, balance, fence: lease.fence }]).pipe(
                Effect.as(undefined),
                Effect.catchAll(({ message }) => Effect.succeed(message))
              )
              yield* say({ report: "wrote", at: History.now(), balance, refused })
            }))
          }).pipe(Effect.scoped))
        const failed = yield* Effect.match(section, {
          onSuccess: () => undefined,
          onFailure: ({ _tag, message }) => `${_tag}: ${message}`
        })
        yield* say({ report: "ends", at: History.now(), failed })
        yield* Effect.sleep(yield* Random.nextRange(30, 90))
      })
      yield* Effect.whileLoop({ while: () => !isOver, body: () => turn, step: () => {} })
      yield* say({ report: "over" })
    }).pipe(Effect.scoped)

  yield* say({ report: "ready" })
  for (;;) {
    const order = (yield* Queue.take(inbox)) as Order
    if (order.order === "transfer") yield* transfers(order)
    else if (order.order === "pay") yield* pay(order.ttl)
    else return
  }
}).pipe(
  Effect.scoped,
  Effect.withRandom(Random.make(role.seed)),
  // the output is for what it says, and what it logs of a loss is told by the demo
  Effect.provide(Logger.replace(Logger.defaultLogger, Logger.none))
)

Effect.runPromise(program).catch((error) => {
  process.stderr.write(`${error}\n`)
  process.exitCode = 1
})
