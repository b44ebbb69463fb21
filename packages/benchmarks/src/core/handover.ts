/**
 * Callers of one process hand a key on: to find the next one must not take longer where more of them wait.
 */
import * as Effect from "effect/Effect"
import type { Benchmark } from "../figure.js"
import { interleave, ratio, type Time, typical } from "../measure.js"
import { drain } from "./waiters.js"

/** Enough for every crowd to queue several times over. */
const batch = 4000

const handOver = (waiters: number) => async (): Promise<Time> => {
  const turns = batch / waiters
  const { time } = await Effect.runPromise(drain({ waiters, keys: 1, turns }))
  return { cpu: time.cpu / batch, wall: time.wall / batch }
}

export const handover: Benchmark = async ({ seconds }) => {
  const rounds = await interleave({ ten: handOver(10), hundred: handOver(100), thousand: handOver(1000) }, seconds)
  const [ten, hundred, thousand] = [typical(rounds, "ten"), typical(rounds, "hundred"), typical(rounds, "thousand")]
  return [
    {
      name: "a hand-over with 100 waiters, beside 10",
      value: ratio(rounds, "hundred", "ten"),
      unit: "times",
      target: { atMost: 1.5 }
    },
    {
      name: "a hand-over with 1 000 waiters, beside 10",
      value: ratio(rounds, "thousand", "ten"),
      unit: "times",
      target: { atMost: 1.5 },
      note: `${[ten, hundred, thousand].map((_) => _.toFixed(1)).join(", ")} µs of processor time at 10, 100 and 1 000`
    }
  ]
}
