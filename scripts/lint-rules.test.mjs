// Shows that the house's own lint rules fire: each code must be refused by its rule, or (rule null) by none.
import { ESLint } from "eslint"
import * as path from "node:path"

const root = path.join(import.meta.dirname, "..")
const eslint = new ESLint({ cwd: root, ignore: false })
const lines = (text) => text.trim().split(/\s*\n\s*/)
const from = (names) => names.split(" ").map((name) => `import { x } from "${name}"\n\nexport const y = x\n`)
const value = (codes) => lines(codes).map((code) => `export const y = ${code}\n`)
const effect = (codes) => value(codes).map((code) => `import * as Effect from "effect/Effect"\n\n${code}`)

const [core, internal, pure] = ["locking/src/X.ts", "locking/src/internal/x.ts", "locking/src/internal/pure/x.ts"]
const [imports, syntax] = ["@typescript-eslint/no-restricted-imports", "no-restricted-syntax"]
const names =
  "never race raceFirst raceWith raceFibersWith timeout timeoutFail runFork runPromise runSync runCallback " +
  "promise tryPromise makeSemaphore unsafeMakeSemaphore"
const cases = [
  [core, imports, from("@effect/platform/Http node:fs @effect-locking/pg ./index.js")],
  [internal, imports, from("../Locking.js ../TestLocking.js ioredis")],
  [pure, imports, from("effect/Option effect ../Locking.js ../../LockKey.js ../queue.js")],
  ["pg/src/X.ts", imports, from("@effect-locking/redis @effect-locking/testing/Suite")],
  ["cli/src/X.ts", imports, from("@effect-locking/testing")],
  [core, "@effect/no-import-from-barrel-package", from("effect")],
  [core, "no-restricted-globals", value("setTimeout\nsetInterval\nsetImmediate\nqueueMicrotask\nperformance.now()")],
  [core, "no-restricted-properties", value("process.hrtime.bigint()")],
  [core, syntax, effect(names.split(" ").map((name) => `Effect.${name}`).join("\n"))],
  [core, syntax, effect("Effect.all([], { concurrency: 2 })\nEffect.zip(Effect.void, { concurrent: true })")],
  [core, syntax, [`import * as E from "effect/Effect"\n`, `import { race } from "effect/Effect"\n`]],
  [core, syntax, [`import { randomUUID } from "node:crypto"\n`, "try {\n  x()\n} catch {\n  y()\n}\n", "await x\n"]],
  [core, syntax, value("Date.now()\nnew Date()\nMath.random()\ncrypto.randomUUID()\nClock.currentTimeMillis")],
  [core, syntax, value("new Promise(() => {})\nPromise.resolve()\nasync () => {}\n")],
  [core, null, from("node:crypto effect/Option ./LockKey.js")],
  [core, null, effect("Effect.raceAll([Effect.void])\nnew Date(0)\nRuntime.runFork(runtime)(Effect.void)")],
  [pure, null, from("./y.js node:crypto")],
  ["pg/src/X.ts", null, from("effect-locking/LockDriver")],
  ["cli/src/X.ts", null, [...from("@effect-locking/pg/PgLocking"), ...effect("Effect.runPromise")]],
  ["locking/test/X.ts", null, value("setTimeout(() => {})")]
]

const wrong = []
for (const [file, rule, codes] of cases) {
  for (const code of codes) {
    const [{ messages }] = await eslint.lintText(code, { filePath: path.join(root, "packages", file) })
    const ids = messages.map((message) => message.ruleId).filter((id) => rule !== null || !id.endsWith("unused-vars"))
    if (rule === null ? ids.length > 0 : !ids.includes(rule)) wrong.push(`${rule} on ${file}, got [${ids}]:\n${code}`)
  }
}
const [cycle] = await eslint.lintFiles(["scripts/fixtures/cycle/A.ts"])
if (!cycle.messages.some((message) => message.ruleId === "import-x/no-cycle")) wrong.push("import-x/no-cycle")

for (const text of wrong) console.error(`a lint rule does not behave: ${text}`)
process.exit(wrong.length === 0 ? 0 : 1)
