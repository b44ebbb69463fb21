/**
 * What it costs a program to import the library, in processes of their own.
 */
import { spawnSync } from "node:child_process"
import type { Benchmark } from "../figure.js"
import { entry } from "../library.js"
import { interleave, median, type Rounds, type Time } from "../measure.js"

const root = new URL("../../..", import.meta.url)

const cost = (...modules: ReadonlyArray<string>) => async (): Promise<Time> => {
  const script = `const wall = performance.now(), cpu = process.cpuUsage()
for (const module of ${JSON.stringify(["effect/Effect", ...modules])}) await import(module)
const { system, user } = process.cpuUsage(cpu)
console.log(JSON.stringify({ cpu: system + user, wall: (performance.now() - wall) * 1000 }))`
  const { status, stderr, stdout } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    encoding: "utf8",
    cwd: root
  })
  if (status !== 0) throw new Error(stderr)
  return JSON.parse(stdout)
}

type Round<K extends string> = Rounds<K>[number]

/** The least of all rounds, in milliseconds: nothing makes an import quicker, and much makes it slower. */
const least = <K extends string>(rounds: ReadonlyArray<Round<K>>, name: K, clock: keyof Time = "wall"): number =>
  Math.min(...rounds.map((round) => round[name][clock])) / 1000

export const importing: Benchmark = async ({ seconds }) => {
  const others = await interleave({ schema: cost("effect/Schema"), stream: cost("effect/Stream") }, 0)
  const rounds: Array<Round<"effect" | "library">> = []
  // nothing to warm up: each is a process
  while (rounds.length < (seconds < 1 ? 2 : 25)) {
    for (const round of await interleave({ effect: cost(), library: cost(entry) }, 0)) rounds.push(round)
  }
  const effect = least(rounds, "effect")
  const typical = median(rounds.map(({ effect, library }) => (library.wall - effect.wall) / 1000))
  return [{
    name: "importing effect-locking, over effect/Effect",
    value: least(rounds, "library") - effect,
    unit: "ms",
    target: { atMost: 30 },
    note: `least of ${rounds.length} on the wall clock; median ${typical.toFixed(0)}, in processor time ${
      (least(rounds, "library", "cpu") - least(rounds, "effect", "cpu")).toFixed(0)
    }. effect/Effect takes ${effect.toFixed(0)} ms; effect/Schema would add ${
      (least(others, "schema") - effect).toFixed(0)
    }, effect/Stream ${(least(others, "stream") - effect).toFixed(0)}`
  }]
}
