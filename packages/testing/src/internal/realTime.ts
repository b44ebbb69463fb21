/**
 * The kit waits for processes and sockets, so it lives in real time, whatever clock the test has.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { KitError } from "../KitError.js"

const clock = Clock.make()

export const inRealTime: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R> = Effect.withClock(clock)

/** Real milliseconds that no setting of the machine's clock moves. */
export const monotonicMillis = (): number => Number(process.hrtime.bigint()) / 1e6

/** Looks until it sees what it looks for: for what the outside world announces in no other way. */
export const until = <E, R>(options: {
  readonly step: string
  readonly see: Effect.Effect<boolean, E, R>
  /** Milliseconds. */
  readonly within: number
  /** Milliseconds between two looks; 10 unless told. */
  readonly every?: number
  /** What to say when it was not seen. */
  readonly otherwise?: Effect.Effect<string>
}): Effect.Effect<void, E | KitError, R> =>
  inRealTime(Effect.gen(function*() {
    const deadline = monotonicMillis() + options.within
    while (!(yield* options.see)) {
      if (monotonicMillis() > deadline) {
        const reason = yield* options.otherwise ?? Effect.succeed("did not happen")
        return yield* new KitError({ step: options.step, reason: `not within ${options.within} ms: ${reason}` })
      }
      yield* Effect.sleep(options.every ?? 10)
    }
  }))
