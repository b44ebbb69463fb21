/** How code that uses locks is tested: with a store that can fail, and a clock that nobody has to wait for. */
import { Console, Effect, Fiber, Layer, Logger, TestClock, TestContext } from "effect"
import { Locking, TestLocking } from "effect-locking"

/** The code under test. */
const importFeed = Effect.sleep("30 seconds").pipe(
  Effect.as("imported"),
  Locking.withLock("feed"),
  Effect.catchTags({
    LeaseLost: (error) => Effect.succeed(`stopped, ${error.reason}`),
    WaitTimeout: () => Effect.succeed("not now")
  })
)

/** In vitest: it.scoped("a name", () => Effect.gen(…).pipe(Effect.provide(TestLocking.layer))) */
const test = <A>(name: string, body: Effect.Effect<A, never, TestLocking.TestLocking>) =>
  Effect.gen(function*() {
    const running = yield* Effect.fork(importFeed)
    yield* TestClock.adjust("10 seconds")
    yield* body
    yield* TestClock.adjust("20 seconds")
    yield* Console.log(`${name}: ${yield* Fiber.join(running)}`)
  }).pipe(Effect.provide(TestLocking.layer))

const elsewhere = Effect.gen(function*() {
  const other = yield* TestLocking.node("other")
  yield* other.acquire("feed")
  const running = yield* Effect.fork(importFeed)
  yield* TestClock.adjust("5 seconds")
  yield* Console.log(`another node imports: ${yield* Fiber.join(running)}`)
}).pipe(Effect.scoped, Effect.provide(TestLocking.layer))

export const program = Effect.gen(function*() {
  yield* test("nothing happens", Effect.void)
  yield* test("somebody takes the lock away", TestLocking.loseLease("feed"))
  yield* test("the store is away for 5 seconds", TestLocking.mute("5 seconds"))
  yield* test("the store is away for 20 seconds", TestLocking.mute("20 seconds"))
  yield* elsewhere
  // what it.effect provides
}).pipe(Effect.provide(Layer.merge(TestContext.TestContext, Logger.remove(Logger.defaultLogger))))

if (process.argv[1] === import.meta.filename) Effect.runPromise(program)
