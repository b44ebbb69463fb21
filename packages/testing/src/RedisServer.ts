/**
 * A Redis or Valkey server that a test starts, torments and throws away. The program comes from PATH (`redis-server` or
 * `valkey-server`), or on Debian from the distribution's package, which is unpacked into
 * `node_modules/.cache/effect-locking`; nothing is installed on the machine.
 *
 * A server starts in a few milliseconds, listens on 127.0.0.1 only and keeps nothing unless it is told to. It is gone
 * with its scope, and a moment after the process of the tests, however that ends.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as childProcess from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { run } from "./internal/command.js"
import { type Program, program } from "./internal/debian.js"
import { attempt, temporaryFolder } from "./internal/files.js"
import { movableClock } from "./internal/movableClock.js"
import { freePort, freePortOfNode } from "./internal/port.js"
import { isRunning, signal } from "./internal/processes.js"
import { until } from "./internal/realTime.js"
import { reaper } from "./internal/reaper.js"
import { KitError } from "./KitError.js"

/**
 * A server that can be asked, whoever it belongs to.
 *
 * @since 0.1.0
 * @category models
 */
export interface Redis {
  readonly host: string
  readonly port: number
  /** `redis://127.0.0.1:<port>`; another port is that of a proxy on this machine, in front of it. */
  readonly url: (port?: number) => string
  /** What it calls itself: `Redis 7.0.15`. */
  readonly version: string
  /** One command on a connection of its own. Needs the package `ioredis`. */
  readonly command: (name: string, ...args: ReadonlyArray<string | number>) => Effect.Effect<any, KitError>
}

/**
 * A server of one's own. Verbs that make no sense in its state do nothing: `start` when it runs, `stop` when it does
 * not.
 *
 * @since 0.1.0
 * @category models
 */
export interface RedisServer extends Redis {
  /** Ends when it takes connections. */
  readonly start: Effect.Effect<void, KitError>
  /** As an administrator does: what is to be kept is written first. */
  readonly stop: Effect.Effect<void, KitError>
  /** SIGKILL, as the kernel does when memory is short. */
  readonly kill: Effect.Effect<void, KitError>
  /** SIGSTOP: the server is up and mute. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /**
   * By how many milliseconds its wall clock is ahead of the machine's from now on; behind where that is negative. Needs
   * the option `movableClock`.
   */
  readonly moveClock: (millis: number) => Effect.Effect<void, KitError>
  /** Where it speaks TLS, with the option `tls`. */
  readonly tlsPort: number | undefined
  /** What the server has logged. */
  readonly log: Effect.Effect<string>
  readonly folder: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** As in `redis.conf`. The kit's own: no snapshots, no append-only file. */
  readonly settings?: Readonly<Record<string, string>> | undefined
  /** Lines of a file of settings that the server may rewrite, as a sentinel does. */
  readonly file?: ReadonlyArray<string> | undefined
  /** Watches over others instead of keeping data. */
  readonly sentinel?: boolean | undefined
  /** Speaks TLS as well, on a port of its own. Files in PEM. */
  readonly tls?: { readonly certificate: string; readonly key: string } | undefined
  /** Variables of its environment. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /**
   * Its clock can be moved: on Linux, by a library that is compiled by `cc`, or by Debian's `tcc`, into
   * `node_modules/.cache/effect-locking`.
   */
  readonly movableClock?: boolean | undefined
}

/** The libraries are those that a small system lacks. */
const packages = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"]

const isOnPath = (name: string): boolean =>
  (process.env["PATH"] ?? "").split(path.delimiter).some((folder) => fs.existsSync(path.join(folder, name)))

const binary: Effect.Effect<Program, KitError> = Effect.suspend(() =>
  !isOnPath("redis-server") && isOnPath("valkey-server")
    ? program({ name: "valkey-server", packages: ["valkey-server"] })
    : program({ name: "redis-server", packages })
)

