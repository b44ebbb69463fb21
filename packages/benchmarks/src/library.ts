/**
 * The library as users get it: compiled. Run from its sources by tsx every named closure would cost a property
 * definition, which is more than what is measured here.
 */
import type * as Library from "effect-locking"

const dist = (path: string): string => new URL(`../../../locking/dist/${path}`, import.meta.url).href

export const entry = dist("index.js")

export const { Locking, MemoryStore }: typeof Library = await import(entry)

const { sizes }: { readonly sizes: (locking: object) => Readonly<Record<string, number>> } = await import(
  dist("internal/sizes.js")
)

export const waitersOf = (locking: Library.Locking.Locking): number => sizes(locking)["waiters"]!

/** How many things a layer keeps. */
export const kept = (locking: Library.Locking.Locking): number =>
  Object.values(sizes(locking)).reduce((sum, size) => sum + size, 0)
