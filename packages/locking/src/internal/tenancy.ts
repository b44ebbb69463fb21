/**
 * One key both with and without a tenant is nearly always a forgotten `withTenant`: said once. Remembers no more than
 * some recent keys.
 */
import type { ResolvedKey } from "../LockKey.js"
import type { Core } from "./core.js"
import { shortHash } from "./pure/keyEncoding.js"
import { logNow } from "./report.js"

const remembered = 1024

const withTenant = 1
const without = 2

export interface Tenancy {
  readonly byKey: Map<string, number>
  reported: boolean
}

export const make = (): Tenancy => ({ byKey: new Map(), reported: false })

export const watch = (core: Core, key: ResolvedKey): void => {
  const { tenancy } = core
  if (tenancy.reported || key.scope === "platform") return
  const bit = key.scope === "tenant" ? withTenant : without
  const before = tenancy.byKey.get(key.key)
  if (before === bit) return
  const bits = (before ?? 0) | bit
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
