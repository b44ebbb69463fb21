/**
 * What of a deployment makes locks unsafe, and what to do about it.
 */
import type { DriverError, Finding } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import { type Ask, every, map, toEffect } from "./ask.js"
import { mastersOf, type Own } from "./client.js"
import type { Connection } from "./connection.js"
import { driverError, notConnected, unintelligible } from "./errors.js"

/** Clocks that are further apart than this, in milliseconds, are told of. */
export const tolerated = 1_000

/** What INFO says, by name. */
export type Info = ReadonlyMap<string, string>

export const parseInfo = (text: string): Info =>
  new Map(
    text.split(/\r?\n/).filter((line) => line.includes(":") && !line.startsWith("#")).map((line) => {
      const colon = line.indexOf(":")
      return [line.slice(0, colon), line.slice(colon + 1)]
    })
  )

/**
 * Settings are often not to be seen (CONFIG is forbidden), so only what INFO tells is judged. `isCluster`: the client is
 * for a cluster.
 */
export const judge = (info: Info, isCluster: boolean): ReadonlyArray<Finding> => {
  const get = (name: string) => info.get(name) ?? ""
  const findings: Array<Finding> = []
  const find = (severity: Finding["severity"], code: string, message: string, fix: string) =>
    findings.push({ severity, code, message, fix })

  const valkey = get("valkey_version")
  const version = valkey === "" ? get("redis_version") : valkey
  const product = valkey === "" ? "Redis" : "Valkey"
  const isOld = valkey === "" && Number.parseInt(version) < 7
  find(
    isOld ? "warning" : "info",
    "SERVER_VERSION",
    `The server is ${product} ${version}${isOld ? ", with which this driver is not tested" : ""}`,
    isOld ? "Use Redis 7 or newer, or Valkey." : "Nothing to do."
  )

  const policy = get("maxmemory_policy")
  if (policy !== "" && policy !== "noeviction" && get("maxmemory") !== "0") {
    find(
      "error",
      "EVICTION",
      `When memory is short the server evicts keys (${policy}), and locks are among the first`,
      "Set `maxmemory-policy noeviction`, or keep locks on a server of their own."
    )
  }
  if (info.has("role") && get("role") !== "master") {
    find(
      "error",
      "REPLICA",
      "The server is a replica: it refuses locks",
      "Connect to the master, by Sentinel where it may change."
    )
  }
  if (get("aof_enabled") !== "1") {
    find(
      "warning",
      "PERSISTENCE",
      "The server forgets locks when it crashes: it keeps no append-only file",
      "Set `appendonly yes` (`appendfsync always` for power cuts, too), or wait for the longest ttl before a restart, " +
        "and check fences where the data is."
    )
  }
  // INFO tells of them only where `min-replicas-to-write` asks for some
  const following = get("min_slaves_good_slaves")
  if (following === "0") {
    find(
      "error",
      "REPLICATION",
      "The server refuses locks, as it has no replica and is told not to write without (`min-replicas-to-write`)",
      "Start its replicas, more than are asked for, so that one may be away."
    )
  } else if (Number(get("connected_slaves")) > 0 && following === "") {
    find(
      "warning",
      "REPLICATION",
      "A replica that is promoted may not know the last locks, and a master that is cut off goes on granting",
      "Set `min-replicas-to-write 1`, check fences where the data is, or use a quorum of independent servers."
    )
  }
  const mode = get("redis_mode") || get("server_mode")
  if (mode !== "cluster") find("info", "MODE", `The server runs as ${mode}`, "Nothing to do.")
  else if (isCluster) {
    find(
      "info",
      "MODE",
      "The server runs as a node of a cluster: several keys at once are taken one by one where they lie apart",
      "Nothing to do, or a tag in `keyPrefix`, as in `{locks}:`, which puts all of them on one node."
    )
  } else {
    find(
      "warning",
      "MODE",
      "The server runs as a node of a cluster, and the client is for one server: keys of other nodes are refused",
      "Give a `Cluster` for `client`."
    )
  }
  return findings
}

/** `offset`: how far the server's clock is ahead of ours, in milliseconds. */
export const judgeClock = (offset: number): ReadonlyArray<Finding> =>
  Math.abs(offset) <= tolerated ? [] : [{
    severity: "warning",
    code: "CLOCK_OFFSET",
    message: `The server's clock is ${(Math.abs(offset) / 1_000).toFixed(1)} s ${
      offset > 0 ? "ahead of" : "behind"
    } that of this process`,
    fix:
      "Let both follow the same time servers, and slew: when it is corrected at once, leases end early or last longer."
  }]

export const infoOf = (own: Own): Ask<string> => (done) =>
  void own.call("INFO").then((text) => done(String(text)), (error) => done(driverError(error)))

/** By how much at least: the server has looked at its clock between question and answer. */
const offsetOf = (own: Own, wallNow: () => number): Ask<number> => (done) => {
  const asked = wallNow()
  own.call("TIME").then((reply) => {
    const [seconds, micros] = Array.isArray(reply) ? reply.map(Number) : []
    const millis = seconds! * 1_000 + micros! / 1_000
    if (!(millis > 0)) return done(unintelligible("time"))
    done(millis < asked ? millis - asked : Math.max(0, millis - wallNow()))
  }, (error) => done(driverError(error)))
}

/** One finding of a kind, whatever number of servers it is found at. */
export const distinct = (
  findings: ReadonlyArray<Finding>
): ReadonlyArray<Finding> => [
  ...new Map(findings.map((finding) => [`${finding.code} ${finding.message}`, finding])).values()
]

export const check = (connection: Connection): Effect.Effect<ReadonlyArray<Finding>, DriverError> =>
  Effect.clockWith((clock) => {
    if (connection.own.status !== "ready") return Effect.fail(notConnected())
    // eslint-disable-next-line no-restricted-syntax -- it is the wall clock that is judged
    const wallNow = () => clock.unsafeCurrentTimeMillis()
    const asks = mastersOf(connection.own).flatMap((own) => [
      map(infoOf(own), (text) => judge(parseInfo(text), connection.isCluster)),
      map(offsetOf(own, wallNow), judgeClock)
    ])
    return Effect.map(toEffect(every(asks)), (found) => distinct(found.flat()))
  })
