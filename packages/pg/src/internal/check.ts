/**
 * What an operator should know of the server.
 */
import type { DriverError, Finding } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import type { Settings } from "./driver.js"
import { alwaysYes, unlessUseless } from "./probe.js"
import type { Session } from "./session.js"
import * as sql from "./sql.js"

export const check = (session: Session, settings: Settings): Effect.Effect<ReadonlyArray<Finding>, DriverError> =>
  Effect.gen(function*() {
    const { limit, serverVersion } = yield* session.opened
    const [row] = yield* session.run({ text: sql.checks })
    // a start that had no second connection could not ask
    const isUseless = yield* Effect.isFailure(unlessUseless(session.run, settings.client))
    const [version, standbys, asynchronous, locks, slots] = row!
    return [
      {
        severity: "info",
        code: "SERVER_VERSION",
        message: `PostgreSQL ${version}`,
        fix: serverVersion >= 170_000
          ? "Nothing to do."
          : "From 17 on the server also ends a session of which a request got lost half way."
      },
      ...(isUseless
        ? [{ severity: "error", code: "ALWAYS_YES", message: alwaysYes.message, fix: alwaysYes.fix! } as const]
        : []),
      ...(standbys > 0 && asynchronous > 0
        ? [
          {
            severity: "warning",
            code: "FAIL_OVER",
            message:
              "a fail-over to an asynchronous standby forgets who holds what, and two holders may overlap until the first one's lease is over",
            fix: "Guard what must not be written twice by `PgFence.guard`: fences rise over a fail-over."
          } as const
        ]
        : []),
      ...(settings.fence === "clock"
        ? [
          {
            severity: "warning",
            code: "FENCE_CLOCK",
            message: "fences come from the server's clock, and go back when it is set back",
            fix: "Create the sequence and leave out `fence: \"clock\"`."
          } as const
        ]
        : []),
      ...(settings.restartQuarantine ? [] : [
        {
          severity: "warning",
          code: "NO_QUARANTINE",
          message: "after a restart of the server a holder that does not hear of it overlaps with the next one",
          fix: "Leave `restartQuarantine` on, or guard by fences."
        } as const
      ]),
      ...(locks > slots / 2
        ? [
          {
            severity: "warning",
            code: "LOCK_TABLE",
            message:
              `${locks} of about ${slots} locks of the server are advisory ones; when its table is full, nobody can log in`,
            fix: "Raise `max_locks_per_transaction`, or find who takes so many."
          } as const
        ]
        : []),
      {
        severity: "info",
        code: "KEY_LIMIT",
        message: `a process may hold or wait for ${limit} keys here, a tenth of the server's lock table`,
        fix: "Raise `max_locks_per_transaction` for more."
      }
    ]
  })
