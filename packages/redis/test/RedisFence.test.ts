/**
 * The check at the data, with the server as the witness.
 */
import type * as RedisServer from "@effect-locking/testing/RedisServer"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Duration, Effect, Either, FastCheck as fc, Layer } from "effect"
import * as Fence from "effect-locking/Fence"
import type { Cluster, Redis } from "ioredis"
import * as RedisFence from "../src/RedisFence.js"
import { client as clusterClient, Masters } from "./cluster.js"
import * as kit from "./kit.js"

/** What a write came to. */
const write = (
  client: Redis | Cluster,
  key: string,
  value: string,
  fence: bigint,
  options?: RedisFence.GuardOptions
) => Effect.either(RedisFence.set(client, key, value, Fence.unsafeMake(fence), options))

const isWritten = Either.right(undefined)

const refusedWith = <E extends { readonly _tag: string }, Tag extends E["_tag"]>(
  exit: Either.Either<void, E>,
  tag: Tag
): Extract<E, { readonly _tag: Tag }> => {
  assert(Either.isLeft(exit) && exit.left._tag === tag, Either.isLeft(exit) ? exit.left._tag : "it was written")
  return exit.left as Extract<E, { readonly _tag: Tag }>
}

const issuesOf = (exit: Effect.Effect.Success<ReturnType<typeof write>>) =>
  refusedWith(exit, "InvalidOptions").issues.map(({ path }) => path)

describe("R3.3 the key of a fence", () => {
  it("is named as it always was where the client has no prefix, and after what the server sees where it has one", () => {
    const names = [
      ["report", "", "{report}:fence"],
      ["report:{2025}:a", "", "report:{2025}:a:fence"],
      ["a{b", "", "{a{b}:fence"],
      ["report", "app:", "{app:report}:fence"],
      ["report:{2025}", "app:", "report:{2025}:fence"],
      ["report", "{locks}:", "report:fence"],
      ["a}b", "{locks}:", "a}b:fence"],
      ["a}b", "app{", "a}b:fence"]
    ] as const
    for (const [key, prefix, name] of names) {
      assert.deepStrictEqual(RedisFence.fenceKey(key, prefix), Either.right(name))
    }
  })

  it("is refused where no name is sure to lie beside the key, with what to do", () => {
    const places = [["a}b", ""], ["{}a", ""], ["}{", ""], ["", ""], ["a", "{}"], ["a", "x}"], ["a", "x{"]] as const
    for (const [key, prefix] of places) {
      const refused = RedisFence.fenceKey(key, prefix)
      assert(Either.isLeft(refused), `${prefix} ${key}`)
      assert.strictEqual(refused.left._tag, "InvalidOptions")
      assert.deepStrictEqual(refused.left.issues.map(({ path }) => path), ["fenceKey"])
      assert.match(refused.left.message, /fenceKey must be named/)
    }
  })
})

class Server extends Context.Tag("Server")<Server, {
  readonly server: RedisServer.RedisServer
  readonly client: Redis
}>() {
  static readonly live = (major: kit.Major) =>
    Layer.scoped(
      Server,
      Effect.gen(function*() {
        const server = yield* kit.server
        return { server, client: yield* kit.client(server.url(), {}, major) }
      })
    )
}

