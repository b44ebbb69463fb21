/**
 * What goes wrong in the kit itself: a server that does not start, a program that is missing.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"

/**
 * A step of the kit failed, which says nothing of the driver under test. `fix` tells what to install or change, where
 * that is known.
 *
 * @since 0.1.0
 * @category errors
 */
export class KitError extends Data.TaggedError("KitError")<{
  readonly step: string
  readonly reason: string
  readonly fix?: string | undefined
  readonly cause?: unknown
}> {
  override get message(): string {
    return `${this.step}: ${this.reason}${this.fix === undefined ? "" : ` (${this.fix})`}`
  }
}
