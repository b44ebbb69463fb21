import { assert, describe, it } from "@effect/vitest"
import { Duration } from "effect"
import type { Capabilities } from "effect-locking/LockDriver"
import { InvalidOptions } from "effect-locking/LockError"
import type { AcquireOptions, LockingOptions } from "effect-locking/LockOptions"
import * as fc from "fast-check"
import * as util from "node:util"
import {
  type CallOptions,
  defaultCall,
  longest,
  parseCall,
  parseLayer,
  parseTry,
  type Settings
} from "../src/internal/options.js"

const remote: Capabilities = {
  modes: ["exclusive", "shared"],
  fair: false,
  push: true,
  expiry: "server",
  remote: true,
  ttl: { default: Duration.seconds(15), min: Duration.millis(100), infinite: false }
}
const memory: Capabilities = {
  ...remote,
  expiry: "none",
  remote: false,
  ttl: { default: Duration.infinity, min: Duration.zero, infinite: true }
}
const exclusiveOnly: Capabilities = { ...remote, modes: ["exclusive"] }

const refuse = (result: unknown): InvalidOptions => {
  assert.instanceOf(result, InvalidOptions)
  return result as InvalidOptions
}

const issuesOf = (result: unknown): Readonly<Record<string, string>> =>
  Object.fromEntries(refuse(result).issues.map((issue) => [issue.path, issue.message]))

const layer = (options: unknown, capabilities = remote): Settings | InvalidOptions =>
  parseLayer(options as LockingOptions, { name: "redis", capabilities }, "session-1")

const acceptLayer = (options: unknown, capabilities = remote): Settings => {
  const result = layer(options, capabilities)
  if (result instanceof InvalidOptions) assert.fail(result.message)
  return result
}

const call = (options: unknown, capabilities = remote, settings = acceptLayer({}, capabilities)) =>
  parseCall(options as AcquireOptions, settings, defaultCall(settings), capabilities)

const acceptCall = (options: unknown, capabilities = remote, settings?: Settings): CallOptions => {
  const result = call(options, capabilities, settings)
  if (result instanceof InvalidOptions) assert.fail(result.message)
  return result
}

const anything = fc.anything({ withBigInt: true, withNullPrototype: true, withObjectString: true, withDate: true })

const callNames = [
  "mode",
  "ttl",
  "waitTimeout",
  "attemptTimeout",
  "autoRenew",
  "maxHold",
  "reentrant",
  "fair",
  "metadata"
]
const layerNames = [
  "backend",
  "namespace",
  "tenancy",
  "session",
  "ttl",
  "waitTimeout",
  "attemptTimeout",
  "maxKeys",
  "maxWaiters",
  "maxKeyBytes",
  "pollInterval",
  "shutdownTimeout",
  "maxHandovers",
  "holdWarning",
  "tracing",
  "start"
]

/** Values near what is right, where mistakes hide. */
const near = fc.oneof(
  anything,
  fc.constantFrom<unknown>(
    0,
    -0,
    1,
    -1,
    0.1,
    NaN,
    Infinity,
    -Infinity,
    5e-324,
    1e308,
    2 ** 31,
    2 ** 53,
    longest,
    longest + 1
  ),
  fc.bigInt(),
  fc.constantFrom(
    "5 seconds",
    "5 secnds",
    "-5 seconds",
    "0 millis",
    "-0 millis",
    "1e3 seconds",
    "Infinity",
    "",
    "5",
    "5s"
  ),
  fc.tuple(fc.integer(), fc.integer()),
  fc.constantFrom<unknown>([1], [1, 2, 3], [NaN, 0], [-1, 0], [0, -1], [Infinity, 0], [1e308, 1e308], ["1", 2]),
  fc.constantFrom(Duration.zero, Duration.infinity, Duration.seconds(5), Duration.nanos(1n)),
  fc.constantFrom("exclusive", "shared", "wait", "optional", "required", "contended", "all", "off", "eager", "lazy"),
  fc.boolean(),
  fc.dictionary(fc.string(), fc.oneof(fc.string(), anything))
)

