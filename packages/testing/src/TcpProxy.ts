/**
 * A TCP proxy in front of a server, which treats its connections as a bad network would: it swallows, delays, cuts and
 * refuses. It knows connections apart, by their order or by what the client has said on them (an `application_name`, a
 * `CLIENT SETNAME`), so the subscriber can be cut off while the holder goes on.
 *
 * A fault is true of the connections that it names from now on, including those that are opened later, until `heal`.
 *
 * @since 0.1.0
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as net from "node:net"
import { freePort } from "./internal/port.js"
import { KitError } from "./KitError.js"

/**
 * @since 0.1.0
 * @category models
 */
export type Direction = "toServer" | "toClient"

/**
 * A connection as a selector sees it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Connection {
  /** Its place in the order of arrival, from 0. */
  readonly index: number
  /** The first 16 KB that the client sent, one character for each byte. */
  readonly said: string
  /** Bytes that came from the client, and from the server. */
  readonly toServer: number
  readonly toClient: number
  readonly isOpen: boolean
}

/**
 * Which connections are meant.
 *
 * @since 0.1.0
 * @category models
 */
export type Who = (connection: Connection) => boolean

/**
 * @since 0.1.0
 * @category models
 */
export interface LoseOptions {
  readonly who?: Who | undefined
  /** Which request, by its bytes (one character for each); any when it is missing. */
  readonly request?: ((bytes: string) => boolean) | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface TcpProxy {
  readonly port: number
  /** All connections so far, in their order. */
  readonly connections: Effect.Effect<ReadonlyArray<Connection>>
  /**
   * Swallows what comes, and keeps both sides open. A connection that has lost bytes stays mute in that direction when
   * it is healed, since a stream with a hole is worse than none.
   */
  readonly blackHole: (options?: {
    readonly who?: Who | undefined
    /** Both unless told. */
    readonly direction?: Direction | undefined
  }) => Effect.Effect<void>
  /** Holds back what comes until `heal`, which delivers it: a partition that TCP survives. */
  readonly pause: (options?: {
    readonly who?: Who | undefined
    readonly direction?: Direction | undefined
  }) => Effect.Effect<void>
  /** Delivers in order, and so many milliseconds late. The longest of several counts. */
  readonly delay: (millis: number, options?: {
    readonly who?: Who | undefined
    readonly direction?: Direction | undefined
  }) => Effect.Effect<void>
  /**
   * The next request reaches the server; its reply does not come back, and both sides are closed. Answers an effect
   * that ends when it has happened.
   */
  readonly dropNextReply: (options?: LoseOptions) => Effect.Effect<Effect.Effect<void>>
  /** The next request does not reach the server, and both sides are closed. */
  readonly dropNextRequest: (options?: LoseOptions) => Effect.Effect<Effect.Effect<void>>
  /**
   * Of the next request the last `missing` bytes do not reach the server, nor does anything that follows, and no answer
   * comes back; both sides stay open: a partition in the middle of a request.
   */
  readonly breakNextRequest: (
    options: LoseOptions & { readonly missing: number }
  ) => Effect.Effect<Effect.Effect<void>>
  /** Closes one side and keeps the other open and mute: half-open connections, which nobody is told of. */
  readonly halfClose: (closed: "client" | "server", who?: Who) => Effect.Effect<void>
  /** Resets both sides of the open connections. Answers how many there were. */
  readonly cut: (who?: Who) => Effect.Effect<number>
  /** New connections are refused, open ones go on. */
  readonly refuse: Effect.Effect<void>
  /** Ends all faults: what was held back is delivered, new connections are taken. */
  readonly heal: Effect.Effect<void>
}

const everybody: Who = () => true

/**
 * Connections whose client has said this name, in a start-up message or in a command. A name that is part of another
 * one means both.
 *
 * @since 0.1.0
 * @category selectors
 */
export const named = (name: string): Who => {
  const bytes = Buffer.from(name).toString("latin1")
  return ({ said }) => said.includes(bytes)
}

/**
 * The connection that was opened as the `index`th, from 0.
 *
 * @since 0.1.0
 * @category selectors
 */
export const nth = (index: number): Who => (connection) => connection.index === index

const maxSaid = 16_384

interface Rule {
  readonly who: Who
  readonly direction: Direction | undefined
  readonly kind: "swallow" | "pause" | { readonly delay: number }
}

interface Loss {
  readonly what: "request" | "reply" | { readonly missing: number }
  readonly who: Who
  readonly request: (bytes: string) => boolean
  readonly done: Effect.Effect<unknown>
}

/** One direction of one connection: what is on its way, in order. */
class Lane {
  private readonly waiting: Array<{ readonly chunk: Buffer | "end"; readonly due: number }> = []
  private timer: NodeJS.Timeout | undefined
  private mute = false

