/** Numbers by a seed: what is drawn in the same order is the same. */
export interface Random {
  /** Not below `from`, below `to`. */
  readonly between: (from: number, to: number) => number
  readonly chance: (probability: number) => boolean
  readonly pick: <A>(values: ReadonlyArray<A>) => A
  readonly shuffled: <A>(values: ReadonlyArray<A>) => ReadonlyArray<A>
}

export const random = (seed: number): Random => {
  let state = seed | 0
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t ^= t + Math.imul(t ^ (t >>> 7), 61 | t)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const between = (from: number, to: number) => from + next() * (to - from)
  const pick = <A>(values: ReadonlyArray<A>) => values[Math.floor(next() * values.length)]!
  return {
    between,
    chance: (probability) => next() < probability,
    pick,
    shuffled: (values) => {
      const left = [...values]
      return values.map(() => left.splice(Math.floor(next() * left.length), 1)[0]!)
    }
  }
}
