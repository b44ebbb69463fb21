/**
 * `pnpm bench [names…] [--seconds N] [--strict] [--json]`, where a name is that of a group, or of a benchmark: `redis/pair`.
 */
import { parseArgs } from "node:util"
import { core } from "./core/group.js"
import { type Benchmark, type Figure, type Group, isMet, json, table } from "./figure.js"
import { pg } from "./pg/group.js"
import { redis } from "./redis/group.js"

const groups: Readonly<Record<string, Group>> = { core, pg, redis }

const usage = (problem: string): never => {
  console.error(`${problem}
usage: pnpm bench [names…] [--seconds N] [--strict] [--json]
  names       ${
    Object.entries(groups).map(([name, group]) => `${name} (${Object.keys(group).join(", ")})`).join("; ")
  }; default: core
  --seconds   about how long each benchmark measures; default: 10
  --strict    exit with 1 when a target is missed
  --json      figures as JSON`)
  process.exit(64)
}

const parse = () => {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        seconds: { type: "string", default: "10" },
        strict: { type: "boolean", default: false },
        json: { type: "boolean", default: false }
      }
    })
  } catch (error) {
    return usage((error as Error).message)
  }
}

const { positionals, values } = parse()
const seconds = Number(values.seconds)
if (!(seconds > 0 && seconds < Infinity)) usage(`--seconds must be a positive number, got ${values.seconds}`)

const chosen = (name: string): ReadonlyArray<readonly [string, Benchmark]> => {
  const [first = "", second] = name.split("/")
  const group = groups[first]
  if (group !== undefined && second === undefined) return Object.entries(group)
  const benchmark = second === undefined
    ? Object.values(groups).find((group) => first in group)?.[first]
    : group?.[second]
  return benchmark === undefined ? usage(`there is no benchmark "${name}"`) : [[name, benchmark]]
}

const figures: Array<Figure> = []
for (const [name, benchmark] of (positionals.length === 0 ? ["core"] : positionals).flatMap(chosen)) {
  process.stderr.write(`${name} …`)
  const start = performance.now()
  for (const figure of await benchmark({ seconds })) figures.push(figure)
  process.stderr.write(` ${((performance.now() - start) / 1000).toFixed(1)} s\n`)
}
console.log(values.json ? json(figures) : table(figures))
process.exit(values.strict && !figures.every(isMet) ? 1 : 0)
