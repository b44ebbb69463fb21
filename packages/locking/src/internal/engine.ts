/**
 * The engine: one layer's core, and what the service does with it.
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { Lease } from "../Lease.js"
import { DriverError, type LockDriver } from "../LockDriver.js"
import * as LockError from "../LockError.js"
import * as LockKey from "../LockKey.js"
import type { AcquireOptions, LockingOptions } from "../LockOptions.js"
import { acquire } from "./acquire.js"
import * as calls from "./calls.js"
import * as claims from "./claims.js"
import { contextOf, forker, interruptNow, type RuntimeFiber, untracedForker, withFiber, zipRight } from "./compat.js"
import { type Core, type Hold, Request } from "./core.js"
import { Entropy } from "./entropy.js"
import * as events from "./events.js"
import * as instruments from "./instruments.js"
import { resolveKey, resolveKeys } from "./keys.js"
import { leaseOf } from "./lease.js"
import { listen } from "./loss.js"
import { defaultCall, parseCall, parseLayer, parseTry } from "./options.js"
import { Dictionary } from "./pure/dictionary.js"
import { Fifo } from "./pure/fifo.js"
import * as release from "./release.js"
import { renewAll } from "./renewal.js"
import { log, refuse } from "./report.js"
import * as section from "./section.js"
import * as shutdown from "./shutdown.js"
import * as tenancy from "./tenancy.js"
import * as timer from "./timer.js"
import * as tracing from "./tracing.js"

/** A wall clock that moved by more than this against the monotonic one was set by somebody. */
const jump = 1000

export const make = (
  driver: LockDriver,
  options: LockingOptions | undefined
): Effect.Effect<Core, LockError.StartError, Scope.Scope> =>
  Effect.gen(function*() {
    const entropy = yield* Entropy
    const identity = entropy()
    const settings = parseLayer(options, driver, identity.slice(0, 8))
    if (settings instanceof LockError.InvalidOptions) return yield* settings
    const fork = yield* forker
    const forkCall = yield* untracedForker
    const random = yield* Effect.random
    const clock: timer.Timer = yield* timer.make(() => {
      const by = clock.wallNow() - clock.now() - ahead
      if (Math.abs(by) < jump) return
      ahead += by
      core.events.emit(() => ({ _tag: "ClockJumped", by: Duration.millis(Math.abs(by)) }))
      renewAll(core)
    })
    let ahead = clock.wallNow() - clock.now()
    const meters = instruments.make(settings.backend)
    const core: Core = {
      driver,
      settings,
      defaults: defaultCall(settings),
      fork,
      forkCall,
      timer: clock,
      random,
      events: events.make(settings.backend, clock.wallNow, () => meters.eventDropped(1)),
      instruments: meters,
      records: new Dictionary(),
      inOrder: new Dictionary(),
      holds: new Fifo(),
      activities: new Fifo(),
      waiters: new Fifo(),
      earlyLosses: new Map(),
      attempting: 0,
      tokenPrefix: `${identity}.`,
      tokens: 0,
      renewalTrouble: 0,
      tenancy: tenancy.make(),
      closed: false,
      isOver: false,
      notGivenBack: 0,
      notGivenBackCause: undefined,
      onIdle: undefined
    }
    if (settings.start !== "lazy") {
      yield* atStart(core, () => driver.ready)
    }
    if (settings.start === "strict") yield* inspectDeployment(core)
    const listener = fork(listen(core))
    yield* Effect.addFinalizer(() =>
      zipRight(
        shutdown.close(core),
        Effect.suspend(() => {
          interruptNow(listener)
          return core.events.close
        })
      )
    )
    yield* log(core, "Debug", "LOCK_BACKEND_READY", "Ready to grant locks")
    return core
  })

const providerFailed = (core: Core, error: DriverError | undefined): LockError.ProviderFailed =>
  new LockError.ProviderFailed({
    backend: core.settings.backend,
    cause: error?.cause ?? error,
    retryAfter: error?.retryAfter
  })

/** How long a store may take until it can grant, or tell of itself, in milliseconds. */
const readyLimit = 60_000

