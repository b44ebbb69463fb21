/**
 * Options, checked by hand before any I/O: every issue at once, with its path and what would be right.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import type { Capabilities, LockMode } from "../LockDriver.js"
import { InvalidOptions, type Issue } from "../LockError.js"
import type { AcquireOptions, LockingOptions, TryOptions } from "../LockOptions.js"
import { closest, kind, nameFault, show } from "./pure/describe.js"

/** The options of a layer, complete. Durations in milliseconds. */
export interface Settings {
  readonly backend: string
  readonly namespace: string
  readonly tenancy: "optional" | "required"
  readonly session: string
  /** May be infinite where the driver says so. */
  readonly ttl: number
  /** May be infinite. */
  readonly waitTimeout: number
  /** `undefined`: follows from each call's ttl. */
  readonly attemptTimeout: number | undefined
  readonly maxKeys: number
  readonly maxWaiters: number
  readonly maxKeyBytes: number
  readonly pollInterval: number
  readonly shutdownTimeout: number
  readonly maxHandovers: number
  /** May be infinite. */
  readonly holdWarning: number
  readonly tracing: "contended" | "all" | "off"
  readonly start: "eager" | "lazy" | "strict"
}

/** The options of a call, complete. Durations in milliseconds. */
export interface CallOptions {
  readonly mode: LockMode
  /** May be infinite where the driver says so. */
  readonly ttl: number
  /** May be infinite. */
  readonly waitTimeout: number
  readonly attemptTimeout: number
  readonly autoRenew: boolean
  /** Infinite: no limit. */
  readonly maxHold: number
  readonly reentrant: boolean | "wait"
  readonly fair: boolean
  readonly metadata: Readonly<Record<string, string>>
}

/** The longest finite duration: deadlines stay exact, and a longer one is nearly always a mistake of unit. */
export const longest = 365 * 24 * 60 * 60 * 1000

const noMetadata: Readonly<Record<string, string>> = Object.freeze({})

const tryNames: ReadonlySet<string> = new Set<keyof TryOptions>([
  "mode",
  "ttl",
  "attemptTimeout",
  "autoRenew",
  "maxHold",
  "reentrant",
  "metadata"
])
const acquireNames: ReadonlySet<string> = new Set<string>(["waitTimeout", "fair", ...tryNames])
const layerNames: ReadonlySet<string> = new Set<keyof LockingOptions>([
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
])

type Issues = Array<Issue>

const quote = (names: ReadonlyArray<string>): string => names.map((name) => JSON.stringify(name)).join(" or ")

const isOptions = (options: unknown): options is object =>
  typeof options === "object" && options !== null && !Array.isArray(options)

const inText = (millis: number): string =>
  millis > 0 && millis < 1 ? `${millis}ms` : Duration.format(Duration.millis(millis))

/** Names that no option has. */
const checkNames = (options: object, names: ReadonlySet<string>, issues: Issues): void => {
  for (const name of Object.keys(options)) {
    if (names.has(name)) continue
    // a name that cannot be a typing mistake is somebody's data
    if (!/^\w{1,40}$/.test(name)) {
      issues.push({ path: "options", message: "holds a name that is no option's" })
    } else if (names === tryNames && acquireNames.has(name)) {
      issues.push({
        path: name,
        message: "an attempt that never waits takes none: use `acquire` or `withLock` to wait"
      })
    } else if (names !== layerNames && layerNames.has(name)) {
      issues.push({ path: name, message: "is an option of the layer, not of a call" })
    } else if (names === layerNames && acquireNames.has(name)) {
      issues.push({ path: name, message: "is an option of a call, not of the layer" })
    } else {
      const meant = closest(name, names)
      issues.push({
        path: name,
        message: meant === undefined ? "is no option" : `is no option; did you mean \`${meant}\`?`
      })
    }
  }
}

// what is finite stays so, however large
const finite = (millis: number): number => Math.min(millis, Number.MAX_VALUE)

