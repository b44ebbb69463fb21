/**
 * Wake-ups: one connection that listens, one channel per key, for as long as somebody here waits for it and a little
 * longer. A message can be lost with its connection, so whoever waits polls as well; what is made sure here is that
 * nobody relies on a subscription that is not in force.
 */
import * as Effect from "effect/Effect"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import type { Ask } from "./ask.js"
import { type Client, duplicate, isCluster, type Own } from "./client.js"
import { driverError, notConnected } from "./errors.js"
import * as gates from "./gate.js"

export type Listener = (message: string) => void

export interface Channels {
  /** From now on the listener hears; once answered, the server is known to have been told. */
  readonly listen: (channels: ReadonlyArray<string>, listener: Listener) => Ask<true>
  readonly leave: (channels: ReadonlyArray<string>, listener: Listener) => void
}

/** How often unused channels are given up and the link is tried. */
const rounds = 2_000

/** Names in one command. */
const chunk = 500

class Channel {
  readonly listeners = new Set<Listener>()
  /** The server has confirmed it on this connection. */
  inForce = false
  /** Nobody has listened for a whole round. */
  isIdle = false
}

export const make = (client: Client, name: string): Effect.Effect<Channels, never, Scope.Scope> =>
  Effect.gen(function*() {
    const log = yield* logger
    let isClosing = false
    const own: Own = yield* Effect.acquireRelease(
      duplicate(client, name),
      (own) =>
        Effect.sync(() => {
          isClosing = true
          own.disconnect()
        })
    )
    const channels = new Map<string, Channel>()
    let isDown = false

    const wakeAll = () => {
      // waking may come back with a call at once
      for (const channel of [...channels.values()]) for (const listener of [...channel.listeners]) listener("")
    }

    const subscribe = (names: ReadonlyArray<string>): Ask<true> => (done) =>
      own.subscribe(...names).then(
        () => {
          for (const name of names) {
            const channel = channels.get(name)
            if (channel !== undefined) channel.inForce = true
          }
          done(true)
        },
        (error) => done(driverError(error))
      )

    const subscribeAll = () => {
      const names = [...channels.keys()]
      const next = (from: number): void => {
        if (from >= names.length) {
          // what was published meanwhile was missed
          if (names.length > 0) wakeAll()
          if (isDown) {
            isDown = false
            log.restored()
          }
          return
        }
        // a failure is that of the connection, which will be ready again
        subscribe(names.slice(from, from + chunk))((answer) => answer === true && next(from + chunk))
      }
      next(0)
    }

    const gate = gates.make(own)
    own.on("ready", subscribeAll)
    own.on("close", () => {
      for (const channel of channels.values()) channel.inForce = false
      if (isDown || isClosing || channels.size === 0) return
      isDown = true
      log.lost()
    })
    own.on("message", (name: string, message: string) => {
      for (const listener of [...channels.get(name)?.listeners ?? []]) listener(message)
    })

    /** Into a link that is dead without saying so, a question makes the client close it. */
    const tend = Effect.sync(() => {
      const idle: Array<string> = []
      for (const [name, channel] of channels) {
        if (channel.listeners.size > 0) continue
        if (channel.isIdle) idle.push(name)
        channel.isIdle = true
      }
      for (const name of idle) channels.delete(name)
      if (own.status !== "ready") return
      if (idle.length > 0) own.unsubscribe(...idle).then(ignore, ignore)
      if (channels.size > 0 && !isCluster(client)) own.ping().then(ignore, ignore)
    })
    yield* Effect.forkScoped(Effect.forever(Effect.delay(tend, rounds)))

    return {
      listen: (all, listener) => (done) => {
        let missing: Array<string> | undefined
        for (const name of all) {
          let channel = channels.get(name)
          if (channel === undefined) channels.set(name, channel = new Channel())
          channel.listeners.add(listener)
          channel.isIdle = false
          if (!channel.inForce) (missing ??= []).push(name)
        }
        if (missing === undefined) return done(true)
        const names = missing
        gate.pass((isOpen) => isOpen ? subscribe(names)(done) : done(notConnected(gate.lastError())))
      },
      leave: (names, listener) => {
        for (const name of names) channels.get(name)?.listeners.delete(listener)
      }
    }
  })

const ignore = () => {}

const logger = Effect.map(Effect.runtime<never>(), (runtime) => {
  const run = Runtime.runFork(runtime)
  return {
    lost: () =>
      void run(Effect.annotateLogs(
        Effect.logWarning("The connection for wake-ups was lost; waiters poll until it is back"),
        "code",
        "REDIS_CHANNEL_LOST"
      )),
    restored: () =>
      void run(Effect.annotateLogs(
        Effect.logInfo("The connection for wake-ups is back"),
        "code",
        "REDIS_CHANNEL_RESTORED"
      ))
  }
})
