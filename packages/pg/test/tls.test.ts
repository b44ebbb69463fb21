import * as PostgresServer from "@effect-locking/testing/PostgresServer"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import * as fs from "node:fs"
import * as path from "node:path"
import { database, node, Server } from "./server.js"

const fixture = (name: string) => path.join(import.meta.dirname, "../../testing/test/fixtures/tls", name)

/** A server that speaks TLS under a certificate of the tests' own. */
const layerTls = Layer.scoped(
  Server,
  Effect.gen(function*() {
    const server = yield* PostgresServer.make()
    const { gid, uid } = fs.statSync(server.dataFolder)
    for (const [from, to] of [["certificate.pem", "server.crt"], ["key.pem", "server.key"]] as const) {
      const file = path.join(server.dataFolder, to)
      fs.copyFileSync(fixture(from), file)
      fs.chownSync(file, uid, gid)
      fs.chmodSync(file, 0o600)
    }
    yield* server.query("alter system set ssl = on")
    yield* server.restart("fast")
    return server
  })
)

layer(layerTls, { excludeTestServices: true, timeout: 60_000 })("TLS", (it) => {
  const verifying = (url: string) => `${url}${url.includes("?") ? "&" : "?"}sslmode=verify-full`
  const secure = (url: string) => `${verifying(url)}&sslrootcert=${fixture("certificate.pem")}`

  it.scoped("R8.2 grants, hand-over, wake-ups and batches over TLS, on each connection of the library's own", () =>
    Effect.gen(function*() {
      const { query, url } = yield* database
      const one = yield* node(secure(url()))
      const two = yield* node(secure(url()))
      const entered = yield* Deferred.make<void>()
      const end = yield* Deferred.make<void>()
      const holder = yield* Effect.fork(
        one.withLock(Effect.zipRight(Deferred.succeed(entered, undefined), Deferred.await(end)), "k")
      )
      yield* Deferred.await(entered)
      const waiter = yield* Effect.fork(two.withLock(Effect.succeed("entered"), "k", { waitTimeout: "10 seconds" }))
      // two sessions for grants, and one on which the waiter listens at least
      const connections = query<{ ssl: boolean }>(
        `select s.ssl from pg_stat_ssl s join pg_stat_activity a using (pid) where a.application_name like 'effect-locking/%'`
      )
      while ((yield* connections).length < 3) yield* Effect.sleep(20)
      assert.isTrue((yield* connections).every(({ ssl }) => ssl))
      yield* Deferred.succeed(end, undefined)
      yield* Fiber.join(holder)
      assert.strictEqual(yield* Fiber.join(waiter), "entered")
      let inside = 0
      yield* Effect.forEach(
        Array.from({ length: 200 }, (_, i) => `k${i % 50}`),
        (key) => one.withLock(Effect.sync(() => inside++), key),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(inside, 200)
    }))

  it.scoped("R8.2 a server whose certificate is not trusted is refused when the layer is built", () =>
    Effect.gen(function*() {
      const { url } = yield* database
      const error = yield* Effect.flip(node(verifying(url())))
      assert.strictEqual(error._tag, "ProviderFailed")
      assert.match(String((error as { readonly cause?: unknown }).cause), /certificate/)
    }))
})
