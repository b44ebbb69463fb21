/** The whole demo, for whoever has a ledger and a screen. */
import { Console, Effect, Logger, LogLevel, Random } from "effect"
import type { LockError } from "effect-locking"
import * as Acts from "./acts.js"
import type { Driver } from "./driver.js"
import type * as Ledger from "./ledger.js"
import * as Report from "./report.js"
import type { Terminal } from "./terminal.js"
import * as Workers from "./workers.js"

const nodes = 3
const workersOfNode = 6

export interface Settings {
  readonly driver: Driver
  readonly ledger: Ledger.Ledger
  readonly seed: number
}

/** Answers what it claimed. */
export const demo = (
  { driver, ledger, seed }: Settings
): Effect.Effect<ReadonlyArray<Report.Claim>, LockError.LockError, Terminal> =>
  Effect.gen(function*() {
    const workers = Workers.on(yield* driver.nodes(nodes), workersOfNode)
    yield* Report.heading("effect-locking")
    yield* Report.paragraph(
      `${Report.count(ledger.transfers.length)} transfers between ${ledger.opening.size} accounts, applied by ` +
        `${workers.length} workers on ${nodes} nodes at once (a1 to a${workersOfNode} on node a, and so on). ` +
        `Locks are kept by the driver "${driver.name}".`
    )
    const one = yield* Acts.first(ledger, (shown) => Workers.withoutLocks(ledger, workers, shown))
    const two = yield* Acts.second(ledger, (shown) => Workers.withLocks(ledger, workers, shown), one.outcome)
    // what the nodes log of the loss is told by the act itself
    const three = yield* Logger.withMinimumLogLevel(Acts.third(driver), LogLevel.None)
    const claims = [...one.claims, ...two.claims, ...three.claims]
    yield* Console.log("")
    yield* claims.every(({ holds }) => holds)
      ? Report.paragraph(
        "Shown: locks keep the books right, a lost lease ends its section, and the fence refuses what no lease can " +
          "stop. Read next: scratchpad/examples/first-lock.ts, fence.ts, testing.ts.",
        "title"
      )
      : Report.paragraph("Something does not hold: see NOT TRUE above.", "bad")
    return claims
  }).pipe(Effect.withRandom(Random.make(seed)), Effect.scoped)
