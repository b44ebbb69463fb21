/**
 * The library as users get it: compiled. Run from its sources by tsx every named closure would cost a property
 * definition, which is more than what is measured here.
 */
import type * as Library from "effect-locking"

const load = (path: string) => import(new URL(`../../../locking/dist/${path}`, import.meta.url).href)

export const { Locking, MemoryStore }: typeof Library = await load("index.js")

export const { sizes }: { readonly sizes: (locking: object) => Readonly<Record<string, number>> } = await load(
  "internal/sizes.js"
)

export const entry = new URL("../../../locking/dist/index.js", import.meta.url).href
