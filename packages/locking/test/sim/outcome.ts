import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"

/** How a body fails when the plan wants it. */
export class Boom extends Data.TaggedError("Boom")<{}> {}

/** What a body dies of when the plan wants it. */
export const defect = "a defect of the body"

/** The tag of the first typed failure. */
export const failureTag = (exit: Exit.Exit<unknown, unknown> | undefined): string | undefined => {
  if (exit === undefined || Exit.isSuccess(exit)) return undefined
  const failure = Option.getOrUndefined(Cause.failureOption(exit.cause))
  return (failure as { readonly _tag?: string } | undefined)?._tag
}

export const isInterruption = (exit: Exit.Exit<unknown, unknown> | undefined): boolean =>
  exit !== undefined && Exit.isFailure(exit) && Cause.isInterrupted(exit.cause)

/** Every failure and defect in it, for people. */
export const describe = (exit: Exit.Exit<unknown, unknown>): string => {
  if (Exit.isSuccess(exit)) return "ok"
  const { cause } = exit
  const parts = [
    ...[...Cause.failures(cause)].map((failure) => describeFailure(failure)),
    ...[...Cause.defects(cause)].map((found) => `defect: ${String(found)}`)
  ]
  if (Cause.isInterrupted(cause)) parts.push("interrupted")
  return parts.join(", ")
}

const describeFailure = (failure: unknown): string => {
  const { _tag, reason } = failure as { readonly _tag?: string; readonly reason?: string }
  return reason === undefined ? String(_tag) : `${_tag} (${reason})`
}