const bag = (names: ReadonlyArray<string>) =>
  fc.dictionary(fc.oneof(fc.constantFrom(...names), fc.string()), near, { maxKeys: 6 })

describe("options of a layer", () => {
  it("R6.6 defaults", () => {
    const expected: Settings = {
      backend: "redis",
      namespace: "effect-locking",
      tenancy: "optional",
      session: "session-1",
      ttl: 15_000,
      waitTimeout: 5000,
      attemptTimeout: undefined,
      maxKeys: 10_000,
      maxWaiters: 4096,
      maxKeyBytes: 1024,
      pollInterval: 250,
      shutdownTimeout: 5000,
      maxHandovers: 4,
      holdWarning: 60_000,
      tracing: "contended",
      start: "eager"
    }
    assert.deepStrictEqual(acceptLayer(undefined), expected)
    assert.deepStrictEqual(acceptLayer({}), expected)
    assert.deepStrictEqual(acceptLayer(Object.fromEntries(layerNames.map((name) => [name, undefined]))), expected)
    assert.deepStrictEqual(acceptLayer({}, memory), { ...expected, ttl: Infinity })
  })

  it("all that is given is taken", () => {
    const given = {
      backend: "orders",
      namespace: "billing",
      tenancy: "required",
      session: "worker-7",
      ttl: "30 seconds",
      waitTimeout: Duration.infinity,
      attemptTimeout: 500,
      maxKeys: 1,
      maxWaiters: 0,
      maxKeyBytes: 64,
      pollInterval: [0, 20_000_000],
      shutdownTimeout: 0,
      maxHandovers: 0,
      holdWarning: Infinity,
      tracing: "off",
      start: "lazy"
    }
    assert.sameMembers(Object.keys(given), layerNames)
    assert.deepStrictEqual(acceptLayer(given), {
      ...given,
      ttl: 30_000,
      waitTimeout: Infinity,
      pollInterval: 20
    } as Settings)
  })

  const ranges: ReadonlyArray<
    readonly [name: string, inside: ReadonlyArray<unknown>, outside: ReadonlyArray<unknown>]
  > = [
    ["ttl", [100, longest, "1 day"], [0, 99, "99 millis", Infinity, Duration.infinity, longest + 1, -1, NaN, null]],
    ["waitTimeout", [0, 1, Infinity, longest, 0n], [-1, -0.1, -1n, NaN, longest + 1, "5 secnds", null, {}]],
    ["attemptTimeout", [1, 2000], [0, 0.5, Infinity, -1, NaN]],
    ["maxKeys", [1, 1_000_000], [0, -1, 1.5, 1_000_001, NaN, Infinity, "5", 5n, null]],
    ["maxWaiters", [0, 100_000], [-1, 100_001, 0.5]],
    ["maxKeyBytes", [1, 1024], [0, 1025]],
    ["pollInterval", [10, 60_000, "1 minute"], [9, 60_001, Infinity, 0]],
    ["shutdownTimeout", [0, "1 hour"], [-1, Infinity, NaN]],
    ["maxHandovers", [0, 1000], [-1, 1001]],
    ["holdWarning", [0, 1, Infinity], [-1, NaN]],
    ["tenancy", ["optional", "required"], ["Required", true, null]],
    ["tracing", ["contended", "all", "off"], ["on", false]],
    ["start", ["eager", "lazy"], ["", 1]],
    ["backend", ["orders", "é".repeat(128)], ["", "x".repeat(129), "a\nb", "\ud800", 5]],
    ["session", ["worker 7"], ["", "x".repeat(129), "a\u0000b", null]],
    ["namespace", ["a", ":", "é".repeat(512)], ["", "a{b", "a}b", "a\u0000", "\ud800", "x".repeat(1025), 5, null]]
  ]

  it("every option has its range here", () => assert.sameMembers(ranges.map(([name]) => name), layerNames))

  for (const [name, inside, outside] of ranges) {
    it(`R6.6 range of ${name}`, () => {
      for (const value of inside) assert.notInstanceOf(layer({ [name]: value }), InvalidOptions, util.inspect(value))
      for (const value of outside) {
        assert.deepStrictEqual(Object.keys(issuesOf(layer({ [name]: value }))), [name], util.inspect(value))
      }
    })
  }

  it("R4.3 the namespace follows maxKeyBytes", () => {
    assert.match(issuesOf(layer({ namespace: "abcde", maxKeyBytes: 4 }))["namespace"]!, /at most 4 bytes/)
  })

  it("all issues at once", () => {
    const issues = issuesOf(layer({ ttl: -1, maxKeys: 0, tracing: "on", namespace: "{", backend: "", nonsense: 1 }))
    assert.sameMembers(Object.keys(issues), ["ttl", "maxKeys", "tracing", "namespace", "backend", "nonsense"])
  })

  it("names the backend of the error", () => {
    assert.strictEqual(refuse(layer({ backend: "orders", ttl: -1 })).backend, "orders")
    assert.strictEqual(refuse(layer({ ttl: -1 })).backend, "redis")
    assert.strictEqual(refuse(layer({ backend: 5 })).backend, "redis")
    assert.strictEqual(refuse(layer(5)).backend, "redis")
  })

  it("R verification 68 anything is accepted or refused, never a defect", () => {
    fc.assert(
      fc.property(fc.oneof(anything, bag(layerNames)), fc.constantFrom(remote, memory), (options, capabilities) => {
        const result = layer(options, capabilities)
        if (result instanceof InvalidOptions) {
          assert.isAbove(result.issues.length, 0)
          assert.isString(result.message)
        } else {
          for (const name of ["ttl", "waitTimeout", "pollInterval", "shutdownTimeout", "holdWarning"] as const) {
            assert.isTrue(result[name] >= 0, name)
          }
          assert.isFinite(result.pollInterval)
          assert.isFinite(result.shutdownTimeout)
        }
      }),
      { numRuns: 2000 }
    )
  })
})

