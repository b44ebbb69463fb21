// Writes what a package publishes: packages/*/dist/*.js from packages/*/build/dist/**, where its tsconfig.build.json has
// tsc put the modules. A package whose modules go to dist at once is published as tsc leaves it.
// Node takes about as long to find a module as to run one, so a program that imports the index loads two files: the
// index, and one with all that it reaches. The public modules are doors to the same file; those that are not in the
// index, for what they load, are files of their own.
import { transform } from "esbuild"
import MagicString from "magic-string"
import * as fs from "node:fs"
import * as path from "node:path"
import { rollup } from "rollup"

const packages = path.join(import.meta.dirname, "..", "packages")

const door = "door to "

/** A module as tsc wrote it, with its map to the sources; and a door to each public one, which is never the file itself. */
const compiled = {
  name: "compiled",
  resolveId: (id) => id.startsWith(door) ? id : undefined,
  load: (id) =>
    id.startsWith(door)
      ? `export * from ${JSON.stringify(id.slice(door.length))}`
      : { code: fs.readFileSync(id, "utf8"), map: fs.readFileSync(`${id}.map`, "utf8") }
}

/** The calls of an expression that are made when it is evaluated, as against those in its functions. */
const callsIn = function*(node) {
  if (typeof node?.type !== "string" || /Function/.test(node.type)) return
  if (node.type === "CallExpression" || node.type === "NewExpression") yield node
  for (const child of Object.values(node).flat()) yield* callsIn(child)
}

/** No module has side effects: in one file each call at the top has to say so, for bundlers that leave out what is unused. */
const annotatePure = {
  name: "annotate-pure",
  renderChunk(code) {
    const text = new MagicString(code)
    for (const statement of this.parse(code).body) {
      const expressions = statement.type === "VariableDeclaration"
        ? statement.declarations.map(({ init }) => init)
        : statement.type === "ClassDeclaration"
        ? [statement.superClass]
        : []
      for (const expression of expressions) {
        for (const { start } of callsIn(expression)) text.appendLeft(start, "/*#__PURE__*/ ")
      }
    }
    return { code: text.toString(), map: text.generateMap({ hires: true }) }
  }
}

/** V8 parses the body of an arrow function when it loads it, and passes over that of any other: a third of the time. */
const withoutArrows = {
  name: "without-arrows",
  renderChunk: (code) => transform(code, { sourcemap: "external", supported: { arrow: false } })
}

/** What a module loads in the end, without what it imports only when asked for. */
const reach = (id, getModuleInfo, seen = new Set()) => {
  if (seen.has(id)) return seen
  seen.add(id)
  for (const { external, id: next } of getModuleInfo(id).importedIdResolutions) {
    if (!external) reach(next, getModuleInfo, seen)
  }
  return seen
}

const bundle = async (dir) => {
  const moduleOf = (name) => path.join(dir, "build", "dist", `${name}.js`)
  const names = fs.readdirSync(path.join(dir, "src")).flatMap((file) => /^(\w+)\.ts$/.exec(file)?.[1] ?? [])
  const result = await rollup({
    input: Object.fromEntries(names.map((name) => [name, door + moduleOf(name)])),
    preserveEntrySignatures: "strict",
    external: (id) => !/^[./]/.test(id) && !id.startsWith(door),
    plugins: [compiled, annotatePure, withoutArrows],
    treeshake: { moduleSideEffects: false },
    onLog: (_level, { code, message }) => {
      // a module of types alone
      if (code !== "EMPTY_BUNDLE") throw new Error(`${dir}: ${message}`)
    }
  })
  let shared
  const { output } = await result.generate({
    dir: path.join(dir, "dist"),
    format: "es",
    sourcemap: true,
    sourcemapExcludeSources: true,
    minifyInternalExports: false,
    hoistTransitiveImports: false,
    entryFileNames: "[name].js",
    chunkFileNames: "internal/[name].js",
    manualChunks: (id, { getModuleInfo }) => {
      shared ??= reach(moduleOf("index"), getModuleInfo)
      return shared.has(id) ? "all" : undefined
    }
  })
  const dist = path.join(dir, "dist")
  for (const file of fs.readdirSync(dist, { recursive: true })) {
    if (/\.js(\.map)?$/.test(file)) fs.rmSync(path.join(dist, file))
  }
  for (const file of output) {
    fs.mkdirSync(path.dirname(path.join(dist, file.fileName)), { recursive: true })
    fs.writeFileSync(path.join(dist, file.fileName), file.type === "asset" ? file.source : file.code)
  }
}

for (const name of fs.readdirSync(packages)) {
  const dir = path.join(packages, name)
  if (fs.existsSync(path.join(dir, "build", "dist"))) await bundle(dir)
}