for (const major of [5, 6] as const) {
  layer(Server.live(major), { excludeTestServices: true })(`R3.3 one server, ioredis ${major}`, (it) => {
    it.effect("refuses a stale write and lets equal and higher fences through", () =>
      Effect.gen(function*() {
        const { client, server } = yield* Server
        const keeps = (value: string, fence: string) =>
          Effect.map(server.command("MGET", "report", "{report}:fence"), (found) =>
            assert.deepStrictEqual(found, [value, fence]))
        assert.deepStrictEqual(yield* write(client, "report", "first", 41n), isWritten)
        assert.deepStrictEqual(yield* write(client, "report", "again", 41n), isWritten)
        yield* keeps("again", "41")
        assert.deepStrictEqual(yield* write(client, "report", "later", 42n), isWritten)
        const stale = refusedWith(yield* write(client, "report", "late", 41n), "StaleFence")
        assert.deepStrictEqual([stale.backend, stale.resource, stale.lock], ["redis", 42n, 41n])
        yield* keeps("later", "42")
      }))

    it.effect("compares fences as numbers, however many digits they have", () =>
      Effect.gen(function*() {
        const { client, server } = yield* Server
        const rising = [1n, 9n, 10n, 99n, 100n, 1_795_951_245_970_000n, 1_795_951_245_970_001n, 9_007_199_254_740_993n]
        for (const [i, fence] of rising.entries()) {
          assert.deepStrictEqual(yield* write(client, "digits", String(fence), fence), isWritten)
          for (const before of rising.slice(0, i)) {
            const { resource } = refusedWith(yield* write(client, "digits", "late", before), "StaleFence")
            assert.strictEqual(resource, fence)
          }
        }
        assert.strictEqual(yield* server.command("GET", "digits"), "9007199254740993")
      }))

    it.effect("takes the fences of leases: that of a holder who was deposed is refused once the next has written", () =>
      Effect.scoped(Effect.gen(function*() {
        const { client, server } = yield* Server
        const [one, two] = [yield* kit.node(server.url()), yield* kit.node(server.url())]
        const old = yield* one.acquire("account")
        yield* RedisFence.set(client, "account", "old", old)
        yield* two.forceRelease("account")
        yield* two.useLock("account", (lease) => RedisFence.set(client, "account", "new", lease))
        const stale = yield* Effect.flip(RedisFence.set(client, "account", "late", old))
        assert.strictEqual(stale._tag, "StaleFence")
        assert.strictEqual(yield* server.command("GET", "account"), "new")
      })))

    it.effect("keeps the fence for ever, or for a time after the last write; what is no time is refused", () =>
      Effect.gen(function*() {
        const { client, server } = yield* Server
        const left: Effect.Effect<number> = Effect.orDie(server.command("PTTL", "{kept}:fence"))
        yield* write(client, "kept", "value", 5n)
        assert.strictEqual(yield* left, -1)
        const day = 86_400_000
        for (const [expiry, millis] of [["1 day", day], ["100 nanos", 1], ["1 day", day]] as const) {
          assert.deepStrictEqual(yield* write(client, "kept", "value", 5n, { expiry }), isWritten)
          const kept = yield* left
          assert.isAtMost(kept, millis)
          if (expiry === "1 day") assert.isAbove(kept, millis - 60_000)
        }
        // what is written lives on
        assert.strictEqual(yield* server.command("PTTL", "kept"), -1)
        for (const expiry of [undefined, Duration.infinity, Infinity]) {
          yield* write(client, "kept", "value", 5n, { expiry: "1 day" })
          assert.deepStrictEqual(yield* write(client, "kept", "value", 5n, { expiry }), isWritten)
          assert.strictEqual(yield* left, -1)
        }
        for (const expiry of [0, -1, NaN, "soon", "0 millis"] as ReadonlyArray<any>) {
          assert.deepStrictEqual(issuesOf(yield* write(client, "kept", "refused", 6n, { expiry })), ["expiry"])
        }
        assert.deepStrictEqual(yield* server.command("MGET", "kept", "{kept}:fence"), ["value", "5"])
        // a write that is late by more passes
        yield* write(client, "kept", "value", 6n, { expiry: 1 })
        yield* kit.eventually(Effect.map(left, (millis) => millis === -2))
        assert.deepStrictEqual(yield* write(client, "kept", "late", 5n), isWritten)
      }))

    it.effect("goes on when the server has forgotten its scripts", () =>
      Effect.gen(function*() {
        const { client, server } = yield* Server
        yield* write(client, "flushed", "first", 2n)
        yield* server.command("SCRIPT", "FLUSH")
        assert.deepStrictEqual(yield* write(client, "flushed", "second", 3n), isWritten)
        yield* server.command("SCRIPT", "FLUSH")
        refusedWith(yield* write(client, "flushed", "late", 2n), "StaleFence")
        assert.strictEqual(yield* server.command("GET", "flushed"), "second")
      }))

    it.effect("fails with nothing written where the server refuses or is not there", () =>
      Effect.scoped(Effect.gen(function*() {
        const { client, server } = yield* Server
        yield* server.command("CONFIG", "SET", "maxmemory", "1")
        const full = refusedWith(yield* write(client, "secret-key", "secret-value", 1n), "WriteFailed")
        yield* server.command("CONFIG", "SET", "maxmemory", "0")
        assert.deepStrictEqual([full.executed, (full.cause as { readonly code?: string }).code], ["no", "OOM"])
        assert.notMatch(JSON.stringify(full) + String(full.cause) + Object.values(full.cause!).join(), /secret/)
        assert.deepStrictEqual(yield* server.command("EXISTS", "secret-key", "{secret-key}:fence"), 0)
        const absent = yield* kit.client("redis://127.0.0.1:1", { enableOfflineQueue: false }, major)
        assert.strictEqual(refusedWith(yield* write(absent, "k", "v", 1n), "WriteFailed").executed, "no")
      })))

    it.effect("fails with an outcome that is unknown where the answer is lost, and may be done again", () =>
      Effect.scoped(Effect.gen(function*() {
        const { server } = yield* Server
        const proxy = yield* TcpProxy.make({ port: server.port })
        const once = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 }
        const far = yield* kit.client(server.url(proxy.port), once, major)
        yield* write(far, "lost", "first", 7n)
        const lost = yield* proxy.dropNextReply()
        const { cause, executed } = refusedWith(yield* write(far, "lost", "second", 8n), "WriteFailed")
        yield* lost
        assert.strictEqual(executed, "unknown")
        assert.instanceOf(cause, Error)
        assert.strictEqual(yield* server.command("GET", "lost"), "second")
        assert.deepStrictEqual(yield* write(far, "lost", "second", 8n), isWritten)
        refusedWith(yield* write(far, "lost", "late", 7n), "StaleFence")
      })))

    it.effect("fails where somebody else has written to the fence, and writes nothing", () =>
      Effect.gen(function*() {
        const { client, server } = yield* Server
        yield* server.command("SET", "{foreign}:fence", "not a fence")
        assert.strictEqual(refusedWith(yield* write(client, "foreign", "v", 1n), "WriteFailed")._tag, "WriteFailed")
        yield* server.command("DEL", "{foreign}:fence")
        yield* server.command("HSET", "{foreign}:fence", "a", "b")
        assert.strictEqual(refusedWith(yield* write(client, "foreign", "v", 1n), "WriteFailed").executed, "no")
        assert.strictEqual(yield* server.command("EXISTS", "foreign"), 0)
      }))

    it.effect("asks nothing of the server for a key whose fence has no place; one that is named has", () =>
      Effect.scoped(Effect.gen(function*() {
        const { client, server } = yield* Server
        const braces = yield* kit.client(server.url(), { keyPrefix: "x}" }, major)
        const scripts = Effect.map(
          server.command("INFO", "commandstats"),
          (text: string) => text.split("\n").filter((line) => line.startsWith("cmdstat_eval")).join()
        )
        const before = yield* scripts
        assert.deepStrictEqual(issuesOf(yield* write(client, "a}b", "v", 1n)), ["fenceKey"])
        assert.deepStrictEqual(issuesOf(yield* write(client, "{}a", "v", 1n, { expiry: 0 })), ["fenceKey", "expiry"])
        assert.deepStrictEqual(issuesOf(yield* write(braces, "a", "v", 1n)), ["fenceKey"])
        assert.strictEqual(yield* scripts, before)
        assert.deepStrictEqual(yield* write(client, "a}b", "v", 2n, { fenceKey: "fence" }), isWritten)
        refusedWith(yield* write(client, "a}b", "late", 1n, { fenceKey: "fence" }), "StaleFence")
        assert.deepStrictEqual(yield* server.command("MGET", "a}b", "fence"), ["v", "2"])
      })))
  })
}

