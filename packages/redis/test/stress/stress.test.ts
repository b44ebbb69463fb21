import type { RedisServer } from "@effect-locking/testing/RedisServer"
import * as Stress from "@effect-locking/testing/Stress"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Random, Schedule } from "effect"
import * as kit from "../kit.js"

/** How long each run is, in seconds. */
const seconds = Number(process.env["REDIS_STRESS_SECONDS"] ?? 4)

const [processes, callers] = [4, 200]

/** A machine that is busy makes everybody wait, but only what was lost until a poll or a lease's end. */
const patience = Duration.seconds(30)

/** What each process has at least of what it would have if all had the same, in each second. */
const fairShare = 0.2

/** The driver's connections, by their numbers at the server. */
const connections = (server: RedisServer) =>
  Effect.map(
    server.command("CLIENT", "LIST"),
    (text: string) => [...text.matchAll(/^id=(\d+).* name=effect-locking-/gm)].map(([, id]) => id!)
  )

/** The most connections at the server at once. */
const watchConnections = (server: RedisServer) =>
  Effect.gen(function*() {
    const seen = { most: 0 }
    const count = Effect.map(connections(server), ({ length }) => seen.most = Math.max(seen.most, length))
    yield* Effect.forkScoped(Effect.repeat(count, Schedule.spaced(300)))
    return seen
  })

/** Kills one connection after the other, whosever it is. */
const killConnections = (server: RedisServer) =>
  Effect.gen(function*() {
    const killed = { count: 0 }
    const kill = Effect.gen(function*() {
      const ids = yield* connections(server)
      const id = ids[yield* Random.nextIntBetween(0, ids.length)]
      if (id !== undefined && (yield* server.command("CLIENT", "KILL", "ID", id)) === 1) killed.count++
    })
    yield* Effect.forkScoped(Effect.repeat(kill, Schedule.spaced(250)))
    return killed
  })

const load = (server: RedisServer) =>
  Effect.gen(function*() {
    const verdict = yield* Stress.run(new URL("./worker.ts", import.meta.url), {
      store: server.url(),
      processes,
      callers,
      duration: Duration.seconds(seconds)
    })
    assert.deepStrictEqual(verdict.violations, [])
    assert.isAtLeast(verdict.turns, processes * callers, "nobody was left out")
    assert(Duration.lessThan(verdict.longestStall, patience), `a key was free and wanted: ${verdict.longestStall}`)
    assert(Duration.lessThan(verdict.drained, patience), `until the last was served: ${verdict.drained}`)
    const records: ReadonlyArray<string> = yield* server.command("KEYS", "*")
    const fields = yield* Effect.forEach(records, (record) => server.command("HKEYS", record))
    // holders and waiters
    assert.deepStrictEqual(fields.flat().filter((field: string) => /^[hmw]/.test(field)), [])
    return verdict
  })

describe("stress", () => {
  it.scopedLive(
    `R3.1 R6.2 R6.4 ${processes} processes with ${callers} waiters each for 20 keys`,
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const seen = yield* watchConnections(server)
        const before = yield* kit.commands(server)
        const { grants, shares } = yield* load(server)
        const commands = (yield* kit.commands(server)) - before
        // of which several turns of one process may be made
        assert.isAtMost(commands / grants, 6, "commands for each grant of the server's")
        assert.isAtMost(seen.most, 2 * processes)
        assert.isNotEmpty(shares, "it could be judged")
        assert.isAtLeast(shares[0]!, fairShare, "of its fair share, in some second")
      }),
    (seconds + 110) * 1000
  )

  it.scopedLive(
    `H1 R3.1 R6.2 R6.4 the same, with connections that are killed at random`,
    () =>
      Effect.gen(function*() {
        const server = yield* kit.server
        const killed = yield* killConnections(server)
        const { shares } = yield* load(server)
        // who was cut off twice within a second may have had little of it
        if (shares.length > 4) assert.isAtLeast(shares[2]!, fairShare, "of its fair share, in nearly each second")
        assert.isAtLeast(killed.count, 2 * seconds)
      }),
    (seconds + 110) * 1000
  )
})
