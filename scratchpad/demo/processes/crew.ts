/** The processes of the demo, and what they make of a ledger together. */
import * as History from "@effect-locking/testing/History"
import * as Worker from "@effect-locking/testing/Worker"
import { Effect } from "effect"
import { build } from "esbuild"
import { fileURLToPath } from "node:url"
import type { Ledger } from "../ledger.js"
import type { Bar } from "../timeline.js"
import { type Outcome, withProgress } from "../workers.js"
import type { Backend, Bank } from "./bank.js"
import type { Order, Report, Role, Visit } from "./protocol.js"

/** A process, and what is done to it. */
export interface Member {
  readonly name: string
  readonly tell: (order: Order) => Effect.Effect<void>
  readonly hear: Effect.Effect<Report>
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  readonly kill: Effect.Effect<void>
}

/** One file instead of hundreds of modules, which each process would take longer to load than all the rest takes. */
const program = Effect.promise(async () => {
  const file = (path: string) => fileURLToPath(new URL(path, import.meta.url))
  const outfile = file("../../../node_modules/.cache/effect-locking/demo-worker.mjs")
  await build({
    entryPoints: [file("worker.ts")],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    external: ["pg-native"],
    // for what is CommonJS in it
    banner: { js: "import * as module from 'node:module'; const require = module.createRequire(import.meta.url);" }
  })
  return outfile
})

/** So many processes, each with a connection to the database. They end with the scope. */
export const hire = (backend: Backend, url: string, count: number, seed: number) =>
  Effect.gen(function*() {
    const roles = Array.from({ length: count }, (_, i): Role => ({
      driver: backend.name,
      name: String.fromCharCode(97 + i),
      url,
      seed: seed + i
    }))
    const file = yield* program
    const members = yield* Effect.forEach(roles, (role) =>
      Effect.map(
        Worker.spawn(file, { args: [JSON.stringify(role)], watchdog: "5 minutes" }),
        ({ freeze, kill, send, take, thaw }): Member => ({
          name: role.name,
          tell: send,
          hear: Effect.orDie(take as Effect.Effect<Report, unknown>),
          freeze,
          thaw,
          kill
        })
      ))
    const ready = Effect.forEach(members, ({ hear }) => hear, { discard: true })
    yield* withProgress(ready, () => `  ${count} processes start`)
    return members
  })

const callers = 4

/** Everybody applies their part of the transfers, many at once. */
export const apply = (ledger: Ledger, bank: Bank, crew: ReadonlyArray<Member>, shown: string, locked: boolean) =>
  Effect.gen(function*() {
    yield* bank.open(ledger.opening)
    const start = History.now()
    const work = (member: Member, i: number) =>
      Effect.gen(function*() {
        const transfers = ledger.transfers.filter((_, at) => at % crew.length === i)
        yield* member.tell({ order: "transfer", transfers, callers, locked })
        const heard = yield* member.hear
        return heard.report === "transferred" ? heard.visits.map((visit) => relative(member.name, visit, start)) : []
      })
    const visits = (yield* withProgress(
      Effect.forEach(crew, work, { concurrency: "unbounded" }),
      () => "  the processes are at work"
    )).flat()
    return {
      ...(yield* bank.verdict),
      took: Math.max(...visits.map(({ end }) => end)),
      waits: locked ? visits.map(({ asked, start }) => start - asked) : [],
      crowd: crowdOf(visits),
      bars: barsOf(visits.filter(({ from, to }) => from === shown || to === shown), locked)
    } satisfies Outcome
  })

interface Seen extends Omit<Visit, "caller"> {
  readonly lane: string
}

const relative = (name: string, { asked, caller, end, start, ...visit }: Visit, from: number): Seen => {
  const millis = (micros: number) => (micros - from) / 1000
  return { ...visit, lane: `${name}${caller}`, asked: millis(asked), start: millis(start), end: millis(end) }
}

/** How many were at one account at once, at most. */
const crowdOf = (visits: ReadonlyArray<Seen>): number => {
  const steps = visits.flatMap(({ end, from, start, to }) =>
    [from, to].flatMap((account) => [{ account, at: start, by: 1 }, { account, at: end, by: -1 }])
  )
  const there = new Map<string, number>()
  let crowd = 0
  for (const { account, by } of steps.sort((a, b) => a.at - b.at || a.by - b.by)) {
    const now = (there.get(account) ?? 0) + by
    there.set(account, now)
    crowd = Math.max(crowd, now)
  }
  return crowd
}

const barsOf = (visits: ReadonlyArray<Seen>, locked: boolean): ReadonlyArray<Bar> =>
  [...visits].sort((a, b) => a.start - b.start).map(({ asked, end, lane, start, undid }, i) => ({
    lane,
    label: locked ? `${i + 1}` : "",
    failed: undid,
    phases: [
      ...(locked ? [{ kind: "wait" as const, from: asked, until: start }] : []),
      { kind: "hold" as const, from: start, until: end }
    ]
  }))