/** What the store is asked when the layer is built. */
const atStart = <A>(
  core: Core,
  question: () => Effect.Effect<A, DriverError>
): Effect.Effect<A, LockError.ProviderFailed | LockError.DriverInvalid> =>
  Effect.flatMap(
    // its own limit must not keep the process of a layer alive that failed
    Effect.ensuring(calls.askFreely(core, question, readyLimit), Effect.sync(core.timer.trim)),
    (exit) =>
      exit === undefined
        ? Effect.fail(
          providerFailed(core, new DriverError({ executed: "no", message: "it did not get ready in time" }))
        )
        : Effect.mapError(exit, (error) => notReady(core, error))
  )

const notReady = (core: Core, error: DriverError): LockError.ProviderFailed | LockError.DriverInvalid =>
  error.fix === undefined
    ? providerFailed(core, error)
    : new LockError.DriverInvalid({ backend: core.settings.backend, problem: error.message, remedy: error.fix })

const inspectDeployment = (core: Core): Effect.Effect<void, LockError.ProviderFailed | LockError.DriverInvalid> =>
  Effect.flatMap(
    atStart(core, () => core.driver.check ?? Effect.succeed([])),
    (findings) => {
      const faults = findings.filter(({ severity }) => severity !== "info")
      const problem = faults.map(({ code, message }) => `${message} (${code})`).join("; ")
      const remedy = faults.map(({ fix }) => fix).join(" ")
      return faults.length === 0
        ? Effect.void
        : Effect.fail(new LockError.DriverInvalid({ backend: core.settings.backend, problem, remedy }))
    }
  )

/** Everything that can be refused is refused here, before anything happens. */
const prepare = (
  core: Core,
  fiber: RuntimeFiber<any, any>,
  input: Inputs,
  options: AcquireOptions | undefined,
  mayWait: boolean
): Request | LockError.InvalidOptions | LockError.InvalidKey => {
  const parse = mayWait ? parseCall : parseTry
  const call = parse(options, core.settings, core.defaults, core.driver.capabilities)
  if (call instanceof LockError.InvalidOptions) return call
  const tenant = Context.get(contextOf(fiber), LockKey.Tenant)
  const keys = Array.isArray(input)
    ? resolveKeys(input, core.settings, tenant)
    : resolveKey(input as LockKey.Input, core.settings, tenant)
  if (keys instanceof LockError.InvalidKey) return keys
  const all: ReadonlyArray<LockKey.ResolvedKey> = "id" in keys ? [keys] : keys
  for (const key of all) tenancy.watch(core, key)
  return new Request(
    all,
    call,
    mayWait && call.waitTimeout > 0,
    core.timer.now(),
    tracing.traceOf(core, fiber)
  )
}

type Body<A, E, R> = (hold: Hold | undefined) => Effect.Effect<A, E, R>

type Inputs = LockKey.Input | ReadonlyArray<LockKey.Input>

