/** The three acts. Each plays, shows what happened, and answers what it claims. */
import { Effect } from "effect"
import { Fence, type LockError } from "effect-locking"
import type { Driver } from "./driver.js"
import * as Frozen from "./frozen.js"
import * as Ledger from "./ledger.js"
import * as Report from "./report.js"
import type { Terminal } from "./terminal.js"
import type { Bar, Timeline } from "./timeline.js"
import type * as Workers from "./workers.js"

const { count, millis, money } = Report

/** How much time the pictures of the first two acts show, in milliseconds, and how many workers at most. */
const shortWindow = 20
const lanes = 8

/** Applies a ledger, and looks at one account. */
export type Play<E = never, R = never> = (shown: string) => Effect.Effect<Workers.Outcome, E, R>

/** A picture of the busiest moments at the account. */
const closeUp = ({ bars }: Workers.Outcome, window: number, meaning: Timeline["meaning"]) => {
  const held = bars.map((bar) => ({ lane: bar.lane, ...bar.phases.at(-1)! }))
  const parts = (from: number) =>
    held
      .map((bar) => ({ ...bar, length: Math.min(bar.until, from + window) - Math.max(bar.from, from) }))
      .filter((bar) => bar.length > 1)
  // past the first tenth, in which the program warms up
  const from =
    held.slice(Math.floor(held.length / 10)).map((bar) => ({ from: bar.from, count: parts(bar.from).length }))
      .reduce((a, b) => b.count > a.count ? b : a).from
  const share = new Map<string, number>()
  for (const { lane, length } of parts(from)) share.set(lane, (share.get(lane) ?? 0) + length)
  const busiest = [...share.keys()].sort((a, b) => share.get(b)! - share.get(a)!).slice(0, lanes)
  return Report.timeline({ lanes: busiest.sort(), bars, from, until: from + window, meaning })
}

const difference = (cents: number) => `${money(Math.abs(cents))} ${cents < 0 ? "lost" : "too much"}`

export const first = <E, R>(ledger: Ledger.Ledger, play: Play<E, R>, window = shortWindow) =>
  Effect.gen(function*() {
    const truth = Ledger.settle(ledger)
    const [shown] = Ledger.byTraffic(ledger)
    yield* Report.heading("1  Without locks")
    yield* Report.paragraph(
      `A worker reads two balances, waits a moment and writes them back. So it went at the account ${shown}:`
    )
    const outcome = yield* play(shown)
    yield* closeUp(outcome, window, {
      hold: "from its read to its write",
      failed: "the write undid what others wrote in between"
    })
    const gap = Ledger.total(outcome.balances) - Ledger.total(truth)
    const wrong = Ledger.countWrong(outcome.balances, truth)
    yield* Report.table([
      ["", "total of all accounts"],
      ["right", money(Ledger.total(truth))],
      ["found", money(Ledger.total(outcome.balances))],
      [gap < 0 ? "lost" : "too much", money(Math.abs(gap))]
    ])
    const claims: ReadonlyArray<Report.Claim> = [
      {
        text: `Money is not where it belongs: ${difference(gap)}, ${wrong} of ${truth.size} accounts are wrong.`,
        holds: gap !== 0 && wrong > 0
      },
      {
        text: `${count(outcome.overwritten)} writes undid what others had written in between, ` +
          "which accounts for the difference to the cent.",
        holds: outcome.overwritten > 0 && outcome.overwrittenSum === -gap
      }
    ]
    yield* Report.claims(claims)
    return { outcome, gap, wrong, claims }
  })

const quantile = (values: ReadonlyArray<number>, q: number) => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0
}

export const second = <E, R>(
  ledger: Ledger.Ledger,
  play: Play<E, R>,
  before: Workers.Outcome,
  window = shortWindow
) =>
  Effect.gen(function*() {
    const truth = Ledger.settle(ledger)
    const [shown, ...others] = Ledger.byTraffic(ledger)
    yield* Report.heading("2  With the locks of both accounts")
    yield* Report.paragraph(
      "The same in Locking.useLocks([from, to], (leases) => transfer). " +
        `The account ${shown} again; the numbers count its grants, in the order of their fences:`
    )
    const outcome = yield* play(shown)
    yield* closeUp(outcome, window, { wait: "waits", hold: "holds the locks, from its read to its write" })
    const gap = Ledger.total(outcome.balances) - Ledger.total(truth)
    const wrong = Ledger.countWrong(outcome.balances, truth)
    const row = (name: string, value: (outcome: Workers.Outcome) => string) => [name, value(before), value(outcome)]
    yield* Report.table([
      ["", "without locks", "with locks"],
      row("transfers per second", ({ took }) => count(ledger.transfers.length / took * 1000)),
      row("writes that undid others", ({ overwritten }) => count(overwritten)),
      row("wrong accounts", ({ balances }) => count(Ledger.countWrong(balances, truth))),
      row("total", ({ balances }) => money(Ledger.total(balances))),
      row("at one account at once", ({ crowd }) => count(crowd)),
      row("wait, p50", ({ waits }) => waits.length === 0 ? "-" : millis(quantile(waits, 0.5))),
      row("wait, p99", ({ waits }) => waits.length === 0 ? "-" : millis(quantile(waits, 0.99)))
    ])
    const busy = [shown, ...others.slice(0, 5)]
    const share = Ledger.touching(ledger, busy).length / ledger.transfers.length
    yield* Report.paragraph(
      `The price is waiting: ${(100 * share).toFixed(0)} % of the transfers touch one of ${busy.length} accounts, ` +
        "and each account serves one at a time."
    )
    const opposed = Ledger.countOpposed(ledger)
    const claims: ReadonlyArray<Report.Claim> = [
      {
        text: `The total holds, and all ${truth.size} accounts are what one transfer after the other makes them.`,
        holds: gap === 0 && wrong === 0
      },
      { text: "No account had two workers at once.", holds: outcome.crowd === 1 && outcome.overwritten === 0 },
      {
        text: `${count(opposed)} transfers name the same two accounts as others do, the other way round; ` +
          "none deadlocked.",
        holds: opposed > 0 && outcome.waits.length === ledger.transfers.length
      },
      { text: "Every grant of an account had a higher fence than the one before.", holds: outcome.fencesRise }
    ]
    yield* Report.claims(claims)
    return { outcome, gap, wrong, claims }
  })

