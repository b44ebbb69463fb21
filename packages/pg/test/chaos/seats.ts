/** The places of a run: each has a way to the store of its own, and a process, which another one follows. */
import * as History from "@effect-locking/testing/History"
import type { KitError } from "@effect-locking/testing/KitError"
import * as TcpProxy from "@effect-locking/testing/TcpProxy"
import type * as Worker from "@effect-locking/testing/Worker"
import { Array, Effect, Scope } from "effect"
import type * as nemesis from "./nemesis.js"

/** One process, from its start to its end. */
export interface Life {
  readonly name: string
  readonly worker: Worker.Worker
  /** By the nemesis; a moment before, to be exact. */
  killedAt: number | undefined
}

export interface Seat extends nemesis.Seat {
  /** The process that runs now. */
  readonly life: () => Life
}

export const make = (options: {
  readonly places: number
  /** Where the store listens. */
  readonly port: number
  readonly start: (
    newcomer: { readonly name: string; readonly place: number; readonly generation: number; readonly port: number }
  ) => Effect.Effect<Worker.Worker, KitError, Scope.Scope>
}) =>
  Effect.gen(function*() {
    const scope = yield* Effect.scope
    const lives: Array<Life> = []
    const seatAt = (place: number) =>
      Effect.gen(function*() {
        const proxy = yield* TcpProxy.make({ port: options.port })
        let generation = 0
        const enter = Effect.gen(function*() {
          const name = `chaos-${place}-${generation}`
          const worker = yield* options.start({ name, place, generation: generation++, port: proxy.port })
          const life: Life = { name, worker, killedAt: undefined }
          lives.push(life)
          return life
        }).pipe(Scope.extend(scope), Effect.orDie)
        let life = yield* enter
        const seat: Seat = {
          life: () => life,
          name: () => life.name,
          proxy,
          freeze: Effect.suspend(() => life.worker.freeze),
          thaw: Effect.suspend(() => life.worker.thaw),
          replace: (afterMillis) =>
            Effect.gen(function*() {
              life.killedAt = History.now()
              yield* life.worker.kill
              yield* Effect.sleep(afterMillis)
              life = yield* enter
            })
        }
        return seat
      })
    const seats = yield* Effect.forEach(Array.range(0, options.places - 1), seatAt)
    return { seats, lives: lives as ReadonlyArray<Life> }
  })
