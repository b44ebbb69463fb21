// Writes packages/*/src/index.ts from the modules beside it: `pnpm codegen`; `pnpm codegen --check` fails when one is stale.
// A public module has a capital first letter and opens with a JSDoc comment that has `@since`; the index repeats it.
// Modules that load effect/Schema or effect/Stream cost every importer of the index as much as all of Effect, and vitest
// can be loaded in tests only: they stay out of it and are reached by their own path.
import * as fs from "node:fs"
import * as path from "node:path"

const packages = path.join(import.meta.dirname, "..", "packages")
const check = process.argv.includes("--check")
const problems = []

const entry = (src, file) => {
  const doc = /^\s*(\/\*\*[\s\S]*?\*\/)/.exec(fs.readFileSync(path.join(src, file), "utf8"))?.[1]
  const name = path.basename(file, ".ts")
  if (doc === undefined || !/@since\s+\d/.test(doc)) {
    problems.push(`${path.relative(".", path.join(src, file))}: has to open with a JSDoc comment with @since`)
  }
  return `${doc}\nexport * as ${name} from "./${name}.js"\n`
}

for (const name of fs.readdirSync(packages).sort()) {
  const src = path.join(packages, name, "src")
  if (!fs.existsSync(src)) continue
  const isHeavy = (file) =>
    /^import (?!type)[^\n]*from "(effect\/(Schema|Stream)|vitest)"/m.test(fs.readFileSync(path.join(src, file), "utf8"))
  const modules = fs.readdirSync(src).filter((file) => /^[A-Z]\w*\.ts$/.test(file) && !isHeavy(file)).sort()
  if (modules.length === 0) continue
  const index = path.join(src, "index.ts")
  const text = modules.map((file) => entry(src, file)).join("\n")
  if (fs.existsSync(index) && fs.readFileSync(index, "utf8") === text) continue
  if (check) problems.push(`${path.relative(".", index)}: is stale, run \`pnpm codegen\``)
  else if (problems.length === 0) fs.writeFileSync(index, text)
}

for (const problem of problems) console.error(problem)
process.exit(problems.length === 0 ? 0 : 1)
