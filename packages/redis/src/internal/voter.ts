/**
 * One of the servers of a quorum: when it may vote, and what it still has to give back. An attempt that it has not
 * answered may act until its time is over, even after the release: a mute server reads its connections in any order. So
 * what is not held then is taken back once more.
 */
import { DriverError, type Released } from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import { type Answer, type Ask, isFailure, map } from "./ask.js"
import * as channels from "./channels.js"
import type { Client } from "./client.js"
import * as connection from "./connection.js"
import { infoOf, parseInfo } from "./deployment.js"
import { late, unintelligible } from "./errors.js"
import * as server from "./server.js"
import type { Acquired, Attempt, Request } from "./store.js"

export interface Voter {
  readonly connection: connection.Connection
  readonly server: server.Server
  readonly channels: channels.Channels
  /** As the server's, but for a server that is too young. */
  readonly acquire: (request: Request, attempt: Attempt, proposal: number) => Ask<Acquired>
  /** Now, or as soon as it is there again while the grant could still be there. */
  readonly takeBack: (request: Request, token: string) => void
  readonly release: (records: ReadonlyArray<string>, token: string) => Ask<Released>
}

export interface Settings extends server.Settings {
  readonly longestTtl: number
}

interface Debt {
  readonly request: Request
  readonly token: string
  /** When it has lapsed anyway. */
  readonly until: number
}

export const make = (client: Client, settings: Settings): Effect.Effect<Voter, never, Scope.Scope> =>
  Effect.gen(function*() {
    const link = yield* connection.make(client, "effect-locking-scripts")
    const store = server.make(link, settings)
    /** Since when it remembers, by our monotonic clock; `undefined` until it has told on this connection. */
    let born: number | undefined = undefined
    let debts: ReadonlyArray<Debt> = []
    const scope = yield* Effect.scope
    const run = Runtime.runFork(yield* Effect.runtime<never>())
    /** Tokens with an attempt that may still act, and whether they are held here for all we know. */
    const doubtful = new Map<string, { isHeld: boolean; until: number }>()

    const doubt = (request: Request, { token }: Attempt, until: number): void => {
      const isNew = !doubtful.has(token)
      doubtful.set(token, { isHeld: false, until })
      if (isNew) run(Effect.forkIn(settle(request, token), scope))
    }

    const settle = (request: Request, token: string): Effect.Effect<void> =>
      Effect.suspend(() => {
        const { isHeld, until } = doubtful.get(token)!
        if (until > link.now()) return Effect.delay(settle(request, token), Math.ceil(until - link.now()))
        doubtful.delete(token)
        if (!isHeld) takeBack(request, token)
        return Effect.void
      })

    const know = (token: string, isHeld: boolean): void => {
      const found = doubtful.get(token)
      if (found !== undefined) found.isHeld = isHeld
    }

    const learnAge: Ask<true> = map(infoOf(link.own), (text) => {
      const uptime = Number(parseInfo(text).get("uptime_in_seconds") ?? NaN)
      if (!(uptime >= 0)) return unintelligible("info")
      // it counts the seconds that have begun, so it may be younger by one
      born = link.now() - Math.max(0, uptime - 1) * 1_000
      return true
    })

    /** On their way to the server, or not even that. What was given up meanwhile must not stay granted. */
    const underWay = new Set<{ readonly token: string; isOver: boolean }>()

    const acquire: Voter["acquire"] = (request, attempt, proposal) => (done) => {
      const until = link.now() + attempt.left
      const call = { token: attempt.token, isOver: false }
      underWay.add(call)
      const answered = (answer: Answer<Acquired>): void => {
        underWay.delete(call)
        if (!isFailure(answer)) {
          know(call.token, answer._tag === "Granted")
          if (call.isOver && answer._tag === "Granted") takeBack(request, call.token)
        } else if (answer.executed === "unknown") doubt(request, attempt, until)
        done(answer)
      }
      const vote = (): void => {
        const missing = born! + settings.longestTtl - link.now()
        if (missing > 0) return answered(tooYoung(missing))
        if (call.isOver) return answered(late)
        store.acquireAs(request, { ...attempt, left: until - link.now() }, proposal)(answered)
      }
      if (born !== undefined) return vote()
      learnAge((answer) => isFailure(answer) ? answered(nothingDone(answer)) : vote())
    }

    const giveUp = (token: string): void => {
      know(token, false)
      for (const call of underWay) if (call.token === token) call.isOver = true
    }

    const pay = (debt: Debt): void =>
      store.takeBack(debt.request.records, debt.token)((answer) => {
        if (isFailure(answer)) debts = [...debts, debt]
      })

    const takeBack: Voter["takeBack"] = (request, token) => {
      giveUp(token)
      pay({ request, token, until: link.now() + request.ttl })
    }

    link.own.on("close", () => born = undefined)
    link.own.on("ready", () => {
      const due = debts.filter(({ until }) => until > link.now())
      debts = []
      for (const debt of due) pay(debt)
    })

    return {
      connection: link,
      server: store,
      channels: yield* channels.make(client, "effect-locking-wakeups"),
      acquire,
      takeBack,
      release: (records, token) => {
        giveUp(token)
        return store.release(records, token)
      }
    }
  })

/** The question that failed was about something else. */
const nothingDone = ({ cause, message }: DriverError): DriverError =>
  new DriverError({ executed: "no", message, cause })

const tooYoung = (missing: number): DriverError =>
  new DriverError({
    executed: "no",
    message: "the server was started more recently than the longest ttl, and may have forgotten a lease",
    retryAfter: Duration.millis(Math.min(missing, 1_000))
  })
