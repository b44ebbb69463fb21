/** Where the demo's locks are kept, and what plays the processes that ask for them. */
import { type Duration, Effect, Layer, type Scope } from "effect"
import { type Locking, type LockOptions, TestLocking } from "effect-locking"

/** One process. */
export interface Node {
  readonly name: string
  readonly locking: Locking.Locking
  /**
   * Ends after this time, in which the process does nothing and hears nothing, not even that it is interrupted: a long
   * garbage collection, a suspended machine.
   */
  readonly freeze: (duration: Duration.DurationInput) => Effect.Effect<void>
}

export interface Driver {
  readonly name: string
  /** So many nodes at one store. They end with the scope. */
  readonly nodes: (
    count: number,
    options?: LockOptions.LockingOptions
  ) => Effect.Effect<ReadonlyArray<Node>, never, Scope.Scope>
}

/**
 * A store in memory with nodes that reach it over a network that can fail. They all live in this process, so a freeze
 * is played: the node is cut off from the store, and its code goes on sleeping when it is interrupted.
 */
const memory: Driver = {
  name: "memory",
  nodes: (count, options) =>
    Effect.gen(function*() {
      const store = yield* Layer.build(TestLocking.layerStore)
      const node = (name: string) =>
        Effect.map(TestLocking.node(name, { backend: "memory", ...options }), (locking): Node => ({
          name,
          locking,
          freeze: (duration) =>
            TestLocking.mute(duration, { node: name }).pipe(
              Effect.zipRight(Effect.uninterruptible(Effect.sleep(duration))),
              Effect.provide(store)
            )
        }))
      const names = Array.from({ length: count }, (_, i) => String.fromCharCode(97 + i))
      return yield* Effect.orDie(Effect.provide(Effect.forEach(names, node), store))
    })
}

const all: ReadonlyArray<Driver> = [memory]

export const names: ReadonlyArray<string> = all.map((driver) => driver.name)

export const find = (name: string): Driver | undefined => all.find((driver) => driver.name === name)
