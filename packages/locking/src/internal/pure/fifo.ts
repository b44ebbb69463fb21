/**
 * A first-in first-out queue whose members leave from any place in constant time: a waiter that gives up is removed
 * by identity, never by key.
 */
export interface Member<A> {
  readonly value: A
  previous: Member<A> | undefined
  next: Member<A> | undefined
  queued: boolean
}

export class Fifo<A> {
  first: Member<A> | undefined = undefined
  private last: Member<A> | undefined = undefined
  size = 0

  push(value: A): Member<A> {
    const member: Member<A> = { value, previous: this.last, next: undefined, queued: true }
    if (this.last === undefined) this.first = member
    else this.last.next = member
    this.last = member
    this.size++
    return member
  }

  /** For one that was at the head and could not go. */
  pushFirst(value: A): Member<A> {
    const member: Member<A> = { value, previous: undefined, next: this.first, queued: true }
    if (this.first === undefined) this.last = member
    else this.first.previous = member
    this.first = member
    this.size++
    return member
  }

  /** Whether it was still queued. */
  remove(member: Member<A>): boolean {
    if (!member.queued) return false
    member.queued = false
    if (member.previous === undefined) this.first = member.next
    else member.previous.next = member.next
    if (member.next === undefined) this.last = member.previous
    else member.next.previous = member.previous
    this.size--
    return true
  }
}
