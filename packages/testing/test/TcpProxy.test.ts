import type { KitError } from "@effect-locking/testing/KitError"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, type Scope } from "effect"
import * as net from "node:net"
import { until } from "../src/internal/realTime.js"

/** Answers every line by `<line>!`, and remembers what it heard. */
const echo: Effect.Effect<
  { readonly port: number; readonly heard: Array<string>; readonly sockets: Set<net.Socket> },
  never,
  Scope.Scope
> = Effect.acquireRelease(
  Effect.async<{ port: number; heard: Array<string>; sockets: Set<net.Socket>; server: net.Server }>((resume) => {
    const heard: Array<string> = []
    const sockets = new Set<net.Socket>()
    const server = net.createServer((socket) => {
      sockets.add(socket)
      socket.on("error", () => {})
      socket.on("close", () => sockets.delete(socket))
      socket.on("data", (data) => {
        heard.push(String(data))
        socket.write(`${data}!`)
      })
    })
    server.listen(
      0,
      "127.0.0.1",
      () => resume(Effect.succeed({ port: (server.address() as net.AddressInfo).port, heard, sockets, server }))
    )
  }),
  ({ server, sockets }) =>
    Effect.sync(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
)

interface Client {
  readonly say: (text: string) => void
  readonly heard: () => string
  readonly state: () => "open" | "ended" | "reset"
  readonly end: () => void
  readonly hears: (text: string) => Effect.Effect<void, KitError>
}

const connect = (port: number): Effect.Effect<Client, Error, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<net.Socket, Error>((resume) => {
        const socket = net.connect(port, "127.0.0.1", () => resume(Effect.succeed(socket)))
        socket.on("error", (error) => resume(Effect.fail(error)))
      }),
      (socket) => Effect.sync(() => socket.destroy())
    ),
    (socket) => {
      let heard = ""
      let state: "open" | "ended" | "reset" = "open"
      socket.on("data", (data) => heard += String(data))
      socket.on("end", () => state = "ended")
      socket.on("error", () => state = "reset")
      return {
        say: (text) => void socket.write(text),
        heard: () => heard,
        state: () => state,
        end: () => void socket.end(),
        hears: (text) =>
          until({ step: `hear ${text}`, see: Effect.sync(() => heard.endsWith(text)), within: 2_000, every: 2 })
      }
    }
  )

const eventually = (see: () => boolean) => until({ step: "see it", see: Effect.sync(see), within: 2_000, every: 2 })

const world = Effect.gen(function*() {
  const server = yield* echo
  const proxy = yield* TcpProxy.make({ port: server.port })
  const client = yield* connect(proxy.port)
  client.say("hello a")
  yield* client.hears("hello a!")
  return { server, proxy, client }
})

