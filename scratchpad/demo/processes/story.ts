/** The third act over processes: one is killed, one is frozen, each with the lock in its hands. */
import * as History from "@effect-locking/testing/History"
import { Effect } from "effect"
import { withProgress } from "../workers.js"
import type { Bank, Verdict } from "./bank.js"
import type { Member } from "./crew.js"

export const till = "till"
export const deposit = 1000

/** After so many milliseconds of silence the server gives a process's locks to others. */
export const ttl = 1000

/** How long a turn at the till takes, in milliseconds. */
export const turnTakes = 200

/** A turn at the till. Times are milliseconds from the start of the act. */
export interface Turn {
  readonly process: string
  readonly asked: number
  began: number | undefined
  ended: number | undefined
  fence: bigint
  found: number
  /** What it wrote, and why that did not count. */
  wrote: { readonly at: number; readonly balance: number; readonly refused: string | undefined } | undefined
  lost: { readonly at: number; readonly message: string } | undefined
  /** What its caller was told. */
  failed: string | undefined
}

/** Something that was done to a process in its turn. */
export interface Blow {
  readonly turn: Turn
  readonly at: number
}

export interface Story {
  readonly turns: ReadonlyArray<Turn & { readonly began: number }>
  readonly killed: Blow
  readonly frozen: Blow & { readonly thawedAt: number }
  readonly end: number
  readonly verdict: Verdict
}

const hasBegun = (turn: Turn): turn is Turn & { began: number } => turn.began !== undefined

export const play = (bank: Bank, crew: ReadonlyArray<Member>) =>
  Effect.gen(function*() {
    yield* bank.open(new Map([[till, 0]]))
    const start = History.now()
    const since = (micros: number) => (micros - start) / 1000
    const now = () => since(History.now())
    const turns: Array<Turn> = []
    const over = new Set<string>()

    const listen = (member: Member) => {
      let turn: Turn | undefined
      return Effect.forever(Effect.map(member.hear, (heard) => {
        switch (heard.report) {
          case "asks": {
            turn = {
              process: member.name,
              asked: since(heard.at),
              began: undefined,
              ended: undefined,
              fence: 0n,
              found: 0,
              wrote: undefined,
              lost: undefined,
              failed: undefined
            }
            return turns.push(turn)
          }
          case "begins":
            return Object.assign(turn!, { began: since(heard.at), fence: BigInt(heard.fence), found: heard.found })
          case "wrote":
            return turn!.wrote = { at: since(heard.at), balance: heard.balance, refused: heard.refused }
          case "lost":
            return turn!.lost = { at: since(heard.at), message: heard.message }
          case "ends":
            return Object.assign(turn!, { ended: since(heard.at), failed: heard.failed })
          case "over":
            return over.add(member.name)
          default:
            return
        }
      }))
    }

    const see = (isSo: () => boolean) => Effect.repeat(Effect.sleep(5), { until: isSo })
    const running = () => turns.find((turn) => hasBegun(turn) && turn.wrote === undefined && !struck.has(turn))
    const struck = new Set<Turn>()
    const finished = (since = -1) =>
      turns.filter(({ began = -1, ended }) => ended !== undefined && began > since).length

    /** Stops somebody in the middle of a turn, so that it has the lock and has not written yet. */
    const strike: Effect.Effect<Blow & { readonly member: Member }> = Effect.gen(function*() {
      yield* see(() => running() !== undefined)
      const turn = running()!
      yield* Effect.sleep(turnTakes / 2)
      const member = crew.find(({ name }) => name === turn.process)!
      yield* member.freeze
      const at = now()
      // what it said before that is heard by then
      yield* Effect.sleep(20)
      if (turn.wrote !== undefined) {
        yield* member.thaw
        return yield* strike
      }
      struck.add(turn)
      return { turn, at, member }
    })

    const plot = Effect.gen(function*() {
      for (const member of crew) yield* member.tell({ order: "pay", ttl })
      yield* see(() => finished() >= 3)

      const { at, member: dead, turn } = yield* strike
      yield* dead.kill
      const killed: Blow = { turn, at }
      yield* see(() => finished(at) >= 3)

      const { member: sleeper, ...frozen } = yield* strike
      yield* see(() => finished(frozen.at) >= 2)
      yield* sleeper.thaw
      const thawedAt = now()
      yield* see(() => frozen.turn.ended !== undefined)
      // and it goes on as if nothing had been
      yield* see(() =>
        turns.some(({ asked, ended, process }) => process === sleeper.name && asked > thawedAt && ended !== undefined)
      )

      const left = crew.filter((member) => member !== dead)
      for (const member of left) yield* member.tell({ order: "stop" })
      yield* see(() => left.every(({ name }) => over.has(name)))
      return { killed, frozen: { ...frozen, thawedAt } }
    })

    yield* Effect.forEach(crew, (member) => Effect.forkScoped(Effect.catchAllCause(listen(member), () => Effect.void)))
    const { frozen, killed } = yield* withProgress(plot, () => `  ${finished()} turns`)
    return {
      turns: turns.filter(hasBegun),
      killed,
      frozen,
      end: now(),
      verdict: yield* bank.verdict
    } satisfies Story
  }).pipe(Effect.scoped)
