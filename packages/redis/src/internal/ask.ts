/**
 * Questions to servers, as plain callbacks: a question is on its way once it is asked, several can be asked at once,
 * and who asked may stop to listen without breaking anything.
 */
import { callback, DriverError } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"

export type Answer<A> = A | DriverError

/** Calls back once, at once or later. */
export type Ask<A> = (done: (answer: Answer<A>) => void) => void

export const isFailure = <A>(answer: Answer<A>): answer is DriverError => answer instanceof DriverError

export const map = <A, B>(ask: Ask<A>, f: (a: A) => Answer<B>): Ask<B> => (done) =>
  ask((a) => done(isFailure(a) ? a : f(a)))

/** All at once; answers when the last one has answered. */
export const all = <A>(asks: ReadonlyArray<Ask<A>>): Ask<ReadonlyArray<Answer<A>>> => (done) => {
  const answers = new Array<Answer<A>>(asks.length)
  let open = asks.length
  if (open === 0) return done(answers)
  asks.forEach((ask, i) =>
    ask((a) => {
      answers[i] = a
      if (--open === 0) done(answers)
    })
  )
}

/** The values of all, or the failure that tells least. */
export const every = <A>(asks: ReadonlyArray<Ask<A>>): Ask<ReadonlyArray<A>> => (done) =>
  all(asks)((answers) => {
    const failures = (answers as ReadonlyArray<Answer<A>>).filter(isFailure)
    done(worst(failures) ?? answers as ReadonlyArray<A>)
  })

/** Of several failures the one to tell: where any outcome is unknown, that of all is. */
export const worst = (failures: ReadonlyArray<DriverError>): DriverError | undefined =>
  failures.find(({ executed }) => executed === "unknown") ?? failures[0]

export const toEffect = <A>(ask: Ask<A>): Effect.Effect<A, DriverError> =>
  callback((resume) => ask((a) => resume(isFailure(a) ? Effect.fail(a) : Effect.succeed(a))))