const prefixes = ["", "app:", "{locks}:", "a{", "x}", "{}"]

class Clients extends Context.Tag("Clients")<Clients, {
  /** With one of the prefixes each. */
  readonly clients: ReadonlyMap<string, Cluster>
  readonly slotOf: (key: string) => Effect.Effect<number>
}>() {
  static readonly live = (major: kit.Major) =>
    Layer.scoped(
      Clients,
      Effect.gen(function*() {
        const masters = yield* Masters
        const asked = yield* kit.client(masters[0]!.url())
        const clients = yield* Effect.forEach(prefixes, (keyPrefix, i) =>
          // a prefix is that of the cluster or of its nodes
          Effect.map(
            clusterClient(masters, major, i % 2 === 0 ? { keyPrefix } : { redisOptions: { keyPrefix } }),
            (made) => [keyPrefix, made] as const
          ))
        return {
          clients: new Map(clients),
          slotOf: (key) => Effect.promise(() => asked.cluster("KEYSLOT", key))
        }
      })
    )
}

const keys = fc.stringOf(fc.constantFrom("{", "}", "a", "b", ":"), { maxLength: 8 })

for (const major of [5, 6] as const) {
  layer(Layer.provideMerge(Clients.live(major), Masters.live), { excludeTestServices: true, timeout: 60_000 })(
    `R3.3 a cluster, ioredis ${major}`,
    (it) => {
      it.effect("refuses a stale write on every node, whatever prefix the client has", () =>
        Effect.gen(function*() {
          const masters = yield* Masters
          const { clients } = yield* Clients
          for (const prefix of ["", "app:", "{locks}:"]) {
            const client = clients.get(prefix)!
            for (const i of Array.from({ length: 9 }).keys()) {
              const key = `report/${major}/${i}`
              assert.deepStrictEqual(yield* write(client, key, "first", 41n), isWritten)
              assert.deepStrictEqual(yield* write(client, key, "second", 100n), isWritten)
              refusedWith(yield* write(client, key, "late", 99n), "StaleFence")
              assert.strictEqual(yield* Effect.promise(() => client.get(key)), "second")
            }
          }
          const found = yield* Effect.forEach(masters, (master) => master.command("KEYS", `*report/${major}/*`))
          // both of each, and of those without a tag some on every node
          assert.lengthOf(found.flat(), 3 * 9 * 2)
          assert.isTrue(found.every(({ length }) => length > 0))
        }))

      it.effect.prop(
        "the fence is in the slot of the key by the cluster's own word, or the key is refused",
        [keys, fc.constantFrom(...prefixes)],
        ([key, prefix]) =>
          Effect.gen(function*() {
            const { clients, slotOf } = yield* Clients
            const name = RedisFence.fenceKey(key, prefix)
            const exit = yield* write(clients.get(prefix)!, key, "value", 1n)
            if (Either.isLeft(name)) {
              assert.deepStrictEqual(issuesOf(exit), ["fenceKey"])
              // an empty key, and braces that are no tag
              assert.match(`${prefix}${key}`, /^$|[{}]/)
            } else {
              assert.deepStrictEqual(exit, isWritten)
              assert.strictEqual(yield* slotOf(`${prefix}${name.right}`), yield* slotOf(`${prefix}${key}`))
            }
          })
      )

      it.effect("a fence that is named in another slot is refused by the cluster, and nothing is written", () =>
        Effect.gen(function*() {
          const { clients, slotOf } = yield* Clients
          const client = clients.get("")!
          assert.notStrictEqual(yield* slotOf("far"), yield* slotOf("apart"))
          const refused = refusedWith(yield* write(client, "apart", "v", 1n, { fenceKey: "far" }), "WriteFailed")
          assert.strictEqual(refused.executed, "no")
          assert.strictEqual(yield* Effect.promise(() => client.exists("apart")), 0)
        }))
    }
  )
}
