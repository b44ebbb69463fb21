/**
 * The driver over a majority of independent servers. Every question goes to all of them at once, and is answered as soon
 * as a majority has said yes or cannot any more: a server that is mute delays nobody.
 *
 * Fences rise because every majority shares a server with every majority before it, where the last fence was stored
 * while its token still held. As servers number for themselves, the highest of their numbers is stored by a majority
 * before a grant is given out. All are proposed one number to begin with, which usually makes that needless.
 */
import type { DriverError, Finding, HeldKey, Holder, LockDriver, Released } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Random from "effect/Random"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"
import { type Answer, type Ask, isFailure, map, toEffect } from "./ask.js"
import type { Channels } from "./channels.js"
import { type Client, prefixOf } from "./client.js"
import { synchronise } from "./connection.js"
import * as deployment from "./deployment.js"
import * as driver from "./driver.js"
import { late } from "./errors.js"
import { list } from "./list.js"
import { type Answers, enough, groupBy, poll, unheard, values } from "./majority.js"
import { probe } from "./single.js"
import type { Acquired, Attempt, Granted, Refused, Renewed, Request, Store } from "./store.js"
import * as voter from "./voter.js"

/** How far proposed fences are ahead of the servers' clocks, in microseconds: further than those usually differ. */
const lead = 5_000

/** How often a vote that nobody has won is repeated within one attempt. */
const rounds = 16

