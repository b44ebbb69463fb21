/**
 * One connection of the library's own. It never ends unnoticed, and it can always be ended, whatever the network does.
 */
import { DriverError } from "effect-locking/LockDriver"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { Socket } from "node:net"
import type * as Pg from "pg"
import { Prepared } from "./prepared.js"

export type Rows = ReadonlyArray<ReadonlyArray<any>>

export interface Connection {
  /** Calls back once: with rows, or with what went wrong. Several statements in one text answer the rows of the last. */
  readonly send: (statement: Statement, onAnswer: (rows: Rows | Error) => void) => void
  /** At once, without a word to the server. */
  readonly destroy: () => void
  /** Ends once the server has let go of the session, or after this many milliseconds. */
  readonly close: (limit: number) => Effect.Effect<void>
  readonly isOver: () => boolean
  /** The two ends of it as this process sees them, in the words of `sql.facts`. */
  readonly ends: () => string
}

export type Statement =
  | { readonly text: string; readonly values?: ReadonlyArray<unknown> | undefined; readonly name?: undefined }
  /** Prepared once per connection under this name; takes and answers text. */
  | { readonly text: string; readonly values: ReadonlyArray<string>; readonly name: string }

export interface Handlers {
  /** Once, after the last answer; not after `destroy`. */
  readonly onEnd: (error: Error | undefined) => void
  readonly onNotification?: ((channel: string, payload: string) => void) | undefined
}

/** Errors of the client carry statements and rows; what leaves the driver is rebuilt from name, code and message. */
export const failure = (executed: "no" | "unknown", message: string, error?: unknown): DriverError =>
  new DriverError({
    executed,
    message: error instanceof Error ? `${message}: ${error.message}` : message,
    cause: bare(error)
  })

/** The deployment must not be used as it is; what to do about it. */
export const unfit = (message: string, fix: string): DriverError => new DriverError({ executed: "no", message, fix })

const bare = (error: unknown): Error | undefined => {
  if (!(error instanceof Error)) return undefined
  const cause = new Error(error.message)
  cause.name = error.name
  delete cause.stack
  return Object.assign(cause, "code" in error ? { code: error.code } : {})
}

/** What PostgreSQL calls it. */
export const codeOf = ({ cause }: DriverError): unknown =>
  cause instanceof Error && "code" in cause ? cause.code : undefined

/** The server's answer, after which the session goes on, in contrast to the end of it. */
export const isAnswer = (error: Error): boolean =>
  "severity" in error && error.severity !== "FATAL" && error.severity !== "PANIC"

/** How long a connection may take for what makes it ready, in milliseconds. */
const patience = 5000

/** Ends a connection that does not answer in time, and with it whatever waits for its answer. */
export const promptly = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  destroy: () => void,
  limit = patience
): Effect.Effect<A, E, R> =>
  Effect.acquireUseRelease(
    // interruptible again: what is forked where nothing may interrupt could not be called off
    Effect.forkDaemon(Effect.interruptible(Effect.zipRight(Effect.sleep(limit), Effect.sync(destroy)))),
    () => effect,
    Fiber.interruptFork
  )

/** A client of the user's own need not know a time-out, so it has ours. */
export const open = (
  client: Pg.Client,
  handlers: Handlers,
  limit?: number | undefined
): Effect.Effect<Connection, DriverError> =>
  promptly(connect(client, handlers), () => streamOf(client).destroy(), limit)

/** The socket itself: the last resort, which needs no word to or from the server. */
const streamOf = (client: Pg.Client) =>
  (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream

const isPipelined = (client: Pg.Client): boolean => "pipeline" in client && client.pipeline === true

const connect = (client: Pg.Client, handlers: Handlers): Effect.Effect<Connection, DriverError> =>
  Effect.async((resume) => {
    let isOver = false
    let fault: Error | undefined
    const end = (error?: Error) => {
      fault ??= error
      if (isOver) return
      isOver = true
      handlers.onEnd(fault)
    }
    const connection: Connection = {
      send: ({ name, text, values }, onAnswer) => {
        // a client that sends several statements at once takes no others than its own
        if (name !== undefined && !isPipelined(client)) {
          return void client.query(new Prepared(name, text, values, (error, rows) => onAnswer(error ?? rows)))
        }
        const query = { text, rowMode: "array" as const, ...(values && { values: [...values] }), ...(name && { name }) }
        client.query(
          query,
          (error: Error | null, result: Pg.QueryArrayResult | ReadonlyArray<Pg.QueryArrayResult>) =>
            onAnswer(error ?? (Array.isArray(result) ? result.at(-1) : result).rows)
        )
      },
      destroy: () => {
        isOver = true
        streamOf(client).destroy()
      },
      close: (limit) =>
        promptly(
          Effect.async((resume) => {
            if (isOver) return resume(Effect.void)
            client.once("end", () => resume(Effect.void))
            void client.end()
          }),
          connection.destroy,
          limit
        ),
      isOver: () => isOver,
      ends: () => {
        const { localAddress, localPort, remoteAddress, remotePort } = streamOf(client)
        return [localAddress, localPort, remoteAddress, remotePort].join(" ")
      }
    }
    // an error without a listener ends the process; "end" follows when the connection is unusable
    client.on("error", (error) => fault ??= error)
    client.once("end", () => end())
    client.on("notification", ({ channel, payload }) => handlers.onNotification?.(channel, payload ?? ""))
    client.connect((error: Error | undefined | null) => {
      if (error) {
        connection.destroy()
        resume(Effect.fail(failure("no", "cannot connect to PostgreSQL", error)))
      } else resume(Effect.succeed(connection))
    })
    return Effect.sync(connection.destroy)
  })

/** The same as an effect. An interruption leaves the statement to its own. */
export const query = (connection: Connection, statement: Statement): Effect.Effect<Rows, DriverError> =>
  Effect.async((resume) =>
    connection.send(statement, (rows) =>
      resume(
        rows instanceof Error
          ? Effect.fail(failure(isAnswer(rows) ? "no" : "unknown", "PostgreSQL did not execute a statement", rows))
          : Effect.succeed(rows)
      ))
  )
