/**
 * A map from strings for entries that come and go quickly. A `Map` would drag them into the old generation (see
 * `Fifo`); an object without prototype has no such chain, and no name of a key can meet anything inherited.
 */
export class Dictionary<A> {
  private readonly entries: Record<string, A> = Object.create(null)
  size = 0

  get(key: string): A | undefined {
    return this.entries[key]
  }

  set(key: string, value: A): void {
    if (this.entries[key] === undefined) this.size++
    this.entries[key] = value
  }

  delete(key: string): void {
    if (this.entries[key] === undefined) return
    this.size--
    delete this.entries[key]
  }

  keys(): ReadonlyArray<string> {
    return Object.keys(this.entries)
  }

  values(): ReadonlyArray<A> {
    return Object.values(this.entries)
  }
}
