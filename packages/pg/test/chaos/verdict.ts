/** From what the processes have told to a history that the judge of the kit knows, and to figures. */
import type * as History from "@effect-locking/testing/History"
import * as OverlapOracle from "@effect-locking/testing/OverlapOracle"
import { Array } from "effect"
import type { Forgotten, Stopped } from "./nemesis.js"
import type { Told } from "./work.js"

/** One process, from its start to its end. */
export interface Story {
  readonly process: string
  readonly told: ReadonlyArray<Told>
  /** When it was killed; a moment before, to be exact. */
  readonly killedAt: number | undefined
}

interface Tenure {
  readonly process: string
  readonly id: string
  readonly key: string
  readonly mode: "exclusive" | "shared"
  readonly fence: bigint
  readonly calledAt: number
  readonly enteredAt: number
  /** Until when it believed: by its clock, and no longer than its section or its life. */
  readonly believedUntil: number
  /** The same, and no longer than the nemesis let the store remember it. */
  readonly promisedUntil: number
  /** Granted by a store that was stopping. */
  readonly isLastMoment: boolean
  readonly left: number | undefined
  readonly renewals: ReadonlyArray<{ readonly from: number; readonly at: number }>
}

type Of<Tag extends Told["_tag"]> = Extract<Told, { readonly _tag: Tag }>

/** What the nemesis made the store do. */
export interface Amnesia {
  readonly forgotten: ReadonlyArray<Forgotten>
  readonly stopped: ReadonlyArray<Stopped>
}

const tenures = (
  { killedAt, process, told }: Story,
  { forgotten, stopped }: Amnesia,
  /** Of the leases, in microseconds. */
  ttl: number
): ReadonlyArray<Tenure> =>
  Object.entries(Array.groupBy(told.filter((one) => "id" in one), ({ id }) => id)).flatMap(([id, ofCall]) => {
    const all = <Tag extends Told["_tag"]>(tag: Tag) =>
      ofCall.filter((one: Told): one is Of<Tag> => one._tag === tag) as ReadonlyArray<Told> as ReadonlyArray<Of<Tag>>
    const [called] = all("called")
    const [entered] = all("entered")
    const [left] = all("left")
    if (called === undefined || entered === undefined) return []
    const until = Math.max(entered.until, ...all("believed").map((one) => one.until))
    const believedUntil = Math.min(until, left?.at ?? Infinity, killedAt ?? Infinity)
    // one that was granted about when the store forgot may have been granted before
    const ends = forgotten.filter((one) =>
      one.process === process && called.at <= one.until && one.from < believedUntil
    )
      .map(({ from }) => Math.max(from, entered.at))
    // a lease is believed in for a little less than its ttl from the question on: who asked the store that came back is judged
    const askedAt = entered.until - ttl
    const isLastMoment = stopped.some(({ from, until }) => entered.at >= from && askedAt <= until)
    return [{
      process,
      id,
      key: called.key,
      mode: called.mode,
      fence: BigInt(entered.fence),
      calledAt: called.at,
      enteredAt: entered.at,
      believedUntil,
      promisedUntil: Math.min(believedUntil, ...ends),
      isLastMoment,
      left: left?.at,
      renewals: all("renewed")
    }]
  })

/**
 * A writer's fence is larger than that of every earlier grant, a reader's only than those of earlier writers: readers of
 * one process share a block of numbers, and others may have drawn a later one meanwhile. So that the judge, who knows
 * nothing of this, looks at the rest: earlier readers, and only they, are no reason to be refused.
 */
const ranked = (all: ReadonlyArray<Tenure>): ReadonlyArray<Tenure> =>
  Object.values(Array.groupBy(all, ({ key }) => key)).flatMap((ofKey) => {
    const done: Array<Tenure> = []
    for (const tenure of ofKey.toSorted((a, b) => a.calledAt - b.calledAt)) {
      let fence = tenure.fence * 10_000n
      if (tenure.mode === "shared") {
        for (const { enteredAt, fence: earlier, mode } of done) {
          if (mode === "shared" && enteredAt < tenure.calledAt && earlier >= fence) fence = earlier + 1n
        }
      }
      done.push({ ...tenure, fence })
    }
    return done
  })

