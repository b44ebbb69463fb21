import type { Holder } from "effect-locking/LockDriver"
import * as Option from "effect/Option"

/** What a holder says of itself, for people to see. */
export const encode = (holder: {
  readonly session: string
  readonly metadata: Readonly<Record<string, string>>
}): string => JSON.stringify([holder.session, holder.metadata])

const parseJson = Option.liftThrowable((text: string): unknown => JSON.parse(text))

const isStrings = (value: unknown): value is Readonly<Record<string, string>> =>
  typeof value === "object" && value !== null && Object.values(value).every((item) => typeof item === "string")

/** Nothing, where somebody else has written it. */
const decode = (text: string): Pick<Holder, "session" | "metadata"> => {
  const parsed = Option.getOrUndefined(parseJson(text))
  if (!Array.isArray(parsed)) return {}
  const [session, metadata] = parsed
  return typeof session === "string" && isStrings(metadata) ? { session, metadata } : {}
}

/** Token, mode, until, fence, since and what it says of itself, as the scripts answer them. */
export const parse = (fields: ReadonlyArray<string>): Holder => {
  const [token, mode, until, fence, since, said] = fields as [string, string, string, string, string, string]
  return {
    mode: mode === "E" ? "exclusive" : "shared",
    fence: BigInt(fence),
    token,
    since: Number(since),
    until: Number(until),
    ...decode(said)
  }
}
