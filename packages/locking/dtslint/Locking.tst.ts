import type { Layer, Option, Stream } from "effect"
import { Context, Duration, Effect, type Scope } from "effect"
import * as Fence from "effect-locking/Fence"
import type * as FencedRegister from "effect-locking/FencedRegister"
import * as Lease from "effect-locking/Lease"
import type { Deposed, Finding, HeldKey, Holder, LockDriver, LockMode } from "effect-locking/LockDriver"
import type * as LockError from "effect-locking/LockError"
import type { LockEvent } from "effect-locking/LockEvent"
import * as Locking from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import type { AcquireOptions, TryOptions } from "effect-locking/LockOptions"
import { describe, expect, it } from "tstyche"

class Own extends Context.Tag("Own")<Own, number>() {}

interface OwnError {
  readonly _tag: "OwnError"
}

declare const body: Effect.Effect<number, OwnError, Own>
declare const plain: Effect.Effect<string>
declare const service: Locking.Locking
declare const register: FencedRegister.FencedRegister<number>
declare const driver: Effect.Effect<LockDriver, "no driver", Own | Scope.Scope>
declare const memory: LockDriver
declare const options: AcquireOptions
declare const mode: LockMode

type WithLock = Effect.Effect<number, OwnError | LockError.WithLockError, Own | Locking.Locking>
type IfAvailable = Effect.Effect<
  Option.Option<number>,
  OwnError | LockError.TryLockError,
  Own | Locking.Locking
>

describe("withLock", () => {
  it("R1.1 adds its own errors and the service, and nothing else", () => {
    expect(Locking.withLock(body, "k")).type.toBe<WithLock>()
    expect(Locking.withLock(body, "k", { waitTimeout: "1 second" })).type.toBe<WithLock>()
    expect(body.pipe(Locking.withLock("k"))).type.toBe<WithLock>()
    expect(body.pipe(Locking.withLock("k", { ttl: Duration.seconds(1) }))).type.toBe<WithLock>()
    expect(body.pipe(Locking.withLock(LockKey.platform("k")))).type.toBe<WithLock>()
    expect(Locking.withLock(plain, "k")).type.toBe<Effect.Effect<string, LockError.WithLockError, Locking.Locking>>()
    expect(service.withLock(body, "k", options)).type.toBe<
      Effect.Effect<number, OwnError | LockError.WithLockError, Own>
    >()
  })

  it("R5 errors can be caught one by one", () => {
    const caught = Locking.withLock(plain, "k").pipe(
      Effect.catchTag("WaitTimeout", (error) => Effect.succeed(error.waited)),
      Effect.catchTags({
        LeaseLost: (error) => Effect.succeed(error.reason),
        LockReentry: (error) => Effect.succeed(error.keyHash)
      })
    )
    expect(caught).type.toBe<
      Effect.Effect<
        string | Duration.Duration | LockError.LeaseLostReason,
        Exclude<LockError.WithLockError, LockError.WaitTimeout | LockError.LeaseLost | LockError.LockReentry>,
        Locking.Locking
      >
    >()
  })

  it("R1.7 R6.6 options that do not exist, or have another type, do not compile", () => {
    expect(Locking.withLock).type.not.toBeCallableWith(plain, "k", { timeout: "1 second" })
    expect(Locking.withLock).type.not.toBeCallableWith(plain, "k", { waitTimeout: "soon" })
    expect(Locking.withLock).type.not.toBeCallableWith(plain, "k", { mode: "write" })
    expect(Locking.withLock).type.not.toBeCallableWith(plain, "k", { reentrant: "yes" })
    expect(Locking.withLock).type.not.toBeCallableWith(plain, "k", { metadata: { a: 1 } })
    expect(Locking.withLock).type.not.toBeCallableWith(plain, "k", { maxKeys: 1 })
    expect(Locking.withLock).type.not.toBeCallableWith(plain, "k", "1 second")
    expect(Locking.withLock).type.toBeCallableWith(plain, "k", { waitTimeout: undefined, mode: undefined })
  })

  it("R4.3 a key is a string or a LockKey", () => {
    expect(Locking.withLock).type.not.toBeCallableWith(plain, 1)
    expect(Locking.withLock).type.not.toBeCallableWith(plain, ["k"])
    expect(Locking.withLock).type.not.toBeCallableWith(plain, { name: "k" })
    expect(Locking.withLock).type.not.toBeCallableWith(plain)
    expect(Locking.withLock).type.toBeCallableWith(plain, LockKey.make("k"))
  })
})

