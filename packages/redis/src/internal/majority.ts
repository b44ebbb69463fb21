/**
 * Questions to several servers, of which enough have to answer.
 */
import { DriverError } from "effect-locking/LockDriver"
import { type Answer, type Ask, isFailure, worst } from "./ask.js"

/** Those that have come; `undefined` where one is missing. */
export type Answers<A> = ReadonlyArray<Answer<A> | undefined>

/** Asks all at once, and decides after each answer; with none open, `decide` has to. What comes after that is not heard. */
export const poll = <A, B>(
  asks: ReadonlyArray<Ask<A>>,
  decide: (answers: Answers<A>, open: number) => Answer<B> | undefined
): Ask<B> =>
(done) => {
  const answers = new Array<Answer<A> | undefined>(asks.length).fill(undefined)
  let open = asks.length
  let isDecided = false
  asks.forEach((ask, i) =>
    ask((answer) => {
      answers[i] = answer
      open--
      if (isDecided) return
      const decision = decide(answers, open)
      if (decision === undefined) return
      isDecided = true
      done(decision)
    })
  )
}

export const values = <A>(answers: Answers<A>): ReadonlyArray<A> =>
  answers.flatMap((answer) => answer === undefined || isFailure(answer) ? [] : [answer])

/** Too few could be asked. Nothing was done where none of them can have done anything. */
export const unheard = (answers: Answers<unknown>): DriverError => {
  const error = worst(answers.filter((answer): answer is DriverError => answer instanceof DriverError))
  return new DriverError({
    executed: error?.executed ?? "unknown",
    message: `too few of the servers could be asked: ${error?.message ?? "they did not answer"}`,
    cause: error?.cause,
    retryAfter: error?.retryAfter
  })
}

/** As soon as a majority has answered, whatever it is. */
export const enough = <A>(asks: ReadonlyArray<Ask<A>>, majority: number): Ask<true> =>
  poll(asks, (answers, open) => values(answers).length >= majority ? true : open === 0 ? unheard(answers) : undefined)

/** Things that have the same name. */
export const groupBy = <A>(things: ReadonlyArray<A>, nameOf: (thing: A) => string): ReadonlyArray<ReadonlyArray<A>> => {
  const groups = new Map<string, Array<A>>()
  for (const thing of things) {
    const name = nameOf(thing)
    const group = groups.get(name)
    if (group === undefined) groups.set(name, [thing])
    else group.push(thing)
  }
  return [...groups.values()]
}