/**
 * Milliseconds of a duration as it was written: negative stays negative, `NaN` is what cannot be read. `Duration`
 * itself makes zero of negative numbers, and throws.
 */
const rawMillis = (raw: unknown): number => {
  switch (typeof raw) {
    case "number":
      return raw
    case "bigint":
      return finite(Number(raw) / 1e6)
    case "string": {
      const decoded = Duration.decodeUnknown(raw)
      if (Option.isNone(decoded)) return NaN
      return raw.startsWith("-") && Number.parseFloat(raw) < 0 ? -1 : finite(Duration.toMillis(decoded.value))
    }
    default:
      break
  }
  if (Duration.isDuration(raw)) return Duration.isFinite(raw) ? finite(Duration.toMillis(raw)) : Infinity
  if (!Array.isArray(raw) || raw.length !== 2) return NaN
  const [seconds, nanos] = raw
  if (typeof seconds !== "number" || typeof nanos !== "number") return NaN
  if (seconds < 0 || nanos < 0) return -1
  const millis = seconds * 1000 + nanos / 1e6
  return seconds === Infinity || nanos === Infinity ? millis : finite(millis)
}

interface DurationRange {
  readonly min: number
  /** Whether `min` itself is outside. */
  readonly above?: boolean
  readonly max?: number
  readonly infinite: boolean
  /** Said where infinity is refused. */
  readonly finite?: string
}

const duration = (
  path: string,
  raw: unknown,
  defaultValue: number,
  range: DurationRange,
  issues: Issues
): number => {
  if (raw === undefined) return defaultValue
  const millis = rawMillis(raw)
  const max = range.max ?? longest
  const message = Number.isNaN(millis)
    ? `must be a duration such as "5 seconds", 500 (milliseconds) or Duration.minutes(1), got ${show(raw)}`
    : millis < 0
    ? `must not be negative, got ${show(raw)}`
    : millis < range.min || (range.above === true && millis === range.min)
    ? `must be ${range.above === true ? "longer than" : "at least"} ${inText(range.min)}, got ${show(raw)}`
    : millis === Infinity && !range.infinite
    ? range.finite ?? `must be finite, at most ${inText(max)}`
    : millis > max && millis !== Infinity
    ? `must be at most ${inText(max)}${range.infinite ? ", or Infinity" : ""}, got ${show(raw)}`
    : undefined
  if (message === undefined) return millis === 0 ? 0 : millis
  issues.push({ path, message })
  return defaultValue
}

const integer = (
  path: string,
  raw: unknown,
  defaultValue: number,
  min: number,
  max: number,
  issues: Issues
): number => {
  if (raw === undefined) return defaultValue
  if (typeof raw === "number" && Number.isInteger(raw) && raw >= min && raw <= max) return raw === 0 ? 0 : raw
  issues.push({ path, message: `must be a whole number from ${min} to ${max}, got ${show(raw)}` })
  return defaultValue
}

const oneOf = <A extends string>(
  path: string,
  raw: unknown,
  defaultValue: A,
  values: ReadonlyArray<A>,
  issues: Issues
): A => {
  if (raw === undefined) return defaultValue
  if (values.includes(raw as A)) return raw as A
  issues.push({ path, message: `must be ${quote(values)}, got ${show(raw)}` })
  return defaultValue
}

const ttlRange = (capabilities: Capabilities): DurationRange => {
  const min = Duration.toMillis(capabilities.ttl.min)
  return {
    min,
    above: min === 0,
    infinite: capabilities.ttl.infinite,
    finite: `must be finite on this driver, at most ${inText(longest)}: a lease without end would outlive its holder`
  }
}

const attemptRange: DurationRange = { min: 1, infinite: false }
const waitRange: DurationRange = { min: 0, infinite: true }
const holdRange: DurationRange = { min: 0, above: true, infinite: true }

