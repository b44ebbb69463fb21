/**
 * One key both with and without a tenant is nearly always a forgotten `withTenant`: said once. Costs nothing in a
 * program that does only the one or only the other, and never remembers more than some recent keys.
 */
import type { ResolvedKey } from "../LockKey.js"
import type { Core } from "./core.js"
import { shortHash } from "./pure/keyEncoding.js"
import { logNow } from "./report.js"

const remembered = 1024

const withTenant = 1
const without = 2

export interface Tenancy {
  seen: number
  readonly byKey: Map<string, number>
  reported: boolean
}

export const make = (): Tenancy => ({ seen: 0, byKey: new Map(), reported: false })

export const watch = (core: Core, key: ResolvedKey): void => {
  const { tenancy } = core
  if (tenancy.reported || key.scope === "platform") return
  const bit = key.scope === "tenant" ? withTenant : without
  tenancy.seen |= bit
  if (tenancy.seen !== (withTenant | without)) return
  const bits = (tenancy.byKey.get(key.key) ?? 0) | bit
  tenancy.byKey.delete(key.key)
  tenancy.byKey.set(key.key, bits)
  if (tenancy.byKey.size > remembered) tenancy.byKey.delete(tenancy.byKey.keys().next().value!)
  if (bits !== (withTenant | without)) return
  tenancy.reported = true
  tenancy.byKey.clear()
  logNow(
    core,
    "Warning",
    "LOCK_TENANT_MIXED",
    "One key is locked both with and without a tenant: these are two locks. Mark it with LockKey.platform, or name the tenant",
    { lock: shortHash(key.id) }
  )
}
