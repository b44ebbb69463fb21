/**
 * The stored form of keys. Everything here is a wire contract: processes of different releases exclude each other only
 * while these functions keep answering the same, which `test/vectors/keys.json` pins.
 */
import { crypto } from "./crypto.js"

/** What a key is made of, once namespace and tenant are known. */
export interface KeyParts {
  readonly namespace: string
  readonly scope: "none" | "tenant" | "platform"
  /** Present exactly when the scope is `tenant`. */
  readonly tenant: string | undefined
  readonly key: string
}

/** Why a string cannot be a key, a tenant or a namespace. Negative, so that one number tells length or fault. */
export const Fault = { empty: -1, nul: -2, illFormed: -3, tooLong: -4 } as const

/**
 * The length in UTF-8 bytes of a string that every store can keep, or a `Fault`. One pass, without allocation, that
 * looks at no more than `maxBytes` characters.
 */
export const measure = (text: string, maxBytes: number): number => {
  const length = text.length
  if (length === 0) return Fault.empty
  if (length > maxBytes) return Fault.tooLong
  let bytes = length
  for (let i = 0; i < length; i++) {
    const unit = text.charCodeAt(i)
    if (unit < 0x80) {
      if (unit === 0) return Fault.nul
    } else if (unit < 0x800) {
      bytes += 1
    } else if (unit < 0xd800 || unit > 0xdfff) {
      bytes += 2
    } else {
      // a pair is two units and four bytes
      if (unit > 0xdbff || (text.charCodeAt(i + 1) & 0xfc00) !== 0xdc00) return Fault.illFormed
      bytes += 2
      i++
    }
  }
  return bytes > maxBytes ? Fault.tooLong : bytes
}

/** Whether every surrogate of the string has its partner, so that UTF-8 can carry it. */
export const isWellFormed = (text: string): boolean => {
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    if ((unit & 0xf800) !== 0xd800) continue
    if (unit > 0xdbff || (text.charCodeAt(i + 1) & 0xfc00) !== 0xdc00) return false
    i++
  }
  return true
}

/** The number of bytes of a well-formed string in UTF-8. */
export const utf8Length = (text: string): number => {
  let bytes = text.length
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    // each half of a pair stands for two of its four bytes
    if (unit >= 0x80) bytes += unit < 0x800 || (unit & 0xf800) === 0xd800 ? 1 : 2
  }
  return bytes
}

/**
 * Scope, tenant and key in one string: `none:orders`, `platform:orders`, `tenant:4:acme:orders`. The tenant carries its
 * length in UTF-8 bytes, the key comes last, so no choice of strings makes two of them equal.
 */
export const encodeName = (parts: Pick<KeyParts, "scope" | "tenant" | "key">): string =>
  parts.scope === "tenant"
    ? `tenant:${utf8Length(parts.tenant!)}:${parts.tenant}:${parts.key}`
    : `${parts.scope}:${parts.key}`

/** What stands before the name in an id: `15:effect-locking:`. */
export const encodeNamespace = (namespace: string): string => `${utf8Length(namespace)}:${namespace}:`

/** The canonical string of a key, equal for equal parts only: `15:effect-locking:none:orders`. */
export const encodeId = (parts: KeyParts): string => encodeNamespace(parts.namespace) + encodeName(parts)

/** The number of UTF-16 units that hold the first `bytes` bytes of `text`, counted from `start`; -1 when none do. */
const unitsOf = (text: string, start: number, bytes: number): number => {
  let end = start
  let left = bytes
  while (left > 0 && end < text.length) {
    const point = text.codePointAt(end)!
    left -= point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4
    end += point < 0x10000 ? 1 : 2
  }
  return left === 0 ? end - start : -1
}

/** Reads `<length>:<text>:` at the start of `text`. */
const takePrefixed = (text: string): readonly [head: string, rest: string] | undefined => {
  const match = /^([1-9]\d{0,8}):/.exec(text)
  if (match === null) return undefined
  const start = match[0].length
  const units = unitsOf(text, start, Number(match[1]))
  return units < 0 || text[start + units] !== ":"
    ? undefined
    : [text.slice(start, start + units), text.slice(start + units + 1)]
}

/** The inverse of `encodeName`; `undefined` for a string that it never answers. */
export const decodeName = (name: string): Pick<KeyParts, "scope" | "tenant" | "key"> | undefined => {
  const colon = name.indexOf(":")
  const scope = name.slice(0, Math.max(colon, 0))
  const rest = name.slice(colon + 1)
  if (scope === "none" || scope === "platform") {
    return rest === "" ? undefined : { scope, tenant: undefined, key: rest }
  }
  const taken = scope === "tenant" ? takePrefixed(rest) : undefined
  return taken === undefined || taken[1] === "" ? undefined : { scope: "tenant", tenant: taken[0], key: taken[1] }
}

/** The inverse of `encodeId`; `undefined` for a string that it never answers. */
export const decodeId = (id: string): KeyParts | undefined => {
  const taken = takePrefixed(id)
  const name = taken === undefined ? undefined : decodeName(taken[1])
  return name === undefined ? undefined : { namespace: taken![0], ...name }
}

// UTF-16 puts surrogates below U+E000, UTF-8 puts what they stand for above everything else
const rank = (unit: number): number => (unit & 0xf800) === 0xd800 ? unit + 0x10000 : unit

/** Canonical order, in which every process and every store agrees: that of the ids' bytes in UTF-8. */
export const compareIds = (a: string, b: string): -1 | 0 | 1 => {
  if (a === b) return 0
  const length = Math.min(a.length, b.length)
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i)
    const y = b.charCodeAt(i)
    if (x !== y) return rank(x) < rank(y) ? -1 : 1
  }
  return a.length < b.length ? -1 : 1
}

/**
 * What stands for a key in errors, logs and traces: 12 hexadecimal characters that are the same in every process. It
 * correlates and does not anonymise: whoever can guess the key can compute it. The salt keeps it apart from every other
 * hash of a key. Takes about a third of a microsecond.
 */
export const shortHash = (id: string): string =>
  crypto().hash("sha256", `effect-locking/hash\u0000${id}`, "hex").slice(0, 12)
