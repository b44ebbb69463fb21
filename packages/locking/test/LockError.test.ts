import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Cause, Duration, Effect, Equal, FiberId, JSONSchema, Schema } from "effect"
import * as LockError from "effect-locking/LockError"
import * as LockErrorSchema from "effect-locking/LockErrorSchema"
import * as fc from "fast-check"
import * as util from "node:util"
import { errorCodes, losses } from "../src/internal/pure/errorCodes.js"

const backend = "orders"
const keyHash = "3fa9c11d0b52"
const holder: LockError.HolderSummary = {
  keyHash,
  mode: "exclusive",
  fence: 9007199254740993n,
  since: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
  endsIn: Duration.seconds(9),
  session: "worker-7",
  local: false
}

/** What clients attach to their errors: the driver's author forgot to leave it behind. */
const secrets = ["secret-key", "secret-tenant", "secret-token", "secret-metadata"]
const leaky = (depth = 0): Error =>
  Object.assign(new Error("ERR connection lost", depth < 3 ? { cause: leaky(depth + 1) } : {}), {
    code: "ECONNRESET",
    command: { name: "evalsha", args: ["secret-key", "secret-token"] },
    parameters: ["secret-tenant"],
    detail: "Key (name)=(secret-key) already exists.",
    metadata: { "secret-metadata": "secret-metadata" },
    [Symbol("secret-token")]: "secret-token"
  })

const samples: { readonly [Tag in LockError.LockError["_tag"]]: Extract<LockError.LockError, { readonly _tag: Tag }> } =
  {
    InvalidOptions: new LockError.InvalidOptions({
      backend,
      issues: [{ path: "ttl", message: "must not be negative" }]
    }),
    InvalidKey: new LockError.InvalidKey({ backend, issues: [{ path: "keys[3]", message: "must not be empty" }] }),
    LockBusy: new LockError.LockBusy({ backend, keyHash, waited: Duration.millis(3), holder }),
    WaitTimeout: new LockError.WaitTimeout({
      backend,
      keyHash,
      waited: Duration.seconds(5),
      waitTimeout: Duration.seconds(5),
      holder
    }),
    QueueFull: new LockError.QueueFull({ backend, limit: 4096 }),
    KeyLimit: new LockError.KeyLimit({ backend, limit: 10_000 }),
    LockReentry: new LockError.LockReentry({ backend, keyHash }),
    LockingClosed: new LockError.LockingClosed({ backend }),
    ProviderFailed: new LockError.ProviderFailed({ backend, keyHash, cause: leaky(), retryAfter: Duration.seconds(2) }),
    OutcomeUnknown: new LockError.OutcomeUnknown({ backend, keyHash, cause: leaky() }),
    LeaseLost: new LockError.LeaseLost({
      backend,
      keyHash,
      fence: 12n,
      reason: "taken",
      overrun: Duration.millis(120)
    }),
    StaleFence: new LockError.StaleFence({ backend, resource: 15n, lock: 12n }),
    DriverInvalid: new LockError.DriverInvalid({ backend, problem: "a pooler", remedy: "Give the direct URL." }),
    CleanupFailed: new LockError.CleanupFailed({ backend, failed: 2, cause: leaky() }),
    CleanupTimeout: new LockError.CleanupTimeout({ backend, sections: 1, grants: 3 })
  }

const all: ReadonlyArray<LockError.LockError> = Object.values(samples)