/** Checks a call; what it acquires is taken over in a region that nothing leaves early. No keys: no hold. */
const acquiring = <A, E, R>(
  core: Core,
  input: Inputs,
  options: AcquireOptions | undefined,
  mayWait: boolean,
  takeOver: (
    acquired: Effect.Effect<Hold | undefined, LockError.AcquireError>,
    restore: calls.Restore,
    claim: claims.Claim | undefined
  ) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | LockError.InvalidOptions | LockError.InvalidKey, R> =>
  withFiber((fiber): Effect.Effect<A, E | LockError.InvalidOptions | LockError.InvalidKey, R> => {
    const request = prepare(core, fiber, input, options, mayWait)
    if (!(request instanceof Request)) return refuse(core, request)
    const claim = claims.of(fiber)
    return Effect.uninterruptibleMask((restore) =>
      takeOver(
        request.keys.length === 0
          ? Effect.succeed(undefined)
          : tracing.acquiring(core, request, acquire(core, request, claim, restore)),
        restore,
        claim
      )
    )
  })

const ifAvailable = (
  acquired: Effect.Effect<Hold | undefined, LockError.AcquireError>
): Effect.Effect<Hold | undefined, LockError.TryAcquireError> =>
  Effect.catchTags(acquired, {
    LockBusy: () => Effect.succeed(undefined),
    WaitTimeout: () => Effect.succeed(undefined)
  })

/** Runs a body under its leases. */
export const use = <A, E, R>(
  core: Core,
  input: Inputs,
  options: AcquireOptions | undefined,
  body: Body<A, E, R>
): Effect.Effect<A, E | LockError.WithLockError, R> =>
  acquiring(
    core,
    input,
    options,
    true,
    (acquired, restore, claim) =>
      Effect.flatMap(acquired, (hold) => hold === undefined ? restore(body(hold)) : under(hold, claim, body, restore))
  )

/** The same with one attempt that never waits. */
export const useIfAvailable = <A, E, R>(
  core: Core,
  input: LockKey.Input,
  options: AcquireOptions | undefined,
  body: Body<A, E, R>
): Effect.Effect<Option.Option<A>, E | LockError.TryLockError, R> =>
  acquiring(core, input, options, false, (acquired, restore, claim) =>
    Effect.flatMap(
      ifAvailable(acquired),
      (hold): Effect.Effect<Option.Option<A>, E | LockError.LeaseLost, R> =>
        hold === undefined ? Effect.succeedNone : Effect.asSome(under(hold, claim, body, restore))
    ))

const under = <A, E, R>(
  hold: Hold,
  parent: claims.Claim | undefined,
  body: Body<A, E, R>,
  restore: calls.Restore
): Effect.Effect<A, E | LockError.LeaseLost, R> => {
  const claim = new claims.Claim(parent, hold)
  return Effect.flatMap(
    tracing.holding(hold, (span) => section.run(hold, body(hold), restore, claim, span)),
    (exit) => {
      claim.hold = undefined
      return Effect.flatMap(release.end(hold), () => exit)
    }
  )
}

/** A lease that the scope gives back. */
export const scoped = (
  core: Core,
  input: LockKey.Input,
  options: AcquireOptions | undefined
): Effect.Effect<Lease<any>, LockError.AcquireError, Scope.Scope> =>
  acquiring(core, input, options, true, (acquired) => Effect.flatMap(acquired, (hold) => intoScope(hold!)))

export const scopedIfAvailable = (
  core: Core,
  input: LockKey.Input,
  options: AcquireOptions | undefined
): Effect.Effect<Option.Option<Lease<any>>, LockError.TryAcquireError, Scope.Scope> =>
  acquiring(core, input, options, false, (acquired) =>
    Effect.flatMap(
      ifAvailable(acquired),
      (hold) => hold === undefined ? Effect.succeedNone : Effect.asSome(intoScope(hold))
    ))

const intoScope = (hold: Hold): Effect.Effect<Lease<any>, never, Scope.Scope> =>
  Effect.map(Effect.addFinalizer(() => release.end(hold)), () => {
    hold.isScoped = true
    shutdown.giveBackIfUnused(hold.core, hold)
    return leaseOf(hold, 0)
  })

type AdminError = LockError.LockingClosed | LockError.ProviderFailed | LockError.OutcomeUnknown

/** An administrator's question to the store. */
export const admin = <A>(
  core: Core,
  question: () => Effect.Effect<A, DriverError>
): Effect.Effect<A, AdminError> =>
  Effect.suspend((): Effect.Effect<A, AdminError> => {
    if (core.closed) return Effect.fail(new LockError.LockingClosed({ backend: core.settings.backend }))
    return Effect.flatMap(
      calls.askFreely(core, question, core.defaults.attemptTimeout),
      (exit): Effect.Effect<A, AdminError> => {
        if (exit !== undefined && Exit.isSuccess(exit)) return Effect.succeed(exit.value)
        const error = exit !== undefined && exit.cause._tag === "Fail" ? exit.cause.error : undefined
        return Effect.fail(
          error?.executed === "no"
            ? providerFailed(core, error)
            : new LockError.OutcomeUnknown({ backend: core.settings.backend, cause: error?.cause ?? error })
        )
      }
    )
  })

/** A key in full: with the namespace of the layer and the tenant in context. */
export const resolved = (
  core: Core,
  input: LockKey.Input
): Effect.Effect<LockKey.ResolvedKey, LockError.InvalidKey> =>
  Effect.flatMap(LockKey.currentTenant, (tenant) => {
    const key = resolveKey(input, core.settings, tenant)
    return key instanceof LockError.InvalidKey ? Effect.fail(key) : Effect.succeed(key)
  })
