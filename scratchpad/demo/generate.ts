/**
 * Makes ledgers out of seeds. `tsx scratchpad/demo/generate.ts` writes the one that is kept in the repository.
 *
 * A few shops take part in most transfers, as in life: customers pay them, sometimes they refund, now and then a
 * customer pays another one. Busy accounts are where updates get lost, and where locks are waited for.
 */
import { Effect, Random } from "effect"
import * as fs from "node:fs"
import * as Ledger from "./ledger.js"

export const defaultSeed = 1
export const defaultTransfers = 2000

const shops = Array.from({ length: 6 }, (_, i) => `shop${i + 1}`)
const customers = Array.from({ length: 40 }, (_, i) => `c${i + 1}`)

const cents = (from: number, to: number) => Random.nextIntBetween(from * 100, to * 100 + 1)

const pick = (names: ReadonlyArray<string>) => Effect.map(Random.nextIntBetween(0, names.length), (i) => names[i]!)

const transfer = Effect.gen(function*() {
  const kind = yield* Random.next
  const amount = yield* cents(1, 100)
  const customer = yield* pick(customers)
  if (kind < 0.7) return { from: customer, to: yield* pick(shops), amount }
  if (kind < 0.85) return { from: yield* pick(shops), to: customer, amount }
  return { from: customer, to: yield* pick(customers.filter((other) => other !== customer)), amount }
})

export const generate = (seed: number, transfers = defaultTransfers): Effect.Effect<Ledger.Ledger> =>
  Effect.gen(function*() {
    const opening = new Map<string, number>()
    for (const shop of shops) opening.set(shop, yield* cents(20_000, 30_000))
    for (const customer of customers) opening.set(customer, yield* cents(3_000, 8_000))
    return { opening, transfers: yield* Effect.replicateEffect(transfer, transfers) }
  }).pipe(Effect.withRandom(Random.make(seed)))

if (process.argv[1] === import.meta.filename) {
  Effect.runSync(Effect.map(generate(defaultSeed), (ledger) => fs.writeFileSync(Ledger.file, Ledger.toCsv(ledger))))
}
