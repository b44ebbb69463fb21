/**
 * What outlives the process of the tests must not outlive it for long: a shell beside it that waits for the pipe to
 * close, which it does however the process ends, and then cleans up.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as childProcess from "node:child_process"
import type * as net from "node:net"

/** `script` runs with `args` as `$1`, `$2`, … when this process is gone; not when the scope was closed before. */
export const reaper = (script: string, args: ReadonlyArray<string>): Effect.Effect<void, never, Scope.Scope> =>
  Effect.asVoid(Effect.acquireRelease(
    Effect.sync(() => {
      // a session of its own: Ctrl-C in the terminal is for the tests only
      const shell = childProcess.spawn("sh", ["-c", `read -r _\n${script}`, "reaper", ...args], {
        detached: true,
        stdio: ["pipe", "ignore", "ignore"]
      })
      shell.on("error", () => {})
      shell.unref()
      const pipe = shell.stdin as net.Socket
      pipe.on("error", () => {})
      pipe.unref()
      return shell
    }),
    (shell) => Effect.sync(() => void shell.kill("SIGKILL"))
  ))
