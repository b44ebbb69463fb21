/**
 * The numbers under which PostgreSQL knows a key. They exclude processes of different releases and languages: never
 * change a line.
 */
import type { ResolvedKey } from "effect-locking/LockKey"
import { hash } from "node:crypto"

type KeyParts = Pick<ResolvedKey, "namespace" | "scope" | "tenant" | "key">

/**
 * A key as a signed 64-bit integer: the first 8 bytes of SHA-256 over salt, namespace, scope, tenant (empty when there
 * is none) and key, each in UTF-8 and preceded by its length in 4 bytes, big endian. Different salts give unrelated
 * numbers. Takes about a microsecond.
 */
export const int64 = (salt: string, key: KeyParts): bigint => {
  const fields = [salt, key.namespace, key.scope, key.tenant ?? "", key.key]
  let size = 0
  for (const field of fields) size += 4 + Buffer.byteLength(field)
  const bytes = Buffer.allocUnsafe(size)
  let at = 0
  for (const field of fields) {
    const length = bytes.write(field, at + 4)
    bytes.writeUInt32BE(length, at)
    at += 4 + length
  }
  return BigInt.asIntN(64, BigInt(`0x${hash("sha256", bytes, "hex").slice(0, 16)}`))
}

/** The two halves of a number, for the form of advisory locks that takes two integers. */
export type Pair = readonly [high: number, low: number]

const pair = (number: bigint): Pair => [Number(number >> 32n), Number(BigInt.asIntN(32, number))]

/**
 * A lock is named by one int8. Interest and intent are named by two int4, which PostgreSQL keeps apart from the former:
 * `pg_locks.objsubid` is 1 for locks and 2 for the rest.
 */
export interface LockIds {
  /** As PostgreSQL prints it. */
  readonly lock: string
  /** Shared by all processes that wait for the key. */
  readonly interest: Pair
  /** Held by one writer who waits: readers stand back. */
  readonly intent: Pair
}

/** Hashes what is asked for, once. */
class HashedIds implements LockIds {
  readonly lock: string
  private hashedInterest: Pair | undefined
  private hashedIntent: Pair | undefined

  constructor(private readonly key: KeyParts) {
    this.lock = int64("lock", key).toString()
  }

  get interest(): Pair {
    return this.hashedInterest ??= pair(int64("interest", this.key))
  }

  get intent(): Pair {
    return this.hashedIntent ??= pair(int64("intent", this.key))
  }
}

/** Programs ask for the same keys again and again. */
const known = new Map<string, LockIds>()
const mostKnown = 2048

export const lockIds = (key: ResolvedKey): LockIds => {
  let ids = known.get(key.id)
  if (ids === undefined) {
    if (known.size === mostKnown) known.clear()
    known.set(key.id, ids = new HashedIds(key))
  }
  return ids
}

export const lockId = (key: ResolvedKey): string => lockIds(key).lock
