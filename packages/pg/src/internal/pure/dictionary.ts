/**
 * Entries that come and go with every lock. V8's `Map` chains each table that it outgrows to the next one, so that they
 * drag each other, and all that they reach, into the old generation; an object without prototype has no such chain.
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

  /** Whether it was in. */
  delete(key: string): boolean {
    if (this.entries[key] === undefined) return false
    this.size--
    return delete this.entries[key]
  }

  keys(): ReadonlyArray<string> {
    return Object.keys(this.entries)
  }

  values(): ReadonlyArray<A> {
    return Object.values(this.entries)
  }
}
