import type * as Crypto from "node:crypto"

let loaded: typeof Crypto | undefined

/** Loaded when it is first asked for: that takes a quarter of what the rest of the package takes. */
export const crypto = (): typeof Crypto => loaded ??= process.getBuiltinModule("node:crypto")
