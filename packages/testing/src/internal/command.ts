/**
 * Programs that run to their end.
 */
import * as Effect from "effect/Effect"
import * as childProcess from "node:child_process"
import { KitError } from "../KitError.js"

/** An account that is not root, for servers that refuse to run as root. */
export interface Account {
  readonly uid: number
  readonly gid: number
}

export interface RunOptions {
  readonly cwd?: string | undefined
  readonly env?: Readonly<Record<string, string | undefined>> | undefined
  readonly account?: Account | undefined
  readonly fix?: string | undefined
}

/** Answers what the program wrote to its output; fails with what it wrote to its errors. */
export const run = (
  command: string,
  args: ReadonlyArray<string>,
  options: RunOptions = {}
): Effect.Effect<string, KitError> =>
  Effect.async((resume) => {
    const child = childProcess.spawn(command, args, {
      cwd: options.cwd,
      env: options.env === undefined ? process.env : { ...process.env, ...options.env },
      stdio: ["ignore", "pipe", "pipe"],
      ...options.account
    })
    let output = ""
    let errors = ""
    child.stdout.on("data", (chunk) => output += chunk)
    child.stderr.on("data", (chunk) => errors += chunk)
    const fail = (reason: string, cause?: unknown) =>
      resume(Effect.fail(new KitError({ step: `run ${command}`, reason, fix: options.fix, cause })))
    child.on("error", (cause) => fail(cause.message, cause))
    child.on("close", (code, signal) => {
      if (code === 0) resume(Effect.succeed(output))
      else fail(`ended with ${code ?? signal}: ${(errors.trim() || output.trim()).slice(-2_000)}`)
    })
    return Effect.sync(() => void child.kill("SIGKILL"))
  })