  constructor(
    private readonly to: net.Socket,
    private readonly fault: () => { readonly swallow: boolean; readonly pause: boolean; readonly delay: number }
  ) {}

  send(chunk: Buffer | "end"): void {
    const { delay, swallow } = this.fault()
    if (swallow || this.mute) {
      this.mute = true
      return
    }
    this.waiting.push({ chunk, due: performance.now() + delay })
    this.flush()
  }

  flush(): void {
    clearTimeout(this.timer)
    while (this.waiting.length > 0 && !this.fault().pause) {
      const { chunk, due } = this.waiting[0]!
      const left = due - performance.now()
      if (left > 0) {
        this.timer = setTimeout(() => this.flush(), left)
        return
      }
      this.waiting.shift()
      if (chunk === "end") this.to.end()
      else if (this.to.writable) this.to.write(chunk)
    }
  }

  /** Swallows whatever comes from now on. */
  silence(): void {
    this.mute = true
  }

  /** Nothing more goes this way. */
  close(): void {
    this.silence()
    this.waiting.length = 0
    clearTimeout(this.timer)
  }
}

class Link implements Connection {
  said = ""
  toServer = 0
  toClient = 0
  /** A reply that must not come back. */
  doomed: Loss | undefined
  readonly lanes: Readonly<Record<Direction, Lane>>

  constructor(
    readonly index: number,
    readonly client: net.Socket,
    readonly server: net.Socket,
    fault: (link: Link, direction: Direction) => ReturnType<Lane["fault"]>
  ) {
    this.lanes = {
      toServer: new Lane(server, () => fault(this, "toServer")),
      toClient: new Lane(client, () => fault(this, "toClient"))
    }
  }

  get isOpen(): boolean {
    return !this.client.destroyed && !this.server.destroyed
  }

  hear(chunk: Buffer): void {
    this.toServer += chunk.length
    if (this.said.length < maxSaid) this.said += chunk.toString("latin1").slice(0, maxSaid - this.said.length)
  }

  reset(): void {
    for (const lane of [this.lanes.toServer, this.lanes.toClient]) lane.close()
    for (const socket of [this.client, this.server]) if (!socket.destroyed) socket.resetAndDestroy()
  }
}

class Proxy {
  readonly links: Array<Link> = []
  readonly rules: Array<Rule> = []
  readonly losses: Array<Loss> = []
  private listener: net.Server | undefined

  constructor(readonly port: number, private readonly target: { readonly host: string; readonly port: number }) {}

  listen(): Effect.Effect<void, KitError> {
    return Effect.async((resume) => {
      if (this.listener !== undefined) return resume(Effect.void)
      // a client that ends its side still wants to hear the answer
      const listener = net.createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.accept(client))
      this.listener = listener
      listener.once("error", (cause) => {
        this.listener = undefined
        resume(new KitError({ step: "listen", reason: cause.message, cause }))
      })
      listener.listen(this.port, "127.0.0.1", () => resume(Effect.void))
    })
  }

  refuse(): void {
    this.listener?.close()
    this.listener = undefined
  }

  flush(): void {
    for (const { lanes } of this.links) {
      lanes.toServer.flush()
      lanes.toClient.flush()
    }
  }

  private fault(link: Link, direction: Direction) {
    let swallow = false
    let pause = false
    let delay = 0
    for (const rule of this.rules) {
      if ((rule.direction !== undefined && rule.direction !== direction) || !rule.who(link)) continue
      if (rule.kind === "swallow") swallow = true
      else if (rule.kind === "pause") pause = true
      else delay = Math.max(delay, rule.kind.delay)
    }
    return { swallow, pause, delay }
  }

  /** Whether this request, or the answer to it, is lost. */
  private loses(link: Link, chunk: Buffer): Loss | undefined {
    const bytes = this.losses.length === 0 ? "" : chunk.toString("latin1")
    const at = this.losses.findIndex(({ request, who }) => who(link) && request(bytes))
    return at < 0 ? undefined : this.losses.splice(at, 1)[0]
  }

