/**
 * A first-in first-out list whose members leave from any place in constant time: a waiter that gives up is removed by
 * identity, never by key.
 *
 * Also the set of this engine. V8's `Set` and `Map` chain every table that they outgrow to the next one, so members
 * that come and go quickly drag each other into the old generation: eight times the cost of this list, all of it in the
 * garbage collector.
 */
export class Member<A> {
  isIn = true

  constructor(readonly value: A, public previous: Member<A> | undefined, public next: Member<A> | undefined) {}
}

export class Fifo<A> implements Iterable<A> {
  first: Member<A> | undefined = undefined
  private last: Member<A> | undefined = undefined
  size = 0

  push(value: A): Member<A> {
    const member: Member<A> = new Member(value, this.last, undefined)
    if (this.last === undefined) this.first = member
    else this.last.next = member
    this.last = member
    this.size++
    return member
  }

  /** For one that was at the head and could not go. */
  pushFirst(value: A): Member<A> {
    const member: Member<A> = new Member(value, undefined, this.first)
    if (this.first === undefined) this.last = member
    else this.first.previous = member
    this.first = member
    this.size++
    return member
  }

  /** Whether it was still in. */
  remove(member: Member<A> | undefined): boolean {
    if (member === undefined || !member.isIn) return false
    member.isIn = false
    if (member.previous === undefined) this.first = member.next
    else member.previous.next = member.next
    if (member.next === undefined) this.last = member.previous
    else member.next.previous = member.previous
    member.previous = undefined
    member.next = undefined
    this.size--
    return true
  }

  /** The members at this moment: whoever leaves while they are visited is visited all the same. */
  *[Symbol.iterator](): Iterator<A> {
    if (this.first === undefined) return
    const values: Array<A> = []
    for (let member: Member<A> | undefined = this.first; member !== undefined; member = member.next) {
      values.push(member.value)
    }
    yield* values
  }
}
