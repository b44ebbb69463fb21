/**
 * A binary heap of deadlines. Every entry knows its place, so that cancelling is as cheap as adding: a layer that
 * serves a hundred thousand short leases a second must not collect their cancelled warnings for a minute.
 */
export class Deadline {
  constructor(
    readonly at: number,
    readonly run: () => void,
    /** Place in the heap, -1 when not in it. */
    public index: number
  ) {}
}

export class Deadlines {
  private readonly heap: Array<Deadline> = []

  get size(): number {
    return this.heap.length
  }

  next(): number {
    return this.heap.length === 0 ? Infinity : this.heap[0]!.at
  }

  add(at: number, run: () => void): Deadline {
    const entry = new Deadline(at, run, this.heap.length)
    this.heap.push(entry)
    this.up(entry)
    return entry
  }

  cancel(entry: Deadline): void {
    const index = entry.index
    if (index < 0) return
    entry.index = -1
    const last = this.heap.pop()!
    if (last === entry) return
    this.place(last, index)
    this.up(last)
    this.down(last)
  }

  /** Takes the earliest entry that is due. */
  due(now: number): Deadline | undefined {
    const first = this.heap[0]
    if (first === undefined || first.at > now) return undefined
    this.cancel(first)
    return first
  }

  private place(entry: Deadline, index: number): void {
    this.heap[index] = entry
    entry.index = index
  }

  private up(entry: Deadline): void {
    while (entry.index > 0) {
      const index = entry.index
      const parent = this.heap[(index - 1) >> 1]!
      if (parent.at <= entry.at) return
      this.place(entry, parent.index)
      this.place(parent, index)
    }
  }

  private down(entry: Deadline): void {
    for (;;) {
      const index = entry.index
      const left = this.heap[2 * index + 1]
      if (left === undefined) return
      const right = this.heap[2 * index + 2]
      const child = right !== undefined && right.at < left.at ? right : left
      if (child.at >= entry.at) return
      this.place(entry, child.index)
      this.place(child, index)
    }
  }
}