  private accept(client: net.Socket): void {
    const server = net.connect({ ...this.target, allowHalfOpen: true, noDelay: true })
    const link = new Link(this.links.length, client, server, (of, direction) => this.fault(of, direction))
    this.links.push(link)
    client.on("data", (chunk) => {
      link.hear(chunk)
      const loss = this.loses(link, chunk)
      if (loss?.what === "request") return lose(link, loss)
      if (loss?.what === "reply") link.doomed ??= loss
      if (typeof loss?.what !== "object") return link.lanes.toServer.send(chunk)
      link.lanes.toServer.send(chunk.subarray(0, Math.max(0, chunk.length - loss.what.missing)))
      for (const lane of [link.lanes.toServer, link.lanes.toClient]) lane.silence()
      Effect.runFork(loss.done)
    })
    server.on("data", (chunk) => {
      link.toClient += chunk.length
      if (link.doomed !== undefined) return lose(link, link.doomed)
      link.lanes.toClient.send(chunk)
    })
    client.on("end", () => link.lanes.toServer.send("end"))
    server.on("end", () => link.lanes.toClient.send("end"))
    for (const [socket, lane] of [[client, link.lanes.toServer], [server, link.lanes.toClient]] as const) {
      // a reset is passed on as an end: what counts is that the other side hears of it
      socket.on("error", () => lane.send("end"))
    }
  }
}

const lose = (link: Link, loss: Loss): void => {
  link.reset()
  Effect.runFork(loss.done)
}

/**
 * A proxy on a free port of 127.0.0.1 that runs until the scope closes, and then resets what is still open.
 *
 * @example
 * ```ts
 * import { PostgresServer, TcpProxy } from "@effect-locking/testing"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const server = yield* PostgresServer.make()
 *   const proxy = yield* TcpProxy.make({ port: server.port })
 *   const url = server.url({ port: proxy.port, applicationName: "holder" })
 *   // … a driver that connects to `url` …
 *   yield* proxy.blackHole({ who: TcpProxy.named("holder") })
 *   return url
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  target: { readonly port: number; readonly host?: string | undefined }
): Effect.Effect<TcpProxy, KitError, Scope.Scope> =>
  Effect.gen(function*() {
    const proxy = new Proxy(yield* freePort, { host: target.host ?? "127.0.0.1", port: target.port })
    yield* Effect.acquireRelease(
      proxy.listen(),
      () =>
        Effect.sync(() => {
          proxy.refuse()
          for (const link of proxy.links) link.reset()
        })
    )
    const rule = (
      kind: Rule["kind"],
      options: { readonly who?: Who | undefined; readonly direction?: Direction | undefined } = {}
    ) =>
      Effect.sync(() => {
        proxy.rules.push({ kind, who: options.who ?? everybody, direction: options.direction })
      })
    const loseNext = (what: Loss["what"], options: LoseOptions = {}) =>
      Effect.map(Deferred.make<void>(), (happened) => {
        const done = Deferred.succeed(happened, undefined)
        proxy.losses.push({ what, who: options.who ?? everybody, request: options.request ?? (() => true), done })
        return Deferred.await(happened)
      })
    const open = (who: Who = everybody) => proxy.links.filter((link) => link.isOpen && who(link))
    return {
      port: proxy.port,
      connections: Effect.sync(() => [...proxy.links]),
      blackHole: (options) => rule("swallow", options),
      pause: (options) => rule("pause", options),
      delay: (millis, options) => rule({ delay: millis }, options),
      dropNextReply: (options) => loseNext("reply", options),
      dropNextRequest: (options) => loseNext("request", options),
      breakNextRequest: ({ missing, ...options }) => loseNext({ missing }, options),
      halfClose: (closed, who) =>
        Effect.sync(() => {
          for (const { client, lanes, server } of open(who)) {
            // silent first, so that the other side is not told
            lanes.toServer.close()
            lanes.toClient.close()
            ;(closed === "client" ? client : server).resetAndDestroy()
          }
        }),
      cut: (who) =>
        Effect.sync(() => {
          const links = open(who)
          for (const link of links) link.reset()
          return links.length
        }),
      refuse: Effect.sync(() => proxy.refuse()),
      heal: Effect.zipRight(
        Effect.sync(() => {
          proxy.rules.length = 0
          proxy.losses.length = 0
          for (const link of proxy.links) link.doomed = undefined
          proxy.flush()
        }),
        Effect.orDie(proxy.listen())
      )
    }
  })
