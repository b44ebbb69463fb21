// eslint-disable-next-line no-restricted-syntax -- a seeded source would name two processes alike
import { randomUUID } from "node:crypto"

/** Of a session or a question: never twice, in any process. */
export const uniqueName = (): string => randomUUID()

/** Of a lock that nobody else asks for. */
export const uniqueNumber = (): string => BigInt(`0x${uniqueName().replaceAll("-", "").slice(0, 15)}`).toString()
