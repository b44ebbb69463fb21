/**
 * The resource that the locks are for: values in the process of the test, which refuse stale fences. Nothing ever happens
 * to the way there, and its own record of what it accepted is what is judged.
 */
import * as History from "@effect-locking/testing/History"
import { Effect, Either } from "effect"
import * as Fence from "effect-locking/Fence"
import * as FencedRegister from "effect-locking/FencedRegister"
import * as net from "node:net"
import * as readline from "node:readline"
import type { Request } from "./work.js"

export interface Register {
  readonly port: number
  readonly writes: Effect.Effect<ReadonlyArray<History.Write>>
}

export const make = Effect.gen(function*() {
  const writes: Array<History.Write> = []
  const registers = new Map<string, FencedRegister.FencedRegister<string>>()

  const write = ({ fence, from, isGuarded, process, resource }: Request): void => {
    const register = registers.get(resource) ?? Effect.runSync(FencedRegister.make(""))
    registers.set(resource, register)
    const outcome =
      Either.isRight(Effect.runSync(Effect.either(register.set(Fence.unsafeMake(BigInt(fence)), process))))
        ? "accepted"
        : "refused"
    writes.push({
      _tag: "write",
      process,
      resource,
      fence: BigInt(fence),
      from,
      until: History.now(),
      outcome: isGuarded ? outcome : "accepted"
    })
  }

  const server = net.createServer({ noDelay: true }, (socket) => {
    const lines = readline.createInterface({ input: socket })
    // a process that is killed resets its connection, and both of them tell
    for (const told of [socket, lines]) told.on("error", () => {})
    lines.on("line", (line) => {
      const request: Request = JSON.parse(line)
      write(request)
      socket.write(`${request.number}\n`)
    })
    sockets.add(socket)
    socket.on("close", () => sockets.delete(socket))
  })
  const sockets = new Set<net.Socket>()
  const port = yield* Effect.acquireRelease(
    Effect.async<number>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed((server.address() as net.AddressInfo).port)))
    }),
    () =>
      Effect.sync(() => {
        server.close()
        for (const socket of sockets) socket.destroy()
      })
  )
  return { port, writes: Effect.sync(() => [...writes]) } satisfies Register
})
