/**
 * Times of two things are compared within one round, so that the neighbours of the process disturb both.
 */
import * as Effect from "effect/Effect"

/** In microseconds. */
export interface Time {
  /** All threads of the process, the garbage collector's among them. */
  readonly cpu: number
  readonly wall: number
}

export const startTimer = (): () => Time => {
  const cpu = process.cpuUsage()
  const wall = performance.now()
  return () => {
    const { system, user } = process.cpuUsage(cpu)
    return { cpu: system + user, wall: (performance.now() - wall) * 1000 }
  }
}

/** An effect so many times. `Effect.repeatN` would yield to other fibers each time, which costs as much as a lock. */
export const again = (effect: Effect.Effect<unknown, unknown>, times: number): Effect.Effect<unknown, unknown> =>
  times === 0 ? Effect.void : Effect.flatMap(effect, () => again(effect, times - 1))

/** Runs an effect so many times in one fiber. */
export const repeat = (effect: Effect.Effect<unknown, unknown>, times: number): Promise<unknown> =>
  Effect.runPromise(again(effect, times))

export const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!

/** Rounds of a comparison: the time of one operation by case, in each round. */
export type Rounds<K extends string> = ReadonlyArray<Readonly<Record<K, Time>>>

const fewestRounds = 5

/**
 * Interleaves the cases until the time is over. A case answers the time of one operation. The first sixth, in which
 * everything is compiled, does not count.
 */
export const interleave = async <K extends string>(
  cases: Readonly<Record<K, () => Promise<Time>>>,
  seconds: number
): Promise<Rounds<K>> => {
  const names = Object.keys(cases) as Array<K>
  const rounds: Array<Record<K, Time>> = []
  const start = performance.now()
  const warm = start + seconds * 1000 / 6
  for (let i = 0; rounds.length < fewestRounds || performance.now() < start + seconds * 1000; i++) {
    const round = {} as Record<K, Time>
    // in turn, so that none is always behind the same one
    for (let j = 0; j < names.length; j++) {
      const name = names[(i + j) % names.length]!
      round[name] = await cases[name]()
    }
    if (performance.now() >= warm) rounds.push(round)
  }
  return rounds
}

/** The median over the rounds of what `a` takes beside `b`. */
export const ratio = <K extends string>(rounds: Rounds<K>, a: K, b: K, clock: keyof Time = "cpu"): number =>
  median(rounds.map((round) => round[a][clock] / round[b][clock]))

/** The median over the rounds, in microseconds. */
export const typical = <K extends string>(rounds: Rounds<K>, name: K, clock: keyof Time = "cpu"): number =>
  median(rounds.map((round) => round[name][clock]))
