/**
 * A ledger: what each account starts with, and the transfers between them. Amounts are whole cents. No transfer is
 * ever refused, so the order in which they are applied does not change the result.
 */
import { Data, Effect } from "effect"
import * as fs from "node:fs"

export interface Transfer {
  readonly from: string
  readonly to: string
  readonly amount: number
}

export interface Ledger {
  readonly opening: Balances
  readonly transfers: ReadonlyArray<Transfer>
}

export type Balances = ReadonlyMap<string, number>

export class LedgerBroken extends Data.TaggedError("LedgerBroken")<{ readonly message: string }> {}

export const file = new URL("ledger.csv", import.meta.url)

/** Lines of `account,opening`, an empty line, lines of `from,to,amount`. */
export const toCsv = ({ opening, transfers }: Ledger): string =>
  [
    ...Array.from(opening, ([account, balance]) => `${account},${balance}`),
    "",
    ...transfers.map(({ amount, from, to }) => `${from},${to},${amount}`),
    ""
  ].join("\n")

export const fromCsv = (csv: string): Effect.Effect<Ledger, LedgerBroken> =>
  Effect.suspend(() => {
    const lines = csv.split("\n").map((line) => line.split(","))
    const opening = new Map<string, number>()
    const transfers: Array<Transfer> = []
    for (const [i, line] of lines.entries()) {
      const amount = Number(line.at(-1))
      const [from = "", to = ""] = line
      if (line.length === 1 && from === "") continue
      if (!Number.isSafeInteger(amount)) return broken(i, "does not end with whole cents")
      if (line.length === 2) opening.set(from, amount)
      else if (opening.has(from) && opening.has(to) && from !== to) transfers.push({ from, to, amount })
      else return broken(i, "is no transfer between two accounts from the top of the file")
    }
    return Effect.succeed({ opening, transfers })
  })

const broken = (index: number, problem: string) =>
  Effect.fail(new LedgerBroken({ message: `ledger.csv, line ${index + 1} ${problem}` }))

export const read: Effect.Effect<Ledger, LedgerBroken> = Effect.flatMap(
  Effect.try({
    try: () => fs.readFileSync(file, "utf8"),
    catch: () => new LedgerBroken({ message: "ledger.csv is missing: write it with `tsx scratchpad/demo/generate.ts`" })
  }),
  fromCsv
)

/** What every account must hold in the end: the transfers, one after the other. */
export const settle = ({ opening, transfers }: Ledger): Balances => {
  const balances = new Map(opening)
  for (const { amount, from, to } of transfers) {
    balances.set(from, balances.get(from)! - amount)
    balances.set(to, balances.get(to)! + amount)
  }
  return balances
}

export const total = (balances: Balances): number => {
  let sum = 0
  for (const balance of balances.values()) sum += balance
  return sum
}

export const countWrong = (balances: Balances, truth: Balances): number => {
  let wrong = 0
  for (const [account, balance] of truth) if (balances.get(account) !== balance) wrong++
  return wrong
}

/** The accounts, those with the most transfers first. */
export const byTraffic = (ledger: Ledger): readonly [string, ...Array<string>] => {
  const counts = Array.from(ledger.opening.keys(), (account) => [account, touching(ledger, [account]).length] as const)
  const [first, ...others] = counts.sort((a, b) => b[1] - a[1]).map(([account]) => account)
  return [first!, ...others]
}

export const touching = ({ transfers }: Ledger, accounts: ReadonlyArray<string>): ReadonlyArray<Transfer> =>
  transfers.filter(({ from, to }) => accounts.includes(from) || accounts.includes(to))

/** Transfers for which another one goes between the same two accounts the other way: what deadlocks careless code. */
export const countOpposed = ({ transfers }: Ledger): number => {
  const ways = new Set(transfers.map(({ from, to }) => `${from},${to}`))
  return transfers.filter(({ from, to }) => ways.has(`${to},${from}`)).length
}
