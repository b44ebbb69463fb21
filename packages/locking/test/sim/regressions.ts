/** Worlds that failed once, shrunk. Replayed before anything else. */
import * as fs from "node:fs"
import * as path from "node:path"
import type { Case } from "./failure.js"

export interface Regression extends Case {
  readonly name: string
  /** What it showed. */
  readonly violation: string
}

const folder = path.join(import.meta.dirname, "regressions")

export const load = (): ReadonlyArray<Regression> =>
  fs.existsSync(folder)
    ? fs.readdirSync(folder).filter((file) => file.endsWith(".json")).sort().map((file) => ({
      ...JSON.parse(fs.readFileSync(path.join(folder, file), "utf8")),
      name: path.basename(file, ".json")
    }))
    : []

/** Answers the file's path. */
export const save = (name: string, found: Case, violation: string): string => {
  fs.mkdirSync(folder, { recursive: true })
  const file = path.join(folder, `${name}.json`)
  const text = JSON.stringify({ violation, ...found }, null, 2)
  fs.writeFileSync(file, `${text.replaceAll(/\[\s+(\d+),\s+(\d+)\s+\]/g, "[$1, $2]")}\n`)
  return file
}
