/**
 * What of a deployment makes locks unsafe, and what to do about it.
 */
import type { DriverError, Finding } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import { type Ask, every, map, toEffect } from "./ask.js"
import { mastersOf, type Own } from "./client.js"
import type { Connection } from "./connection.js"
import { driverError, notConnected } from "./errors.js"

/** What INFO says, by name. */
export type Info = ReadonlyMap<string, string>

export const parseInfo = (text: string): Info =>
  new Map(
    text.split(/\r?\n/).filter((line) => line.includes(":") && !line.startsWith("#")).map((line) => {
      const colon = line.indexOf(":")
      return [line.slice(0, colon), line.slice(colon + 1)]
    })
  )

/** Settings are often not to be seen (CONFIG is forbidden), so only what INFO tells is judged. */
export const judge = (info: Info): ReadonlyArray<Finding> => {
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
  if (get("maxmemory") !== "0" && policy !== "noeviction") {
    find(
      "error",
      "EVICTION",
      `When memory is short the server evicts keys (${policy}), and locks are among the first`,
      "Set `maxmemory-policy noeviction`, or keep locks on a server of their own."
    )
  }
  if (get("role") !== "master") {
    find("error", "REPLICA", "The server is a replica", "Connect to the master, by Sentinel where it may change.")
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
  const replicas = Number(get("connected_slaves"))
  if (replicas > 0 && get("min_slaves_good_slaves") === "") {
    find(
      "warning",
      "REPLICATION",
      "A replica that is promoted may not know the last locks, and a master that is cut off goes on granting",
      "Set `min-replicas-to-write 1`, check fences where the data is, or use a quorum of independent servers."
    )
  }
  find("info", "MODE", `The server runs as ${get("redis_mode") || get("server_mode")}`, "Nothing to do.")
  return findings
}

export const infoOf = (own: Own): Ask<string> => (done) =>
  void own.call("INFO").then((text) => done(String(text)), (error) => done(driverError(error)))

/** One finding of a kind, whatever number of servers it is found at. */
export const distinct = (
  findings: ReadonlyArray<Finding>
): ReadonlyArray<Finding> => [
  ...new Map(findings.map((finding) => [`${finding.code} ${finding.message}`, finding])).values()
]

export const check = (connection: Connection): Effect.Effect<ReadonlyArray<Finding>, DriverError> =>
  Effect.suspend(() => {
    if (connection.own.status !== "ready") return Effect.fail(notConnected())
    const asks = mastersOf(connection.own).map((own) => map(infoOf(own), (text) => judge(parseInfo(text))))
    return Effect.map(toEffect(every(asks)), (found) => distinct(found.flat()))
  })
