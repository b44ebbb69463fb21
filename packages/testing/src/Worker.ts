/**
 * Processes that a test starts, freezes and kills: what a lock is for cannot be shown in one process. A worker writes
 * values, one JSON line each, at once and before it goes on, so that a kill loses none; the test reads them in order.
 *
 * @since 0.1.0
 */
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import * as childProcess from "node:child_process"
import * as fs from "node:fs"
import * as readline from "node:readline"
import { fileURLToPath } from "node:url"
import { signal as send } from "./internal/processes.js"
import { inRealTime } from "./internal/realTime.js"
import { reaper } from "./internal/reaper.js"
import { KitError } from "./KitError.js"

/**
 * How a process ended: by itself with a code, or by a signal.
 *
 * @since 0.1.0
 * @category models
 */
export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Worker {
  readonly pid: number
  /** The next value that it writes; fails, with what it wrote to its errors, when it ends before. */
  readonly take: Effect.Effect<unknown, KitError>
  /** Takes values until one fits, and answers that. */
  readonly takeUntil: <A>(fits: (value: unknown) => value is A) => Effect.Effect<A, KitError>
  /** All that it has written, also what was taken. */
  readonly written: Effect.Effect<ReadonlyArray<unknown>>
  /** A value for its `inbox`. */
  readonly send: (value: unknown) => Effect.Effect<void>
  readonly signal: (name: NodeJS.Signals) => Effect.Effect<void>
  /** SIGSTOP and SIGCONT: its timers are late and its sockets full when it goes on. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /** SIGKILL; ends when it is gone. */
  readonly kill: Effect.Effect<void>
  /** How it ended. Fails when it was the watchdog that ended it. */
  readonly ended: Effect.Effect<Ended, KitError>
  /** What it wrote to its errors. */
  readonly errors: Effect.Effect<string>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Arguments of the program, `process.argv.slice(2)` there. */
  readonly args?: ReadonlyArray<string> | undefined
  /** Added to the environment of the test. */
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Options of Node itself. Default: the loader of `tsx` where the program is TypeScript. */
  readonly nodeOptions?: ReadonlyArray<string> | undefined
  /** The worker is killed after it. Default 10 seconds; may be infinite. */
  readonly watchdog?: Duration.DurationInput | undefined
}

