/**
 * All records of a namespace, by SCAN: an index would cost every lock a write, and could not be had in a cluster. For
 * administrators; it takes as long as there are keys on the servers.
 */
import type { DriverError, HeldKey } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import { type Ask, every, isFailure, toEffect } from "./ask.js"
import { mastersOf, type Own } from "./client.js"
import type { Connection } from "./connection.js"
import { driverError, notConnected, unintelligible } from "./errors.js"
import { hashOf, parse, patternOf } from "./records.js"
import type { Store } from "./store.js"

/** Keys that one SCAN looks at, about. */
const step = "1000"

const scan =
  (own: Own, cursor: string, pattern: string): Ask<readonly [cursor: string, keys: ReadonlyArray<string>]> => (done) =>
    own.call("SCAN", cursor, "MATCH", pattern, "COUNT", step, "TYPE", "hash").then(
      (reply) => {
        const [next, keys] = Array.isArray(reply) ? reply : []
        done(typeof next === "string" && Array.isArray(keys) ? [next, keys] : unintelligible("scan"))
      },
      (error) => done(driverError(error))
    )

const recordsOn = (own: Own, pattern: string): Ask<ReadonlyArray<string>> => (done) => {
  // a key that moves while the server is asked may come twice
  const found = new Set<string>()
  const next = (cursor: string): void =>
    scan(own, cursor, pattern)((answer) => {
      if (isFailure(answer)) return done(answer)
      for (const key of answer[1]) found.add(key)
      if (answer[0] === "0") done([...found])
      else next(answer[0])
    })
  next("0")
}

export const list = (
  connection: Connection,
  store: Store,
  prefix: string,
  namespace: string
): Effect.Effect<ReadonlyArray<HeldKey>, DriverError> =>
  Effect.suspend(() => {
    if (connection.own.status !== "ready") return Effect.fail(notConnected())
    const pattern = patternOf(prefix, namespace)
    return Effect.flatMap(
      toEffect(every(mastersOf(connection.own).map((own) => recordsOn(own, pattern)))),
      (found) => {
        const records = [...new Set(found.flat())].filter((record) => parse(prefix, namespace, record) !== undefined)
        return Effect.map(toEffect(every(records.map(store.inspect))), (holders) =>
          records.flatMap((record, i): ReadonlyArray<HeldKey> =>
            holders[i]!.length === 0 ? [] : [{
              namespace,
              ...parse(prefix, namespace, record)!,
              hash: hashOf(namespace, record, prefix),
              holders: holders[i]!
            }]
          ))
      }
    )
  })