describe("useLock", () => {
  it("R1.2 the body gets a lease of the mode that was asked for", () => {
    expect(Locking.useLock("k", (lease) => {
      expect(lease).type.toBe<Lease.Lease<"exclusive">>()
      return body
    })).type.toBe<WithLock>()
    expect(Locking.useLock("k", { ttl: "1 second" }, (lease) => {
      expect(lease).type.toBe<Lease.Lease<"exclusive">>()
      return body
    })).type.toBe<WithLock>()
    expect(Locking.useLock("k", { mode: "shared" }, (lease) => {
      expect(lease).type.toBe<Lease.Lease<"shared">>()
      return body
    })).type.toBe<WithLock>()
    Locking.useLock("k", { mode: "exclusive" }, (lease) => {
      expect(lease).type.toBe<Lease.Lease<"exclusive">>()
      return body
    })
    expect(service.useLock("k", { mode: "shared" }, (lease) => Effect.succeed(lease.fence))).type.toBe<
      Effect.Effect<Fence.SharedFence, LockError.WithLockError>
    >()
  })

  it("R1.2 R1.6 where the mode is known at run time only, so is the kind of fence", () => {
    Locking.useLock("k", options, (lease) => {
      expect(lease).type.toBe<Lease.Lease<LockMode>>()
      expect(lease.fence).type.toBe<Fence.Fence | Fence.SharedFence>()
      return body
    })
    Locking.useLock("k", { mode }, (lease) => {
      expect(lease).type.toBe<Lease.Lease<LockMode>>()
      return body
    })
  })

  it("R1.2 wrong options and bodies do not compile", () => {
    expect(Locking.useLock).type.not.toBeCallableWith("k", { mode: "read" }, () => plain)
    expect(Locking.useLock).type.not.toBeCallableWith("k", { waitTimout: 1 }, () => plain)
    expect(Locking.useLock).type.not.toBeCallableWith("k", plain)
    expect(Locking.useLock).type.not.toBeCallableWith("k", {})
    expect(Locking.useLock).type.not.toBeCallableWith("k", () => "not an effect")
    expect(Locking.useLock).type.not.toBeCallableWith(["k"], () => plain)
  })
})

describe("withLocks and useLocks", () => {
  it("R1.5 have the types of their singular", () => {
    expect(Locking.withLocks(body, ["a", LockKey.make("b")])).type.toBe<WithLock>()
    expect(Locking.withLocks(body, ["a"], options)).type.toBe<WithLock>()
    expect(body.pipe(Locking.withLocks(["a", "b"]))).type.toBe<WithLock>()
    expect(body.pipe(Locking.withLocks(["a", "b"], { mode: "shared" }))).type.toBe<WithLock>()
    expect(Locking.useLocks(["a"], (leases) => {
      expect(leases).type.toBe<ReadonlyArray<Lease.Lease<"exclusive">>>()
      return body
    })).type.toBe<WithLock>()
    expect(Locking.useLocks(["a"], { mode: "shared" }, (leases) => {
      expect(leases).type.toBe<ReadonlyArray<Lease.Lease<"shared">>>()
      return body
    })).type.toBe<WithLock>()
  })

  it("R1.5 a single key is no list", () => {
    expect(Locking.withLocks).type.not.toBeCallableWith(plain, "a")
    expect(Locking.useLocks).type.not.toBeCallableWith("a", () => plain)
    expect(Locking.withLocks).type.not.toBeCallableWith(plain, [1])
    expect(Locking.withLocks).type.not.toBeCallableWith(plain, ["a"], { retries: 1 })
  })
})

