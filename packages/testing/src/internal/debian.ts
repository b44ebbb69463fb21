/**
 * Servers that npm does not bring: taken from PATH, else unpacked from the distribution's own packages into the cache.
 * Nothing is installed and nobody needs to be root.
 */
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as path from "node:path"
import { KitError } from "../KitError.js"
import { run } from "./command.js"
import { attempt, cached } from "./files.js"

export interface Program {
  readonly command: string
  /** To be set for it, so that it finds the libraries that came with it. */
  readonly env: Readonly<Record<string, string>>
}

export interface ProgramOptions {
  /** The name of the program: `pgbouncer`. */
  readonly name: string
  /** What it is run with to see whether it works; must end by itself. Default `--version`. */
  readonly probe?: ReadonlyArray<string> | undefined
  /** Debian packages that bring it and those of its libraries that a small system lacks. */
  readonly packages: ReadonlyArray<string>
}

const onPath = (name: string): ReadonlyArray<string> => {
  const folders = [...(process.env["PATH"] ?? "").split(path.delimiter), "/usr/sbin", "/usr/local/sbin"]
  return folders.filter((folder) => folder !== "").map((folder) => path.join(folder, name)).filter((file) =>
    fs.existsSync(file)
  )
}

const foldersOf = (root: string): ReadonlyArray<string> =>
  fs.readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isDirectory()).flatMap((entry) => {
    const folder = path.join(root, entry.name)
    return [folder, ...foldersOf(folder)]
  })

/** The release of the distribution: packages of one do not run on another. */
const release = (): string => {
  const file = "/etc/os-release"
  const text = fs.existsSync(file) ? fs.readFileSync(file, "utf8") : ""
  const field = (name: string) => new RegExp(`^${name}="?([^"\\n]*)`, "m").exec(text)?.[1] ?? "unknown"
  return `${field("ID")}-${field("VERSION_ID")}-${process.arch}`
}

const works = (program: Program, options: ProgramOptions) =>
  Effect.as(run(program.command, options.probe ?? ["--version"], { env: program.env }), program)

const unpack = (options: ProgramOptions) => (folder: string): Effect.Effect<void, KitError> =>
  Effect.gen(function*() {
    yield* run("apt-get", ["download", "--quiet", ...options.packages], { cwd: folder })
    const files = fs.readdirSync(folder).filter((file) => file.endsWith(".deb"))
    for (const file of files) {
      yield* run("dpkg", ["-x", file, "."], { cwd: folder })
      yield* attempt("remove a package file", () => fs.rmSync(path.join(folder, file)))
    }
  })

/** Fails with what to do when the program is nowhere, or does not run. */
export const program = (options: ProgramOptions): Effect.Effect<Program, KitError> => {
  const { name, packages } = options
  const unpacked = Effect.gen(function*() {
    const root = yield* cached(`${release()}-${name}`, unpack(options))
    const folders = foldersOf(root)
    const command = folders.filter((folder) => /^s?bin$/.test(path.basename(folder)))
      .map((folder) => path.join(folder, name)).find((file) => fs.existsSync(file))
    if (command === undefined) {
      return yield* new KitError({ step: "unpack packages", reason: `none of ${packages.join(", ")} has it` })
    }
    const libraries = folders.filter((folder) => fs.readdirSync(folder).some((file) => /\.so(?:\.|$)/.test(file)))
    return yield* works({ command, env: { LD_LIBRARY_PATH: libraries.join(path.delimiter) } }, options)
  })
  return Effect.firstSuccessOf([
    ...onPath(name).map((command) => works({ command, env: {} }, options)),
    unpacked
  ]).pipe(
    Effect.mapError((error) =>
      new KitError({
        step: `find ${name}`,
        reason: `it is not on PATH, and the packages of the distribution do not bring it: ${error.message}`,
        fix: `have ${name} on PATH, or on Debian run \`apt-get update\` so that ${packages.join(", ")} can be had`,
        cause: error
      })
    )
  )
}
