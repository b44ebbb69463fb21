/**
 * Where fences come from. The source belongs to the database: two sources would run backwards against each other.
 */
import type { DriverError } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import { codeOf, type Connection, query, unfit } from "./connection.js"
import * as sql from "./sql.js"

export interface Source {
  readonly schema: string
  readonly fence: "sequence" | "clock"
}

export const name = "effect_locking_fence"

export const sequenceOf = ({ schema }: Source): string => `${sql.quoteIdentifier(schema)}.${name}`

/** A grant owns this many numbers from its fence on. */
export const block = 8

export const expression = (source: Source): string =>
  source.fence === "clock" ? sql.clockFence : sql.sequenceFence(sequenceOf(source))

/** Makes the source ready on this connection. Answers when the first fence of the database was drawn at the earliest, in µs. */
export const prepare = (
  connection: Connection,
  source: Source,
  serverTime: string,
  last: bigint
): Effect.Effect<bigint, DriverError> =>
  Effect.gen(function*() {
    let found = yield* look(connection, source)
    if (source.fence === "clock") {
      // of two that start at once with different sources, one sees the other
      yield* query(connection, { text: sql.claimClock })
      yield* look(connection, source)
      return 0n
    }
    if (found === undefined) {
      yield* query(connection, { text: sql.beginCreation })
      yield* look(connection, source)
      yield* Effect.mapError(
        query(connection, { text: `${sql.createSequence(sequenceOf(source), serverTime)}; commit` }),
        (error) =>
          codeOf(error) === insufficientPrivilege || codeOf(error) === noSchema ? missing(source, serverTime) : error
      )
      found = yield* look(connection, source)
    }
    if (found === undefined) {
      return yield* unfit(`the sequence ${sequenceOf(source)} cannot be seen`, "Grant usage on its schema.")
    }
    if (!found.allowed) {
      return yield* unfit(
        `this role may not draw from the sequence ${sequenceOf(source)}`,
        `Let its owner run: grant usage, update on sequence ${sequenceOf(source)} to the role of the layer.`
      )
    }
    if (found.cache !== "1" || Number(found.increment) < block) {
      return yield* unfit(
        `the sequence ${sequenceOf(source)} hands out numbers that are not in the order of the grants`,
        `Let its owner run: alter sequence ${sequenceOf(source)} increment by ${block} cache 1.`
      )
    }
    yield* query(connection, { text: sql.bump(sequenceOf(source), last) })
    return BigInt(found.start)
  })

const missing = (source: Source, serverTime: string): DriverError =>
  unfit(
    `the sequence ${sequenceOf(source)} does not exist and this role may not create it`,
    `Let a role that may run: ${sql.createSequence(sequenceOf(source), serverTime)}; grant usage, update on sequence ` +
      `${sequenceOf(source)} to the role of the layer. Or give the layer a \`schema\` in which its own role may create.`
  )

const insufficientPrivilege = "42501"
const noSchema = "3F000"

/** What is known of the sequence. Fails where fences come from something else. */
const look = (connection: Connection, source: Source) =>
  Effect.gen(function*() {
    const elsewhere = yield* query(connection, { text: sql.otherSequences, values: [name, source.schema] })
    if (elsewhere.length > 0) {
      const schemas = elsewhere.map(([schema]) => `"${schema}"`)
      return yield* unfit(
        `fences of this database come from the schema ${schemas.join(", ")} already`,
        `Give every layer on this database the same \`schema\`: ${schemas.join(" or ")}.`
      )
    }
    const [row] = yield* query(connection, { text: sql.sequenceFacts, values: [sequenceOf(source)] })
    const [exists, cache, increment, start, allowed, isClocked] = row as [
      boolean,
      string,
      string,
      string,
      boolean,
      boolean
    ]
    if (source.fence === "clock" && exists) {
      return yield* unfit(
        "fences of this database come from a sequence already, and the clock would run backwards against it",
        `Leave out \`fence: "clock"\`, or stop every program that locks here and drop the sequence ${
          sequenceOf(source)
        }.`
      )
    }
    if (source.fence === "sequence" && isClocked) {
      return yield* unfit(
        "fences of this database come from the clock for programs that run, and a sequence would run backwards against it",
        "Stop every program on this database that has `fence: \"clock\"`, or give it to this one, too."
      )
    }
    return exists ? { cache, increment, start, allowed } : undefined
  })
