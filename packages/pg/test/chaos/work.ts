/**
 * One process of a chaos run, over any store: callers who take locks, believe in them and write under their fences, until
 * they are told to stop. What happens is written as it happens, so that a kill loses nothing.
 */
import * as History from "@effect-locking/testing/History"
import * as Worker from "@effect-locking/testing/Worker"
import {
  Cause,
  Context,
  Duration,
  Effect,
  Exit,
  Layer,
  Logger,
  Option,
  Predicate,
  Queue,
  Schedule,
  Scope
} from "effect"
import type * as Lease from "effect-locking/Lease"
import { Locking } from "effect-locking/Locking"
import * as net from "node:net"
import * as readline from "node:readline"
import { random } from "./random.js"

export interface Task<Options = unknown> {
  readonly name: string
  readonly seed: number
  /** Where the store is, through this process's own proxy. */
  readonly url: string
  /** The port of the register: nothing happens to that way. */
  readonly register: number
  readonly keys: number
  readonly callers: number
  /** How many sections are long, and in milliseconds how long at most. */
  readonly long: { readonly share: number; readonly longest: number }
  /** Whether the resource looks at the fences of this process. */
  readonly guarded: boolean
  readonly options: Options
}

/** Times in microseconds of the host's monotonic clock. `until`: how long the lease is believed in, as known at `at`. */
export type Told =
  | { readonly _tag: "ready" }
  | { readonly _tag: "unready"; readonly error: string }
  | {
    readonly _tag: "called"
    readonly id: string
    readonly at: number
    readonly key: string
    readonly mode: "exclusive" | "shared"
  }
  | {
    readonly _tag: "entered"
    readonly id: string
    readonly at: number
    readonly until: number
    readonly fence: string
  }
  | { readonly _tag: "believed"; readonly id: string; readonly at: number; readonly until: number }
  | { readonly _tag: "renewed"; readonly id: string; readonly from: number; readonly at: number }
  | { readonly _tag: "left"; readonly id: string; readonly at: number }
  | { readonly _tag: "returned"; readonly id: string; readonly at: number; readonly outcome: string }

/** To the register. */
export interface Request {
  readonly number: number
  readonly process: string
  readonly resource: string
  readonly fence: string
  readonly from: number
  readonly isGuarded: boolean
}

const tell = (told: Told): void => Worker.emit(told)

const outcomeOf = (exit: Exit.Exit<unknown, unknown>): string => {
  if (Exit.isSuccess(exit)) return "ok"
  const error = Cause.failureOption(exit.cause)
  if (Option.isNone(error)) return `defect: ${Cause.pretty(exit.cause)}`
  return Predicate.hasProperty(error.value, "_tag") ? String(error.value._tag) : String(error.value)
}

/** The way to the register: ends when it has answered. */
const writer = (port: number) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => net.connect(port, "127.0.0.1")),
      (socket) => Effect.sync(() => socket.destroy())
    ),
    (socket) => {
      const waiting = new Map<number, () => void>()
      let last = 0
      readline.createInterface({ input: socket }).on("line", (line) => {
        const number = Number(line)
        waiting.get(number)?.()
        waiting.delete(number)
      })
      return (request: Omit<Request, "number">) =>
        Effect.async<void>((resume) => {
          const number = ++last
          waiting.set(number, () => resume(Effect.void))
          socket.write(`${JSON.stringify({ ...request, number } satisfies Request)}\n`)
        })
    }
  )

