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

/**
 * A port of 127.0.0.1 that nobody listens on. Below those that systems give to outgoing connections: a server that is
 * restarted must find its port free.
 */
export const freePort: Effect.Effect<number, KitError> = Effect.gen(function*() {
  for (let attempts = 0; attempts < 100; attempts++) {
    const port = yield* Random.nextIntBetween(12_000, 32_000)
    if (yield* isFree(port)) return port
  }
  return yield* new KitError({ step: "find a free port", reason: "100 ports in a row are taken" })
})
