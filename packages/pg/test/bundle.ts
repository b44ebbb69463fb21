import { Effect } from "effect"
import { build } from "esbuild"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"

/**
 * A program as one file, which starts in a tenth of the time that a loader of TypeScript and a thousand modules take.
 * Made once; the file is gone with the scope.
 */
export const bundle = (entry: URL) => {
  const made = Effect.runSync(Effect.cached(Effect.promise(() =>
    build({
      entryPoints: [fileURLToPath(entry)],
      write: false,
      bundle: true,
      platform: "node",
      target: "node20",
      format: "cjs",
      external: ["pg-native", "tsx"],
      logLevel: "error"
    })
  )))
  return Effect.gen(function*() {
    const { outputFiles: [program] } = yield* made
    const folder = yield* Effect.acquireRelease(
      Effect.promise(() => fs.promises.mkdtemp(path.join(os.tmpdir(), "effect-locking-program-"))),
      (folder) => Effect.promise(() => fs.promises.rm(folder, { recursive: true, force: true }))
    )
    const file = path.join(folder, "program.cjs")
    yield* Effect.promise(() => fs.promises.writeFile(file, program!.contents))
    return file
  })
}
