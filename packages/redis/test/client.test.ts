import { assert, describe, it } from "@effect/vitest"
import { Effect, Random } from "effect"
import { Cluster, Redis } from "ioredis"
import { Cluster as Cluster6, Redis as Redis6 } from "ioredis6"
import { type Client, duplicate } from "../src/internal/client.js"

type Delay = (attempt: number) => number

const url = "redis://127.0.0.1:1"

const clients: Readonly<Record<string, () => Client>> = {
  "a server, ioredis 5": () => new Redis(url, { lazyConnect: true }),
  "a server, ioredis 6": () => new Redis6(url, { lazyConnect: true }) as unknown as Redis,
  "a cluster, ioredis 5": () => new Cluster([url], { lazyConnect: true }),
  "a cluster, ioredis 6": () => new Cluster6([url], { lazyConnect: true }) as unknown as Cluster
}

describe("connections of our own", () => {
  for (const major of [5, 6] as const) {
    it.scoped(`R8.3 log in to a cluster as the user's client does, ioredis ${major}`, () =>
      Effect.gen(function*() {
        const redisOptions = { username: "locks", password: "password", tls: {}, connectTimeout: 1, keyPrefix: "app:" }
        const Made = major === 5 ? Cluster : Cluster6 as unknown as typeof Cluster
        const own = yield* Effect.acquireRelease(
          duplicate(new Made([url], { lazyConnect: true, redisOptions }), "test"),
          (own) => Effect.sync(() => own.disconnect())
        )
        own.on("error", () => {})
        const { options } = own as unknown as Cluster
        assert.deepInclude(options.redisOptions, {
          username: "locks",
          password: "password",
          tls: {},
          // and ours where another value breaks a lock
          connectTimeout: 2_000,
          keyPrefix: "",
          maxRetriesPerRequest: 0
        })
      }))
  }
})

/** After how many milliseconds each of so many connections tries again. */
const delaysOf = (make: () => Client, count: number) =>
  Effect.scoped(Effect.gen(function*() {
    const client = make()
    const found: Array<Delay> = []
    for (let i = 0; i < count; i++) {
      const own = yield* Effect.acquireRelease(duplicate(client, "test"), (own) => Effect.sync(() => own.disconnect()))
      own.on("error", () => {})
      const { options } = own as unknown as {
        readonly options: { readonly retryStrategy?: Delay; readonly clusterRetryStrategy?: Delay }
      }
      found.push((client.isCluster ? options.clusterRetryStrategy : options.retryStrategy)!)
    }
    return found
  }))

describe("connections that were lost together", () => {
  for (const [what, make] of Object.entries(clients)) {
    it.effect(`B28 come back apart, sooner than in a second, and never give up: ${what}`, () =>
      Effect.gen(function*() {
        const delays = yield* Effect.withRandom(delaysOf(make, 40), Random.make("apart"))
        const steps = [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]
        for (const [i, longest] of [...steps.entries(), [9_999, 1_000] as const]) {
          const all = delays.map((delay) => delay(i + 1))
          all.forEach((delay) => {
            assert.isAtLeast(delay, longest / 2)
            assert.isAtMost(delay, longest)
          })
          // in each quarter of the time some
          for (const quarter of [0, 1, 2, 3]) {
            const from = longest / 2 * (1 + quarter / 4)
            assert.isTrue(all.some((delay) => delay >= from && delay < from + longest / 8), `${from}`)
          }
        }
      }))
  }
})
