/**
 * From what a caller names to what drivers see, checked before any I/O. One rule for every store.
 */
import { InvalidKey, type Issue } from "../LockError.js"
import type * as LockKey from "../LockKey.js"
import { isLockKey } from "../LockKey.js"
import type { Settings } from "./options.js"
import { kind, nameFault } from "./pure/describe.js"
import { compareIds, encodeNamespace, measure } from "./pure/keyEncoding.js"

/** What a key's form depends on. */
export type KeySettings = Pick<Settings, "backend" | "namespace" | "tenancy" | "maxKeyBytes">

/** The most keys that one call can lock together. */
export const maxKeysPerCall = 64

// the prefix of the namespace last seen: in nearly every program there is one only
let lastNamespace = ""
let lastPrefix = ""
const prefix = (namespace: string): string => {
  if (namespace !== lastNamespace) {
    lastPrefix = encodeNamespace(namespace)
    lastNamespace = namespace
  }
  return lastPrefix
}

const refuse = (settings: KeySettings, issues: ReadonlyArray<Issue>): InvalidKey =>
  new InvalidKey({ backend: settings.backend, issues })

/** What is wrong with a key, slowly and in full. */
const issuesOf = (
  input: unknown,
  settings: KeySettings,
  tenant: string | undefined,
  path: string
): ReadonlyArray<Issue> => {
  const issues: Array<Issue> = []
  const isKey = isLockKey(input)
  if (!isKey && typeof input !== "string") {
    return [{ path, message: `must be a string or a LockKey, got ${kind(input)}` }]
  }
  const message = nameFault(isKey ? input.name : input, settings.maxKeyBytes)
  if (message !== undefined) issues.push({ path, message })
  if (isKey && input.scope === "platform") return issues
  if (tenant !== undefined) {
    const message = nameFault(tenant, settings.maxKeyBytes)
    if (message !== undefined) issues.push({ path: "tenant", message })
  } else if (settings.tenancy === "required") {
    issues.push({
      path: "tenant",
      message: "is missing and `tenancy` is \"required\": name it with LockKey.withTenant, or mark a key that all " +
        "tenants share with LockKey.platform"
    })
  }
  return issues
}

/** By tenant and name. */
type Known = Map<string | undefined, Map<string, LockKey.ResolvedKey>>

/**
 * Programs ask for the same keys again and again. To check a key is cheap, but an id that is made anew has to be hashed
 * anew wherever it is looked up.
 */
const known = new WeakMap<KeySettings, { keys: Known; size: number }>()
const mostKnown = 2048

const remember = (settings: KeySettings, name: string, key: LockKey.ResolvedKey): LockKey.ResolvedKey => {
  let all = known.get(settings)
  if (all === undefined || all.size === mostKnown) known.set(settings, all = { keys: new Map(), size: 0 })
  let ofTenant = all.keys.get(key.tenant)
  if (ofTenant === undefined) all.keys.set(key.tenant, ofTenant = new Map())
  ofTenant.set(name, key)
  all.size++
  return key
}

/** The key that a caller names, for the tenant in context. On the path of every call. */
export const resolveKey = (
  input: LockKey.Input,
  settings: KeySettings,
  tenant: string | undefined,
  path = "key"
): LockKey.ResolvedKey | InvalidKey => {
  if (typeof input !== "string") return resolve(input, settings, tenant, path)
  const found = known.get(settings)?.keys.get(tenant)?.get(input)
  if (found !== undefined) return found
  const key = resolve(input, settings, tenant, path)
  return key instanceof InvalidKey ? key : remember(settings, input, key)
}

const resolve = (
  input: LockKey.Input,
  settings: KeySettings,
  tenant: string | undefined,
  path: string
): LockKey.ResolvedKey | InvalidKey => {
  const key = typeof input === "string" ? input : isLockKey(input) ? input.name : undefined
  const isPlatform = typeof input !== "string" && key !== undefined && input.scope === "platform"
  const max = settings.maxKeyBytes
  if (typeof key === "string" && measure(key, max) >= 0) {
    const namespace = settings.namespace
    if (isPlatform) {
      return { namespace, scope: "platform", tenant: undefined, key, id: `${prefix(namespace)}platform:${key}` }
    }
    if (tenant === undefined) {
      if (settings.tenancy !== "required") {
        return { namespace, scope: "none", tenant, key, id: `${prefix(namespace)}none:${key}` }
      }
    } else if (typeof tenant === "string") {
      const bytes = measure(tenant, max)
      if (bytes >= 0) {
        return { namespace, scope: "tenant", tenant, key, id: `${prefix(namespace)}tenant:${bytes}:${tenant}:${key}` }
      }
    }
  }
  return refuse(settings, issuesOf(input, settings, tenant, path))
}

/** The keys of one call in canonical order, each once. */
export const resolveKeys = (
  inputs: ReadonlyArray<LockKey.Input>,
  settings: KeySettings,
  tenant: string | undefined
): ReadonlyArray<LockKey.ResolvedKey> | InvalidKey => {
  if (!Array.isArray(inputs)) {
    return refuse(settings, [{ path: "keys", message: `must be an array of keys, got ${kind(inputs)}` }])
  }
  const resolved = new Map<string, LockKey.ResolvedKey>()
  const issues = new Map<string, Issue>()
  for (let i = 0; i < inputs.length; i++) {
    const key = resolveKey(inputs[i], settings, tenant, `keys[${i}]`)
    if (key instanceof InvalidKey) {
      for (const issue of key.issues) issues.set(issue.path, issue)
    } else {
      resolved.set(key.id, key)
    }
  }
  if (resolved.size > maxKeysPerCall) {
    issues.set("keys", {
      path: "keys",
      message: `must be at most ${maxKeysPerCall} different keys, got ${resolved.size}`
    })
  }
  if (issues.size > 0) return refuse(settings, Array.from(issues.values()))
  return Array.from(resolved.values()).sort((a, b) => compareIds(a.id, b.id))
}