/** Names of people's making that appear in errors and logs. */
const label = (path: string, raw: unknown, defaultValue: string, issues: Issues): string => {
  if (raw === undefined) return defaultValue
  const message = typeof raw !== "string"
    ? `must be a string, got ${kind(raw)}`
    : raw === ""
    ? "must not be empty"
    : raw.length > 128
    ? `must be at most 128 characters long, got ${raw.length}`
    : /\p{C}/u.test(raw)
    ? "must not contain control characters or halves of surrogate pairs"
    : undefined
  if (message === undefined) return raw as string
  issues.push({ path, message })
  return defaultValue
}

const metadataOf = (raw: unknown, issues: Issues): Readonly<Record<string, string>> => {
  if (!isOptions(raw)) {
    issues.push({ path: "metadata", message: `must be an object of strings, got ${kind(raw)}` })
    return noMetadata
  }
  const entries = Object.entries(raw)
  for (const [name, value] of entries) {
    // neither name nor value is told
    const fault = nameFault(name, Infinity) ?? (value === "" ? undefined : nameFault(value, Infinity))
    if (fault !== undefined) {
      issues.push({
        path: "metadata",
        message: `names and values are well-formed strings without U+0000; one ${fault}`
      })
      break
    }
  }
  return Object.freeze(Object.fromEntries(entries))
}

const defaultAttempt = (ttl: number): number => Math.max(1, Math.min(ttl / 3, 2000))

/** The options of a layer with their defaults, or everything that is wrong with them. */
export const parseLayer = (
  options: LockingOptions | undefined,
  driver: { readonly name: string; readonly capabilities: Capabilities },
  defaultSession: string
): Settings | InvalidOptions => {
  if (options !== undefined && !isOptions(options)) {
    return new InvalidOptions({
      backend: driver.name,
      issues: [{ path: "options", message: `must be an object, got ${kind(options)}` }]
    })
  }
  const raw: { readonly [name in keyof LockingOptions]: unknown } = options ?? {}
  const issues: Issues = []
  checkNames(raw, layerNames, issues)
  const most = driver.capabilities.maxKeys
  const maxKeyBytes = integer("maxKeyBytes", raw.maxKeyBytes, 1024, 1, 1024, issues)
  const settings: Settings = {
    backend: label("backend", raw.backend, driver.name, issues),
    namespace: namespaceOf(raw.namespace, maxKeyBytes, issues),
    tenancy: oneOf("tenancy", raw.tenancy, "optional", ["optional", "required"], issues),
    session: label("session", raw.session, defaultSession, issues),
    ttl: duration(
      "ttl",
      raw.ttl,
      Duration.toMillis(driver.capabilities.ttl.default),
      ttlRange(driver.capabilities),
      issues
    ),
    waitTimeout: duration("waitTimeout", raw.waitTimeout, 5000, waitRange, issues),
    attemptTimeout: raw.attemptTimeout === undefined
      ? undefined
      : duration("attemptTimeout", raw.attemptTimeout, 2000, attemptRange, issues),
    maxKeys: integer("maxKeys", raw.maxKeys, most ?? 10_000, 1, most ?? 1_000_000, issues),
    maxWaiters: integer("maxWaiters", raw.maxWaiters, 4096, 0, 100_000, issues),
    maxKeyBytes,
    pollInterval: duration("pollInterval", raw.pollInterval, 250, { min: 10, max: 60_000, infinite: false }, issues),
    shutdownTimeout: duration("shutdownTimeout", raw.shutdownTimeout, 5000, { min: 0, infinite: false }, issues),
    maxHandovers: integer("maxHandovers", raw.maxHandovers, 4, 0, 1000, issues),
    holdWarning: duration("holdWarning", raw.holdWarning, 60_000, { min: 0, infinite: true }, issues),
    tracing: oneOf("tracing", raw.tracing, "contended", ["contended", "all", "off"], issues),
    start: oneOf("start", raw.start, "eager", ["eager", "lazy", "strict"], issues)
  }
  return issues.length === 0 ? settings : new InvalidOptions({ backend: settings.backend, issues })
}

