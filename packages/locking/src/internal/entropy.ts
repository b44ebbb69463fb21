/**
 * Where tokens get their uniqueness from. Effect's `Random` starts from 32 bits, too few for a fleet of processes.
 */
// eslint-disable-next-line no-restricted-syntax -- simulations put a seeded source in its place
import { randomUUID } from "node:crypto"
import { reference } from "./compat.js"

export const Entropy = reference<() => string>("effect-locking/Entropy", () => () => randomUUID())
