/**
 * Folders of the kit: throw-away ones, and the cache beside the nearest `node_modules`.
 */
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { KitError } from "../KitError.js"
import { run } from "./command.js"

export const attempt = <A>(step: string, f: () => A): Effect.Effect<A, KitError> =>
  Effect.try({ try: f, catch: (cause) => new KitError({ step, reason: String(cause), cause }) })

export const removeFolder = (folder: string): Effect.Effect<void> =>
  Effect.promise(() => fs.promises.rm(folder, { recursive: true, force: true, maxRetries: 5 }).catch(() => {}))

/** An empty folder that goes with the scope. */
export const temporaryFolder = (name: string) =>
  Effect.acquireRelease(
    attempt("make a folder", () => {
      // the real path: on some systems the temporary folder is a link, which servers show resolved
      const folder = fs.mkdtempSync(path.join(fs.realpathSync(os.tmpdir()), `effect-locking-${name}-`))
      // servers run as another user where the tests run as root
      fs.chmodSync(folder, 0o755)
      return folder
    }),
    removeFolder
  )

const nearestModules = (from: string): string | undefined => {
  const candidate = path.join(from, "node_modules")
  if (fs.existsSync(candidate)) return candidate
  const parent = path.dirname(from)
  return parent === from ? undefined : nearestModules(parent)
}

/** `node_modules/.cache/effect-locking` of the program that runs, or what `EFFECT_LOCKING_CACHE` names. */
const cacheRoot = (): string => {
  const named = process.env["EFFECT_LOCKING_CACHE"]
  if (named !== undefined && named !== "") return path.resolve(named)
  const modules = nearestModules(process.cwd()) ?? path.join(os.tmpdir(), "node_modules")
  return path.join(modules, ".cache", "effect-locking")
}

/**
 * A folder that is built once and kept. It appears when it is complete: whoever builds it at the same time wins or
 * loses, but nobody sees half of it.
 */
export const cached = <R>(
  name: string,
  build: (folder: string) => Effect.Effect<void, KitError, R>
): Effect.Effect<string, KitError, R> =>
  Effect.gen(function*() {
    const folder = path.join(cacheRoot(), name)
    if (fs.existsSync(folder)) return folder
    const draft = yield* attempt(`make the cache folder ${name}`, () => {
      fs.mkdirSync(path.dirname(folder), { recursive: true })
      const draft = fs.mkdtempSync(`${folder}.draft-`)
      fs.chmodSync(draft, 0o755)
      return draft
    })
    return yield* build(draft).pipe(
      Effect.zipRight(Effect.try(() => fs.renameSync(draft, folder))),
      Effect.as(folder),
      Effect.catchTag("UnknownException", (cause) =>
        fs.existsSync(folder)
          ? Effect.succeed(folder)
          : new KitError({ step: `fill the cache folder ${name}`, reason: String(cause.error), cause })),
      Effect.ensuring(removeFolder(draft))
    )
  })

/** Copies a folder with owners and modes. The platform's own program does it several times faster than Node. */
export const copyFolder = (from: string, to: string): Effect.Effect<void, KitError> =>
  Effect.asVoid(run("cp", ["-Rp", from, to]))
