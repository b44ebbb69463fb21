/**
 * One of the servers of a quorum: when it may vote, and what it still has to give back. An attempt that it has not
 * answered may act until its time is over, even after the release: a mute server reads its connections in any order. So
 * what is not held then is taken back once more.
 *
 * The rounds of a vote, and the attempts of a wait, have one token. What is taken back of a round that was lost is known to
 * the server by the number of that round, so that it cannot be what a later one was granted, however late it is read.
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
  readonly takeBack: (request: Request, attempt: Attempt) => void
  /** It has not granted this time, but may have before. */
  readonly giveUp: (token: string) => void
  readonly release: (records: ReadonlyArray<string>, token: string) => Ask<Released>
}

export interface Settings extends server.Settings {
  readonly longestTtl: number
}

interface Debt {
  readonly request: Request
  readonly attempt: Attempt
  /** When it has lapsed anyway. */
  readonly until: number
}

/** What is meant with a token now. */
interface Intent {
  isWanted: boolean
  /** How many questions and doubts depend on it. */
  open: number
}

export const make = (client: Client, settings: Settings): Effect.Effect<Voter, never, Scope.Scope> =>
  Effect.gen(function*() {
    const link = yield* connection.make(client, "effect-locking-scripts")
    const store = server.make(link, settings)
    /** Since when it remembers, by our monotonic clock; `undefined` until it has told on this connection. */
    let born: number | undefined = undefined
    const debts = new Set<Debt>()
    const scope = yield* Effect.scope
    const run = Runtime.runFork(yield* Effect.runtime<never>())
    const intents = new Map<string, Intent>()

    const open = (token: string): Intent => {
      const intent = intents.get(token) ?? { isWanted: false, open: 0 }
      intent.open++
      intents.set(token, intent)
      return intent
    }

    const close = (token: string, intent: Intent): void => {
      if (--intent.open === 0) intents.delete(token)
    }

    /** An attempt may still act until then. */
    const doubt = (request: Request, attempt: Attempt, until: number): Effect.Effect<void> => {
      const intent = open(attempt.token)
      return Effect.delay(
        Effect.sync(() => {
          if (!intent.isWanted) takeBack(request, attempt)
          close(attempt.token, intent)
        }),
        Math.max(0, Math.ceil(until - link.now()))
      )
    }

    const learnAge: Ask<true> = map(infoOf(link.own), (text) => {
      const uptime = Number(parseInfo(text).get("uptime_in_seconds") ?? NaN)
      if (!(uptime >= 0)) return unintelligible("info")
      // it counts the seconds that have begun, so it may be younger by one
      born = link.now() - Math.max(0, uptime - 1) * 1_000
      return true
    })

    const acquire: Voter["acquire"] = (request, attempt, proposal) => (done) => {
      const { token } = attempt
      const until = link.now() + attempt.left
      const intent = open(token)
      intent.isWanted = true
      const answered = (answer: Answer<Acquired>): void => {
        // what was given up meanwhile must not stay granted
        if (!isFailure(answer)) {
          if (!intent.isWanted && answer._tag === "Granted") takeBack(request, attempt)
        } else if (answer.executed === "unknown") run(Effect.forkIn(doubt(request, attempt, until), scope))
        close(token, intent)
        done(answer)
      }
      const vote = (): void => {
        const missing = born! + settings.longestTtl - link.now()
        if (missing > 0) return answered(tooYoung(missing))
        if (!intent.isWanted) return answered(late)
        store.acquireAs(request, { ...attempt, left: until - link.now() }, proposal)(answered)
      }
      if (born !== undefined) return vote()
      learnAge((answer) => isFailure(answer) ? answered(nothingDone(answer)) : vote())
    }

    const giveUp: Voter["giveUp"] = (token) => {
      const intent = intents.get(token)
      if (intent !== undefined) intent.isWanted = false
    }

    const pay = (debt: Debt): void =>
      store.takeBack(debt.request.records, debt.attempt.token, debt.attempt.round!)((answer) => {
        if (isFailure(answer)) debts.add(debt)
      })

    const payDebts = (): void => {
      for (const debt of debts) {
        debts.delete(debt)
        if (debt.until > link.now()) pay(debt)
      }
    }

    const takeBack: Voter["takeBack"] = (request, attempt) => {
      giveUp(attempt.token)
      pay({ request, attempt, until: link.now() + request.ttl })
    }

    link.own.on("close", () => born = undefined)
    link.own.on("ready", payDebts)

    return {
      connection: link,
      server: store,
      channels: yield* channels.make(client, "effect-locking-wakeups"),
      acquire,
      takeBack,
      giveUp,
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
