/**
 * Where tokens get their uniqueness from. Effect's `Random` starts from 32 bits, too few for a fleet of processes.
 */
import { reference } from "./compat.js"
import { crypto } from "./pure/crypto.js"

// eslint-disable-next-line no-restricted-syntax -- simulations put a seeded source in its place
export const Entropy = reference<() => string>("effect-locking/Entropy", () => () => crypto().randomUUID())
