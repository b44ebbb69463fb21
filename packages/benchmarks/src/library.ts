/**
 * The library compiled. Run from its sources by tsx every named closure would cost a property definition, which is more
 * than what is measured here.
 */
import type * as Library from "effect-locking"

const library = (path: string): string => new URL(`../../../locking/${path}`, import.meta.url).href

/** What is published. */
export const entry = library("dist/index.js")

/** The same code with its internal modules, which tell what a layer keeps. */
export const { Locking, MemoryStore }: typeof Library = await import(library("build/src/index.js"))

const { sizes }: { readonly sizes: (locking: object) => Readonly<Record<string, number>> } = await import(
  library("build/src/internal/sizes.js")
)

export const waitersOf = (locking: Library.Locking.Locking): number => sizes(locking)["waiters"]!

/** How many things a layer keeps. */
export const kept = (locking: Library.Locking.Locking): number =>
  Object.values(sizes(locking)).reduce((sum, size) => sum + size, 0)
