/**
 * What it costs a program to import the library, in processes of their own.
 */
import { spawnSync } from "node:child_process"
import { entry } from "./library.js"
import type { Figure } from "./measure.js"

const cost = (modules: ReadonlyArray<string>): number => {
  const script = `const t = performance.now(); for (const m of ${
    JSON.stringify(modules)
  }) await import(m); console.log(performance.now() - t)`
  const result = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    encoding: "utf8",
    cwd: new URL("../..", import.meta.url)
  })
  return Number(result.stdout)
}

export const importing = (): ReadonlyArray<Figure> => {
  const effect = ["effect/Effect"]
  const cases = {
    effect,
    library: [...effect, entry],
    schema: [...effect, "effect/Schema"],
    stream: [...effect, "effect/Stream"]
  }
  const best = { effect: Infinity, library: Infinity, schema: Infinity, stream: Infinity }
  for (let round = 0; round < 5; round++) {
    for (const name of Object.keys(cases) as Array<keyof typeof cases>) {
      best[name] = Math.min(best[name], cost(cases[name]))
    }
  }
  return [{
    name: "importing effect-locking, over effect/Effect",
    value: best.library - best.effect,
    unit: "ms",
    target: { atMost: 30 },
    note: `effect/Effect itself ${best.effect.toFixed(0)} ms; effect/Schema would add ${
      (best.schema - best.effect).toFixed(0)
    }, effect/Stream ${(best.stream - best.effect).toFixed(0)}`
  }]
}
