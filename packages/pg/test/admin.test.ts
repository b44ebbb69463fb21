import { assert, layer } from "@effect/vitest"
import { Config, ConfigProvider, Deferred, Effect, Fiber, Layer } from "effect"
import * as Locking from "effect-locking/Locking"
import * as LockKey from "effect-locking/LockKey"
import * as fs from "node:fs"
import { hostname } from "node:os"
import { lockId } from "../src/internal/pure/lockId.js"
import * as PgLocking from "../src/PgLocking.js"
import { alwaysYes, database, layerServer, node, Server, sql } from "./server.js"

layer(layerServer(18), { excludeTestServices: true, timeout: 60_000 })("operating", (it) => {
  /** A process whose connection for wake-ups is open, so that it can be asked. */
  const reachable = (url: string, session: string) =>
    Effect.tap(node(url, { session }), (locking) =>
      Effect.gen(function*() {
        const gate = yield* Deferred.make<void>()
        const holder = yield* Effect.fork(locking.withLock(Deferred.await(gate), "gate"))
        const other = yield* node(url)
        const waiter = yield* Effect.fork(locking.withLock(Effect.void, "other"))
        yield* Fiber.join(waiter)
        const blocked = yield* Effect.fork(Effect.scoped(Effect.zipRight(other.acquire("block"), Effect.sleep(50))))
        yield* Effect.sleep(20)
        yield* locking.withLock(Effect.void, "block")
        yield* Fiber.join(blocked)
        yield* Deferred.succeed(gate, undefined)
        yield* Fiber.join(holder)
      }))

  it.scoped("R10.3 inspect: the server tells session and role, the holder fence, time and metadata", () =>
    Effect.gen(function*() {
      const { url } = yield* database
      const one = yield* reachable(url(), "worker-1")
      const two = yield* node(url())
      yield* one.useLock("k", { metadata: { job: "close" } }, (lease) =>
        Effect.gen(function*() {
          const [holder, ...rest] = yield* two.inspect("k")
          assert.lengthOf(rest, 0)
          assert.strictEqual(holder!.fence, lease.fence)
          assert.strictEqual(holder!.mode, "exclusive")
          assert.strictEqual(holder!.session, "worker-1")
          assert.isAtMost(Math.abs(holder!.since! - lease.acquiredAt), 5000)
          assert.deepStrictEqual(holder!.metadata, { job: "close" })
          assert.include(holder!.details, { role: "postgres" })
          // a holder knows of itself, too
          assert.strictEqual((yield* one.inspect("k"))[0]!.fence, lease.fence)
        }))
      assert.deepStrictEqual(yield* two.inspect("k"), [])
    }))

  it.scoped("R10.3 list: every lock of the database, with its key where its holder tells", () =>
    Effect.gen(function*() {
      const { query, url } = yield* database
      const one = yield* reachable(url(), "worker-1")
      const two = yield* node(url())
      const long = `long/${"x".repeat(1000)}`
      yield* LockKey.withTenant(one.acquire("a", { mode: "shared" }), "acme")
      for (let i = 0; i < 12; i++) yield* one.acquire(`${long}${i}`)
      const listed = yield* two.list()
      assert.lengthOf(listed, 13)
      const a = listed.find(({ tenant }) => tenant === "acme")!
      assert.deepStrictEqual([a.key, a.namespace, a.scope], ["a", "effect-locking", "tenant"])
      assert.strictEqual(a.holders[0]!.mode, "shared")
      // 13 kB of keys come in several messages
      assert.lengthOf(listed.filter(({ key }) => key?.startsWith(long)), 12)
      // what only the server knows has its number there
      yield* query("select pg_advisory_lock(1)")
      const third = yield* node(url())
      yield* third.acquire("quiet")
      const quiet = (yield* two.list()).filter(({ key }) => key === undefined)
      assert.deepStrictEqual(quiet.map(({ hash }) => hash), [lockId(yield* third.resolveKey("quiet"))])
    }))

  it.scoped("R10.3 forceRelease: asks the holder, who learns revoked; the next one enters", () =>
    Effect.gen(function*() {
      const { url } = yield* database
      const one = yield* reachable(url(), "worker-1")
      const two = yield* node(url())
      const entered = yield* Deferred.make<void>()
      const section = yield* Effect.fork(
        one.withLock(Effect.zipRight(Deferred.succeed(entered, undefined), Effect.never), "k")
      )
      yield* Deferred.await(entered)
      const kept = yield* one.acquire("kept")
      const { holders, others } = yield* two.forceRelease("k")
      assert.deepStrictEqual(holders.map(({ session }) => session), ["worker-1"])
      assert.deepStrictEqual(others, [])
      const error = yield* Effect.flip(Fiber.join(section))
      assert(error._tag === "LeaseLost")
      assert.strictEqual(error.reason, "revoked")
      yield* two.withLock(Effect.void, "k")
      assert.isTrue(yield* kept.isValid)
      assert.deepStrictEqual(yield* two.forceRelease("k"), { holders: [], others: [] })
    }))

  it.scoped("R10.3 forceRelease meets an offer to the next one here: nobody goes on with what was revoked", () =>
    Effect.gen(function*() {
      const { query, url } = yield* database
      // each lease is offered to the next one, under a ttl that nothing else ends
      const one = yield* node(url(), { session: "one", maxHandovers: 0, ttl: "1 hour" })
      const two = yield* node(url())
      const gate = yield* Deferred.make<void>()
      const holder = yield* Effect.fork(one.withLock(Deferred.await(gate), "k"))
      while ((yield* two.inspect("k"))[0]?.fence === undefined) yield* Effect.sleep(50)
      let inside = false
      const body = Effect.zipRight(Effect.sync(() => inside = true), Effect.sleep(2000))
      const heir = yield* Effect.fork(
        one.withLock(Effect.ensuring(body, Effect.sync(() => inside = false)), "k", { waitTimeout: "1 minute" })
      )
      const [backend] = yield* query<{ pid: number }>(
        "select pid from pg_locks where locktype = 'advisory' and granted and objsubid = 1"
      )
      // one statement is on its way, and the offer behind it
      yield* Effect.acquireUseRelease(
        Effect.sync(() => process.kill(backend!.pid, "SIGSTOP")),
        () =>
          Effect.gen(function*() {
            yield* Effect.fork(one.withLock(Effect.void, "other"))
            yield* Deferred.succeed(gate, undefined)
            yield* Effect.fork(Effect.exit(two.forceRelease("k")))
            // no more than enough for the question to arrive: where it does not, the lease is revoked a moment later
            yield* Effect.sleep(300)
          }),
        () => Effect.sync(() => process.kill(backend!.pid, "SIGCONT"))
      )
      yield* Fiber.join(holder)
      yield* two.withLock(Effect.sync(() => assert.isFalse(inside)), "k")
      yield* Fiber.await(heir)
    }))

  it.scoped("R10.3 forceRelease: who does not answer keeps it, unless hard ends its session and all it holds", () =>
    Effect.gen(function*() {
      const { query, url } = yield* database
      const two = yield* node(url())
      // its role has no second connection, on which it could be asked
      yield* (yield* Server).createRole("single", { superuser: false })
      yield* node(url())
      yield* query(
        "alter role single connection limit 1; grant usage, update on sequence effect_locking_fence to single"
      )
      const one = yield* node(url({ role: "single" }))
      const lease = yield* one.acquire("k")
      const also = yield* one.acquire("also")
      const soft = yield* Effect.flip(two.forceRelease("k"))
      assert(soft._tag === "ProviderFailed")
      assert.match(String(soft.cause), /did not answer/)
      assert.isTrue(yield* lease.isValid)
      const { holders, others } = yield* two.forceRelease("k", { hard: true })
      assert.deepStrictEqual(holders.map(({ details }) => details?.["role"]), ["single"])
      assert.deepStrictEqual(others.map(({ hash }) => hash), [lockId(yield* one.resolveKey("also"))])
      assert.strictEqual((yield* Effect.flip(lease.lost)).reason, "session-ended")
      assert.strictEqual((yield* Effect.flip(also.lost)).reason, "session-ended")
      yield* two.withLock(Effect.void, "k")
      assert.deepStrictEqual(yield* query("select 1 from pg_locks where locktype = 'advisory' and granted"), [])
    }))

  it.scoped("R10.3 who holds for a while can be asked, also when nobody waits", () =>
    Effect.gen(function*() {
      const { url } = yield* database
      const two = yield* node(url())
      const one = yield* node(url())
      const lease = yield* one.acquire("k")
      while ((yield* two.inspect("k"))[0]!.fence === undefined) yield* Effect.sleep(200)
      assert.strictEqual((yield* two.inspect("k"))[0]!.fence, lease.fence)
    }))

  it.scoped("R5 B67 who is told to come back later is told who is in the way, also when it is none of ours", () =>
    Effect.gen(function*() {
      const { name, url } = yield* database
      const one = yield* node(url())
      const two = yield* node(url(), { waitTimeout: 300 })
      yield* one.acquire("k")
      const late = yield* Effect.flip(two.acquire("k"))
      assert(late._tag === "WaitTimeout")
      assert.strictEqual(late.holder?.session, `${hostname()}:${process.pid}`)
      assert.include(late.message, hostname())
      // the server is asked once a second
      yield* Effect.sleep(1000)
      const server = yield* Server
      const theirs = lockId(yield* one.resolveKey("theirs"))
      const stranger = yield* Effect.forkScoped(server.query(
        "select pg_advisory_lock($1), pg_sleep(5)",
        [theirs],
        { database: name, applicationName: "nightly import" }
      ))
      yield* Effect.sleep(300)
      const busy = yield* Effect.flip(two.acquire("theirs", { waitTimeout: 0 }))
      assert(busy._tag === "LockBusy")
      assert.strictEqual(busy.holder?.session, "nightly import")
      yield* Fiber.interruptFork(stranger)
    }))

  it.scoped("R4.5 a DBA can compute the number of a key, as the docs have it", () =>
    Effect.gen(function*() {
      const { query, url } = yield* database
      const readme = fs.readFileSync(new URL("../README.md", import.meta.url), "utf8")
      const statement = /^select \('x'[\s\S]*?;$/m.exec(readme)![0]
      const locking = yield* node(url())
      const [row] = yield* query<Record<string, string>>(statement)
      assert.deepStrictEqual(Object.values(row!), [lockId(yield* locking.resolveKey("orders"))])
    }))

  it.scoped("R10.4 check tells the version and the room; with a clock as the source of fences it warns", () =>
    Effect.gen(function*() {
      const { url } = yield* database
      const clocked = yield* node(url(), { driver: { fence: "clock", restartQuarantine: false } })
      const codes = (yield* clocked.check).map(({ code, severity }) => `${severity} ${code}`)
      assert.includeMembers(codes, [
        "info SERVER_VERSION",
        "info KEY_LIMIT",
        "warning FENCE_CLOCK",
        "warning NO_QUARANTINE"
      ])
      const { url: other } = yield* database
      yield* node(other(), { start: "strict" })
      const refused = yield* Effect.flip(Effect.scoped(
        node(other(), { start: "strict", driver: { restartQuarantine: false } })
      ))
      assert.strictEqual(refused._tag, "DriverInvalid")
    }))

  it.scoped("R10.4 check finds advisory locks that always say yes", () =>
    Effect.gen(function*() {
      const { query, url } = yield* database
      yield* query("create schema fake")
      // they are put in the way after the start, which would refuse them
      const locking = yield* node(url({ settings: { search_path: "fake, pg_catalog, public" } }))
      const before = yield* locking.check
      assert.notInclude(before.map(({ code }) => code), "ALWAYS_YES")
      yield* alwaysYes(query)
      const found = (yield* locking.check).find(({ code }) => code === "ALWAYS_YES")
      assert.strictEqual(found?.severity, "error")
      assert.match(found!.fix, /search_path/)
    }))

  it.scoped("R8.2 the layer connects as the program's client does, and takes none of its connections", () =>
    Effect.gen(function*() {
      const { query, url } = yield* database
      const locks = Layer.provideMerge(PgLocking.layer({ session: "shop" }), sql(url()))
      const names = yield* Effect.provide(
        Locking.withLock(
          query<{ readonly name: string }>(
            "select application_name as name from pg_stat_activity where datname = current_database()"
          ),
          "k"
        ),
        locks
      )
      assert.isTrue(names.some(({ name }) => /^effect-locking\/\w+\/shop$/.test(name)))
    }))

  it.scoped("R8.2 the layer from configuration", () =>
    Effect.gen(function*() {
      const { url } = yield* database
      const locks = PgLocking.layerConfig({
        connection: Config.redacted("DATABASE_URL"),
        session: Config.string("NAME")
      })
      const backend = Locking.Locking.pipe(
        Effect.tap((locking) => locking.withLock(Effect.void, "k")),
        Effect.provide(locks),
        Effect.withConfigProvider(ConfigProvider.fromMap(new Map([["DATABASE_URL", url()], ["NAME", "n"]])))
      )
      assert.strictEqual((yield* backend).backend, "pg")
    }))
})
