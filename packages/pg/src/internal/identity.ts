// eslint-disable-next-line no-restricted-syntax -- a seeded source would name two processes alike
import { randomUUID } from "node:crypto"

/** Of a session or a question: never twice, in any process. */
export const uniqueName = (): string => randomUUID()
