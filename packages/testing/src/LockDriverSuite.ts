/**
 * What every driver has to do, as tests: one call in a test file of Vitest runs them over a driver, through the SPI and
 * through `Locking` over it. Names of tests begin with the ids of the promises that they show.
 *
 * @since 0.1.0
 */
import type { Capabilities, LockDriver } from "effect-locking/LockDriver"
import * as Cause from "effect/Cause"
import * as Console from "effect/Console"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import * as TestContext from "effect/TestContext"
import { afterAll, beforeAll, describe, it } from "vitest"
import { groups } from "./internal/suite/groups.js"
import { missing } from "./internal/suite/needs.js"
import { makeWorld } from "./internal/suite/world.js"

/**
 * What the store itself says, asked from beside all drivers. What is missing skips the tests that need it.
 *
 * @since 0.1.0
 * @category models
 */
export interface StoreView {
  /** How many grants there are at the store, of anybody: a key that two readers share counts twice. */
  readonly grants?: Effect.Effect<number, unknown> | undefined
  /** How many waiters the store knows of: interests, tickets, intents, subscriptions. */
  readonly interests?: Effect.Effect<number, unknown> | undefined
}

/**
 * Faults that the suite may cause. What is missing skips the tests that need it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Faults {
  /** Every connection of every driver is cut, once. */
  readonly dropConnections?: Effect.Effect<void, unknown> | undefined
  /** The next request of any driver is executed, and its reply is lost with the connection. */
  readonly loseNextReply?: Effect.Effect<void, unknown> | undefined
  /** The store is up and answers nothing until the scope closes. */
  readonly stall?: Effect.Effect<void, unknown, Scope.Scope> | undefined
  /** The store is stopped as by its operator, and started again; ends when it takes connections. */
  readonly restart?: Effect.Effect<void, unknown> | undefined
}

/**
 * A store and the driver for it.
 *
 * @since 0.1.0
 * @category models
 */
export interface DriverUnderTest {
  /** Each run is a process of its own at the same store, until its scope closes. */
  readonly open: Effect.Effect<LockDriver, unknown, Scope.Scope>
  readonly storeView?: StoreView | undefined
  readonly faults?: Faults | undefined
}

/**
 * Something that a driver may be able to tell: fields of a holder, `keys` of `list`, and `waiters`: that others wait, in
 * the answers of `release` and `renew`.
 *
 * @since 0.1.0
 * @category models
 */
export type Knowledge = "fence" | "token" | "since" | "until" | "session" | "metadata" | "keys" | "waiters"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** In the names of the tests. */
  readonly name: string
  /** The store and its driver, made for each test or for all of them (`each`). */
  readonly make: Effect.Effect<DriverUnderTest, unknown, Scope.Scope>
  /** Whose time ends a grant: that of Effect's `Clock`, which the tests then move, or that of the world. */
  readonly time: "virtual" | "real"
  /**
   * What the driver is expected to be capable of. The tests are chosen by what it says itself; this is compared with it,
   * so that nothing is skipped unnoticed.
   */
  readonly capabilities?: Partial<Capabilities> | undefined
  /** What it has to know. What it tells beyond that has to be right, too. */
  readonly knows?: ReadonlyArray<Knowledge> | undefined
  /** How often `make` runs. Default: `test` in virtual time, `suite` in real time. */
  readonly each?: "test" | "suite" | undefined
  /** A ttl that the tests wait for. At least 200 ms in real time. Default: 500 ms, in virtual time 1 s. */
  readonly ttl?: Duration.DurationInput | undefined
  /** Multiplies every upper bound of real time, for slow machines. Default 1. */
  readonly slack?: number | undefined
  /** Tests that a driver cannot pass, by their names or their beginnings, each with the reason. */
  readonly skip?: Readonly<Record<string, string>> | undefined
}

/**
 * The options with their defaults.
 *
 * @since 0.1.0
 * @category models
 */
export interface Settings extends Options {
  readonly each: "test" | "suite"
  /** Milliseconds. */
  readonly ttl: number
  readonly slack: number
  readonly knows: ReadonlyArray<Knowledge>
}

/**
 * @since 0.1.0
 * @category models
 */
export const settings = (options: Options): Settings => ({
  ...options,
  each: options.each ?? (options.time === "virtual" ? "test" : "suite"),
  ttl: Duration.toMillis(options.ttl ?? (options.time === "virtual" ? "1 second" : "500 millis")),
  slack: options.slack ?? 1,
  knows: options.knows ?? []
})

/**
 * Defines the tests of a driver. What a driver cannot do is skipped with the reason, and told again at the end.
 *
 * @example
 * ```ts
 * import type * as LockDriverSuite from "@effect-locking/testing/LockDriverSuite"
 * import { Effect } from "effect"
 * import { MemoryStore } from "effect-locking"
 *
 * // in test/conformance.test.ts: LockDriverSuite.lockDriverSuite(options)
 * const options: LockDriverSuite.Options = {
 *   name: "memory",
 *   time: "virtual",
 *   make: Effect.map(MemoryStore.make, (store) => ({ open: MemoryStore.driver(store) })),
 *   capabilities: { modes: ["exclusive", "shared"], push: true, expiry: "server" },
 *   knows: ["fence", "token", "since", "until", "session", "metadata", "keys", "waiters"]
 * }
 * ```
 *
 * @since 0.1.0
 * @category suite
 */
export const lockDriverSuite = (options: Options): void => {
  const resolved = settings(options)
  const run = <A>(effect: Effect.Effect<A, unknown>): Promise<A> =>
    Effect.runPromiseExit(resolved.time === "virtual" ? Effect.provide(effect, TestContext.TestContext) : effect).then(
      Exit.match({
        onSuccess: (value) => value,
        onFailure: (cause) => {
          throw Cause.squash(cause)
        }
      })
    )

  describe(`lock driver: ${options.name}`, () => {
    const skipped: Array<string> = []
    let ran = 0
    const whole = Effect.runSync(Scope.make())
    let shared: DriverUnderTest | undefined

    beforeAll(async () => {
      if (resolved.each === "suite") shared = await run(Scope.extend(options.make, whole))
    }, 120_000)

    afterAll(async () => {
      await run(Scope.close(whole, Exit.void))
      const lines = [`lock driver ${options.name}: ${ran} tests ran, ${skipped.length} were skipped`, ...skipped]
      await Effect.runPromise(Console.log(lines.join("\n  ")))
    }, 120_000)

    for (const group of groups) {
      describe(group.name, () => {
        for (const { name, needs, run: body } of group.cases) {
          it(name, async (context) => {
            const program = Effect.gen(function*() {
              const store = shared ?? (yield* options.make)
              const reason = (yield* Effect.scoped(Effect.map(store.open, (driver) =>
                missing(needs, store, driver)))) ??
                excused(resolved, name)
              if (reason === undefined) yield* body(makeWorld(resolved, store))
              return reason
            })
            const reason = await run(Effect.scoped(program))
            if (reason === undefined) {
              ran++
              return
            }
            skipped.push(`${name}: ${reason}`)
            context.skip(reason)
          }, (resolved.time === "virtual" ? 20_000 : 60_000) * resolved.slack)
        }
      })
    }
  })
}

const excused = ({ skip = {} }: Settings, name: string): string | undefined =>
  Object.entries(skip).find(([beginning]) => name.startsWith(beginning))?.[1]
