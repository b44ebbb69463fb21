/**
 * Random numbers from a seed. Every user draws from a stream of its own name, so that leaving one actor out of a plan
 * does not reroll the dice of the others: that is what makes plans shrink.
 */

/** FNV-1a over the UTF-16 units. */
export const hash32 = (text: string): number => {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash >>> 0
}

export const mix32 = (hash: number, value: number): number => Math.imul(hash ^ value, 0x01000193) >>> 0

/** mulberry32. */
export class Prng {
  private state: number

  constructor(seed: string) {
    this.state = hash32(seed)
  }

  /** In [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0
    let t = this.state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }

  /** A whole number in [0, n). */
  int(n: number): number {
    return Math.floor(this.next() * n)
  }

  chance(probability: number): boolean {
    return probability > 0 && this.next() < probability
  }

  pick<A>(choices: readonly [A, ...Array<A>] | ReadonlyArray<A>): A {
    return choices[this.int(choices.length)]
  }
}