const defaultNamespace = "effect-locking"

const namespaceOf = (raw: unknown, maxBytes: number, issues: Issues): string => {
  if (raw === undefined) return defaultNamespace
  const fault = nameFault(raw, maxBytes) ?? (/[{}]/.test(raw as string) ? "must not contain braces" : undefined)
  if (fault === undefined) return raw as string
  issues.push({ path: "namespace", message: fault })
  return defaultNamespace
}

/** What a call without options asks for. Computed once per layer. */
export const defaultCall = (settings: Settings): CallOptions => ({
  mode: "exclusive",
  ttl: settings.ttl,
  waitTimeout: settings.waitTimeout,
  attemptTimeout: settings.attemptTimeout ?? defaultAttempt(settings.ttl),
  autoRenew: true,
  maxHold: Infinity,
  reentrant: false,
  fair: false,
  metadata: noMetadata
})

const parse = (
  options: AcquireOptions | undefined,
  settings: Settings,
  defaults: CallOptions,
  capabilities: Capabilities,
  names: ReadonlySet<string>
): CallOptions | InvalidOptions => {
  if (options === undefined) return defaults
  const issues: Issues = []
  if (!isOptions(options)) {
    issues.push({ path: "options", message: `must be an object, got ${kind(options)}` })
    return new InvalidOptions({ backend: settings.backend, issues })
  }
  checkNames(options, names, issues)
  const ttl = options.ttl === undefined
    ? defaults.ttl
    : duration("ttl", options.ttl, defaults.ttl, ttlRange(capabilities), issues)
  const derived = ttl === defaults.ttl ? defaults.attemptTimeout : settings.attemptTimeout ?? defaultAttempt(ttl)
  if (options.autoRenew !== undefined && typeof options.autoRenew !== "boolean") {
    issues.push({ path: "autoRenew", message: `must be true or false, got ${show(options.autoRenew)}` })
  }
  if (options.reentrant !== undefined && typeof options.reentrant !== "boolean" && options.reentrant !== "wait") {
    issues.push({ path: "reentrant", message: `must be true, false or "wait", got ${show(options.reentrant)}` })
  }
  if (options.fair !== undefined && typeof options.fair !== "boolean") {
    issues.push({ path: "fair", message: `must be true or false, got ${show(options.fair)}` })
  } else if (options.fair === true && !capabilities.fair) {
    issues.push({ path: "fair", message: "this driver keeps no order across processes" })
  }
  const call: CallOptions = {
    mode: options.mode === undefined
      ? defaults.mode
      : oneOf("mode", options.mode, "exclusive", capabilities.modes, issues),
    ttl,
    waitTimeout: duration("waitTimeout", options.waitTimeout, defaults.waitTimeout, waitRange, issues),
    attemptTimeout: duration("attemptTimeout", options.attemptTimeout, derived, attemptRange, issues),
    autoRenew: options.autoRenew ?? defaults.autoRenew,
    maxHold: duration("maxHold", options.maxHold, defaults.maxHold, holdRange, issues),
    reentrant: options.reentrant ?? defaults.reentrant,
    fair: options.fair ?? defaults.fair,
    metadata: options.metadata === undefined ? defaults.metadata : metadataOf(options.metadata, issues)
  }
  return issues.length === 0 ? call : new InvalidOptions({ backend: settings.backend, issues })
}

/** The options of a call that may wait; none of them answers `defaults` itself. */
export const parseCall = (
  options: AcquireOptions | undefined,
  settings: Settings,
  defaults: CallOptions,
  capabilities: Capabilities
): CallOptions | InvalidOptions => parse(options, settings, defaults, capabilities, acquireNames)

/** The options of an attempt that never waits: as `parseCall`, but a `waitTimeout` is refused. */
export const parseTry = (
  options: TryOptions | undefined,
  settings: Settings,
  defaults: CallOptions,
  capabilities: Capabilities
): CallOptions | InvalidOptions => parse(options, settings, defaults, capabilities, tryNames)
