import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Either, Random } from "effect"
import * as fs from "node:fs"
import * as path from "node:path"
import * as Acts from "../demo/acts.js"
import * as Args from "../demo/args.js"
import { demo } from "../demo/demo.js"
import * as Driver from "../demo/driver.js"
import * as Generate from "../demo/generate.js"
import * as Ledger from "../demo/ledger.js"
import * as Backends from "../demo/processes/backends.js"
import { type Backend, Unavailable } from "../demo/processes/bank.js"
import * as Processes from "../demo/processes/demo.js"
import * as Report from "../demo/report.js"
import { detect, type Screen, Terminal } from "../demo/terminal.js"
import * as Timeline from "../demo/timeline.js"
import * as Workers from "../demo/workers.js"
import { capture, run, scratchpad } from "./support.js"

const output = (options: { readonly isTTY?: boolean; readonly columns?: number } = {}) => {
  const written: Array<string> = []
  return { ...options, written, write: (text: string) => written.push(text) }
}

const plain = detect(output(), {})
const rich = detect(output({ isTTY: true, columns: 100 }), { LANG: "en_US.UTF-8" })

const on = (screen: Screen) => Effect.provideService(Terminal, screen)

/** Runs what prints, without its print. */
const quietly = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<void, E, R> =>
  Effect.asVoid(capture(Effect.withRandom(self, Random.make(1))))

const memory = Driver.find("memory")!

/** Nodes that do not share a store: nothing keeps them apart. */
const broken: Driver.Driver = {
  name: "broken",
  nodes: (count, options) =>
    Effect.map(
      Effect.replicateEffect(memory.nodes(1, options), count),
      (nodes) => nodes.map(([node], i) => ({ ...node!, name: String.fromCharCode(97 + i) }))
    )
}

const isPlain = (line: string) => /^[ -~]*$/.test(line)

