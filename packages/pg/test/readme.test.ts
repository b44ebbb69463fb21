/** The SQL of the page, as a DBA runs it. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import type { Fence } from "effect-locking/Fence"
import * as fs from "node:fs"
import { lockId } from "../src/internal/pure/lockId.js"
import * as PgFence from "../src/PgFence.js"
import { database, layerServer, node, Server, sql, versions } from "./server.js"

const page = fs.readFileSync(new URL("../README.md", import.meta.url), "utf8")

const blocks = [...page.matchAll(/^```sql\n([\s\S]*?)^```$/gm)].map(([, text]) => text!.trim())

/** The one that has these words in it. */
const block = (words: string): string => {
  const found = blocks.filter((text) => text.includes(words))
  assert.lengthOf(found, 1, words)
  return found[0]!
}

const terminate = /`(select pg_terminate_backend\(<pid>\))`/.exec(page)![1]!

for (const version of versions) {
  layer(layerServer(version), { excludeTestServices: true, timeout: 60_000 })(`PostgreSQL ${version}`, (it) => {
    describe("the SQL of the page", () => {
      it.scoped("R8.2 R3.3 R4.5 R10.3 lets a role lock and guard, tells who holds and who waits, and ends a holder", () =>
        Effect.gen(function*() {
          const { query, url } = yield* database
          // the one that a program runs itself is shown with frozen holders
          assert.lengthOf(blocks, 5, "each of them is run somewhere")
          yield* (yield* Server).createRole("app")
          yield* query("revoke create on schema public from public")
          const refused = yield* Effect.flip(Effect.scoped(node(url({ role: "app" }))))
          assert.strictEqual(refused._tag, "DriverInvalid")
          yield* query(block("create sequence"))
          yield* query(block("effect_locking_fences"))
          const program = { driver: { restartQuarantine: false }, session: "billing" }
          const a = yield* node(url({ role: "app" }), program)
          const b = yield* node(url({ role: "app" }), program)
          const client = sql(url({ role: "app" }))
          const write = (fence: Fence) =>
            Effect.provide(
              Effect.flatMap(PgClient.PgClient, (one) => one.withTransaction(PgFence.guard("ledger", fence))),
              client
            )
          const inside = yield* Deferred.make<Fence>()
          const holder = yield* Effect.fork(
            a.useLock("orders", ({ fence }) => Effect.zipRight(Deferred.succeed(inside, fence as Fence), Effect.never))
          )
          const fence = yield* Deferred.await(inside)
          yield* write(fence)
          yield* write(fence)
          const waiter = yield* Effect.fork(
            b.useLock("orders", { waitTimeout: "25 seconds" }, ({ fence }) => write(fence as Fence))
          )
          const look = query<{ readonly what: string; readonly pid: number; readonly lock: string | null }>(
            block("pg_stat_activity")
          )
          let seen = yield* look
          while (!seen.some(({ what }) => what === "waits")) seen = yield* look
          const [number] = (yield* query<Record<string, string>>(block("sha256"))).flatMap(Object.values)
          assert.strictEqual(number, lockId(yield* a.resolveKey("orders")))
          assert.include(page, `(${number})`)
          const holds = seen.filter(({ what }) => what === "holds")
          assert.deepStrictEqual(holds.map(({ lock }) => lock), [number])
          assert.isTrue(
            seen.every(({ what, pid, lock }) => what === "holds" || (pid !== holds[0]!.pid && lock === null))
          )
          yield* query(terminate.replace("<pid>", String(holds[0]!.pid)))
          assert.strictEqual((yield* Effect.flip(Fiber.join(holder)))._tag, "LeaseLost")
          yield* Fiber.join(waiter)
          assert.strictEqual((yield* Effect.flip(write(fence)))._tag, "StaleFence")
        }))
    })
  })
}
