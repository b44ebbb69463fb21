/**
 * Errors of what only Redis can do.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"

/**
 * A fenced write was refused by the server, or it is not known whether it was done. `cause` is the client's error without
 * the command that it was about.
 *
 * @example
 * ```ts
 * import { strictEqual } from "node:assert"
 * import { RedisError } from "@effect-locking/redis"
 *
 * const error = new RedisError.WriteFailed({ executed: "no", cause: new Error("READONLY") })
 *
 * strictEqual(error.message, "The server refused a fenced write; nothing was written")
 * ```
 *
 * @since 0.1.0
 * @category errors
 */
export class WriteFailed extends Data.TaggedError("WriteFailed")<{
  /** `no`: nothing was written. `unknown`: perhaps it was; to write again under the same fence does no harm. */
  readonly executed: "no" | "unknown"
  readonly cause?: unknown
}> {
  /**
   * @since 0.1.0
   */
  readonly code = "WRITE_FAILED"
  /**
   * @since 0.1.0
   */
  override get message(): string {
    return this.executed === "no"
      ? "The server refused a fenced write; nothing was written"
      : "The server gave no answer to a fenced write; it may have been done"
  }
  /**
   * @since 0.1.0
   */
  get fix(): string {
    return "Try again with the same fence while the lease is held: a write that is done twice is done under one fence."
  }
}
