/**
 * Errors of what only PostgreSQL can do.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"

/**
 * The transaction in context cannot carry a lock or a guard: there is none, or its isolation is above READ COMMITTED.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { PgError } from "@effect-locking/pg"
 *
 * const error = new PgError.TransactionInvalid({ reason: "none" })
 *
 * strictEqual(error.message, "There is no transaction in context")
 * strictEqual(error.fix, "Call it inside `sql.withTransaction(…)`.")
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class TransactionInvalid extends Data.TaggedError("TransactionInvalid")<{
  readonly reason: "none" | "isolation"
}> {
  /**
   * @since 0.1.0
   */
  readonly code = "TRANSACTION_INVALID"
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return this.reason === "none"
      ? "There is no transaction in context"
      : "The transaction's isolation is above READ COMMITTED: what it reads may be older than the lock"
  }
  /**
   * @since 0.1.0
   */
  get fix(): string {
    return this.reason === "none"
      ? "Call it inside `sql.withTransaction(…)`."
      : "Use READ COMMITTED, or take an ordinary lock around the transaction."
  }
}
