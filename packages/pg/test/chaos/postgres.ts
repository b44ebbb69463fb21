/** What befalls a PostgreSQL server, and a run on one. */
import type { PostgresServer } from "@effect-locking/testing/PostgresServer"
import { Effect } from "effect"
import { bundle } from "../bundle.js"
import { backends } from "../faults/kit.js"
import type { Plan } from "./chaos.js"
import * as nemesis from "./nemesis.js"
import type { Random } from "./random.js"
import type { Options } from "./worker.js"

const sessionTtl = 900

export const options: Options = { sessionTtl, ttl: sessionTtl, pollInterval: 100 }

const restarts = (server: PostgresServer): ReadonlyArray<nemesis.Fault<void>> => {
  const restart = (
    name: string,
    stop: (stage: nemesis.Stage) => Effect.Effect<unknown, unknown>
  ): nemesis.Fault<void> => ({
    name,
    run: (_, stage) =>
      Effect.orDie(stop(stage)).pipe(
        Effect.zipRight(Effect.sleep(stage.random.between(0, 300))),
        Effect.zipRight(Effect.orDie(server.start))
      )
  })
  return [
    restart("restart fast", ({ stopping }) => stopping(server.stop("fast"))),
    // sessions end without giving anything back
    restart("restart immediate", () => server.stop("immediate")),
    // those who lose their server give back what they hold
    restart("kill the server", ({ stopping }) => stopping(server.kill))
  ]
}

/** One of the library's sessions, once there is one. */
const oneOf = (server: PostgresServer, random: Random) =>
  Effect.delay(backends(server), 20).pipe(
    Effect.repeat({ until: ({ length }) => length > 0 }),
    Effect.orDie,
    Effect.map(random.pick)
  )

/** When the server last forgot its sessions. */
const lastReset = (server: PostgresServer) =>
  Effect.map(
    server.query<{ readonly at: string }>("select stats_reset::text as at from pg_stat_wal"),
    ([row]) => row!.at
  )

const ofSessions = (server: PostgresServer): ReadonlyArray<nemesis.Fault<void>> => [
  {
    name: "terminate a session",
    run: (_, { forgetting, random }) =>
      Effect.gen(function*() {
        const { listens, name, pid } = yield* oneOf(server, random)
        // ends when it is gone
        const gone = Effect.orDie(server.query("select pg_terminate_backend($1, 10000)", [pid]))
        yield* listens ? gone : forgetting(name.slice(name.lastIndexOf("/") + 1), gone)
      })
  },
  {
    name: "kill a session",
    run: (_, { random }) =>
      Effect.gen(function*() {
        const before = yield* Effect.orDie(lastReset(server))
        const { pid } = yield* oneOf(server, random)
        yield* server.killBackend(pid)
        // it ends all of them and takes no new ones until it has begun anew; one that was gone already changes nothing
        yield* Effect.delay(lastReset(server), 20).pipe(
          Effect.eventually,
          Effect.repeat({ until: (at) => at !== before }),
          Effect.timeoutOption("10 seconds")
        )
      })
  }
]

const freeze = (server: PostgresServer): nemesis.Fault<void> => ({
  name: "freeze the server",
  run: (_, { random }) =>
    Effect.zipRight(server.freeze, Effect.sleep(random.between(100, 1500))).pipe(Effect.ensuring(server.thaw))
})

/** The server forgets a holder who does not hear of it: nobody may have what it believes to hold. */
const restartBehindPartition = (server: PostgresServer): nemesis.Fault<nemesis.Seat> => ({
  name: "restart behind a partition",
  run: ({ proxy }, { random, stopping }) =>
    proxy.pause().pipe(
      Effect.zipRight(Effect.orDie(stopping(server.stop("fast")))),
      Effect.zipRight(Effect.orDie(server.start)),
      Effect.zipRight(Effect.sleep(random.between(500, 1500))),
      Effect.ensuring(proxy.heal)
    )
})

const worker = bundle(new URL("./worker.ts", import.meta.url))

export const plan = (server: PostgresServer, seed: number, seconds: number): Plan<Options> => {
  // one thing at a time befalls the server, from whatever side it comes
  const one = Effect.unsafeMakeSemaphore(1).withPermits(1)
  const alone = <Target>({ name, run }: nemesis.Fault<Target>): nemesis.Fault<Target> => ({
    name,
    run: (target, stage) => one(run(target, stage))
  })
  return {
    seed,
    seconds,
    worker,
    port: server.port,
    url: (port) => server.url({ port }),
    options,
    ttl: sessionTtl,
    ofProcesses: [...nemesis.ofProcesses(true), alone(restartBehindPartition(server))],
    ofStore: [...restarts(server), ...ofSessions(server), freeze(server)].map(alone)
  }
}