describe("withLockIfAvailable", () => {
  it("R1.4 answers an option, and cannot fail with what it answers", () => {
    expect(Locking.withLockIfAvailable(body, "k")).type.toBe<IfAvailable>()
    expect(Locking.withLockIfAvailable(body, "k", { mode: "shared" })).type.toBe<IfAvailable>()
    expect(body.pipe(Locking.withLockIfAvailable("k"))).type.toBe<IfAvailable>()
    expect(body.pipe(Locking.withLockIfAvailable("k", { ttl: 1000 }))).type.toBe<IfAvailable>()
    expect<Extract<LockError.TryLockError, { _tag: "LockBusy" | "WaitTimeout" }>>().type.toBe<never>()
  })

  it("R1.4 does not wait, so it takes no waitTimeout", () => {
    expect(Locking.withLockIfAvailable).type.not.toBeCallableWith(plain, "k", { waitTimeout: "1 second" })
    expect(Locking.tryAcquire).type.not.toBeCallableWith("k", { waitTimeout: "1 second" })
    expect(Locking.tryAcquire).type.not.toBeCallableWith("k", { fair: true })
    expect<keyof TryOptions>().type.toBe<Exclude<keyof AcquireOptions, "waitTimeout" | "fair">>()
  })
})

describe("acquire and tryAcquire", () => {
  it("R1.3 a lease of the mode that was asked for, in a scope", () => {
    expect(Locking.acquire("k")).type.toBe<
      Effect.Effect<Lease.Lease<"exclusive">, LockError.AcquireError, Locking.Locking | Scope.Scope>
    >()
    expect(Locking.acquire("k", { ttl: "1 second" })).type.toBe<
      Effect.Effect<Lease.Lease<"exclusive">, LockError.AcquireError, Locking.Locking | Scope.Scope>
    >()
    expect(Locking.acquire("k", { mode: "shared" })).type.toBe<
      Effect.Effect<Lease.Lease<"shared">, LockError.AcquireError, Locking.Locking | Scope.Scope>
    >()
    expect(Locking.acquire("k", options)).type.toBe<
      Effect.Effect<Lease.Lease<LockMode>, LockError.AcquireError, Locking.Locking | Scope.Scope>
    >()
    expect(service.acquire("k")).type.toBe<
      Effect.Effect<Lease.Lease<"exclusive">, LockError.AcquireError, Scope.Scope>
    >()
    expect<Extract<LockError.AcquireError, { _tag: "LeaseLost" }>>().type.toBe<never>()
  })

  it("R1.4 one that may not be there", () => {
    expect(Locking.tryAcquire("k")).type.toBe<
      Effect.Effect<
        Option.Option<Lease.Lease<"exclusive">>,
        LockError.TryAcquireError,
        Locking.Locking | Scope.Scope
      >
    >()
    expect(Locking.tryAcquire("k", { mode: "shared" })).type.toBe<
      Effect.Effect<Option.Option<Lease.Lease<"shared">>, LockError.TryAcquireError, Locking.Locking | Scope.Scope>
    >()
  })

  it("R1.6 wrong modes and options do not compile", () => {
    expect(Locking.acquire).type.not.toBeCallableWith("k", { mode: "write" })
    expect(Locking.acquire).type.not.toBeCallableWith("k", { lease: 1 })
    expect(Locking.tryAcquire).type.not.toBeCallableWith("k", { mode: 1 })
  })
})

