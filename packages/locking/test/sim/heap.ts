/** A binary heap of things that are due, by time, then by order of insertion. */
export interface Due {
  readonly at: number
  readonly order: number
}

export class DueHeap<A extends Due> {
  private readonly items: Array<A> = []

  get first(): A | undefined {
    return this.items[0]
  }

  push(item: A): void {
    const items = this.items
    let i = items.push(item) - 1
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (before(items[parent], item)) break
      items[i] = items[parent]
      i = parent
    }
    items[i] = item
  }

  pop(): A | undefined {
    const items = this.items
    const first = items[0]
    const last = items.pop()
    if (last === undefined || items.length === 0) return first
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= items.length) break
      if (child + 1 < items.length && before(items[child + 1], items[child])) child++
      if (before(last, items[child])) break
      items[i] = items[child]
      i = child
    }
    items[i] = last
    return first
  }

  count(predicate: (item: A) => boolean): number {
    let n = 0
    for (const item of this.items) if (predicate(item)) n++
    return n
  }
}

const before = (a: Due, b: Due): boolean => a.at < b.at || (a.at === b.at && a.order < b.order)
