/**
 * One timer fiber for all deadlines of a layer. The fiber sleeps until the earliest one; it is not woken when entries
 * are cancelled, only replaced when an earlier one comes.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import {
  catchAllCause,
  currentClock,
  forker,
  interruptNow,
  isTestClock,
  type RuntimeFiber,
  zipRight
} from "./compat.js"
import { type Deadline, Deadlines } from "./pure/deadlines.js"

/**
 * No sleep takes longer, so that a tick soon sees what happened to the clock; and the live one never fires a sleep of
 * more than 2^31-1 ms. Nothing happens to the clock of a test, for which each sleep is a step more.
 */
const longestSleep = 1000
const longestTestSleep = 86_400_000

export interface Timer {
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Wall-clock milliseconds, for people; never used in arithmetic on deadlines. */
  readonly wallNow: () => number
  /** Runs `run` in the timer fiber once `at` has come. Never for `Infinity`. */
  readonly add: (at: number, run: () => void) => Deadline | undefined
  readonly cancel: (deadline: Deadline | undefined) => void
  readonly size: () => number
  /** Ends a sleep that cancelled entries alone asked for, so that it does not keep the process alive. */
  readonly trim: () => void
}

/** `onTick` runs before the deadlines of each moment, and at least once a second while there are any. */
export const make = (onTick: () => void): Effect.Effect<Timer> =>
  Effect.gen(function*() {
    const fork = yield* forker
    const clock = yield* currentClock
    const longest = isTestClock(clock) ? longestTestSleep : longestSleep
    const deadlines = new Deadlines()
    let armedFor = Infinity
    let sleeper: RuntimeFiber<void> | undefined
    let generation = 0

    const now = () => Number(clock.unsafeCurrentTimeNanos()) / 1e6

    const sleepFrom = (mine: number): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (mine !== generation) return Effect.void
        armedFor = deadlines.next()
        if (armedFor === Infinity) return Effect.void
        const left = Math.min(Math.ceil(armedFor - now()), longest)
        // never inside of `add`: whoever adds a deadline may have more to note
        return Effect.flatMap(
          left <= 0 ? Effect.yieldNow() : clock.sleep(Duration.millis(left)),
          () => mine === generation ? zipRight(fire, sleepFrom(mine)) : Effect.void
        )
      })

    // one that dies must not take the others with it
    const fire = catchAllCause(
      Effect.sync(() => {
        onTick()
        for (let entry = deadlines.due(now()); entry !== undefined; entry = deadlines.due(now())) entry.run()
      }),
      (cause) => Effect.logError("A deadline died", cause)
    )

    const arm = () => {
      armedFor = deadlines.next()
      if (sleeper !== undefined) interruptNow(sleeper)
      sleeper = armedFor === Infinity ? undefined : fork(sleepFrom(++generation))
    }

    return {
      now,
      // eslint-disable-next-line no-restricted-syntax -- what people read is wall time; deadlines are monotonic
      wallNow: () => clock.unsafeCurrentTimeMillis(),
      add(at, run) {
        if (at === Infinity) return undefined
        const entry = deadlines.add(at, run)
        if (at < armedFor) arm()
        return entry
      },
      cancel(deadline) {
        if (deadline !== undefined) deadlines.cancel(deadline)
      },
      size: () => deadlines.size,
      trim() {
        if (deadlines.next() > armedFor) arm()
      }
    }
  })
