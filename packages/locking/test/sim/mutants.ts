/**
 * Mutants guard the guard: small faults put into a copy of the engine, each of which the sweep of its scenario must
 * find. One that survives is a hole in the suite; one whose patch no longer applies says nothing and fails.
 */
import * as childProcess from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import type { Series } from "./sweep.js"

export interface Mutant {
  readonly name: string
  /** What is wrong with it. */
  readonly about: string
  /** Whose sweep finds it, and by which faults. */
  readonly scenario: string
  readonly series: ReadonlyArray<Series>
  /** Each text is exactly once in its file, or in a folder, so that code may move. Relative to the package. */
  readonly edits: ReadonlyArray<{
    readonly file: string
    readonly search: string | ReadonlyArray<string>
    readonly replace: string | ReadonlyArray<string>
  }>
}

export interface Verdict {
  readonly killed: boolean
  readonly seconds: number
  /** The violations, or what the child said instead. */
  readonly output: string
}

const here = import.meta.dirname
const packageRoot = path.resolve(here, "../..")
/** Inside the package, so that imports of dependencies resolve; ignored by git and by the linter. */
const workshop = path.join(packageRoot, ".vitest", "mutants")

/** Seconds of processor time in which the sweep must find it. */
const patience = 10

/** Seconds after which something hangs, however busy the machine is. */
const longest = 80

export const load = (): ReadonlyArray<Mutant> =>
  fs.readdirSync(path.join(here, "mutants")).filter((file) => file.endsWith(".json")).sort().map((file) => ({
    name: path.basename(file, ".json"),
    ...JSON.parse(fs.readFileSync(path.join(here, "mutants", file), "utf8"))
  }))

/** Breaks a copy of the engine and lets the sweep loose on it. */
export const hunt = async (mutant: Mutant): Promise<Verdict> => {
  // several runs may be at work at once
  const copy = path.join(workshop, `${mutant.name.replaceAll(/\W+/g, "-")}-${process.pid}`)
  fs.rmSync(copy, { recursive: true, force: true })
  try {
    fs.cpSync(path.join(packageRoot, "src"), path.join(copy, "src"), { recursive: true })
    fs.cpSync(here, path.join(copy, "test", "sim"), { recursive: true })
    fs.writeFileSync(path.join(copy, "package.json"), JSON.stringify({ type: "module" }))
    for (const { file, replace, search } of mutant.edits) edit(path.join(copy, file), text(search), text(replace))
    return await run(copy, mutant)
  } finally {
    fs.rmSync(copy, { recursive: true, force: true })
  }
}

const text = (lines: string | ReadonlyArray<string>): string => typeof lines === "string" ? lines : lines.join("\n")

const edit = (target: string, search: string, replace: string): void => {
  const files = filesOf(target).map((file) => ({ file, parts: fs.readFileSync(file, "utf8").split(search) }))
  const found = files.filter(({ parts }) => parts.length > 1)
  if (found.length !== 1 || found[0].parts.length !== 2) {
    const places = found.reduce((sum, { parts }) => sum + parts.length - 1, 0)
    throw new Error(`${path.basename(target)} has ${places} places like this, not one:\n${search}`)
  }
  fs.writeFileSync(found[0].file, found[0].parts.join(replace))
}

const filesOf = (target: string): ReadonlyArray<string> =>
  fs.statSync(target).isFile()
    ? [target]
    : fs.readdirSync(target, { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts"))
      .map((file) => path.join(target, file))

const run = (copy: string, mutant: Mutant): Promise<Verdict> => {
  const startedAt = performance.now()
  const child = childProcess.spawn(process.execPath, [
    "--import",
    "tsx",
    path.join(copy, "test", "sim", "main.ts"),
    "--scenario",
    mutant.scenario,
    "--series",
    mutant.series.join(","),
    "--patience",
    `${patience}`,
    "--no-shrink",
    "--quiet"
  ], { cwd: packageRoot, stdio: ["ignore", "pipe", "pipe"], timeout: longest * 1000, killSignal: "SIGKILL" })
  let output = ""
  const hear = (chunk: Buffer) => {
    output += chunk.toString()
  }
  child.stdout.on("data", hear)
  child.stderr.on("data", hear)
  return new Promise((resolve, reject) => {
    child.on("error", reject)
    child.on("close", (code) => {
      const seconds = (performance.now() - startedAt) / 1000
      // a mutant that does not even run was not found by the sweep
      resolve({ killed: code === 1 && /^FAILED "/m.test(output), seconds, output })
    })
  })
}
