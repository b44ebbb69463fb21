/** What the command line asks for. */
import { Data, Effect } from "effect"
import { parseArgs } from "node:util"
import * as Driver from "./driver.js"
import * as Backends from "./processes/backends.js"
import type { Backend } from "./processes/bank.js"

export interface Args {
  readonly help: boolean
  /** Played in this process, or shown over several of them. */
  readonly driver: Driver.Driver | Backend
  /** Of the ledger and of the workers' pauses. Without it the ledger is the one in the repository. */
  readonly seed: number | undefined
}

/** What was asked for cannot be done as written; the message says how to ask. */
export class UsageError extends Data.TaggedError("UsageError")<{ readonly message: string }> {}

const names = [...Driver.names, ...Backends.all.map(({ name }) => name)]

export const usage = `Usage: pnpm demo [options]

  --driver <name>  where the locks are kept: ${names.join(", ")} (default ${names[0]}). All but
                   ${Driver.names.join(", ")} run over real processes, on a server that is thrown away
  --seed <number>  another ledger and other pauses, from this seed
  --help           this text

Exit codes: 0 when everything that was shown holds, 1 when something does not, 64 for wrong options.`

const tell = (message: string) => new UsageError({ message: `${message}\nSee what there is with --help.` })

export const parse = (argv: ReadonlyArray<string>): Effect.Effect<Args, UsageError> =>
  Effect.gen(function*() {
    const { values } = yield* Effect.try({
      try: () =>
        parseArgs({
          // package managers pass their own `--` on
          args: argv.filter((arg) => arg !== "--"),
          options: { driver: { type: "string" }, seed: { type: "string" }, help: { type: "boolean", short: "h" } }
        }),
      catch: (error) => tell((error as Error).message)
    })
    const name = values.driver ?? names[0]!
    const driver = Driver.find(name) ?? Backends.find(name)
    if (driver === undefined) {
      return yield* tell(`There is no driver "${name}" here. Take one of: ${names.join(", ")}.`)
    }
    if (values.seed !== undefined && !/^\d{1,9}$/.test(values.seed)) {
      return yield* tell(`"${values.seed}" is no seed. Take a whole number from 0 to 999999999, as in --seed 7.`)
    }
    return {
      help: values.help ?? false,
      driver,
      seed: values.seed === undefined ? undefined : Number(values.seed)
    }
  })