describe("demo", () => {
  it.live("runs: exit code 0, plain text of at most 100 columns, every claim holds", () =>
    Effect.gen(function*() {
      const [duration, { status, stderr, stdout }] = yield* Effect.timed(run("demo/main.ts"))
      assert.strictEqual(stderr, "")
      assert.strictEqual(status, 0)
      // under 20 on a machine that has nothing else to do
      assert.isBelow(Duration.toSeconds(duration), 90)
      const lines = stdout.split("\n")
      for (const line of lines) {
        assert.isAtMost(line.length, 100, line)
        assert(isPlain(line), line)
      }
      const text = lines.map((line) => line.trim()).join(" ")
      assert.match(text, /ok Money is not where it belongs: [\d,.]+ (lost|too much), \d+ of \d+ accounts are wrong\./)
      assert.match(text, /ok The total holds/)
      assert.match(text, /ok The fence refused the late write\./)
      assert.notInclude(text, "NOT TRUE")
      for (const [file] of text.matchAll(/[\w-]+\.ts/g)) {
        assert(fs.existsSync(path.join(scratchpad, "examples", file)), file)
      }
    }), 120_000)

  it.live.each(Backends.all.map(({ name }) => name))(
    "R3.3 B01 B06 over processes on %s: the killed and the frozen one are replaced, and the late write is refused",
    (name) =>
      Effect.gen(function*() {
        const { status, stderr, stdout } = yield* run("demo/main.ts", "--driver", name)
        assert.strictEqual(stderr, "")
        assert.strictEqual(status, 0, stdout)
        const text = stdout.split("\n").map((line) => line.trim()).join(" ")
        assert.match(text, /ok Money is not where it belongs: [\d,.]+ (lost|too much)/)
        assert.match(text, /which accounts for the difference to the cent\./)
        assert.match(text, /ok The total holds, and all 46 accounts/)
        assert.notInclude(text, "NOT TRUE")
        const [, dead, heir, noticed] =
          /Process (\w) is killed .* Process (\w) takes over .*?, ([\d,.]+) ms after the kill/.exec(text)!
        assert.notStrictEqual(heir, dead)
        const [, sleeper, stand, silent] =
          /Process (\w) freezes .* Process (\w) takes over .*?, ([\d,.]+) ms after the freeze/.exec(text)!
        assert.notStrictEqual(stand, sleeper)
        // a server gives up a silent process after its time; one with sessions sees at once that a process is dead
        const millis = (text: string) => Number(text.replaceAll(",", ""))
        assert.isAbove(millis(silent!), 500)
        assert.isBelow(millis(noticed!), 10_000)
        assert.match(text, new RegExp(`Process ${sleeper} goes on and writes [\\d.]+\\. Refused: Fence \\d+ is older`))
        assert.match(text, /Its call fails LeaseLost/)
      }),
    240_000
  )

  it.live("a server that cannot be had is told before anything is shown", () =>
    Effect.gen(function*() {
      const backend: Backend = { ...Backends.find("pg")!, start: new Unavailable({ message: "no server" }) }
      const ledger = yield* Ledger.read
      const error = yield* Effect.flip(Processes.demo({ backend, ledger, seed: 1 }))
      assert.strictEqual(error.message, "no server")
    }).pipe(on(plain), quietly))

  it.live("an unknown driver, option or seed: exit code 64, and what to do instead", () =>
    Effect.gen(function*() {
      for (
        const [args, remedy] of [
          [["--driver", "paper"], "Take one of: memory, pg, redis."],
          [["--sed", "1"], "--help"],
          [["--seed", "one"], "--seed 7"]
        ] as const
      ) {
        const error = yield* Effect.flip(Args.parse(args))
        assert.strictEqual(error._tag, "UsageError")
        assert.include(error.message, remedy)
      }
      const { status, stderr, stdout } = yield* run("demo/main.ts", "--", "--driver", "paper")
      assert.strictEqual(status, 64)
      assert.strictEqual(stdout, "")
      assert.include(stderr, `There is no driver "paper" here. Take one of: memory, pg, redis.`)
    }), 60_000)

  it.live("takes a driver and a seed, and package managers' own --", () =>
    Effect.gen(function*() {
      const args = yield* Args.parse(["--", "--driver", "memory", "--seed=7"])
      assert.strictEqual(args.driver.name, "memory")
      assert.strictEqual(args.seed, 7)
      assert.isUndefined((yield* Args.parse([])).seed)
      assert.isTrue((yield* Args.parse(["--help"])).help)
    }))

  describe("the ledger", () => {
    it.live("is what the generator makes, and small", () =>
      Effect.gen(function*() {
        const csv = fs.readFileSync(Ledger.file, "utf8")
        assert.strictEqual(csv, Ledger.toCsv(yield* Generate.generate(Generate.defaultSeed)))
        assert.isBelow(csv.length, 60_000)
        assert.deepStrictEqual(yield* Ledger.read, yield* Generate.generate(Generate.defaultSeed))
        assert.notStrictEqual(csv, Ledger.toCsv(yield* Generate.generate(2)))
      }))

    it.live("settles by hand: money moves, the total stays", () =>
      Effect.gen(function*() {
        const ledger = yield* Ledger.fromCsv("a,100\nb,50\nc,0\n\na,b,30\nb,c,70\nc,a,5\n")
        const truth = Ledger.settle(ledger)
        assert.deepStrictEqual([...truth], [["a", 75], ["b", 10], ["c", 65]])
        assert.strictEqual(Ledger.total(truth), 150)
        assert.strictEqual(Ledger.countWrong(new Map([["a", 75], ["b", 11]]), truth), 2)
        assert.strictEqual(Ledger.countOpposed(yield* Ledger.fromCsv("a,1\nb,1\nc,1\n\na,b,1\nb,a,1\na,c,1\n")), 2)
      }))

    it.live("names the line that is broken", () =>
      Effect.gen(function*() {
        for (const csv of ["a,1\nb,1\n\na,b,1.5\n", "a,1\nb,1\n\na,x,1\n", "a,1\nb,1\n\na,a,1\n"]) {
          assert.include((yield* Effect.flip(Ledger.fromCsv(csv))).message, "line 4 ")
        }
      }))
  })

  describe("its acts", () => {
    it.scopedLive("without locks money is lost; R1.5 with them every account is right", () =>
      Effect.gen(function*() {
        const ledger = yield* Generate.generate(3, 400)
        const workers = Workers.on(yield* memory.nodes(3), 4)
        const one = yield* Acts.first(ledger, (shown) => Workers.withoutLocks(ledger, workers, shown))
        assert.isAbove(Math.abs(one.gap), 0)
        assert.strictEqual(Ledger.total(one.outcome.balances), Ledger.total(ledger.opening) + one.gap)
        assert.strictEqual(one.outcome.overwrittenSum, -one.gap)
        assert.isAbove(one.outcome.crowd, 1)
        const two = yield* Acts.second(
          ledger,
          (shown) => Workers.withLocks(ledger, workers, shown),
          one.outcome
        )
        assert.deepStrictEqual(new Map(two.outcome.balances), new Map(Ledger.settle(ledger)))
        assert.strictEqual(two.outcome.crowd, 1)
        assert(two.outcome.fencesRise)
        assert.deepStrictEqual([...one.claims, ...two.claims].filter(({ holds }) => !holds), [])
      }).pipe(on(plain), quietly))

    it.live("R3.2 a worker that freezes past its lease is deposed, and its late write refused", () =>
      Effect.gen(function*() {
        const { claims, story } = yield* Acts.third(memory)
        const { turn, wanted, wentOn } = story.freeze
        assert.strictEqual(turn.refused?.lock, turn.fence)
        assert.strictEqual(story.loss?.reason, "unconfirmed")
        assert.isFalse(wentOn)
        assert.isAbove(story.balance, wanted)
        assert.deepStrictEqual(claims.filter(({ holds }) => !holds), [])
      }).pipe(on(plain), quietly))

    it.live("say so when locks do not lock", () =>
      Effect.gen(function*() {
        const ledger = yield* Generate.generate(3, 400)
        const outcome = yield* Effect.either(demo({ driver: broken, ledger, seed: 3 }))
        if (Either.isLeft(outcome)) assert.strictEqual(outcome.left._tag, "StaleFence")
        else assert.isAbove(outcome.right.filter(({ holds }) => !holds).length, 0)
      }).pipe(on(plain), quietly))
  })

  describe("its terminal", () => {
    it("is plain unless it is a terminal for colours and UTF-8", () => {
      const tty = output({ isTTY: true, columns: 120 })
      const kind = (screen: Screen) => [screen.colour, screen.unicode]
      assert.deepStrictEqual(kind(rich), [true, true])
      assert.deepStrictEqual(kind(detect(tty, { LANG: "C" })), [true, false])
      assert.deepStrictEqual(kind(detect(tty, { LANG: "en_US.UTF-8", LC_ALL: "C" })), [true, false])
      assert.deepStrictEqual(kind(detect(tty, { LANG: "en_US.UTF-8", NO_COLOR: "1" })), [false, false])
      assert.deepStrictEqual(kind(detect(tty, { LANG: "en_US.UTF-8", TERM: "dumb" })), [false, false])
      assert.deepStrictEqual(kind(detect(output(), { LANG: "en_US.UTF-8" })), [false, false])
    })

    it("is at most 100 columns wide", () => {
      assert.strictEqual(detect(output({ isTTY: true, columns: 200 }), {}).width, 100)
      assert.strictEqual(detect(output({ isTTY: true, columns: 80 }), {}).width, 80)
      assert.isAtMost(plain.width, 100)
    })

    it.live("shows progress on a terminal only, and wipes it", () =>
      Effect.gen(function*() {
        const [tty, pipe] = [output({ isTTY: true }), output()]
        for (const screen of [detect(tty, {}), detect(pipe, {})]) {
          yield* screen.status("10 of 20")
          yield* screen.status("11")
          yield* screen.status("")
        }
        assert.deepStrictEqual(tty.written, ["\r10 of 20", "\r11      ", "\r  \r"])
        assert.deepStrictEqual(pipe.written, [])
      }))

    it.live("shows the progress of what takes long, until it is over", () =>
      Effect.gen(function*() {
        const tty = output({ isTTY: true })
        const work = (ms: number) => Workers.withProgress(Effect.sleep(ms), () => "half").pipe(on(detect(tty, {})))
        yield* work(10)
        assert.deepStrictEqual(tty.written, ["\r\r"])
        yield* work(700)
        yield* Effect.sleep(300)
        assert.strictEqual(tty.written.at(-1), "\r    \r")
        assert.isAbove(tty.written.filter((text) => text === "\rhalf").length, 0)
      }))
  })

  describe("its timeline", () => {
    const bar = (lane: string, label: string, from: number, until: number, failed = false): Timeline.Bar => ({
      lane,
      label,
      failed,
      phases: [{ kind: "wait", from: from - 2, until: from }, { kind: "hold", from, until }]
    })
    const picture = (width: number): Timeline.Timeline => ({
      lanes: ["a", "b"],
      bars: [bar("a", "1", 2, 12), bar("b", "2", 12, 20, true), bar("a", "333", 20, 22)],
      from: 0,
      until: width,
      meaning: { wait: "waits", hold: "holds", failed: "refused" }
    })

    it("draws bars that only touch without overlap", () => {
      const screen = { ...plain, width: 60 }
      const [axis, a, b, legend] = Timeline.draw(screen, picture(53))
      assert.strictEqual(axis, "  ms 0         10        20        30        40        50")
      assert.strictEqual(a, "  a  ..[1=======]      ..==")
      assert.strictEqual(b, "  b            ..[2=====X")
      assert.strictEqual(legend, "     .. waits   == holds   X refused")
    })

    it("has the same columns with symbols and colours", () => {
      const draw = (screen: Screen) => Timeline.draw({ ...screen, width: 60 }, picture(53))
      // eslint-disable-next-line no-control-regex -- the escape sequences are what is taken out
      const bare = draw(rich).map((line) => line.replaceAll(/\u001b\[[\d;]*m/g, ""))
      assert.deepStrictEqual(bare.map((line) => line.length), draw(plain).map((line) => line.length))
      assert.notDeepEqual(bare, draw(rich))
    })

    it("breaks its legend, and text, between words", () => {
      const meaning = { wait: "w".repeat(30), hold: "h".repeat(30) }
      const lines = Timeline.draw({ ...plain, width: 60 }, { ...picture(53), meaning })
      assert.lengthOf(lines, 5)
      assert.deepStrictEqual(Report.wrap("one two three", 8), ["one two", "three"])
    })
  })
})
