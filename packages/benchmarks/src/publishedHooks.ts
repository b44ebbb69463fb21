import type { ResolveHook } from "node:module"

export const resolve: ResolveHook = (specifier, context, next) => {
  const [, scoped, module = "index"] = /^(?:effect-locking|@effect-locking\/([^/]+))(?:\/([^/]+))?$/.exec(specifier) ??
    [specifier]
  return specifier.startsWith("effect-locking") || scoped !== undefined
    ? next(new URL(`../../../${scoped ?? "locking"}/dist/${module}.js`, import.meta.url).href, context)
    : next(specifier, context)
}
