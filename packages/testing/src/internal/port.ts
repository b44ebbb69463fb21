import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import * as net from "node:net"
import { KitError } from "../KitError.js"

/** Whether somebody could listen there now. */
const isFree = (port: number): Effect.Effect<boolean> =>
  Effect.async((resume) => {
    const server = net.createServer()
    server.once("error", () => resume(Effect.succeed(false)))
    server.listen(port, "127.0.0.1", () => server.close(() => resume(Effect.succeed(true))))
  })

/** Below the ports that systems give to outgoing connections: a server that is restarted must find its port free. */
const range = { from: 12_000, to: 32_000 }

const freePortOf = (offsets: ReadonlyArray<number>): Effect.Effect<number, KitError> =>
  Effect.gen(function*() {
    for (let attempts = 0; attempts < 100; attempts++) {
      const port = yield* Random.nextIntBetween(range.from, range.to - Math.max(...offsets))
      if (yield* Effect.every(offsets, (offset) => isFree(port + offset))) return port
    }
    return yield* new KitError({ step: "find a free port", reason: "100 ports in a row are taken" })
  })

/** A port of 127.0.0.1 that nobody listens on. */
export const freePort = freePortOf([0])

/** The same for a server that listens on the port ten thousand above, too. */
export const freePortOfNode = freePortOf([0, 10_000])