/**
 * Starts a program as a process of its own. It is killed when the scope closes, also when it is frozen, and a moment
 * after the process of the tests is gone.
 *
 * @example
 * ```ts
 * import { Worker } from "@effect-locking/testing"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const worker = yield* Worker.spawn(new URL("./worker.ts", import.meta.url), { args: ["key"] })
 *   const first = yield* worker.take
 *   yield* worker.freeze
 *   yield* Effect.sleep("2 seconds")
 *   yield* worker.thaw
 *   return [first, yield* worker.ended]
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const spawn = (file: URL | string, options: Options = {}): Effect.Effect<Worker, KitError, Scope.Scope> =>
  Effect.gen(function*() {
    const path = typeof file === "string" ? file : fileURLToPath(file)
    const loader = /\.[cm]?tsx?$/.test(path) ? ["--import", "tsx"] : []
    const messages = yield* Queue.unbounded<Exit.Exit<unknown, KitError>>()
    const ended = yield* Deferred.make<Ended, KitError>()
    const written: Array<unknown> = []
    let errors = ""
    let barked = false

    const child = yield* Effect.acquireRelease(
      Effect.async<childProcess.ChildProcessByStdio<any, any, any>, KitError>((resume) => {
        const child = childProcess.spawn(
          process.execPath,
          [...options.nodeOptions ?? loader, path, ...options.args ?? []],
          { env: { ...process.env, ...options.env }, stdio: ["pipe", "pipe", "pipe"] }
        )
        child.once("spawn", () => resume(Effect.succeed(child)))
        child.once("error", (cause) => resume(new KitError({ step: "start a worker", reason: cause.message, cause })))
      }),
      // also a frozen one
      (child) => Effect.zipRight(Effect.sync(() => child.kill("SIGKILL")), Effect.exit(Deferred.await(ended)))
    )
    const pid = child.pid!
    const failure = (reason: string) =>
      new KitError({
        step: `run the worker ${path}`,
        reason: `${reason}${errors === "" ? "" : `\n${errors.slice(-4_000)}`}`
      })

    child.stdin.on("error", () => {})
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => errors += chunk)
    readline.createInterface({ input: child.stdout }).on("line", (line) => {
      const message = decode(line)
      if (Option.isSome(message)) {
        written.push(message.value)
        Queue.unsafeOffer(messages, Exit.succeed(message.value))
      } else {
        Queue.unsafeOffer(messages, Exit.fail(failure(`wrote a line that is not JSON: ${line}`)))
      }
    })
    child.once("close", (code: number | null, signal: NodeJS.Signals | null) => {
      const exit = barked ? Exit.fail(failure("the watchdog ended it")) : Exit.succeed({ code, signal })
      Queue.unsafeOffer(messages, barked ? exit : Exit.fail(failure(`it has ended with ${code ?? signal}`)))
      Deferred.unsafeDone(ended, exit)
    })

    yield* reaper(`kill -KILL "$1"`, [String(pid)])
    const watchdog = Duration.decode(options.watchdog ?? "10 seconds")
    if (Duration.isFinite(watchdog)) {
      yield* Effect.forkScoped(Effect.interruptible(inRealTime(Effect.delay(
        Effect.sync(() => {
          barked = true
          child.kill("SIGKILL")
        }),
        watchdog
      ))))
    }

    const signal = (name: NodeJS.Signals) => Effect.sync(() => void send(pid, name))
    const take = Effect.flatMap(Queue.take(messages), (message) =>
      // whoever asks again hears of the end again
      Exit.isFailure(message) ? Effect.zipRight(Queue.offer(messages, message), message) : message)
    const takeUntil: Worker["takeUntil"] = (fits) =>
      Effect.flatMap(take, (value) => fits(value) ? Effect.succeed(value) : takeUntil(fits))
    return {
      pid,
      take,
      takeUntil,
      written: Effect.sync(() => [...written]),
      send: (value) => Effect.sync(() => void child.stdin.write(`${JSON.stringify(value)}\n`)),
      signal,
      freeze: signal("SIGSTOP"),
      thaw: signal("SIGCONT"),
      kill: Effect.zipRight(signal("SIGKILL"), Effect.ignore(Deferred.await(ended))),
      ended: Deferred.await(ended),
      errors: Effect.sync(() => errors)
    }
  })

const decode = (line: string): Option.Option<unknown> => Option.liftThrowable(JSON.parse)(line)

// ---------------------------------------------------------------------------------------------------------------------
// in the worker
// ---------------------------------------------------------------------------------------------------------------------

/**
 * In the worker: writes a value to the test, and has written it when it returns. `bigint`s become decimal strings.
 *
 * @since 0.1.0
 * @category worker
 */
export const emit = (value: unknown): void => {
  const line = Buffer.from(
    `${JSON.stringify(value, (_, part) => typeof part === "bigint" ? part.toString() : part)}\n`
  )
  let written = 0
  while (written < line.length) {
    try {
      written += fs.writeSync(1, line, written)
    } catch (error) {
      // the pipe is full: the test reads slowly
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error
      Atomics.wait(pausing, 0, 0, 1)
    }
  }
}

const pausing = new Int32Array(new SharedArrayBuffer(4))

/**
 * In the worker: blocks it for so many milliseconds, timers, sockets and all, as a long garbage collection does.
 *
 * @since 0.1.0
 * @category worker
 */
export const block = (millis: number): Effect.Effect<void> =>
  Effect.sync(() => void Atomics.wait(pausing, 0, 0, millis))

/**
 * In the worker: what the test sends to it, in order. Reading keeps the process alive until the scope closes or the
 * test is gone.
 *
 * @since 0.1.0
 * @category worker
 */
export const inbox: Effect.Effect<Queue.Dequeue<unknown>, never, Scope.Scope> = Effect.gen(function*() {
  const messages = yield* Queue.unbounded<unknown>()
  yield* Effect.acquireRelease(
    Effect.sync(() =>
      readline.createInterface({ input: process.stdin }).on("line", (line) => {
        Queue.unsafeOffer(messages, JSON.parse(line))
      })
    ),
    (lines) =>
      Effect.sync(() => {
        lines.close()
        process.stdin.unref()
      })
  )
  return messages
})