describe("operating", () => {
  it("R10.3 questions fail as questions do", () => {
    type Asked = LockError.InvalidKey | LockError.LockingClosed | LockError.ProviderFailed | LockError.OutcomeUnknown
    expect(Locking.inspect("k")).type.toBe<Effect.Effect<ReadonlyArray<Holder>, Asked, Locking.Locking>>()
    expect(Locking.forceRelease("k")).type.toBe<Effect.Effect<Deposed, Asked, Locking.Locking>>()
    expect(Locking.forceRelease("k", { hard: true })).type.toBe<Effect.Effect<Deposed, Asked, Locking.Locking>>()
    expect(Locking.check).type.toBe<Effect.Effect<ReadonlyArray<Finding>, Locking.AdminError, Locking.Locking>>()
    expect(Locking.list({ prefix: "a", scope: "tenant", tenant: "acme" })).type.toBe<
      Effect.Effect<ReadonlyArray<HeldKey>, Locking.AdminError, Locking.Locking>
    >()
    expect(Locking.list).type.not.toBeCallableWith({ key: "a" })
    expect(Locking.list()).type.toBe<
      Effect.Effect<
        ReadonlyArray<HeldKey>,
        LockError.LockingClosed | LockError.ProviderFailed | LockError.OutcomeUnknown,
        Locking.Locking
      >
    >()
  })

  it("R10.2 events cannot fail", () => {
    expect(Locking.events).type.toBe<Effect.Effect<Stream.Stream<LockEvent>, never, Locking.Locking>>()
  })
})

describe("the service", () => {
  it("R5 fails as the functions do, and needs itself no more", () => {
    type Guarded = Effect.Effect<number, OwnError | LockError.WithLockError, Own>
    expect(service.withLocks(body, ["k", "l"], options)).type.toBe<Guarded>()
    expect(service.useLocks(["k", "l"], () => body)).type.toBe<Guarded>()
    expect(service.useLocks(["k"], { mode: "shared" }, () => body)).type.toBe<Guarded>()
    expect(service.withLockIfAvailable(body, "k")).type.toBe<
      Effect.Effect<Option.Option<number>, OwnError | LockError.TryLockError, Own>
    >()
    expect(service.tryAcquire("k")).type.toBe<
      Effect.Effect<Option.Option<Lease.Lease<"exclusive">>, LockError.TryAcquireError, Scope.Scope>
    >()
    expect(service.inspect("k")).type.toBe<
      Effect.Effect<ReadonlyArray<Holder>, LockError.InvalidKey | Locking.AdminError>
    >()
    expect(service.list()).type.toBe<Effect.Effect<ReadonlyArray<HeldKey>, Locking.AdminError>>()
    expect(service.list({ tenant: "acme" })).type.toBe<
      Effect.Effect<ReadonlyArray<HeldKey>, Locking.AdminError>
    >()
    expect(service.forceRelease("k")).type.toBe<Effect.Effect<Deposed, LockError.InvalidKey | Locking.AdminError>>()
    expect(service.check).type.toBe<Effect.Effect<ReadonlyArray<Finding>, Locking.AdminError>>()
    expect(service.resolveKey("k")).type.toBe<Effect.Effect<LockKey.ResolvedKey, LockError.InvalidKey>>()
    expect(service.events).type.toBe<Effect.Effect<Stream.Stream<LockEvent>>>()
  })

  it("R4.1 R5 resolveKey refuses keys alone", () => {
    expect(Locking.resolveKey("k")).type.toBe<
      Effect.Effect<LockKey.ResolvedKey, LockError.InvalidKey, Locking.Locking>
    >()
  })

  it("R5 starting fails by options, by a store that is down, and by one that must not be used", () => {
    type Start = LockError.InvalidOptions | LockError.ProviderFailed | LockError.DriverInvalid
    expect<LockError.StartError>().type.toBe<Start>()
    expect(Locking.make(memory, { ttl: "1 second" })).type.toBe<Effect.Effect<Locking.Locking, Start, Scope.Scope>>()
  })
})

describe("layers", () => {
  it("R8.1 the memory layer needs nothing and cannot fail", () => {
    expect(Locking.layerMemory).type.toBe<Layer.Layer<Locking.Locking>>()
    expect(Locking.layerMemoryWith({ ttl: "1 second" })).type.toBe<
      Layer.Layer<Locking.Locking, LockError.InvalidOptions>
    >()
    expect(Locking.layerMemoryWith).type.not.toBeCallableWith({ timeToLive: 1 })
    expect(Locking.layerMemoryWith).type.not.toBeCallableWith({ reentrant: true })
  })

  it("R8.5 a layer over a driver has the driver's errors and needs", () => {
    expect(Locking.layer(driver)).type.toBe<
      Layer.Layer<Locking.Locking, "no driver" | LockError.StartError, Own>
    >()
    expect(Locking.layer).type.not.toBeCallableWith(driver, { start: "later" })
  })
})

