import * as fs from "node:fs"
import type { Account } from "./command.js"

const find = (name: string): Account | undefined => {
  const line = fs.readFileSync("/etc/passwd", "utf8").split("\n").find((line) => line.startsWith(`${name}:`))
  const [, , uid, gid] = line?.split(":") ?? []
  return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) }
}

/** Database servers refuse to run as root: who they run as then, or nothing where the tests run as somebody else. */
export const unprivileged = (...names: ReadonlyArray<string>): Account | undefined => {
  if (process.getuid?.() !== 0) return undefined
  for (const name of names) {
    const account = find(name)
    if (account !== undefined) return account
  }
  return { uid: 65_534, gid: 65_534 }
}