const defaults = {
  bind: "127.0.0.1",
  "protected-mode": "no",
  save: "",
  appendonly: "no",
  // a replica is there at once
  "repl-diskless-sync-delay": "0",
  loglevel: "notice"
}

/** `Redis server v=7.0.15 sha=…` or `Valkey server v=8.0.1 …` */
const versionOf = (binary: Program): Effect.Effect<string, KitError> =>
  Effect.map(run(binary.command, ["--version"], { env: binary.env }), (text) => {
    const [, product, version] = /^(\w+) server v=(\S+)/.exec(text) ?? []
    return product === undefined ? text.trim() : `${product} ${version}`
  })

const ask = (url: string, name: string, args: ReadonlyArray<string | number>): Effect.Effect<any, KitError> =>
  Effect.tryPromise({
    try: async () => {
      const { Redis } = await import("ioredis")
      const client = new Redis(url, {
        lazyConnect: true,
        connectTimeout: 5_000,
        maxRetriesPerRequest: 0,
        retryStrategy: null
      })
      // the server may be killed under it
      client.on("error", () => {})
      try {
        await client.connect()
        return await client.call(name, ...args.map(String))
      } finally {
        client.disconnect()
      }
    },
    catch: (cause) => new KitError({ step: `ask Redis to ${name}`, reason: String(cause), cause })
  })

