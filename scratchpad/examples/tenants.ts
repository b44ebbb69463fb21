/** Keys belong to the tenant in context: customers do not wait for each other, unless the key says so. */
import { Console, Effect } from "effect"
import { Locking, LockKey } from "effect-locking"

/** How many of two tenants are in a section at once. */
const crowd = (key: LockKey.Input) =>
  Effect.gen(function*() {
    let inside = 0
    let most = 0
    const section = Effect.gen(function*() {
      most = Math.max(most, ++inside)
      yield* Effect.sleep("20 millis")
      inside--
    }).pipe(Locking.withLock(key))
    yield* Effect.all([LockKey.withTenant(section, "acme"), LockKey.withTenant(section, "globex")], {
      concurrency: "unbounded"
    })
    return most
  })

export const program = Effect.gen(function*() {
  yield* Console.log(`"invoices": ${yield* crowd("invoices")} tenants at once`)
  yield* Console.log(`platform "nightly": ${yield* crowd(LockKey.platform("nightly"))} tenant at once`)
  // a program for many tenants refuses to lock for none of them
  yield* Effect.void.pipe(
    Locking.withLock("invoices"),
    Effect.provide(Locking.layerMemoryWith({ tenancy: "required" })),
    Effect.catchTag("InvalidKey", (error) => Console.log(error.message))
  )
}).pipe(Effect.provide(Locking.layerMemory))

if (process.argv[1] === import.meta.filename) Effect.runPromise(program)
