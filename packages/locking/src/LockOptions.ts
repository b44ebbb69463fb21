/**
 * Options of a call and of a layer, with ranges and defaults. A number as a duration is milliseconds; a finite duration
 * is at most one year. What is out of range, and every name that is no option, fails `InvalidOptions`.
 *
 * @since 0.1.0
 */
import type { DurationInput } from "./internal/compat.js"
import type { LockMode } from "./LockDriver.js"

/**
 * Options of one attempt that never waits.
 *
 * @since 0.1.0
 * @category models
 */
export interface TryOptions {
  /** `exclusive` (default): alone. `shared`: together with other readers. */
  readonly mode?: LockMode | undefined
  /**
   * How long the lease lasts without renewal. Default: the layer's `ttl`. In memory at least 1 ms, or infinite; elsewhere
   * as the driver says (`capabilities.ttl`).
   */
  readonly ttl?: DurationInput | undefined
  /** Limit of each call to the store. At least 1 ms, finite. Default: the smaller of a third of the ttl and 2 seconds. */
  readonly attemptTimeout?: DurationInput | undefined
  /** Whether the lease is renewed in the background. Default `true`. */
  readonly autoRenew?: boolean | undefined
  /** After it the lease ends and the section is interrupted, renewed or not. Above zero. Default: infinite. */
  readonly maxHold?: DurationInput | undefined
  /**
   * What happens when this flow of code already holds the key: `false` (default) fails `LockReentry`, `true` joins the
   * lease that is held, `"wait"` queues as a stranger would.
   */
  readonly reentrant?: boolean | "wait" | undefined
  /** Kept with the grant where the store can, for people who inspect it. Never in errors, logs or spans. */
  readonly metadata?: Readonly<Record<string, string>> | undefined
}

/**
 * Options of a call that may wait.
 *
 * @since 0.1.0
 * @category models
 */
export interface AcquireOptions extends TryOptions {
  /** How long to wait. Default: the layer's (5 seconds). Zero: one attempt, then `LockBusy`. May be infinite. */
  readonly waitTimeout?: DurationInput | undefined
  /**
   * Whether those who ask for it are served in the order of their arrival, across processes. Default `false`: then the
   * order holds within a process, and every process gets its turn. It costs more, and is refused where the driver cannot.
   */
  readonly fair?: boolean | undefined
}

/**
 * Options of a layer.
 *
 * @since 0.1.0
 * @category models
 */
export interface LockingOptions {
  /** Name in errors, logs, spans and metrics. At most 128 characters. Default: the driver's name. */
  readonly backend?: string | undefined
  /** Separates programs on one store. Default `"effect-locking"`. As keys, and without braces. */
  readonly namespace?: string | undefined
  /** `"required"`: a key without a tenant in context and not marked platform-wide is `InvalidKey`. Default `"optional"`. */
  readonly tenancy?: "optional" | "required" | undefined
  /** What holders and their errors call this process. Default: a random name. At most 128 characters. */
  readonly session?: string | undefined
  /** Default of the call option. Default: the driver's (memory: infinite; remote: 15 seconds). */
  readonly ttl?: DurationInput | undefined
  /** Default of the call option. Default 5 seconds. */
  readonly waitTimeout?: DurationInput | undefined
  /** Default of the call option. Default: the smaller of a third of the ttl and 2 seconds. */
  readonly attemptTimeout?: DurationInput | undefined
  /** Keys held or waited for at once. 1 … 1 000 000, default 10 000; less where the driver says so (PostgreSQL: 500). */
  readonly maxKeys?: number | undefined
  /**
   * Callers that wait at once; on remote drivers every acquire in progress counts, and one more may ask, so that a free
   * key can be had. 0 … 100 000, default 4 096.
   */
  readonly maxWaiters?: number | undefined
  /** Length limit of keys, tenants and namespaces in UTF-8 bytes. 1 … 1 024, default 1 024. */
  readonly maxKeyBytes?: number | undefined
  /** Safety net of a waiter beside the wake-ups, ± 25 %. 10 ms … 1 minute, default 250 ms. */
  readonly pollInterval?: DurationInput | undefined
  /** How long closing may take. At least zero, finite, default 5 seconds. */
  readonly shutdownTimeout?: DurationInput | undefined
  /** Releases in a row that may stay in the process. 0 … 1 000, default 4. */
  readonly maxHandovers?: number | undefined
  /** A lease held longer is logged and counted. Default 1 minute; may be infinite. */
  readonly holdWarning?: DurationInput | undefined
  /** Which calls make spans: those that had to wait (default), all, none. */
  readonly tracing?: "contended" | "all" | "off" | undefined
  /**
   * `"eager"` (default): a store that is down fails the layer. `"lazy"`: it fails the first calls. `"strict"`: eager, and
   * a deployment in which `check` finds an error or a warning fails the layer, too.
   */
  readonly start?: "eager" | "lazy" | "strict" | undefined
}
