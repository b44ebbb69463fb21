/**
 * A pgbouncer in front of a PostgreSQL server, for what poolers do to locks. From PATH, else, on Debian, unpacked from
 * the distribution's package into `node_modules/.cache/effect-locking`.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as childProcess from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { unprivileged } from "./internal/account.js"
import { program } from "./internal/debian.js"
import { attempt, temporaryFolder } from "./internal/files.js"
import { freePort } from "./internal/port.js"
import { isRunning, signal } from "./internal/processes.js"
import { until } from "./internal/realTime.js"
import { reaper } from "./internal/reaper.js"
import { KitError } from "./KitError.js"
import type { ConnectOptions, Postgres } from "./PostgresServer.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** When a connection to the server is free for others: after each transaction, or when the client has gone. */
  readonly pooling: "session" | "transaction" | "statement"
  /** Connections to the server for each role and database. Default 3. */
  readonly poolSize?: number | undefined
  /** As in the section `[pgbouncer]` of its file. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface PgBouncer {
  readonly port: number
  /** As the server's, but through the pooler. */
  readonly url: (options?: ConnectOptions) => string
  /** SIGKILL. */
  readonly kill: Effect.Effect<void, KitError>
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  readonly log: Effect.Effect<string>
}

/**
 * A pooler that runs until the scope closes. Fails with what to install where it cannot be had.
 *
 * @example
 * ```ts
 * import { PgBouncer, PostgresServer } from "@effect-locking/testing"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const server = yield* PostgresServer.make()
 *   const pooler = yield* PgBouncer.make(server, { pooling: "transaction" })
 *   return yield* server.query("select pg_backend_pid()", [], { port: pooler.port })
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (server: Postgres, options: Options): Effect.Effect<PgBouncer, KitError, Scope.Scope> =>
  Effect.gen(function*() {
    // libc-ares2 is the one library of it that a small Debian lacks
    const { command, env } = yield* program({ name: "pgbouncer", packages: ["pgbouncer", "libc-ares2"] })
    const folder = yield* temporaryFolder("pgbouncer")
    const account = unprivileged("postgres", "nobody")
    const port = yield* freePort
    const file = path.join(folder, "pgbouncer.ini")
    const log = path.join(folder, "log")
    const settings = {
      listen_addr: "127.0.0.1",
      listen_port: String(port),
      unix_socket_dir: "",
      auth_type: "any",
      pool_mode: options.pooling,
      default_pool_size: String(options.poolSize ?? 3),
      ...options.settings
    }
    yield* attempt("write the pooler's file", () => fs.writeFileSync(file, configuration(server, settings)))
    const child = yield* attempt("start pgbouncer", () => {
      const output = fs.openSync(log, "a")
      const child = childProcess.spawn(command, [file], {
        cwd: folder,
        env: { ...process.env, ...env },
        detached: true,
        stdio: ["ignore", output, output],
        ...account
      })
      fs.closeSync(output)
      child.on("error", () => {})
      child.unref()
      return child
    })
    const pid = child.pid
    if (pid === undefined) return yield* new KitError({ step: "start pgbouncer", reason: `${command} cannot be run` })
    const logged = Effect.sync(() => fs.readFileSync(log, "utf8"))
    const kill = Effect.suspend(() => {
      signal(pid, "SIGKILL")
      return until({ step: "kill pgbouncer", see: Effect.sync(() => !isRunning(pid)), within: 5_000 })
    })
    yield* Effect.addFinalizer(() => Effect.ignore(kill))
    yield* reaper(`kill -KILL "$1"; rm -rf "$2"`, [String(pid), folder])
    yield* until({
      step: "start pgbouncer",
      see: Effect.flatMap(logged, (text) =>
        isRunning(pid)
          ? Effect.succeed(text.includes("process up"))
          : new KitError({ step: "start pgbouncer", reason: text.slice(-2_000) })),
      within: 10_000,
      otherwise: logged
    })
    return {
      port,
      url: (connect) => server.url({ ...connect, port }),
      kill,
      freeze: Effect.sync(() => void signal(pid, "SIGSTOP")),
      thaw: Effect.sync(() => void signal(pid, "SIGCONT")),
      log: logged
    }
  })

/** With `auth_type = any` the server's user has to be named with the database. */
const configuration = (server: Postgres, settings: Readonly<Record<string, string>>): string => {
  const { hostname, password, username } = new URL(server.url())
  const login = [
    `user=${decodeURIComponent(username)}`,
    ...password === "" ? [] : [`password=${decodeURIComponent(password)}`]
  ]
  return [
    "[databases]",
    `* = host=${hostname} port=${server.port} ${login.join(" ")}`,
    "[pgbouncer]",
    ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
    ""
  ].join("\n")
}