export const make = (
  clients: ReadonlyArray<Client>,
  settings: voter.Settings
): Effect.Effect<LockDriver, never, Scope.Scope> =>
  Effect.gen(function*() {
    const voters = yield* Effect.forEach(clients, (client) => voter.make(client, settings))
    const run = Runtime.runFork(yield* Effect.runtime<never>())
    const prefix = prefixOf(clients[0]!)
    const majority = Math.floor(voters.length / 2) + 1
    const minority = voters.length - majority
    const now = voters[0]!.connection.now

    /** Contenders that came at the same time must not come at the same time again. */
    const soon = (f: () => void) =>
      run(Effect.flatMap(Random.nextIntBetween(2, 15), (millis) => Effect.delay(Effect.sync(f), millis)))

    let votes = 0

    const acquire: Store["acquire"] = (request, attempt) => (done) => {
      const deadline = now() + attempt.left
      const round = (count: number): void =>
        vote(request, { ...attempt, left: deadline - now(), round: ++votes })((answer) => {
          if (answer !== "split") return done(answer)
          if (count < rounds && deadline - now() > 20) soon(() => round(count + 1))
          else done({ _tag: "Refused", holder: undefined, endsIn: undefined, missing: [] })
        })
      round(1)
    }

    /** `split`: some servers granted to one contender and some to another, and nobody has won. */
    const vote = (request: Request, attempt: Attempt): Ask<Acquired | "split"> => {
      const clocks = voters.map(({ connection }) => connection.serverNow() ?? 0)
      const proposal = Math.floor(Math.max(...clocks) * 1_000) + lead
      const takeBack = (answers: Answers<Acquired>) =>
        // whoever has not answered may have granted, or may still
        voters.forEach((one, i) => {
          const answer = answers[i]
          const isClear = isFailure(answer) ? answer.executed === "no" : answer?._tag === "Refused"
          if (isClear) one.giveUp(attempt.token)
          else one.takeBack(request, attempt)
        })
      let isLost = false
      const count: Ask<Answers<Acquired> | Refused | "split"> = poll(
        // those before it may have answered at once, and have decided it
        voters.map((one): Ask<Acquired> => (done) =>
          isLost ? done(late) : one.acquire(request, attempt, proposal)(done)
        ),
        (answers, open) => {
          const granted = values(answers).filter(isGranted)
          if (granted.length >= majority) return answers.slice()
          if (granted.length + open >= majority) return undefined
          isLost = true
          takeBack(answers)
          const refused = values(answers).filter(isRefused)
          return refused.length === 0 ? unheard(answers) : heldBy(refused) ?? "split"
        }
      )
      return (done) =>
        count((counted) => {
          if (counted === "split" || isFailure(counted) || "_tag" in counted) return done(counted)
          agree(request, attempt.token, counted)((agreed) => {
            if (isFailure(agreed)) takeBack(counted)
            done(agreed)
          })
        })
    }

    /** The holder that keeps us from a majority, if it is one. */
    const heldBy = (refused: ReadonlyArray<Refused>): Refused | undefined => {
      const byToken = groupBy(refused, ({ holder }) => holder?.token ?? "")
      return byToken.find((told) => told.length > minority || told[0]!.holder === undefined)?.[0]
    }

    /** The highest fence of each record, stored by a majority. */
    const agree = (request: Request, token: string, answers: Answers<Acquired>): Ask<Granted> => {
      const granted = voters.flatMap(({ server }, i) => {
        const answer = answers[i]
        return answer !== undefined && !isFailure(answer) && isGranted(answer)
          ? [{ server, fences: answer.fences }]
          : []
      })
      const fences = request.records.map((_, i) => highest(granted.map((one) => one.fences[i]!)))
      const agreed: Granted = { _tag: "Granted", fences }
      const agrees = granted.every((one) => one.fences.every((fence, i) => fence === fences[i]))
      if (agrees) return (done) => done(agreed)
      return poll(granted.map(({ server }) => server.raise(request.records, token, fences)), (raised, open) => {
        const yes = values(raised).filter((isRaised) => isRaised).length
        return yes >= majority ? agreed : yes + open >= majority ? undefined : unheard(raised)
      })
    }

    const renew: Store["renew"] = (grants) =>
      poll(voters.map(({ server }) => server.renew(grants)), (answers, open) => {
        const judged = grants.map((_, i) => judge(values(answers).map((answer) => answer[i]!), open))
        return judged.every((answer) => answer !== undefined) ? judged : undefined
      })

    const judge = (answers: ReadonlyArray<Renewed | Unknown>, open: number): Renewed | Unknown | undefined => {
      const confirmed = answers.filter((answer) => answer._tag === "Confirmed")
      if (confirmed.length >= majority) return confirmed.find(({ contended }) => contended) ?? confirmed[0]!
      const lost = answers.filter((answer) => answer._tag === "Lost")
      const because = (why: string) => lost.find(({ reason }) => reason === why)
      if (lost.length > minority) return because("revoked") ?? because("taken") ?? lost[0]!
      return open === 0 ? { _tag: "Unknown" } : undefined
    }

    const release: Store["release"] = (records, token) =>
      poll(
        voters.map((one) => one.release(records, token)),
        (answers, open): Answer<Released> | undefined => {
          const owned = values(answers).filter((answer) => answer !== "gone")
          if (owned.length >= majority) {
            return (["lapsed", "woke"] as const).find((_) => owned.includes(_)) ?? "released"
          }
          if (values(answers).length - owned.length > minority) return "gone"
          return open > 0 ? undefined : unheard(answers)
        }
      )

    /** Who holds it at a majority, as soon as those who have not answered make no difference. */
    const holders = (asks: ReadonlyArray<Ask<ReadonlyArray<Holder>>>): Ask<ReadonlyArray<Holder>> =>
      poll(asks, (answers, open) => {
        const told = groupBy(values(answers).flat(), ({ token }) => token ?? "")
        if (open > 0 && (values(answers).length < majority || told.some(({ length }) => length < majority))) {
          return undefined
        }
        if (values(answers).length < majority) return unheard(answers)
        return agreed(values(answers).flat())
      })

    /** Who is told of by a majority, and until when that many of them keep it. */
    const agreed = (told: ReadonlyArray<Holder>): ReadonlyArray<Holder> =>
      groupBy(told, ({ token }) => token ?? "").filter(({ length }) => length >= majority).map((same) => {
        // a server that was late has numbered for itself
        const fence = same.map((holder) => holder.fence!).sort((a, b) => a > b ? -1 : 1)[majority - 1]!
        const until = same.map((holder) => holder.until!).sort((a, b) => b - a)[majority - 1]!
        return { ...same[0]!, fence, until }
      })

    const store: Store = {
      acquire,
      keepsPlaces: false,
      // what one server thinks of a key says little
      enlist: (request, waiter) =>
        map(enough(voters.map(({ server }) => server.enlist(request, waiter)), majority), () => false),
      renew,
      release,
      withdraw: (records, waiter) => enough(voters.map(({ server }) => server.withdraw(records, waiter)), majority),
      inspect: (record) => holders(voters.map(({ server }) => server.inspect(record))),
      depose: (record, channel) => holders(voters.map(({ server }) => server.depose(record, channel)))
    }

    const channels: Channels = {
      listen: (names, listener) => enough(voters.map((one) => one.channels.listen(names, listener)), majority),
      leave: (names, listener) => {
        for (const one of voters) one.channels.leave(names, listener)
      }
    }

    /** As a question, so that nobody waits for a server that is mute. */
    const asked = <A>(effect: Effect.Effect<A, DriverError>): Ask<A> => (done) =>
      void run(effect).addObserver((exit) =>
        done(Exit.isSuccess(exit) ? exit.value : exit.cause._tag === "Fail" ? exit.cause.error : unheard([]))
      )

    const ready = Effect.asVoid(toEffect(enough(
      voters.map(({ connection }) =>
        asked(Effect.zipRight(connection.ready, toEffect(synchronise(connection, probe(prefix)))))
      ),
      majority
    )))

    /** What all those say that can be reached, if they are a majority. */
    const everywhere = <A, B>(
      ask: (one: voter.Voter) => Effect.Effect<A, DriverError>,
      join: (told: ReadonlyArray<A>) => B
    ): Effect.Effect<B, DriverError> =>
      toEffect(poll(voters.map((one) => asked(ask(one))), (answers, open) => {
        if (open > 0) return undefined
        return values(answers).length >= majority ? join(values(answers)) : unheard(answers)
      }))

    const listed = (namespace: string) =>
      everywhere(
        ({ connection, server }) => list(connection, server, prefix, namespace),
        (told): ReadonlyArray<HeldKey> =>
          groupBy(told.flat(), ({ hash }) => hash).flatMap((same) => {
            const found = agreed(same.flatMap((key) => key.holders))
            return found.length === 0 ? [] : [{ ...same[0]!, holders: found }]
          })
      )

    /** How far the servers' clocks are apart, in milliseconds. */
    const spread = (): number => {
      const clocks = voters.flatMap(({ connection }) => connection.serverNow() ?? [])
      return Math.max(...clocks) - Math.min(...clocks)
    }

    const check = everywhere(
      ({ connection }) =>
        Effect.zipLeft(deployment.check(connection), toEffect(synchronise(connection, probe(prefix)))),
      (told): ReadonlyArray<Finding> => {
        const findings = deployment.distinct(told.flat())
        return spread() <= deployment.tolerated ? findings : [...findings, {
          severity: "warning",
          code: "CLOCK_OFFSET",
          message: `The clocks of the servers are ${(spread() / 1_000).toFixed(1)} s apart`,
          fix: "Let all of them follow the same time servers: a clock that jumps ends leases early."
        }]
      }
    )

    return yield* driver.make({
      store,
      channels,
      prefix,
      // two majorities have one server in common, which keeps two apart, but cannot count
      capabilities: { permits: false },
      fairPatience: settings.fairPatience,
      ready,
      list: listed,
      check
    })
  })

type Unknown = { readonly _tag: "Unknown" }

const isGranted = (answer: Acquired): answer is Granted => answer._tag === "Granted"
const isRefused = (answer: Acquired): answer is Refused => answer._tag === "Refused"

const highest = (fences: ReadonlyArray<bigint>): bigint => fences.reduce((a, b) => a > b ? a : b)
