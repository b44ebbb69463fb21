import { Console, Effect } from "effect"
import * as childProcess from "node:child_process"
import * as path from "node:path"

export const scratchpad = path.join(import.meta.dirname, "..")

/** What a program prints, line by line; its logs are left out. */
export const capture = <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<ReadonlyArray<string>, E, R> =>
  Effect.gen(function*() {
    const lines: Array<string> = []
    const outer = yield* Effect.console
    yield* Console.withConsole(program, {
      ...outer,
      log: (text: string) => Effect.sync(() => text.split("\n").forEach((line) => lines.push(line))),
      unsafe: { ...outer.unsafe, log: () => {} }
    })
    return lines
  })

export interface Run {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a TypeScript file as a program whose output is no terminal. */
export const run = (file: string, ...args: ReadonlyArray<string>): Effect.Effect<Run> =>
  Effect.async<Run>((resume) => {
    const child = childProcess.execFile(
      process.execPath,
      ["--import", "tsx", path.join(scratchpad, file), ...args],
      { cwd: path.join(scratchpad, "..") },
      (_, stdout, stderr) => resume(Effect.succeed({ status: child.exitCode, stdout, stderr }))
    )
    return Effect.sync(() => child.kill())
  })