export const third = (driver: Driver): Effect.Effect<
  { readonly story: Frozen.Story; readonly claims: ReadonlyArray<Report.Claim> },
  LockError.LockError,
  Terminal
> =>
  Effect.gen(function*() {
    yield* Report.heading("3  A worker freezes")
    yield* Report.paragraph(
      `Three nodes pay ${money(Frozen.deposit)} into one till, in turn. A lease lasts ${Frozen.ttl} ms unless it is ` +
        "renewed. One of them freezes in its second turn, as in a long garbage collection, and wakes up with a write to do:"
    )
    const story = yield* Frozen.play(driver)
    const { freeze, loss, turns } = story
    const frozen = freeze.turn
    const ranks = new Map(
      turns.map(({ fence }) => fence).sort(Fence.Order).map((fence, i) => [fence, String(i + 1)])
    )
    const rank = ({ fence }: Frozen.Turn) => ranks.get(fence)!
    const bars = turns.map((turn): Bar => ({
      lane: `node ${turn.node}`,
      label: rank(turn),
      failed: turn.refused !== undefined,
      phases: [
        { kind: "wait", from: turn.asked, until: turn.began },
        ...(turn !== frozen ? [{ kind: "hold" as const, from: turn.began, until: turn.ended }] : [
          { kind: "hold" as const, from: turn.began, until: freeze.at },
          { kind: "frozen" as const, from: freeze.at, until: Math.min(freeze.leaseEndedAt, turn.ended) },
          { kind: "late" as const, from: Math.min(freeze.leaseEndedAt, turn.ended), until: turn.ended }
        ])
      ]
    }))
    yield* Report.timeline({
      lanes: [...new Set(bars.map(({ lane }) => lane))].sort(),
      bars,
      from: 0,
      until: Math.max(...turns.map(({ ended }) => ended)),
      meaning: {
        wait: "waits",
        hold: "holds the lock",
        frozen: "frozen",
        late: "frozen, and its lease is over",
        failed: "write refused"
      }
    })
    const successor = turns.find(({ fence }) => fence > frozen.fence)
    const { refused } = frozen
    yield* Report.moments([
      [freeze.at, `Node ${frozen.node} freezes with fence ${frozen.fence} (bar ${rank(frozen)}).`],
      [freeze.leaseEndedAt, "Its lease is over by its own clock: its section is interrupted, but does not hear it."],
      [
        successor?.began,
        successor && `Node ${successor.node} takes over with fence ${successor.fence} (bar ${rank(successor)}), ` +
          `${millis(successor.began - freeze.at)} after the freeze.`
      ],
      [
        freeze.wokeAt,
        `Node ${frozen.node} wakes up and writes ${money(freeze.wanted)} over ${money(freeze.found)}. ` +
        (refused === undefined ? "Nothing stops it." : `Refused: ${refused.message}.`)
      ],
      [frozen.ended, loss && `Its call fails ${loss._tag}: ${loss.message}.`]
    ])
    const kept = turns.filter(({ refused }) => refused === undefined).length
    const claims: ReadonlyArray<Report.Claim> = [
      {
        text: "Another node took over when the lease was over, and not before.",
        holds: successor !== undefined && successor.node !== frozen.node && !freeze.overlapped
      },
      { text: "The fence refused the late write.", holds: refused !== undefined },
      {
        text: "The section of the frozen node was interrupted, and its caller was told.",
        holds: loss !== undefined && !freeze.wentOn
      },
      {
        text: `The till holds ${money(story.balance)}: the deposits of the other ${kept} turns.`,
        holds: story.balance === kept * Frozen.deposit
      }
    ]
    yield* Report.claims(claims)
    return { story, claims }
  })
