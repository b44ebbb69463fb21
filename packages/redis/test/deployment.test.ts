/**
 * What `check` thinks of a deployment.
 */
import * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { judge, judgeClock, parseInfo } from "../src/internal/deployment.js"
import { Masters } from "./cluster.js"
import * as kit from "./kit.js"

/** As a server that is fit for locks tells of itself. */
const fit = {
  redis_version: "7.0.15",
  redis_mode: "standalone",
  maxmemory: "0",
  maxmemory_policy: "noeviction",
  role: "master",
  connected_slaves: "0",
  aof_enabled: "1"
}

const judged = (told: Readonly<Record<string, string | undefined>>, isCluster = false) =>
  judge(
    parseInfo(
      `# Server\r\n${
        Object.entries({ ...fit, ...told }).filter(([, value]) => value !== undefined)
          .map(([name, value]) => `${name}:${value}\r\n`).join("")
      }`
    ),
    isCluster
  )

const faults = (told: Readonly<Record<string, string | undefined>>, isCluster?: boolean) =>
  judged(told, isCluster).filter(({ severity }) => severity !== "info").map(({ code, severity }) =>
    `${severity} ${code}`
  )

describe("check", () => {
  it("R10.4 finds no fault with a server that is fit, and names version and mode", () => {
    assert.deepStrictEqual(judged({}).map(({ message }) => message), [
      "The server is Redis 7.0.15",
      "The server runs as standalone"
    ])
    const [version] = judged({ redis_version: "7.2.4", server_name: "valkey", valkey_version: "8.0.1" })
    assert.strictEqual(version!.message, "The server is Valkey 8.0.1")
  })

  it("R10.4 finds each fault by itself, and no other", () => {
    const cases: ReadonlyArray<readonly [Readonly<Record<string, string | undefined>>, string?]> = [
      [{ redis_version: "6.2.14" }, "warning SERVER_VERSION"],
      [{ redis_version: "10.0.0" }],
      [{ redis_version: "7.2.4", valkey_version: "8.1.0" }],
      [{ maxmemory: "100", maxmemory_policy: "volatile-lru" }, "error EVICTION"],
      [{ maxmemory: "100", maxmemory_policy: "allkeys-lfu" }, "error EVICTION"],
      // memory that is limited, but not at the cost of keys; a policy without a limit; and what is not told
      [{ maxmemory: "100" }],
      [{ maxmemory_policy: "allkeys-lru" }],
      [{ maxmemory: undefined, maxmemory_policy: undefined }],
      [{ role: "slave" }, "error REPLICA"],
      [{ role: undefined }],
      [{ aof_enabled: "0" }, "warning PERSISTENCE"],
      [{ aof_enabled: undefined }, "warning PERSISTENCE"],
      [{ connected_slaves: "2" }, "warning REPLICATION"],
      [{ connected_slaves: "2", min_slaves_good_slaves: "2" }],
      [{ connected_slaves: "0", min_slaves_good_slaves: "0" }, "error REPLICATION"],
      [{ redis_mode: "cluster" }, "warning MODE"],
      [{ redis_mode: undefined, server_mode: "cluster" }, "warning MODE"]
    ]
    for (const [told, ...found] of cases) {
      assert.deepStrictEqual(faults(told), found as ReadonlyArray<string>, JSON.stringify(told))
    }
    assert.deepStrictEqual(faults({ redis_mode: "cluster" }, true), [])
    assert.deepStrictEqual(
      faults({ aof_enabled: "0", maxmemory: "1", maxmemory_policy: "volatile-ttl", role: "slave" }),
      ["error EVICTION", "error REPLICA", "warning PERSISTENCE"]
    )
  })

  it("R10.4 says what each means and what to do", () => {
    const all = [
      ...judged({ redis_version: "6.0.0", maxmemory: "1", maxmemory_policy: "volatile-ttl", role: "slave" }),
      ...judged({ aof_enabled: "0", connected_slaves: "1", redis_mode: "cluster" }),
      ...judged({ min_slaves_good_slaves: "0" }),
      ...judgeClock(5_000)
    ]
    for (const { fix, message, severity } of all) {
      assert.isNotEmpty(message)
      assert.strictEqual(fix === "Nothing to do.", severity === "info", message)
    }
  })

  it("R10.4 a clock may be off by a second", () => {
    for (const offset of [0, 1_000, -1_000]) assert.deepStrictEqual(judgeClock(offset), [])
    assert.match(judgeClock(35_000)[0]!.message, /35\.0 s ahead of/)
    assert.match(judgeClock(-1_500)[0]!.message, /1\.5 s behind/)
  })
})

const codesAt = (url: string, major: kit.Major) =>
  Effect.scoped(Effect.gen(function*() {
    const { check } = yield* kit.driver(url, { major })
    return (yield* check!).map(({ code, severity }) => `${severity} ${code}`)
  }))

describe("check of a server", () => {
  for (const major of [5, 6] as const) {
    it.scopedLive(`R10.4 whose clock is ahead or behind, ioredis ${major}`, () =>
      Effect.gen(function*() {
        const server = yield* RedisServer.make({ movableClock: true })
        assert.notInclude(yield* codesAt(server.url(), major), "warning CLOCK_OFFSET")
        for (const millis of [5_000, -5_000]) {
          yield* server.moveClock(millis)
          assert.include(yield* codesAt(server.url(), major), "warning CLOCK_OFFSET")
        }
        yield* server.moveClock(0)
        assert.notInclude(yield* codesAt(server.url(), major), "warning CLOCK_OFFSET")
      }))
  }

  it.scopedLive("R10.4 with replicas, with and without min-replicas-to-write", () =>
    Effect.gen(function*() {
      const master = yield* RedisServer.make({ settings: { appendonly: "yes" } })
      const faults = Effect.map(
        codesAt(master.url(), 5),
        (codes) => codes.filter((code) => !code.startsWith("info"))
      )
      assert.deepStrictEqual(yield* faults, [])
      yield* master.command("CONFIG", "SET", "min-replicas-to-write", "1")
      assert.deepStrictEqual(yield* faults, ["error REPLICATION"])
      const replica = yield* RedisServer.make({ settings: { replicaof: `127.0.0.1 ${master.port}` } })
      yield* kit.eventually(kit.follows(replica))
      yield* kit.eventually(Effect.map(faults, ({ length }) => length === 0))
      yield* master.command("CONFIG", "SET", "min-replicas-to-write", "0")
      assert.deepStrictEqual(yield* faults, ["warning REPLICATION"])
      assert.include(yield* codesAt(replica.url(), 5), "error REPLICA")
    }))
})

layer(Masters.live, { excludeTestServices: true, timeout: 60_000 })("check of a cluster", (it) => {
  it.scoped("R10.4 by a client that is for one server", () =>
    Effect.gen(function*() {
      const servers = yield* Masters
      // two refuse the first key that is asked for, as it lies elsewhere
      const codes = yield* Effect.forEach(servers, (server) => Effect.exit(codesAt(server.url(), 5)))
      const started = codes.flatMap((exit) => exit._tag === "Success" ? [exit.value] : [])
      assert.lengthOf(started, 1)
      assert.include(started[0]!, "warning MODE")
    }))
})