describe("Lease", () => {
  it("R2.1 its fields", () => {
    expect<Lease.Lease<"exclusive">["fence"]>().type.toBe<Fence.Fence>()
    expect<Lease.Lease<"shared">["fence"]>().type.toBe<Fence.SharedFence>()
    expect<Lease.Lease["fence"]>().type.toBe<Fence.Fence | Fence.SharedFence>()
    expect<Lease.Lease<"exclusive">["mode"]>().type.toBe<"exclusive">()
    expect<Lease.Lease["key"]>().type.toBe<string>()
    expect<Lease.Lease["backend"]>().type.toBe<string>()
    expect<Lease.Lease["ttl"]>().type.toBe<Duration.Duration>()
    expect<Lease.Lease["waited"]>().type.toBe<Duration.Duration>()
    expect<Lease.Lease["acquiredAt"]>().type.toBe<number>()
  })

  it("R2.2 R2.3 R2.4 what can be asked of it", () => {
    expect<Lease.Lease["isValid"]>().type.toBe<Effect.Effect<boolean>>()
    expect<Lease.Lease["remaining"]>().type.toBe<Effect.Effect<Duration.Duration>>()
    expect<Lease.Lease["renew"]>().type.toBe<Effect.Effect<void, LockError.LeaseLost>>()
    expect<Lease.Lease["release"]>().type.toBe<Effect.Effect<boolean>>()
    expect<Lease.Lease["lost"]>().type.toBe<Effect.Effect<never, LockError.LeaseLost>>()
  })

  it("R1.3 `guard` adds LeaseLost, `provide` adds nothing", () => {
    const lease = null as any as Lease.Lease<"exclusive">
    expect(lease.guard(body)).type.toBe<Effect.Effect<number, OwnError | LockError.LeaseLost, Own>>()
    expect(lease.provide(body)).type.toBe<Effect.Effect<number, OwnError, Own>>()
  })

  it("R2.6 the lease in context", () => {
    expect(Lease.current).type.toBe<Effect.Effect<Option.Option<Lease.Lease>>>()
    expect(Lease.assertHeld("k")).type.toBe<Effect.Effect<Lease.Lease, LockError.LeaseLost>>()
    expect(Lease.assertHeld).type.not.toBeCallableWith(["k"])
  })

  it("R1.6 a lease of either mode is a lease; a reader's is no writer's", () => {
    expect<Lease.Lease>().type.toBeAssignableFrom<Lease.Lease<"exclusive">>()
    expect<Lease.Lease>().type.toBeAssignableFrom<Lease.Lease<"shared">>()
    expect<Lease.Lease<"exclusive">>().type.not.toBeAssignableFrom<Lease.Lease<"shared">>()
    expect<Lease.Lease<"exclusive">>().type.not.toBeAssignableFrom<Lease.Lease>()
  })
})

describe("fences", () => {
  it("R1.6 R3.2 guards refuse a reader's number, and one whose mode is not known, by type", () => {
    const writer = null as any as Lease.Lease<"exclusive">
    const reader = null as any as Lease.Lease<"shared">
    const either = null as any as Lease.Lease
    expect(Fence.assert).type.toBeCallableWith(1n, writer.fence)
    expect(Fence.assert).type.not.toBeCallableWith(1n, reader.fence)
    expect(Fence.assert).type.not.toBeCallableWith(1n, either.fence)
    expect(Fence.assert).type.not.toBeCallableWith(1n, 2n)
    expect(register.set).type.toBeCallableWith(writer.fence, 1)
    expect(register.set).type.not.toBeCallableWith(reader.fence, 1)
    expect(register.update).type.not.toBeCallableWith(reader.fence, (n: number) => n)
    expect(Fence.assert(1n, writer.fence)).type.toBe<Effect.Effect<void, LockError.StaleFence>>()
  })
})