describe("TcpProxy", () => {
  it.scopedLive("passes bytes and ends, and counts them", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      const [connection] = yield* proxy.connections
      assert.strictEqual(connection!.said, "hello a")
      assert.strictEqual(connection!.toServer, 7)
      assert.strictEqual(connection!.toClient, 8)
      client.end()
      yield* eventually(() => client.state() === "ended" && server.sockets.size === 0)
      assert.isFalse((yield* proxy.connections)[0]!.isOpen)
    }))

  it.scopedLive("a black hole swallows for one client only, and for good", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      const other = yield* connect(proxy.port)
      yield* proxy.blackHole({ who: TcpProxy.named("hello a") })
      client.say("lost")
      other.say("hello b")
      yield* other.hears("hello b!")
      yield* proxy.heal
      client.say("after a hole")
      other.say("again")
      yield* other.hears("again!")
      assert.deepStrictEqual(server.heard, ["hello a", "hello b", "again"])
      assert.strictEqual(client.state(), "open")
    }))

  it.scopedLive("a black hole in one direction: the server acts, the client hears nothing", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      yield* proxy.blackHole({ direction: "toClient" })
      client.say("act")
      yield* eventually(() => server.heard.includes("act"))
      yield* Effect.sleep(20)
      assert.strictEqual(client.heard(), "hello a!")
    }))

  it.scopedLive("a pause delivers late and in order", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      yield* proxy.pause({ who: TcpProxy.nth(0) })
      client.say("1")
      yield* Effect.sleep(30)
      client.say("2")
      yield* Effect.sleep(30)
      assert.lengthOf(server.heard, 1)
      yield* proxy.heal
      yield* eventually(() => server.heard.join("") === "hello a12")
    }))

  it.scopedLive("latency", () =>
    Effect.gen(function*() {
      const { client, proxy } = yield* world
      yield* proxy.delay(150, { direction: "toClient" })
      const before = performance.now()
      client.say("late")
      yield* client.hears("late!")
      assert.isAtLeast(performance.now() - before, 149)
    }))

  it.scopedLive("the next request is broken off: its beginning arrives, and nobody is told of the rest", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      const happened = yield* proxy.breakNextRequest({ request: (bytes) => bytes.startsWith("write"), missing: 3 })
      client.say("read")
      yield* client.hears("read!")
      client.say("write this")
      yield* happened
      yield* eventually(() => server.heard.includes("write t"))
      yield* proxy.heal
      client.say("more")
      yield* Effect.sleep(20)
      assert.strictEqual(server.heard.join(), "hello a,read,write t")
      assert.isTrue(client.heard().endsWith("read!"))
      assert.deepStrictEqual([client.state(), server.sockets.size], ["open", 1])
    }))

  it.scopedLive("the next reply is lost: the server has acted", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      const happened = yield* proxy.dropNextReply({ request: (bytes) => bytes.startsWith("write") })
      client.say("read")
      yield* client.hears("read!")
      client.say("write")
      yield* happened
      yield* eventually(() => client.state() === "reset")
      assert.include(server.heard, "write")
      assert.notInclude(client.heard(), "write")
      const again = yield* connect(proxy.port)
      again.say("write")
      yield* again.hears("write!")
    }))

  it.scopedLive("the next request is lost: the server has not acted", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      const happened = yield* proxy.dropNextRequest()
      client.say("write")
      yield* happened
      yield* eventually(() => client.state() === "reset" && server.sockets.size === 0)
      assert.notInclude(server.heard, "write")
    }))

  it.scopedLive("half-open: one side is closed, the other one is not told", () =>
    Effect.gen(function*() {
      const { client, proxy, server } = yield* world
      yield* proxy.halfClose("client")
      yield* eventually(() => client.state() === "reset")
      yield* Effect.sleep(20)
      assert.strictEqual(server.sockets.size, 1)
      const other = yield* connect(proxy.port)
      other.say("b")
      yield* other.hears("b!")
      yield* proxy.halfClose("server", TcpProxy.nth(1))
      yield* eventually(() => server.sockets.size === 1)
      other.say("anybody?")
      yield* Effect.sleep(20)
      assert.strictEqual(other.state(), "open")
    }))

  it.scopedLive("cuts by name, and refuses new connections", () =>
    Effect.gen(function*() {
      const { client, proxy } = yield* world
      const other = yield* connect(proxy.port)
      other.say("hello b")
      yield* other.hears("hello b!")
      assert.strictEqual(yield* proxy.cut(TcpProxy.named("hello a")), 1)
      yield* eventually(() => client.state() === "reset")
      yield* proxy.refuse
      assert(Exit.isFailure(yield* Effect.exit(connect(proxy.port))))
      other.say("still")
      yield* other.hears("still!")
      yield* proxy.heal
      yield* connect(proxy.port)
    }))

  it.scopedLive("a server that is gone ends its clients", () =>
    Effect.gen(function*() {
      const { client, server } = yield* world
      for (const socket of server.sockets) socket.destroy()
      yield* eventually(() => client.state() === "ended")
    }))
})