export const work = <Options, E>(
  task: Task<Options>,
  layer: Layer.Layer<Locking, E>
): void => {
  const program = Effect.gen(function*() {
    const inbox = yield* Worker.inbox
    const write = yield* writer(task.register)
    const numbers = random(task.seed)
    let isOver = false
    let calls = 0
    yield* Effect.forkScoped(Effect.zipRight(Queue.take(inbox), Effect.sync(() => isOver = true)))

    /** The store may be away when it starts. */
    const open = Effect.gen(function*() {
      const scope = yield* Scope.make()
      const context = yield* Effect.onError(Layer.buildWithScope(layer, scope), (cause) =>
        Effect.zipRight(
          Effect.sync(() => tell({ _tag: "unready", error: outcomeOf(Exit.failCause(cause)) })),
          Scope.close(scope, Exit.void)
        ))
      return { locking: Context.get(context, Locking), close: Scope.close(scope, Exit.void) }
    }).pipe(
      Effect.retry({ schedule: Schedule.spaced(100), while: () => !isOver }),
      Effect.option
    )

    const section = (id: string, key: string, lease: Lease.Lease) =>
      Effect.suspend(() => {
        const ofBelief = Effect.suspend(() => {
          // before the question: a freeze between the two must not make the answer longer
          const at = History.now()
          return Effect.map(lease.remaining, (remaining) => {
            const left = Math.floor(Duration.toMillis(remaining) * 1000)
            return { at, until: at + left, isSome: left > 0 }
          })
        })
        const believe = Effect.map(
          ofBelief,
          ({ at, isSome, until }) => isSome && tell({ _tag: "believed", id, at, until })
        )
        const put = Effect.suspend(() =>
          lease.mode === "shared" ? Effect.void : write({
            process: task.name,
            resource: key,
            fence: String(lease.fence),
            from: History.now(),
            isGuarded: task.guarded
          })
        )
        const renew = Effect.suspend(() => {
          const from = History.now()
          return Effect.map(lease.renew, () => tell({ _tag: "renewed", id, from, at: History.now() }))
        })
        const length = numbers.chance(task.long.share)
          ? numbers.between(200, task.long.longest)
          : numbers.between(0, 40)
        const half = Effect.sleep(length / 2)
        const middle = numbers.chance(0.2) ? renew : Effect.void
        const body = Effect.scoped(Effect.gen(function*() {
          // a fiber inherits that nothing stops it
          yield* Effect.forkScoped(Effect.interruptible(Effect.repeat(believe, Schedule.spaced(15))))
          yield* numbers.chance(0.5) ? put : Effect.void
          yield* half
          yield* middle
          yield* half
          yield* put
        }))
        // work that nothing stops once it is under way: its last write may come late
        const isStubborn = numbers.chance(0.3)
        return Effect.map(
          ofBelief,
          ({ at, until }) => tell({ _tag: "entered", id, at, until, fence: String(lease.fence) })
        ).pipe(
          Effect.zipRight(isStubborn ? Effect.uninterruptible(body) : body),
          Effect.ensuring(Effect.sync(() => tell({ _tag: "left", id, at: History.now() })))
        )
      })

    const turn = (locking: Locking) =>
      Effect.gen(function*() {
        const id = `${task.name}/${calls++}`
        const key = `k${Math.floor(numbers.between(0, task.keys))}`
        const mode = numbers.chance(0.3) ? "shared" : "exclusive"
        const waitTimeout = numbers.chance(0.75) ? 3000 : 0
        tell({ _tag: "called", id, at: History.now(), key, mode })
        const exit = yield* Effect.exit(
          locking.useLock(key, { mode, waitTimeout }, (lease) => section(id, key, lease))
        )
        tell({ _tag: "returned", id, at: History.now(), outcome: outcomeOf(exit) })
        yield* Effect.sleep(numbers.between(5, 60))
      })

    const opened = yield* open
    if (Option.isNone(opened)) return
    const { close, locking } = opened.value
    tell({ _tag: "ready" })
    const caller = Effect.repeat(turn(locking), { while: () => !isOver })
    yield* Effect.all(Array.from({ length: task.callers }, () => caller), { concurrency: "unbounded", discard: true })
    yield* close
  })

  Effect.runPromise(
    Effect.scoped(program).pipe(
      // the output is for the test
      Effect.provide(Logger.remove(Logger.defaultLogger))
    )
  ).catch((error) => {
    process.stderr.write(`${error}\n`)
    process.exitCode = 1
  })
}