/**
 * Only calls that were granted count: one that failed may have been granted or not, and explains nothing. That a lease was
 * given back is not sure either, since its release may have been lost.
 */
const eventsOf = (tenure: Tenure): ReadonlyArray<History.Event> => {
  const { calledAt, enteredAt, fence, id, key, left, mode, process, promisedUntil } = tenure
  const window = windowOf(tenure, promisedUntil)
  // the store may end it from here on
  const ttl = (from: number) => window.length === 0 ? 0 : Math.max(0, promisedUntil - from)
  return [
    { _tag: "invoke", id, at: calledAt, process, key, call: "acquire", mode, ttl: ttl(calledAt) },
    { _tag: "ok", id, at: enteredAt, fence },
    ...window,
    ...tenure.renewals.flatMap(({ at, from }, i): ReadonlyArray<History.Event> =>
      // what the store forgot it may still have confirmed just before
      from > promisedUntil ? [] : [
        { _tag: "invoke", id: `${id}+${i}`, at: from, process, key, call: "renew", fence, ttl: ttl(from) },
        { _tag: "ok", id: `${id}+${i}`, at }
      ]
    ),
    ...(left === undefined
      ? []
      : [{ _tag: "invoke", id: `${id}-`, at: left, process, key, call: "release", fence } as const])
  ]
}

const windowOf = (
  { enteredAt, fence, key, mode, process }: Tenure,
  until: number
): ReadonlyArray<History.Window> =>
  until <= enteredAt ? [] : [{ _tag: "window", process, key, mode, fence, from: enteredAt, until }]

export interface Judged {
  readonly violations: ReadonlyArray<OverlapOracle.Violation>
  readonly figures: {
    readonly leases: number
    readonly shared: number
    readonly renewals: number
    readonly processes: number
    readonly accepted: number
    readonly refused: number
    /** Leases that the nemesis made the store forget while they were believed in. */
    readonly forgotten: number
    /** Granted by a store that was stopping. */
    readonly lastMoment: number
    /** Two holders at once, where that is not promised. */
    readonly unpromised: number
  }
  readonly outcomes: Readonly<Record<string, number>>
}

const tally = (names: ReadonlyArray<string>): Readonly<Record<string, number>> =>
  Object.fromEntries(Object.entries(Array.groupBy(names, (name) => name)).map(([name, all]) => [name, all.length]))

export const judge = (
  stories: ReadonlyArray<Story>,
  writes: ReadonlyArray<History.Write>,
  amnesia: Amnesia,
  /** Of the leases, in milliseconds. */
  ttl: number,
  /** Of the search for an order, which is long where there is none. */
  maxSteps?: number
): Judged => {
  const all = stories.flatMap((story) => tenures(story, amnesia, ttl * 1000))
  const promised = all.filter(({ isLastMoment }) => !isLastMoment)
  const { counts, violations } = OverlapOracle.judge([...ranked(promised).flatMap(eventsOf), ...writes], {
    spuriousBusy: true,
    maxSteps
  })
  const believed =
    OverlapOracle.judge(all.flatMap((tenure) => windowOf(tenure, tenure.believedUntil))).violations.length
  return {
    violations,
    figures: {
      leases: all.length,
      shared: all.filter(({ mode }) => mode === "shared").length,
      renewals: all.reduce((sum, { renewals }) => sum + renewals.length, 0),
      processes: stories.length,
      accepted: counts.accepted,
      refused: counts.refused,
      forgotten: all.filter((tenure) => tenure.promisedUntil < tenure.believedUntil).length,
      lastMoment: all.length - promised.length,
      unpromised: believed - violations.filter(({ what }) => what === "overlap").length
    },
    outcomes: tally(
      stories.flatMap(({ told }) =>
        told.flatMap((one) =>
          one._tag === "returned" ? [one.outcome] : one._tag === "unready" ? [`start: ${one.error}`] : []
        )
      )
    )
  }
}