describe("options of a call", () => {
  it("R6.6 defaults", () => {
    assert.deepStrictEqual(acceptCall(undefined), {
      mode: "exclusive",
      ttl: 15_000,
      waitTimeout: 5000,
      attemptTimeout: 2000,
      autoRenew: true,
      maxHold: Infinity,
      reentrant: false,
      fair: false,
      metadata: {}
    })
    assert.deepStrictEqual(acceptCall({}), acceptCall(undefined))
    assert.deepStrictEqual(
      acceptCall(Object.fromEntries(callNames.map((name) => [name, undefined]))),
      acceptCall(undefined)
    )
  })

  it("none at all answers the defaults themselves", () => {
    const settings = acceptLayer({})
    const defaults = defaultCall(settings)
    assert.strictEqual(parseCall(undefined, settings, defaults, remote), defaults)
    assert.strictEqual(parseTry(undefined, settings, defaults, remote), defaults)
  })

  it("come from the layer where the call names none", () => {
    const settings = acceptLayer({ ttl: 3000, waitTimeout: 0, attemptTimeout: 700 })
    const { attemptTimeout, ttl, waitTimeout } = acceptCall({ mode: "shared" }, remote, settings)
    assert.deepStrictEqual([ttl, waitTimeout, attemptTimeout], [3000, 0, 700])
  })

  it("R1.7 attemptTimeout is the smaller of a third of the ttl and 2 seconds, at least 1 ms", () => {
    assert.strictEqual(acceptCall({ ttl: 600 }).attemptTimeout, 200)
    assert.strictEqual(acceptCall({ ttl: "1 day" }).attemptTimeout, 2000)
    assert.strictEqual(acceptCall({ ttl: 1 }, memory).attemptTimeout, 1)
    assert.strictEqual(acceptCall({}, memory).attemptTimeout, 2000)
    assert.strictEqual(acceptCall({ ttl: 600, attemptTimeout: 50 }).attemptTimeout, 50)
    // the layer's wins over what follows from the call's ttl
    assert.strictEqual(acceptCall({ ttl: 600 }, remote, acceptLayer({ attemptTimeout: 700 })).attemptTimeout, 700)
    assert.strictEqual(defaultCall(acceptLayer({ ttl: 300 })).attemptTimeout, 100)
  })

  it("B45 odd waits: 0, 1 ms, 1 s and Infinity are taken, negative, NaN and malformed refused", () => {
    const taken: ReadonlyArray<readonly [unknown, number]> = [
      [0, 0],
      [-0, 0],
      [0n, 0],
      ["0 millis", 0],
      ["-0 millis", 0],
      [1, 1],
      ["1 milli", 1],
      [[0, 1_000_000], 1],
      [1000, 1000],
      ["1 second", 1000],
      [1_000_000_000n, 1000],
      [[1, 0], 1000],
      [0.25, 0.25],
      ["250 micros", 0.25],
      [Infinity, Infinity],
      [Duration.infinity, Infinity],
      [[Infinity, 0], Infinity],
      // a Duration is never negative: it became zero before we saw it
      [Duration.millis(-5), 0]
    ]
    for (const [waitTimeout, millis] of taken) {
      assert.isTrue(Object.is(acceptCall({ waitTimeout }).waitTimeout, millis), util.inspect(waitTimeout))
    }
    for (
      const waitTimeout of [-1, -0.001, -1n, "-1 second", "-0.5 millis", [-1, 0], [1, -1], -Infinity, [-Infinity, 0]]
    ) {
      assert.match(
        issuesOf(call({ waitTimeout }))["waitTimeout"]!,
        /must not be negative, got/,
        util.inspect(waitTimeout)
      )
    }
    for (
      const waitTimeout of [
        NaN,
        "5 secnds",
        "5s",
        "5",
        "",
        "Infinity",
        "1e3 seconds",
        `${"9".repeat(400)}.5 nanos`,
        [NaN, 0],
        [1],
        [1, 2, 3],
        ["1", "2"],
        null,
        true,
        {},
        new Date(),
        () => 5,
        Symbol("5")
      ]
    ) {
      assert.match(
        issuesOf(call({ waitTimeout }))["waitTimeout"]!,
        /must be a duration such as "5 seconds", 500 \(milliseconds\) or Duration\.minutes\(1\), got/,
        util.inspect(waitTimeout)
      )
    }
    assert.match(issuesOf(call({ waitTimeout: "5 secnds" }))["waitTimeout"]!, /got "5 secnds"$/)
  })

  it("no finite duration is longer than a year, however it is written", () => {
    assert.strictEqual(acceptCall({ waitTimeout: "365 days" }).waitTimeout, longest)
    for (
      const waitTimeout of [
        longest + 1,
        Number.MAX_VALUE,
        10n ** 400n,
        Duration.nanos(10n ** 400n),
        "53 weeks",
        `${"9".repeat(400)} weeks`,
        [1e308, 0],
        [1e308, 1e308]
      ]
    ) {
      assert.deepStrictEqual(Object.keys(issuesOf(call({ waitTimeout }))), ["waitTimeout"], util.inspect(waitTimeout))
    }
  })

  it("R1.8 ttl: at least the driver's minimum, infinite only where it says so, at most a year", () => {
    assert.strictEqual(acceptCall({ ttl: 100 }).ttl, 100)
    assert.match(issuesOf(call({ ttl: 99 }))["ttl"]!, /at least 100ms, got 99/)
    assert.match(issuesOf(call({ ttl: Infinity }))["ttl"]!, /must be finite/)
    assert.strictEqual(acceptCall({ ttl: Infinity }, memory).ttl, Infinity)
    assert.strictEqual(acceptCall({ ttl: 0.5 }, memory).ttl, 0.5)
    assert.match(issuesOf(call({ ttl: 0 }, memory))["ttl"]!, /longer than 0, got 0/)
    assert.strictEqual(acceptCall({ ttl: longest }).ttl, longest)
    assert.match(issuesOf(call({ ttl: longest + 1 }))["ttl"]!, /at most 365d/)
  })

  it("R1.10 maxHold is above zero and may be infinite", () => {
    assert.strictEqual(acceptCall({ maxHold: "1 minute" }).maxHold, 60_000)
    assert.strictEqual(acceptCall({ maxHold: Infinity }).maxHold, Infinity)
    assert.match(issuesOf(call({ maxHold: 0 }))["maxHold"]!, /longer than 0/)
  })

  it("R1.6 modes are those of the driver", () => {
    assert.strictEqual(acceptCall({ mode: "shared" }).mode, "shared")
    assert.deepStrictEqual(issuesOf(call({ mode: "shared" }, exclusiveOnly)), {
      mode: "must be \"exclusive\", got \"shared\""
    })
    assert.deepStrictEqual(issuesOf(call({ mode: "Shared" })), {
      mode: "must be \"exclusive\" or \"shared\", got \"Shared\""
    })
  })

  it("R1.9 R1.12 switches", () => {
    assert.strictEqual(acceptCall({ autoRenew: false }).autoRenew, false)
    for (const reentrant of [true, false, "wait"]) assert.strictEqual(acceptCall({ reentrant }).reentrant, reentrant)
    for (const value of [null, 0, 1, "", "true", "Wait", {}]) {
      assert.sameMembers(
        Object.keys(issuesOf(call({ autoRenew: value, reentrant: value }))),
        ["autoRenew", "reentrant"],
        util.inspect(value)
      )
    }
  })

  describe("metadata", () => {
    it("is copied", () => {
      const metadata: Record<string, string> = { user: "u1", empty: "" }
      const taken = acceptCall({ metadata }).metadata
      metadata["user"] = "u2"
      assert.deepStrictEqual(taken, { user: "u1", empty: "" })
      assert.isTrue(Object.isFrozen(taken))
    })

    it("holds strings that every store can keep", () => {
      for (
        const metadata of [
          null,
          "text",
          ["a"],
          { a: 1 },
          { a: null },
          { a: undefined },
          { a: { b: "c" } },
          { "": "a" },
          { a: "\u0000" },
          { "\u0000": "a" },
          { a: "\ud800" }
        ]
      ) {
        assert.deepStrictEqual(Object.keys(issuesOf(call({ metadata }))), ["metadata"], util.inspect(metadata))
      }
    })

    it("R4.4 is never told by the error, neither names nor values", () => {
      for (const metadata of [{ "secret\u0000": "a" }, { a: "secret\u0000" }, { secret: 1 }, "secret", ["secret"]]) {
        const error = refuse(call({ metadata }))
        assert.notInclude(util.inspect(error, { depth: Infinity, showHidden: true }) + JSON.stringify(error), "secret")
      }
    })
  })

  describe("names", () => {
    it("that are nearly right are told", () => {
      const meant: Readonly<Record<string, string>> = {
        tll: "ttl",
        tlt: "ttl",
        mdoe: "mode",
        TTL: "ttl",
        waitTimout: "waitTimeout",
        waittimeout: "waitTimeout",
        watiTimeout: "waitTimeout",
        timeout: "waitTimeout",
        renew: "autoRenew",
        autorenew: "autoRenew",
        maxhold: "maxHold",
        reentrent: "reentrant",
        meta: "metadata",
        metaData: "metadata",
        mod: "mode"
      }
      for (const [name, right] of Object.entries(meant)) {
        assert.strictEqual(issuesOf(call({ [name]: 1 }))[name], `is no option; did you mean \`${right}\`?`, name)
      }
      assert.strictEqual(issuesOf(layer({ maxWaiter: 1 }))["maxWaiter"], "is no option; did you mean `maxWaiters`?")
    })

    it("that are far from all are not", () => {
      for (const name of ["colour", "x", "retries", "a".repeat(40)]) {
        assert.strictEqual(issuesOf(call({ [name]: 1 }))[name], "is no option", name)
      }
    })

    it("of the wrong place say so", () => {
      assert.strictEqual(issuesOf(call({ maxWaiters: 1 }))["maxWaiters"], "is an option of the layer, not of a call")
      assert.strictEqual(issuesOf(layer({ reentrant: true }))["reentrant"], "is an option of a call, not of the layer")
      const settings = acceptLayer({})
      assert.match(
        issuesOf(parseTry({ waitTimeout: 1 } as any, settings, defaultCall(settings), remote))["waitTimeout"]!,
        /use `acquire` or `withLock` to wait/
      )
    })

    it("are refused though their value is undefined: nobody writes them on purpose", () => {
      assert.deepStrictEqual(Object.keys(issuesOf(call({ tll: undefined }))), ["tll"])
    })

    it("R4.4 that look like data are not repeated", () => {
      const error = refuse(call({ "secret customer": 1, ["secret".repeat(10)]: 2 }))
      assert.notInclude(util.inspect(error, { depth: Infinity, showHidden: true }), "secret")
      assert.strictEqual(error.issues[0]!.path, "options")
    })
  })

  it("options are an object", () => {
    for (const options of [null, "5 seconds", 5, true, [], () => 1, Symbol("a"), 5n]) {
      assert.deepStrictEqual(Object.keys(issuesOf(call(options))), ["options"], util.inspect(options))
      assert.deepStrictEqual(Object.keys(issuesOf(layer(options))), ["options"], util.inspect(options))
    }
    assert.notInclude(refuse(call("secret")).message, "secret")
  })

  it("all issues at once, with the backend's name", () => {
    const error = refuse(
      call(
        { ttl: -1, waitTimeout: NaN, mode: "x", reentrant: 1, metadata: 1, tll: 1 },
        remote,
        acceptLayer({ backend: "orders" })
      )
    )
    assert.sameMembers(
      error.issues.map((issue) => issue.path),
      ["ttl", "waitTimeout", "mode", "reentrant", "metadata", "tll"]
    )
    assert.strictEqual(error.backend, "orders")
  })

  it("long values are shortened", () => {
    assert.isBelow(refuse(call({ ttl: "x".repeat(10_000) })).message.length, 250)
    assert.isBelow(refuse(call({ ttl: -(10n ** 5000n) })).message.length, 250)
  })

  it("R verification 68 anything is accepted or refused, never a defect", () => {
    const settings = [acceptLayer({}), acceptLayer({ attemptTimeout: 50, ttl: "1 minute" })]
    fc.assert(
      fc.property(
        fc.oneof(anything, bag(callNames)),
        fc.constantFrom(remote, memory, exclusiveOnly),
        fc.constantFrom(...settings),
        (options, capabilities, settings) => {
          for (const parse of [parseCall, parseTry]) {
            const result = parse(options as any, settings, defaultCall(settings), capabilities)
            if (result instanceof InvalidOptions) {
              assert.isAbove(result.issues.length, 0)
              assert.isString(result.message)
              continue
            }
            assert.isTrue(capabilities.modes.includes(result.mode))
            assert.isTrue(
              result.ttl > 0 && (result.ttl <= longest || (result.ttl === Infinity && capabilities.ttl.infinite))
            )
            assert.isTrue(result.ttl >= Duration.toMillis(capabilities.ttl.min))
            assert.isTrue(result.waitTimeout >= 0 && (result.waitTimeout <= longest || result.waitTimeout === Infinity))
            assert.isTrue(result.attemptTimeout >= 1 && result.attemptTimeout <= longest)
            assert.isTrue(result.maxHold > 0)
            assert.isBoolean(result.autoRenew)
            for (const value of Object.values(result.metadata)) assert.isString(value)
          }
        }
      ),
      { numRuns: 3000 }
    )
  })
})
