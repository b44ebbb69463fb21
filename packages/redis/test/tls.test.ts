import * as RedisServer from "@effect-locking/testing/RedisServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as fs from "node:fs"
import * as path from "node:path"
import { recordOf } from "../src/internal/records.js"
import * as kit from "./kit.js"

const fixture = (name: string) => path.join(import.meta.dirname, "../../testing/test/fixtures/tls", name)

/** A server that speaks TLS under a certificate of the tests' own, beside its plain port. */
const world = Effect.map(
  RedisServer.make({ tls: { certificate: fixture("certificate.pem"), key: fixture("key.pem") } }),
  (server) => ({ server, url: `rediss://127.0.0.1:${server.tlsPort}` })
)

const tls = { ca: fs.readFileSync(fixture("certificate.pem")) }

describe("TLS", () => {
  for (const major of [5, 6] as const) {
    it.scopedLive(
      `R8.3 grants, hand-over, wake-ups and joined commands over TLS, ioredis ${major}`,
      () =>
        Effect.gen(function*() {
          const { server, url } = yield* world
          const one = yield* kit.node(url, {}, { tls }, major)
          const two = yield* kit.node(url, {}, { tls }, major)
          const { end, fiber } = yield* kit.hold(one, "k")
          const waiter = yield* Effect.fork(two.withLock(Effect.succeed("entered"), "k", { waitTimeout: "10 seconds" }))
          // the server has heard of who waits
          const waiting = Effect.map(
            server.command("PUBSUB", "CHANNELS", "*"),
            (channels: ReadonlyArray<string>) => channels.includes(recordOf("", kit.key("k")))
          )
          while (!(yield* waiting)) yield* Effect.sleep(20)
          yield* end
          yield* Fiber.join(fiber)
          assert.strictEqual(yield* Fiber.join(waiter), "entered")
          let inside = 0
          yield* Effect.forEach(
            Array.from({ length: 200 }, (_, i) => `k${i % 50}`),
            (key) => one.withLock(Effect.sync(() => inside++), key),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(inside, 200)
        }),
      60_000
    )
  }

  it.scopedLive(
    "R8.3 a server whose certificate is not trusted is refused when the layer is built",
    () =>
      Effect.gen(function*() {
        const { url } = yield* world
        const error = yield* Effect.flip(kit.node(url, {}, { tls: {} }))
        assert.strictEqual(error._tag, "ProviderFailed")
        assert.match(String((error as { readonly cause?: unknown }).cause), /certificate/)
      }),
    60_000
  )
})
