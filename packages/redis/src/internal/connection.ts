/**
 * The connection that scripts go by, and what time it is at its other end.
 */
import type { DriverError } from "effect-locking/LockDriver"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { type Answer, type Ask, isFailure } from "./ask.js"
import { type Client, duplicate, isCluster, type Own, type Stream } from "./client.js"
import { driverError, isUnknownScript, notConnected, unintelligible } from "./errors.js"
import * as gates from "./gate.js"
import { type Script, time } from "./scripts.js"
import { within } from "./within.js"

// eslint-disable-next-line no-restricted-globals -- no time passes; no fiber runs so late in a tick
const afterTick = setImmediate

/** So many commands are enough for the server to go on with, while we make the next. */
const mostJoined = 16

/** What is written until the end of this tick leaves in few pieces: each costs more than the command in it. */
const join = (streamOf: () => Stream | undefined) => {
  let open: Stream | undefined
  let count = 0
  const flush = () => {
    open?.uncork()
    open = undefined
  }
  return (): void => {
    if (open !== undefined) {
      if (++count < mostJoined) return
      flush()
    } else afterTick(flush)
    count = 1
    open = streamOf()
    open?.cork()
  }
}

/** How long a first connection may take, with several sentinels or nodes to ask. */
const patience = 5_000

/** Scripts answer lists of strings, or one. */
export type Reply = string | ReadonlyArray<string>

export interface Connection {
  readonly isCluster: boolean
  readonly own: Own
  /** Ends when the server can be asked. */
  readonly ready: Effect.Effect<void, DriverError>
  readonly run: (script: Script, keys: ReadonlyArray<string>, args: ReadonlyArray<string>) => Ask<Reply>
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Milliseconds of the server's clock, never ahead of it while it is not set; `undefined` before it has told. */
  readonly serverNow: () => number | undefined
  /** The server's clock was at `millis` when it answered. */
  readonly observe: (millis: number) => void
}

const isReply = (reply: unknown): reply is Reply =>
  typeof reply === "string" || (Array.isArray(reply) && reply.every((item) => typeof item === "string"))

export const make = (client: Client, name: string): Effect.Effect<Connection, never, Scope.Scope> =>
  Effect.gen(function*() {
    const clock = yield* Clock.clockWith(Effect.succeed)
    const own = yield* Effect.acquireRelease(
      duplicate(client, name),
      // answers nobody waits for settle by themselves, later
      (own) => Effect.sync(() => own.disconnect())
    )
    const now = () => Number(clock.unsafeCurrentTimeNanos()) / 1e6
    const gate = gates.make(own)
    let observed: { readonly millis: number; readonly at: number } | undefined = undefined
    // another server may be at the other end next time, with another clock
    own.on("close", () => observed = undefined)

    // each node of a cluster has a socket of its own
    const joined = join(() => isCluster(client) ? undefined : own.stream)
    let unanswered = 0

    const send = (script: Script, keys: ReadonlyArray<string>, args: ReadonlyArray<string>): Ask<Reply> => (told) => {
      if (unanswered > 0) joined()
      unanswered++
      const done = (answer: Answer<Reply>) => {
        unanswered--
        told(answer)
      }
      const answered = (reply: unknown) => done(isReply(reply) ? reply : unintelligible(script.name))
      const failed = (error: unknown) => done(driverError(error))
      own.evalsha(script.sha, keys.length, ...keys, ...args).then(answered, (error) => {
        if (!isUnknownScript(error)) return failed(error)
        own.eval(script.source, keys.length, ...keys, ...args).then(answered, failed)
      })
    }

    const run: Connection["run"] = (script, keys, args) => (done) =>
      gate.pass((isOpen) => isOpen ? send(script, keys, args)(done) : done(notConnected(gate.lastError())))

    const connected = Effect.async<void, DriverError>((resume) => {
      if (own.status === "ready") return resume(Effect.void)
      const onReady = () => {
        stop()
        resume(Effect.void)
      }
      // the first failure is told: whoever wants to wait for a store starts lazily; a cluster asks one node after the other
      const onClose = () => {
        if (isCluster(client)) return
        stop()
        resume(Effect.suspend(() => Effect.fail(notConnected(gate.lastError()))))
      }
      const stop = () => {
        own.off("ready", onReady)
        own.off("close", onClose)
      }
      own.on("ready", onReady)
      own.on("close", onClose)
      return Effect.sync(stop)
    })

    return {
      isCluster: isCluster(client),
      own,
      ready: within(connected, patience, () => notConnected(gate.lastError())),
      run,
      now,
      serverNow: () => observed === undefined ? undefined : observed.millis + (now() - observed.at),
      observe: (millis) => observed = { millis, at: now() }
    }
  })

/** Asks for the server's time; refuses a server that does not tell it to scripts, as leases there would never end. */
export const synchronise = (connection: Connection, key: string): Ask<true> => (done) =>
  connection.run(time, [key], [])((reply) => {
    if (isFailure(reply)) return done(reply)
    const millis = Number(reply)
    if (!(millis > 0)) return done(unintelligible(time.name))
    connection.observe(millis)
    done(true)
  })