describe("LockError", () => {
  it("R5 codes are stable", () => {
    assert.deepStrictEqual(Object.fromEntries(all.map((error) => [error._tag, error.code])), {
      InvalidOptions: "INVALID_OPTIONS",
      InvalidKey: "INVALID_KEY",
      LockBusy: "LOCK_BUSY",
      WaitTimeout: "WAIT_TIMEOUT",
      QueueFull: "QUEUE_FULL",
      KeyLimit: "KEY_LIMIT",
      LockReentry: "LOCK_REENTRY",
      LockingClosed: "CLOSED",
      ProviderFailed: "PROVIDER_FAILED",
      OutcomeUnknown: "OUTCOME_UNKNOWN",
      LeaseLost: "LEASE_LOST",
      StaleFence: "STALE_FENCE",
      DriverInvalid: "DRIVER_INVALID",
      CleanupFailed: "CLEANUP_FAILED",
      CleanupTimeout: "CLEANUP_TIMEOUT"
    })
    assert.sameMembers(Object.keys(errorCodes), all.map((error) => error._tag))
  })

  for (const error of all) {
    it(`R5 ${error._tag} tells code, backend, message and fix`, () => {
      assert.instanceOf(error, Error)
      assert.isTrue(LockError.isLockError(error))
      assert.strictEqual(error.name, error._tag)
      assert.strictEqual(error.backend, backend)
      assert.isAbove(error.message.length, 20)
      assert.match(error.fix, /^[A-Z`].*\.$/)
      assert.notInclude(error.message + error.fix, "undefined")
      assert.include(error.stack!, `${error._tag}: ${error.message}`)
      assert.include(util.inspect(error), error.message)
      assert.include(Cause.pretty(Cause.fail(error)), error.message)
    })
  }

  it("isLockError knows its own only", () => {
    for (const other of [null, undefined, new Error("x"), { _tag: "LockBusy" }, "LockBusy"]) {
      assert.isFalse(LockError.isLockError(other))
    }
  })

  it("isTransient: nothing ran and a retry may succeed", () => {
    assert.deepStrictEqual(
      all.filter(LockError.isTransient).map((error) => error._tag),
      ["LockBusy", "WaitTimeout", "QueueFull", "KeyLimit", "ProviderFailed", "OutcomeUnknown"]
    )
  })

  it.effect("are caught by their tags", () =>
    Effect.gen(function*() {
      const program = Effect.fail(samples.LockBusy as LockError.AcquireError)
      assert.strictEqual(
        yield* program.pipe(Effect.catchTag("LockBusy", (busy) => Effect.succeed(busy.keyHash))),
        keyHash
      )
      assert.strictEqual((yield* Effect.flip(samples.QueueFull)).limit, 4096)
    }))

  it("are equal when their fields are", () => {
    const make = () => new LockError.StaleFence({ backend, resource: 15n, lock: 12n })
    assert.isTrue(Equal.equals(make(), make()))
    assert.isFalse(Equal.equals(make(), new LockError.StaleFence({ backend, resource: 16n, lock: 12n })))
  })

  describe("R5 messages", () => {
    it("tell the wait, the holder and what is left of its lease", () => {
      assert.strictEqual(
        samples.WaitTimeout.message,
        "Waited 5s for lock 3fa9c11d0b52: held by session \"worker-7\" since 2026-01-02T03:04:05.678Z, " +
          "fence 9007199254740993; the holder's lease ends in 9s"
      )
      assert.include(samples.WaitTimeout.fix, "a wait of 14s")
      assert.strictEqual(
        samples.LockBusy.message,
        "Lock 3fa9c11d0b52 is busy: held by session \"worker-7\" since 2026-01-02T03:04:05.678Z, " +
          "fence 9007199254740993; the holder's lease ends in 9s"
      )
    })

    it("leave out what is not known", () => {
      const message = (holder?: Partial<LockError.HolderSummary>): string =>
        new LockError.WaitTimeout({
          backend,
          keyHash,
          waited: Duration.millis(1500),
          waitTimeout: Duration.millis(1500),
          ...(holder === undefined ? {} : { holder: { keyHash, mode: "exclusive", local: false, ...holder } })
        }).message
      const start = "Waited 1s 500ms for lock 3fa9c11d0b52: held by "
      assert.strictEqual(message(), `${start}somebody else`)
      assert.strictEqual(message({}), `${start}another process`)
      assert.strictEqual(message({ local: true }), `${start}this process`)
      assert.strictEqual(
        message({ local: true, session: "worker-7", mode: "shared" }),
        `${start}this process as a reader`
      )
      assert.strictEqual(message({ endsIn: Duration.infinity }), `${start}another process`)
      assert.strictEqual(message({ endsIn: Duration.zero }), `${start}another process`)
      for (const since of [NaN, Infinity, 8.64e15 + 1]) {
        assert.strictEqual(message({ since }), `${start}another process`)
      }
    })

    it("speak of a lease that lapses only where one does", () => {
      const waited = Duration.seconds(5)
      const error = new LockError.WaitTimeout({ backend, keyHash, waited, waitTimeout: waited })
      assert.strictEqual(error.fix, errorCodes.WaitTimeout.fix)
    })

    it("cannot be forged by names from elsewhere", () => {
      const session = "x\n2026-01-01 INFO all is well\u001b[31m\u202e" + "y".repeat(500)
      const { message } = new LockError.LockBusy({
        backend: "a\nb",
        keyHash,
        waited: Duration.zero,
        holder: { keyHash, mode: "exclusive", local: false, session }
      })
      assert.notMatch(message, /\p{C}/u)
      assert.isBelow(message.length, 250)
      assert.notMatch(new LockError.LockingClosed({ backend: "a\nb" }).message, /\p{C}/u)
    })

    it("list a few issues and count the rest", () => {
      const issues = Array.from({ length: 7 }, (_, i) => ({ path: `keys[${i}]`, message: "must not be empty" }))
      const { message } = new LockError.InvalidKey({ backend, issues })
      assert.strictEqual(message.split("; ").length, 6)
      assert.isTrue(message.startsWith("Invalid key: keys[0] must not be empty; keys[1] must not be empty; "))
      assert.isTrue(message.endsWith("; and 2 more"))
    })

    it("tell each loss and its overrun", () => {
      for (const reason of Object.keys(losses) as Array<LockError.LeaseLostReason>) {
        const error = new LockError.LeaseLost({ backend, keyHash, fence: 12n, reason, overrun: Duration.zero })
        assert.strictEqual(error.message, `The lease of lock ${keyHash}, fence 12, was lost: ${losses[reason].why}`)
        assert.include(error.fix, losses[reason].fix)
      }
      assert.match(samples.LeaseLost.message, /; the section went on for 120ms after that$/)
    })

    it("tell a cause in one line, and when to come back", () => {
      assert.strictEqual(
        samples.ProviderFailed.message,
        "The store of \"orders\" did not grant lock 3fa9c11d0b52: ERR connection lost"
      )
      assert.match(samples.ProviderFailed.fix, /tried again in 2s\.$/)
      assert.strictEqual(
        new LockError.OutcomeUnknown({ backend }).message,
        "The store of \"orders\" did not tell whether it granted the lock"
      )
    })

    it("count in grammar", () => {
      assert.match(new LockError.QueueFull({ backend, limit: 1 }).message, /^1 caller waits/)
      assert.match(new LockError.KeyLimit({ backend, limit: 1 }).message, /: 1 key is/)
      assert.match(new LockError.CleanupFailed({ backend, failed: 1 }).message, /1 lock was not given back$/)
      assert.match(samples.CleanupTimeout.message, /1 section was running, 3 locks were not given back$/)
    })
  })

  describe("R4.4 privacy", () => {
    const caused: ReadonlyArray<LockError.LockError> = [
      samples.ProviderFailed,
      samples.OutcomeUnknown,
      samples.CleanupFailed,
      new LockError.ProviderFailed({ backend, cause: "secret-key" }),
      new LockError.ProviderFailed({ backend, cause: { token: "secret-token" } }),
      new LockError.ProviderFailed({
        backend,
        cause: Object.assign(new AggregateError([leaky()]), { detail: "secret-key" })
      })
    ]

    for (const [index, error] of caused.entries()) {
      it(`${error._tag} ${index} shows nothing that a client attached to its error`, () => {
        const seen = [
          util.inspect(error, { depth: Infinity, showHidden: true, getters: true }),
          util.format("%o %O %j %s", error, error, error, error),
          JSON.stringify(error),
          JSON.stringify(Cause.fail(error)),
          JSON.stringify(Schema.encodeSync(LockErrorSchema.LockError)(error)),
          Cause.pretty(Cause.die(error), { renderErrorCause: true }),
          String(error),
          error.stack
        ].join("\n")
        for (const secret of secrets) assert.notInclude(seen, secret)
      })
    }

    it("keeps name, code, message, frames and causes", () => {
      const cause = samples.ProviderFailed.cause as NodeJS.ErrnoException
      assert.instanceOf(cause, Error)
      assert.strictEqual(cause.name, "Error")
      assert.strictEqual(cause.code, "ECONNRESET")
      assert.strictEqual(cause.message, "ERR connection lost")
      assert.match(cause.stack!, /^Error: ERR connection lost\n\s+at /)
      assert.match(util.inspect(samples.ProviderFailed), /\[cause\]: Error: ERR connection lost/)
      assert.strictEqual(((cause.cause as Error).cause as Error).message, "ERR connection lost")
    })

    it("gathers the messages of an error that gathers others", () => {
      const cause = new AggregateError([new Error("connect ECONNREFUSED ::1:5432"), new Error("connect ECONNREFUSED")])
      assert.match(
        new LockError.ProviderFailed({ backend, cause }).message,
        /: connect ECONNREFUSED ::1:5432; connect ECONNREFUSED$/
      )
    })

    it("looks into a cause of Effect", () => {
      const cause = Cause.sequential(Cause.die(leaky()), Cause.interrupt(FiberId.none))
      const error = new LockError.OutcomeUnknown({ backend, cause })
      assert.match(error.message, /: ERR connection lost$/)
      for (const secret of secrets) {
        assert.notInclude(util.inspect(error, { depth: Infinity, showHidden: true }), secret)
      }
    })

    it("ends circles and odd causes", () => {
      const circle: { cause?: unknown } & Error = new Error("round")
      circle.cause = circle
      const odd = Object.assign(new Error("x"), { message: 42, name: {}, stack: null, code: { secret: 1 } })
      for (const cause of [circle, odd, null, 0, "", Symbol("s"), () => 1, Object.create(null)]) {
        const error = new LockError.OutcomeUnknown({ backend, cause })
        assert.isString(util.inspect(error))
        assert.isString(JSON.stringify(error))
      }
    })
  })

  describe("R5 LockErrorSchema", () => {
    const decode = Schema.decodeUnknownSync(LockErrorSchema.LockError)
    const encode = Schema.encodeSync(LockErrorSchema.LockError)

    for (const error of all) {
      it(`${error._tag} survives JSON`, () => {
        const back = decode(JSON.parse(JSON.stringify(encode(error))))
        assert.strictEqual(back.constructor, error.constructor)
        assert.deepStrictEqual(back.toJSON(), error.toJSON())
        assert.strictEqual(back.message, error.message)
        assert.strictEqual(back.fix, error.fix)
      })

      it(`${error._tag} encodes as JSON.stringify does, and decodes from its tag and fields alone`, () => {
        assert.deepStrictEqual(JSON.parse(JSON.stringify(encode(error))), JSON.parse(JSON.stringify(error)))
        const { code: _code, fix: _fix, message: _message, ...fields } = JSON.parse(JSON.stringify(error))
        assert.deepStrictEqual(decode(fields).toJSON(), error.toJSON())
      })

      it(`${error._tag} has a schema of its own`, () => {
        const schema: Schema.Schema<any, any> = LockErrorSchema[error._tag]
        assert.deepStrictEqual(Schema.encodeSync(schema)(error), encode(error))
        assert.strictEqual(Schema.decodeUnknownSync(schema)(encode(error)).constructor, error.constructor)
        for (const other of all) {
          if (other !== error) assert.isTrue(Schema.decodeUnknownEither(schema)(encode(other))._tag === "Left")
        }
      })
    }

    it("round trip of anything that the schema can make", () => {
      fc.assert(
        fc.property(Arbitrary.make(LockErrorSchema.LockError) as any as fc.Arbitrary<LockError.LockError>, (error) => {
          const wire = JSON.parse(JSON.stringify(encode(error)))
          const back = decode(wire)
          assert.strictEqual(back.constructor, error.constructor)
          assert.deepStrictEqual(JSON.parse(JSON.stringify(encode(back))), wire)
          assert.deepStrictEqual(wire, JSON.parse(JSON.stringify(error)))
        }),
        { numRuns: 300 }
      )
    })

    it("keeps exact fences, endless and odd durations, explicit undefined", () => {
      const error = new LockError.WaitTimeout({
        backend,
        keyHash,
        waited: Duration.micros(1500n),
        waitTimeout: Duration.infinity,
        holder: { keyHash, mode: "shared", local: true, fence: 2n ** 63n - 1n, endsIn: undefined }
      })
      const back = decode(JSON.parse(JSON.stringify(error)))
      if (back._tag !== "WaitTimeout") assert.fail(back._tag)
      assert.isTrue(Equal.equals(back.waited, error.waited))
      assert.isTrue(Equal.equals(back.waitTimeout, Duration.infinity))
      assert.strictEqual(back.holder?.fence, 2n ** 63n - 1n)
      assert.notProperty(back.holder!, "endsIn")
      for (const plain of [(error: LockError.LockError): object => error.toJSON(), encode]) {
        const fields = Object.keys(
          plain(new LockError.ProviderFailed({ backend, cause: undefined, keyHash: undefined }))
        )
        assert.sameMembers(fields, ["_tag", "code", "message", "fix", "backend"])
      }
    })

    it("refuses what is no error", () => {
      const left = Schema.decodeUnknownEither(LockErrorSchema.LockError)
      for (
        const wire of [null, {}, { _tag: "Other" }, { _tag: "LockBusy" }, { ...samples.LockBusy.toJSON(), waited: -1 }]
      ) {
        assert.strictEqual(left(wire)._tag, "Left")
      }
    })

    it("the unions hold what the types say", () => {
      const tags = (schema: { readonly members: ReadonlyArray<unknown> }): ReadonlyArray<string> =>
        all.filter((error) => schema.members.includes(LockErrorSchema[error._tag])).map((error) => error._tag)
      assert.deepStrictEqual(tags(LockErrorSchema.LockError), all.map((error) => error._tag))
      const acquire = all.map((error) => error._tag).slice(0, 10)
      const attempt = acquire.filter((tag) => tag !== "LockBusy" && tag !== "WaitTimeout")
      assert.deepStrictEqual(tags(LockErrorSchema.AcquireError), acquire)
      assert.deepStrictEqual(tags(LockErrorSchema.TryAcquireError), attempt)
      assert.deepStrictEqual(tags(LockErrorSchema.WithLockError), [...acquire, "LeaseLost"])
      assert.deepStrictEqual(tags(LockErrorSchema.TryLockError), [...attempt, "LeaseLost"])
    })

    it("has a JSON schema for readers in other languages", () => {
      const json = JSON.stringify(JSONSchema.make(Schema.encodedSchema(LockErrorSchema.LockError)))
      for (const { code } of Object.values(errorCodes)) assert.include(json, code)
    })
  })
})
