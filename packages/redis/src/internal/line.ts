/**
 * Those of one process who wait for a record in the order of arrival. The first of them asks the server, and keeps the
 * places of those behind it: one sign of life for all of them.
 */
export interface Member {
  /** The name under which it waits. */
  readonly waiter: string
  /** When the server last said that it has its place, in monotonic milliseconds. */
  seenAt: number
}

export class Lines {
  private readonly lines = new Map<string, Set<Member>>()

  join(record: string, member: Member): void {
    const line = this.lines.get(record)
    if (line === undefined) this.lines.set(record, new Set([member]))
    else line.add(member)
  }

  leave(record: string, member: Member): void {
    const line = this.lines.get(record)
    if (line?.delete(member) === true && line.size === 0) this.lines.delete(record)
  }

  isFirst(record: string, member: Member): boolean {
    const line = this.lines.get(record)
    return line === undefined || line.values().next().value === member
  }

  /** Whose places the attempt of this one keeps. */
  behind(record: string, member: Member): ReadonlyArray<Member> {
    return this.isFirst(record, member) ? [...this.lines.get(record) ?? []].slice(1) : []
  }
}
