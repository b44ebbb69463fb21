// Type-checks the ```ts blocks of README.md and packages/*/README.md with the options that docgen uses for @example.
// A block that opens with "```ts nocheck" is left out.
import * as childProcess from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"

const root = path.join(import.meta.dirname, "..")
const tsc = path.join(root, "node_modules/typescript/bin/tsc")

// as deep as docgen's own folder of examples, so that its `paths` hold here
const check = (readme, dir) => {
  const out = path.join(dir, "docs", "readme")
  fs.rmSync(out, { recursive: true, force: true })
  const lines = fs.readFileSync(readme, "utf8").split("\n")
  const blocks = []
  let open
  lines.forEach((line, i) => {
    if (open !== undefined) {
      if (!/^\s*```\s*$/.test(line)) return
      if (open.check) blocks.push(open.line)
      // blank lines in front make the compiler's line numbers those of the README
      if (open.check) {
        fs.mkdirSync(out, { recursive: true })
        const code = lines.slice(open.line + 1, i).join("\n")
        fs.writeFileSync(path.join(out, `line-${open.line + 1}.ts`), "\n".repeat(open.line + 1) + code + "\n")
      }
      open = undefined
    } else {
      const fence = /^\s*```(.*)$/.exec(line)
      if (fence !== null) open = { line: i, check: /^(ts|typescript)\s*$/.test(fence[1]) }
    }
  })
  if (blocks.length === 0) return true
  const { examplesCompilerOptions } = JSON.parse(fs.readFileSync(path.join(dir, "docgen.json"), "utf8"))
  const compilerOptions = { ...examplesCompilerOptions, moduleDetection: "force" }
  fs.writeFileSync(path.join(out, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }))
  const { status } = childProcess.spawnSync(process.execPath, [tsc, "-p", out], { cwd: root, stdio: "inherit" })
  console.log(
    `${path.relative(root, readme)}: ${blocks.length} example(s), ${status === 0 ? "all compile" : "see above"}`
  )
  return status === 0
}

const packages = fs.readdirSync(path.join(root, "packages")).map((name) => path.join(root, "packages", name))
const results = [[path.join(root, "README.md"), path.join(root, "packages/locking")]]
  .concat(packages.map((dir) => [path.join(dir, "README.md"), dir]))
  .filter(([readme]) => fs.existsSync(readme))
  .map(([readme, dir]) => check(readme, dir))
process.exit(results.every((ok) => ok) ? 0 : 1)