/**
 * A server of one's own, running.
 *
 * @example
 * ```ts
 * import { Effect } from "effect"
 * import { RedisServer } from "@effect-locking/testing"
 *
 * const program = Effect.scoped(Effect.gen(function*() {
 *   const server = yield* RedisServer.make({ settings: { appendonly: "yes", appendfsync: "always" } })
 *   yield* server.command("SET", "key", "value")
 *   yield* server.kill
 *   yield* server.start
 *   return yield* server.command("GET", "key")
 * }))
 *
 * Effect.runPromise(program).then(console.log) // value
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): Effect.Effect<RedisServer, KitError, Scope.Scope> =>
  Effect.gen(function*() {
    const found = yield* binary
    const version = yield* versionOf(found)
    const folder = yield* temporaryFolder("redis")
    const log = path.join(folder, "log")
    const file = path.join(folder, "redis.conf")
    const port = yield* options.settings?.["cluster-enabled"] === "yes" ? freePortOfNode : freePort
    const tlsPort = options.tls === undefined ? undefined : yield* freePort
    yield* attempt("write the settings", () => fs.writeFileSync(file, `${(options.file ?? []).join("\n")}\n`))
    const settings = Object.entries({
      ...defaults,
      ...options.settings,
      ...options.tls !== undefined && {
        "tls-port": String(tlsPort),
        "tls-cert-file": options.tls.certificate,
        "tls-key-file": options.tls.key,
        "tls-auth-clients": "no"
      },
      port: String(port),
      dir: folder,
      logfile: log
    })
    const args = [
      file,
      ...options.sentinel === true ? ["--sentinel"] : [],
      ...settings.filter(([name]) => options.sentinel !== true || !(name in defaults) || name === "bind")
        .flatMap(([name, value]) => [`--${name}`, value])
    ]
    const pidFile = path.join(folder, "pid")
    const clock = options.movableClock === true ? yield* movableClock(folder) : undefined
    const url: RedisServer["url"] = (other) => `redis://127.0.0.1:${other ?? port}`
    yield* reaper(`kill -KILL "$(cat "$1" 2>/dev/null)" 2>/dev/null; rm -rf "$2"`, [pidFile, folder])

    let pid: number | undefined

    const logged = Effect.sync(() => fs.existsSync(log) ? fs.readFileSync(log, "utf8") : "")
    const tail = Effect.map(logged, (text) => text.slice(-2_000))

    const start: RedisServer["start"] = Effect.suspend(() => {
      if (pid !== undefined) return Effect.void
      return Effect.zipRight(
        attempt("start Redis", () => {
          const output = fs.openSync(log, "a")
          const child = childProcess.spawn(found.command, args, {
            cwd: folder,
            env: { ...process.env, ...found.env, ...clock?.env, ...options.env },
            // a session of its own: Ctrl-C in the terminal is for the tests only
            detached: true,
            stdio: ["ignore", output, output]
          })
          fs.closeSync(output)
          child.unref()
          pid = child.pid
          if (pid !== undefined) fs.writeFileSync(pidFile, String(pid))
          const ended = () => {
            if (pid === child.pid) pid = undefined
          }
          child.on("error", ended)
          child.on("exit", ended)
        }),
        until({
          step: "start Redis",
          see: Effect.suspend(() =>
            pid === undefined
              ? Effect.flatMap(tail, (reason) => new KitError({ step: "start Redis", reason }))
              : Effect.orElseSucceed(Effect.map(ask(url(), "PING", []), (reply) => reply === "PONG"), () => false)
          ),
          within: 15_000,
          otherwise: tail
        })
      )
    })

    const thaw = Effect.sync(() => {
      if (pid !== undefined) signal(pid, "SIGCONT")
    })

    const end = (by: NodeJS.Signals) =>
      Effect.suspend(() => {
        const ending = pid
        if (ending === undefined) return Effect.void
        signal(ending, by)
        signal(ending, "SIGCONT")
        return Effect.zipRight(
          until({
            step: `stop Redis by ${by}`,
            see: Effect.sync(() => !isRunning(ending)),
            within: 10_000,
            otherwise: tail
          }),
          Effect.sync(() => {
            pid = undefined
          })
        )
      })

    yield* Effect.addFinalizer(() => Effect.ignore(end("SIGKILL")))
    yield* start
    return {
      host: "127.0.0.1",
      port,
      url,
      version,
      command: (name, ...args) => ask(url(), name, args),
      start,
      stop: end("SIGTERM"),
      kill: end("SIGKILL"),
      freeze: Effect.sync(() => {
        if (pid !== undefined) signal(pid, "SIGSTOP")
      }),
      thaw,
      moveClock: clock?.move ?? (() =>
        new KitError({
          step: "move the clock",
          reason: "the server was started with the machine's",
          fix: "start it with the option `movableClock`"
        })),
      tlsPort,
      log: logged,
      folder
    }
  })

/**
 * For tests that need a server and none of its verbs: the one that `REDIS_URL` names, or a throw-away one. What is there
 * already has to stay as it is.
 *
 * @example
 * ```ts
 * import { RedisServer } from "@effect-locking/testing"
 * import { Effect } from "effect"
 *
 * const program = Effect.scoped(Effect.gen(function*() {
 *   const server = yield* RedisServer.fromEnvOrThrowAway()
 *   return server.url()
 * }))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromEnvOrThrowAway = (options?: Options): Effect.Effect<Redis, KitError, Scope.Scope> =>
  Effect.suspend((): Effect.Effect<Redis, KitError, Scope.Scope> => {
    const named = process.env["REDIS_URL"]
    if (named === undefined || named === "") return make(options)
    const { hostname, port } = new URL(named)
    const command: Redis["command"] = (name, ...args) => ask(named, name, args)
    return Effect.map(command("INFO", "server"), (text: string) => {
      // Valkey says which Redis it is like, too
      const valkey = /^valkey_version:(\S+)/m.exec(text)?.[1]
      return {
        host: hostname,
        port: Number(port || 6379),
        url: (other) => {
          if (other === undefined) return named
          const url = new URL(named)
          url.hostname = "127.0.0.1"
          url.port = String(other)
          return url.toString()
        },
        version: valkey === undefined ? `Redis ${/^redis_version:(\S+)/m.exec(text)?.[1]}` : `Valkey ${valkey}`,
        command
      }
    })
  })
