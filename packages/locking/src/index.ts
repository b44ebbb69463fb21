/**
 * Fences: the number that every lease carries, higher with each grant of its key. A lease alone cannot stop a holder
 * that was paused, lost the lease and wakes up to write. A resource can: it remembers the highest fence that it has
 * seen and refuses a lower one.
 *
 * @since 0.1.0
 */
export * as Fence from "./Fence.js"

/**
 * A value in memory that refuses stale writes: what a guarded resource looks like, for tests and examples.
 *
 * @since 0.1.0
 */
export * as FencedRegister from "./FencedRegister.js"

/**
 * A lease is what a section holds: one key, for a time, under a number that grows with every grant.
 *
 * @since 0.1.0
 */
export * as Lease from "./Lease.js"

/**
 * The contract between the engine and a store. A driver knows *grants*: what a process owns at the store, by token.
 * It makes no leases, keeps no queues and reads no options of the caller; the engine does all that, so a driver is
 * small. The engine never trusts a reply's arrival time, never sends a wall-clock time, and repeats an attempt only
 * with the same token.
 *
 * @since 0.1.0
 */
export * as LockDriver from "./LockDriver.js"

/**
 * Everything that can go wrong, one class per code. Each error has a stable `code`, the `backend` it comes from, a
 * `message` that tells what happened and a `fix` that tells what to do next. None holds a key, a tenant, a token or
 * metadata, not even in its cause: `keyHash` stands for the key, the same in every process.
 *
 * Codecs for the wire are in `effect-locking/LockErrorSchema`.
 *
 * @since 0.1.0
 */
export * as LockError from "./LockError.js"

/**
 * What happens inside a layer, as values. Keys appear as short hashes only.
 *
 * @since 0.1.0
 */
export * as LockEvent from "./LockEvent.js"

/**
 * What is locked: a string. It belongs to the tenant in context, if there is one, unless it is marked as common to the
 * whole platform; the three scopes never meet, whatever the strings are.
 *
 * Keys, tenants and namespaces follow one rule for all stores: they are not empty, well-formed Unicode, free of U+0000
 * and at most `maxKeyBytes` (1 024) bytes long in UTF-8. They are compared exactly, without any normalisation: `"é"`
 * in one code point and `"é"` in two are different keys. What is refused fails `InvalidKey` before the store is asked.
 *
 * @since 0.1.0
 */
export * as LockKey from "./LockKey.js"

/**
 * Options of a call and of a layer, with ranges and defaults. A number as a duration is milliseconds; a finite duration
 * is at most one year. What is out of range, and every name that is no option, fails `InvalidOptions`.
 *
 * @since 0.1.0
 */
export * as LockOptions from "./LockOptions.js"

/**
 * Named, time-bound locks for programs that must not do the same thing twice.
 *
 * `withLock` guards an effect with the lock of a key: it waits its turn, runs the effect, and releases on success,
 * failure, defect and interruption. The lease behind it is renewed while the effect runs, and the effect is interrupted
 * when the lease is lost. What a lease cannot do is stop a frozen process that wakes up late: for that every lease has
 * a fence, to be checked where the data is (see `Fence`).
 *
 * @since 0.1.0
 */
export * as Locking from "./Locking.js"

/**
 * Locks within one process: the same engine as over a server, on a store in memory.
 *
 * @since 0.1.0
 */
export * as MemoryStore from "./MemoryStore.js"

/**
 * Locks for tests: a store in memory that several nodes reach over a network, and the means to break either. Each node
 * is a `Locking` of its own and plays one process; its engine is the one that runs in production, and behaves as it
 * does with a server.
 *
 * Everything runs on the clock in context: under the `TestClock` it is deterministic, and takes no time. What a fault
 * delays ends when the clock is adjusted, and not before: a scope that gives a lease back while its node is mute waits
 * until then, so `heal` comes first.
 *
 * @since 0.1.0
 */
export * as TestLocking from "./TestLocking.js"
