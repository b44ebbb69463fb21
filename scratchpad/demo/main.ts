/** What locks, leases and fences are for, in a few seconds: `pnpm demo`. */
import { Console, Effect } from "effect"
import * as Args from "./args.js"
import { demo } from "./demo.js"
import * as Generate from "./generate.js"
import * as Ledger from "./ledger.js"
import * as Processes from "./processes/demo.js"
import { detect, Terminal } from "./terminal.js"

const program = Effect.gen(function*() {
  const { driver, help, seed } = yield* Args.parse(process.argv.slice(2))
  if (help) return yield* Effect.as(Console.log(Args.usage), 0)
  const ledger = seed === undefined ? yield* Ledger.read : yield* Generate.generate(seed)
  const settings = { ledger, seed: seed ?? Generate.defaultSeed }
  const claims = "nodes" in driver
    ? yield* demo({ driver, ...settings })
    : yield* Processes.demo({ backend: driver, ...settings })
  return claims.every(({ holds }) => holds) ? 0 : 1
}).pipe(
  Effect.catchTag("Unavailable", (error) => Effect.as(Console.error(error.message), 1)),
  Effect.catchTag("UsageError", (error) => Effect.as(Console.error(error.message), 64)),
  Effect.catchAll((error) => Effect.as(Console.error(`${error._tag}: ${error.message}`), 1)),
  Effect.provideService(Terminal, detect(process.stdout, process.env))
)

// who pipes into `head` has seen enough
process.stdout.on("error", () => process.exit())

Effect.runPromise(program).then((code) => process.exitCode = code)
