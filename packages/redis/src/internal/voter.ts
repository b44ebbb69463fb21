/**
 * One of the servers of a quorum: when it may vote, and what it still has to give back.
 */
import { DriverError } from "effect-locking/LockDriver"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { type Ask, isFailure, map } from "./ask.js"
import * as channels from "./channels.js"
import type { Client } from "./client.js"
import * as connection from "./connection.js"
import { infoOf, parseInfo } from "./deployment.js"
import { unintelligible } from "./errors.js"
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
}

export interface Settings extends server.Settings {
  readonly longestTtl: number
}

interface Debt {
  readonly request: Request
  readonly token: string
  readonly until: number
}

export const make = (client: Client, settings: Settings): Effect.Effect<Voter, never, Scope.Scope> =>
  Effect.gen(function*() {
    const link = yield* connection.make(client, "effect-locking-scripts")
    const store = server.make(link, settings)
    /** Since when it remembers, by our monotonic clock; `undefined` until it has told on this connection. */
    let born: number | undefined = undefined
    let debts: ReadonlyArray<Debt> = []

    const learnAge: Ask<true> = map(infoOf(link.own), (text) => {
      const uptime = Number(parseInfo(text).get("uptime_in_seconds") ?? NaN)
      if (!(uptime >= 0)) return unintelligible("info")
      born = link.now() - uptime * 1_000
      return true
    })

    const acquire: Voter["acquire"] = (request, attempt, proposal) => (done) => {
      if (born === undefined) {
        return learnAge((answer) => isFailure(answer) ? done(answer) : acquire(request, attempt, proposal)(done))
      }
      const missing = born + settings.longestTtl - link.now()
      if (missing <= 0) return store.acquireAs(request, attempt, proposal)(done)
      done(
        new DriverError({
          executed: "no",
          message: "the server was started more recently than the longest ttl, and may have forgotten a lease",
          retryAfter: Duration.millis(Math.min(missing, 1_000))
        })
      )
    }

    const pay = (debt: Debt): void =>
      store.takeBack(debt.request.records, debt.token)((answer) => {
        if (isFailure(answer)) debts = [...debts, debt]
      })

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
      takeBack: (request, token) => pay({ request, token, until: link.now() + request.ttl })
    }
  })
