/**
 * The names under which locks are kept. They are a wire contract: processes of different releases exclude each other
 * only while these functions keep answering the same, which `test/vectors/records.json` pins.
 */
import type { ResolvedKey } from "effect-locking/LockKey"
import { hash } from "node:crypto"

/** What a key is made of, as read back from a record's name. */
export interface Name {
  readonly scope: "none" | "tenant" | "platform"
  readonly tenant: string | undefined
  readonly key: string
}

// the tag of a cluster is what stands between the first braces: the whole name, whatever characters a key has
const encode = (name: string): string => name.replace(/[%{}]/g, (c) => c === "%" ? "%25" : c === "{" ? "%7B" : "%7D")

const decode = (name: string): string => name.replace(/%(25|7B|7D)/g, (code) => decodeURIComponent(code))

const headOf = (prefix: string, namespace: string): string => `${prefix}${namespace}:{`

/** Scope, tenant and key in one string: an id without its namespace. */
const nameOf = (key: ResolvedKey): string => key.id.slice(key.id.indexOf(":") + key.namespace.length + 2)

/** `effect-locking:{none:orders}`. Its channel has the same name. */
export const recordOf = (prefix: string, key: ResolvedKey): string =>
  `${headOf(prefix, key.namespace)}${encode(nameOf(key))}}`

/** `effect-locking:{none:orders}permits`: of a semaphore, in the slot of the lock that has its name. */
export const permitsOf = (prefix: string, key: ResolvedKey): string => `${recordOf(prefix, key)}permits`

/** Where holders hear that they were deposed. */
export const depositionsOf = (prefix: string, namespace: string): string => `${prefix}${namespace}:deposed`

/** The pattern of all records of a namespace. */
export const patternOf = (prefix: string, namespace: string): string =>
  `${headOf(prefix, namespace).replace(/[\\*?[\]]/g, "\\$&")}*}`

/** The scope, tenant and key of a record; `undefined` where it is not one of ours. */
export const parse = (prefix: string, namespace: string, record: string): Name | undefined => {
  const head = headOf(prefix, namespace)
  if (!record.startsWith(head) || !record.endsWith("}")) return undefined
  const name = decode(record.slice(head.length, -1))
  const [, scope, rest] = /^(none|platform|tenant):([^]+)$/.exec(name) ?? []
  if (scope === undefined || rest === undefined) return undefined
  if (scope !== "tenant") return { scope: scope as "none" | "platform", tenant: undefined, key: rest }
  const colon = rest.indexOf(":")
  // the tenant's length is told in bytes of UTF-8
  const bytes = Buffer.from(rest.slice(colon + 1))
  const length = Number(rest.slice(0, colon))
  const key = bytes.subarray(length + 1).toString("utf8")
  return key === "" ? undefined : { scope: "tenant", tenant: bytes.subarray(0, length).toString("utf8"), key }
}

/** What decides the slot in a cluster: what stands between the first braces, unless that is nothing. */
export const tagOf = (record: string): string => {
  const open = record.indexOf("{")
  const close = open < 0 ? -1 : record.indexOf("}", open + 1)
  return close <= open + 1 ? record : record.slice(open + 1, close)
}

/** What stands for a key in errors and logs, for `list`. */
export const hashOf = (namespace: string, record: string, prefix: string): string => {
  const name = decode(record.slice(headOf(prefix, namespace).length, -1))
  const id = `${Buffer.byteLength(namespace)}:${namespace}:${name}`
  return hash("sha256", `effect-locking/hash\u0000${id}`, "hex").slice(0, 12)
}
