/** The demo over processes: the ledger and the till again, with workers that can be killed. */
import { Console, Effect } from "effect"
import * as Acts from "../acts.js"
import type * as Ledger from "../ledger.js"
import * as Report from "../report.js"
import type { Terminal } from "../terminal.js"
import type { Bar, Phase } from "../timeline.js"
import type { Backend, Bank, Unavailable } from "./bank.js"
import * as Crew from "./crew.js"
import * as Story from "./story.js"

const { count, millis, money } = Report

const processes = 4

/** Every transfer is a handful of statements, so some of the ledger will do. */
const most = 300

/** How much time the pictures of the first two acts show, in milliseconds. */
const window = 100

export interface Settings {
  readonly backend: Backend
  readonly ledger: Ledger.Ledger
  readonly seed: number
}

/** Answers what it claimed. */
export const demo = ({ backend, seed, ...settings }: Settings): Effect.Effect<
  ReadonlyArray<Report.Claim>,
  Unavailable,
  Terminal
> =>
  Effect.gen(function*() {
    const url = yield* backend.start
    const ledger = { ...settings.ledger, transfers: settings.ledger.transfers.slice(0, most) }
    const bank = yield* backend.bank(url)
    const crew = yield* Effect.orDie(Crew.hire(backend, url, processes, seed))
    yield* Report.heading("effect-locking")
    yield* Report.paragraph(
      `${count(ledger.transfers.length)} transfers between ${ledger.opening.size} accounts in a throw-away ` +
        `${backend.server}, applied by ${processes} processes with 4 workers each at once (a1 to a4 in process a, and so ` +
        `on). Locks are kept by the driver "${backend.name}"; all balances and totals are what the server says.`
    )
    const play = (locked: boolean) => (shown: string) => Crew.apply(ledger, bank, crew, shown, locked)
    const one = yield* Acts.first(ledger, play(false), window)
    const two = yield* Acts.second(ledger, play(true), one.outcome, window)
    const three = yield* third(backend, bank, crew)
    const claims = [...one.claims, ...two.claims, ...three]
    yield* Console.log("")
    yield* claims.every(({ holds }) => holds)
      ? Report.paragraph(
        "Shown: over processes, too, locks keep the books right, nobody's death or sleep keeps a lock for ever, and the " +
          "fence refuses what no lease can stop. Read next: scratchpad/examples/transfer.ts, fence.ts.",
        "title"
      )
      : Report.paragraph("Something does not hold: see NOT TRUE above.", "bad")
    return claims
  }).pipe(Effect.scoped)

const third = (backend: Backend, bank: Bank, crew: ReadonlyArray<Crew.Member>) =>
  Effect.gen(function*() {
    yield* Report.heading("3  A process is killed, another one freezes")
    yield* Report.paragraph(
      `The processes pay ${
        money(Story.deposit)
      } into one till, in turn. The server gives up a process that it has not ` +
        `heard of for ${
          millis(Story.ttl)
        } and a margin. One is killed in its turn (SIGKILL), another is stopped in its ` +
        "turn (SIGSTOP) and goes on later (SIGCONT), with a write to do:"
    )
    const { end, frozen, killed, turns, verdict } = yield* Story.play(bank, crew)
    const ranks = new Map(
      [...turns].sort((a, b) => a.fence < b.fence ? -1 : 1).map((turn, i) => [turn as Story.Turn, String(i + 1)])
    )
    const after = ({ at, turn }: Story.Blow) =>
      turns.filter(({ began, fence }) => fence > turn.fence && began > at).sort((a, b) => a.began - b.began)[0]
    const [heir, stand] = [after(killed), after(frozen)]
    const phases = (turn: (typeof turns)[number]): ReadonlyArray<Phase> => {
      const wait: Phase = { kind: "wait", from: turn.asked, until: turn.began }
      if (turn === killed.turn) return [wait, { kind: "hold", from: turn.began, until: killed.at }]
      if (turn !== frozen.turn) return [wait, { kind: "hold", from: turn.began, until: turn.ended ?? end }]
      const taken = stand?.began ?? frozen.thawedAt
      return [
        wait,
        { kind: "hold", from: turn.began, until: frozen.at },
        { kind: "frozen", from: frozen.at, until: taken },
        { kind: "late", from: taken, until: turn.ended ?? end }
      ]
    }
    yield* Report.timeline({
      lanes: crew.map(({ name }) => `process ${name}`),
      bars: turns.map((turn): Bar => ({
        lane: `process ${turn.process}`,
        label: ranks.get(turn)!,
        failed: turn === killed.turn || turn.wrote?.refused !== undefined,
        phases: phases(turn)
      })),
      from: 0,
      until: end,
      meaning: {
        wait: "waits",
        hold: "holds the lock",
        frozen: "frozen",
        late: "frozen, and somebody else has it",
        failed: "killed, or write refused"
      }
    })
    const bar = (turn: Story.Turn) => `fence ${turn.fence} (bar ${ranks.get(turn)})`
    const late = frozen.turn.wrote
    yield* Report.moments([
      [killed.at, `Process ${killed.turn.process} is killed with ${bar(killed.turn)}.`],
      [
        heir?.began,
        heir &&
        `Process ${heir.process} takes over with ${bar(heir)}, ${millis(heir.began - killed.at)} after the kill.`
      ],
      [frozen.at, `Process ${frozen.turn.process} freezes with ${bar(frozen.turn)}.`],
      [
        stand?.began,
        stand &&
        `Process ${stand.process} takes over with ${bar(stand)}, ${millis(stand.began - frozen.at)} after the freeze.`
      ],
      [
        frozen.thawedAt,
        `Process ${frozen.turn.process} goes on` +
        (late === undefined ? "." : ` and writes ${money(late.balance)}. `) +
        (late?.refused === undefined ? "Nothing stops it." : `Refused: ${late.refused}.`)
      ],
      [frozen.turn.ended, frozen.turn.failed && `Its call fails ${frozen.turn.failed}.`]
    ])
    const kept = turns.filter(({ wrote }) => wrote !== undefined && wrote.refused === undefined).length
    const claims: ReadonlyArray<Report.Claim> = [
      {
        text: "What the killed process held went to another one.",
        holds: heir !== undefined && heir.process !== killed.turn.process
      },
      {
        text: "What the frozen process held went to another one while it was frozen.",
        holds: stand !== undefined && stand.process !== frozen.turn.process && stand.began < frozen.thawedAt
      },
      { text: `The fence refused its late write (${backend.fences}).`, holds: late?.refused !== undefined },
      { text: "Its caller was told that the lease was lost.", holds: /^LeaseLost/.test(frozen.turn.failed ?? "") },
      {
        text: `The till holds ${
          money(verdict.balances.get(Story.till) ?? 0)
        }: the deposits of the other ${kept} turns.`,
        holds: verdict.balances.get(Story.till) === kept * Story.deposit
      },
      {
        text: "Every write that counted had a higher fence than the one before.",
        holds: verdict.fencesRise && verdict.overwritten === 0
      }
    ]
    yield* Report.claims(claims)
    return claims
  })
