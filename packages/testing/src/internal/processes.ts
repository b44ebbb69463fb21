/**
 * Signals to processes that are known by number.
 */
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import { run } from "./command.js"

/** `false` when there is no such process. */
export const signal = (pid: number, name: NodeJS.Signals | 0): boolean => {
  try {
    process.kill(pid, name)
    return true
  } catch {
    return false
  }
}

const statOf = (pid: string): string | undefined => {
  try {
    return fs.readFileSync(`/proc/${pid}/stat`, "utf8")
  } catch {
    return undefined
  }
}

/** The name of the program stands in parentheses and may have any character; what follows is state and parent. */
const fieldsOf = (pid: string) => {
  const stat = statOf(pid)
  const [state, parent] = stat?.slice(stat.lastIndexOf(")") + 2).split(" ") ?? []
  return { state, parent: Number(parent) }
}

const hasProc = fs.existsSync("/proc/self/stat")

/** The processes that were started by this one, without theirs. */
export const childrenOf = (parent: number): Effect.Effect<ReadonlyArray<number>> =>
  hasProc
    ? Effect.sync(() =>
      fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name) && fieldsOf(name).parent === parent).map(Number)
    )
    : Effect.orDie(Effect.map(run("ps", ["-A", "-o", "pid=,ppid="]), (table) =>
      table.split("\n").map((line) =>
        line.trim().split(/\s+/).map(Number)
      ).flatMap(([pid, of]) =>
        of === parent ? [pid!] : []
      )))

/** A zombie is over, even though it still has a number. */
export const isRunning = (pid: number): boolean =>
  signal(pid, 0) && (!hasProc || !["Z", "X", undefined].includes(fieldsOf(String(pid)).state))
