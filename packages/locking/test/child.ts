import { Effect } from "effect"
import * as childProcess from "node:child_process"
import * as path from "node:path"

export interface ChildResult {
  readonly code: number | null
  readonly signal: string | null
  /** What it wrote, errors included. */
  readonly output: string
  /** Milliseconds from the moment that it said `done` to its end. */
  readonly lingered: number
}

/** Runs a program of `fixtures` in a process of its own, which has to end by itself. */
export const runChild = (
  program: string,
  args: ReadonlyArray<string> = [],
  nodeOptions: ReadonlyArray<string> = [],
  watchdog = 20_000
): Effect.Effect<ChildResult> =>
  Effect.async((resume) => {
    const child = childProcess.spawn(
      process.execPath,
      [...nodeOptions, "--import", "tsx", path.join(import.meta.dirname, "fixtures", program), ...args],
      { cwd: path.dirname(import.meta.dirname), stdio: ["ignore", "pipe", "pipe"], timeout: watchdog }
    )
    let output = ""
    let doneAt: number | undefined
    const read = (data: Buffer) => {
      output += data.toString("utf8")
      if (/^done$/m.test(output)) doneAt ??= performance.now()
    }
    child.stdout.on("data", read)
    child.stderr.on("data", read)
    child.on("close", (code, signal) => {
      const now = performance.now()
      resume(Effect.succeed({ code, signal, output, lingered: now - (doneAt ?? now) }))
    })
    return Effect.sync(() => child.kill("SIGKILL"))
  })
