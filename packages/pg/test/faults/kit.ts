/** What the stories of this folder are told with. */
import type { Postgres } from "@effect-locking/testing/PostgresServer"
import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import type { Who } from "@effect-locking/testing/TcpProxy"
import * as Worker from "@effect-locking/testing/Worker"
import { PgClient } from "@effect/sql-pg"
import { SqlClient } from "@effect/sql/SqlClient"
import { Cause, Context, Deferred, Effect, Exit, Fiber, Layer, Predicate, Redacted } from "effect"
import type { Fence } from "effect-locking/Fence"
import { Locking } from "effect-locking/Locking"
import type { LockingOptions } from "effect-locking/LockOptions"
import * as PgFence from "../../src/PgFence.js"
import type { Connection, DriverOptions } from "../../src/PgLocking.js"
import * as PgLocking from "../../src/PgLocking.js"
import { bundle } from "../bundle.js"
import type * as Agent from "./fixtures/agent.js"

// ---------------------------------------------------------------------------------------------------------------------
// in this process
// ---------------------------------------------------------------------------------------------------------------------

export type NodeOptions = LockingOptions & Omit<DriverOptions, "connection">

/** The server waits this much longer than a holder believes. */
export const serverMargin = 250

/** Enough for a busy machine to do what is due. */
export const slack = 3000

/** As a process of its own would have it: an engine, a session, a connection for wake-ups. */
export const node = (connection: Connection, options: NodeOptions = {}) =>
  Effect.map(
    Layer.build(PgLocking.layer({ connection, sessionTtl: 1000, restartQuarantine: false, ...options })),
    Context.get(Locking)
  )

/** Milliseconds that no setting of the machine's clock moves. */
export const clock = Effect.sync(() => Number(process.hrtime.bigint()) / 1e6)

/** Looks until it is so; a defect when it takes too long. */
export const until = <E, R>(
  what: string,
  see: Effect.Effect<boolean, E, R>,
  within = 15_000
): Effect.Effect<void, E, R> =>
  Effect.gen(function*() {
    const deadline = (yield* clock) + within
    while (!(yield* see)) {
      if ((yield* clock) > deadline) return yield* Effect.dieMessage(`not within ${within} ms: ${what}`)
      yield* Effect.sleep(15)
    }
  })

/** A section that stays until its lease is lost: when it entered, and how and when it ended. */
export const stay = (locking: Locking, key: string) =>
  Effect.gen(function*() {
    const entered = yield* Deferred.make<Fence>()
    const section = yield* Effect.fork(
      Effect.exit(locking.useLock(key, { waitTimeout: "25 seconds" }, ({ fence }) =>
        Effect.zipRight(Deferred.succeed(entered, fence as Fence), Effect.never))).pipe(Effect.zip(clock))
    )
    const fence = yield* Deferred.await(entered)
    const ended = Effect.map(Fiber.join(section), ([exit, at]) => {
      const error = Exit.isFailure(exit) ? Cause.failureOption(exit.cause) : undefined
      if (error?._tag !== "Some" || error.value._tag !== "LeaseLost") {
        throw new Error(String(exit))
      }
      return { at, reason: error.value.reason }
    })
    return { fence, ended }
  })

// ---------------------------------------------------------------------------------------------------------------------
// the server's own view
// ---------------------------------------------------------------------------------------------------------------------

/** Of the version that `FAULTS_PG` names, else the newest. */
export const version = process.env["FAULTS_PG"] === "15" ? 15 : 18

export const serve = (options?: PostgresServer.Options) => PostgresServer.make({ version, ...options })

export interface Backend {
  readonly pid: number
  readonly name: string
  readonly listens: boolean
}

/** The library's sessions. */
export const backends = (server: Postgres) =>
  server.query<Backend>(
    `select pid, application_name as name, application_name like '%/wake/%' as listens
    from pg_stat_activity where application_name like 'effect-locking/%' order by pid`
  )

export interface Held {
  readonly pid: number
  readonly mode: "ExclusiveLock" | "ShareLock"
  /** A key, and not an interest in one. */
  readonly isKey: boolean
}

export const held = (server: Postgres) =>
  server.query<Held>(
    `select pid, mode, objsubid = 1 as "isKey" from pg_locks
    where locktype = 'advisory' and granted order by pid, objsubid, classid, objid`
  )

export const keysHeld = (server: Postgres) => Effect.map(held(server), (all) => all.filter(({ isKey }) => isKey))

/** Nobody holds anything, and nobody waits for anything. */
export const nothingHeld = (server: Postgres, within?: number) =>
  until("no advisory lock is left", Effect.map(held(server), ({ length }) => length === 0), within)

/** Some process has told the server that it waits. */
export const somebodyWaits = (server: Postgres, howMany = 1) =>
  until(
    `${howMany} wait`,
    Effect.map(held(server), (all) => all.filter(({ isKey, mode }) => !isKey && mode === "ShareLock").length >= howMany)
  )

export const terminate = (server: Postgres, pid: number) => server.query("select pg_terminate_backend($1)", [pid])

/** Fills the table that writers guard. */
export const tables = (server: Postgres) =>
  server.query(`create table if not exists effect_locking_fences (resource text primary key, fence int8 not null);
    create table if not exists ledger (fence int8 not null, process text not null)`)

// ---------------------------------------------------------------------------------------------------------------------
// connections as a proxy knows them
// ---------------------------------------------------------------------------------------------------------------------

export const grants: Who = ({ said }) => said.includes("effect_locking.session")
export const listeners: Who = ({ said }) => said.includes("listen ")

// ---------------------------------------------------------------------------------------------------------------------
// processes
// ---------------------------------------------------------------------------------------------------------------------

export type Told = Agent.Told

const program = bundle(new URL("./fixtures/agent.ts", import.meta.url))

/** A process that does what it is told: see `fixtures/agent.ts`. */
export const agent = (setup: Agent.Setup, options: Worker.Options = {}) =>
  Effect.gen(function*() {
    const worker = yield* Worker.spawn(yield* program, {
      watchdog: "60 seconds",
      ...options,
      args: [JSON.stringify(setup)]
    })
    const hear = <Tag extends Told["_tag"]>(tag: Tag) =>
      worker.takeUntil((value): value is Extract<Told, { readonly _tag: Tag }> =>
        Predicate.hasProperty(value, "_tag") && value._tag === tag
      )
    const told = Effect.map(worker.written, (all) => all as ReadonlyArray<Told>)
    return {
      ...worker,
      hear,
      told,
      tell: (command: Agent.Command) => worker.send(command),
      ready: hear("ready")
    }
  })

// ---------------------------------------------------------------------------------------------------------------------
// resources that are guarded
// ---------------------------------------------------------------------------------------------------------------------

/** Writes under a fence, and tells whether it was accepted. */
export const ledger = (url: string) =>
  Effect.map(Layer.build(PgClient.layer({ url: Redacted.make(url), maxConnections: 2 })), (context) => {
    const sql = Context.get(context, SqlClient)
    return (resource: string, fence: Fence) =>
      Effect.provide(
        sql.withTransaction(Effect.zipRight(
          PgFence.guard(resource, fence),
          sql`insert into ledger (fence, process) values (${String(fence)}::int8, '')`
        )),
        context
      ).pipe(
        Effect.as("accepted" as const),
        Effect.catchTag("StaleFence", () => Effect.succeed("refused" as const))
      )
  })
