/**
 * `pnpm bench [uncontended|contended|importing …] [--seconds N] [--strict]`
 */
import { parseArgs } from "node:util"
import { contended } from "./contended.js"
import { importing } from "./importing.js"
import { type Figure, isMet, print } from "./measure.js"
import { uncontended } from "./uncontended.js"

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: "string", default: "10" }, strict: { type: "boolean", default: false } }
})

const benchmarks: Readonly<
  Record<string, (seconds: number) => Promise<ReadonlyArray<Figure>> | ReadonlyArray<Figure>>
> = {
  uncontended,
  contended,
  importing
}

const names = positionals.length === 0 ? Object.keys(benchmarks) : positionals
const unknown = names.find((name) => !(name in benchmarks))
if (unknown !== undefined) {
  console.error(`No benchmark "${unknown}"; there are ${Object.keys(benchmarks).join(", ")}`)
  process.exit(64)
}

const figures: Array<Figure> = []
for (const name of names) {
  console.error(`${name} …`)
  for (const figure of await benchmarks[name]!(Number(values.seconds))) figures.push(figure)
}
console.log(print(figures))
process.exit(values.strict && !figures.every(isMet) ? 1 : 0)
