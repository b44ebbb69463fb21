import { Prng } from "./prng.js"

const forbidden = ["setTimeout", "setInterval", "setImmediate", "queueMicrotask"] as const

/**
 * Runs `body`, in which any use of real time or real scheduling is an error of the code under test. Date.now and
 * Math.random are frozen instead of forbidden: Effect stamps each fiber with the first and seeds hashes of objects with
 * the second, and neither may decide anything.
 */
export const withoutRealTime = <A>(body: () => A): A => {
  const target = globalThis as unknown as Record<string, unknown>
  const saved = forbidden.map((name) => [name, target[name]] as const)
  const dateNow = Date.now
  const random = Math.random
  for (const name of forbidden) {
    target[name] = () => {
      throw new Error(`${name} called inside the simulation`)
    }
  }
  const dice = new Prng("Math.random")
  Date.now = () => 0
  Math.random = () => dice.next()
  try {
    return body()
  } finally {
    for (const [name, value] of saved) target[name] = value
    Date.now = dateNow
    Math.random = random
  }
}
