import * as effectEslint from "@effect/eslint-plugin"
import eslintComments from "@eslint-community/eslint-plugin-eslint-comments"
import eslint from "@eslint/js"
import { createTypeScriptImportResolver } from "eslint-import-resolver-typescript"
import importX from "eslint-plugin-import-x"
import simpleImportSort from "eslint-plugin-simple-import-sort"
import tseslint from "typescript-eslint"

// ---------------------------------------------------------------------------------------------------------------------
// The house: which of its siblings the sources of a package may import
// ---------------------------------------------------------------------------------------------------------------------

const siblings = {
  pg: ["effect-locking"],
  redis: ["effect-locking"],
  sql: ["effect-locking"],
  testing: ["effect-locking"],
  cli: ["effect-locking", "@effect-locking/pg", "@effect-locking/redis", "@effect-locking/sql"]
}

const barrel = {
  regex: "^\\.{1,2}/(?:.*/)?index\\.js$",
  message: "index.ts is generated from the modules and imports them all: import the module itself."
}
const coreOnly = {
  regex: "^(?!\\.{1,2}/|effect(?:/|$)|node:crypto$)",
  message:
    "The core has one peer: import only its own modules, effect/* and node:crypto; the rest goes to a package above."
}
const noFace = {
  regex: "^(?:\\.\\./)+(?:Test)?Locking\\.js$",
  message: "internal/ is below the public face: move what is shared into internal/ and import it from both."
}
const pureOnly = [
  {
    regex: "^effect(?:/|$)",
    message: "A pure module knows nothing of effect: take and return plain data, and wrap it where it is called."
  },
  {
    regex: "^\\.\\./",
    allowTypeImports: true,
    message: "A pure module loads only pure modules: move what it needs into internal/pure, or import the type alone."
  }
]

const imports = (files, ...patterns) => ({
  files,
  rules: { "@typescript-eslint/no-restricted-imports": ["error", { patterns: [barrel, ...patterns] }] }
})

// later entries replace earlier ones
const house = [
  imports(["packages/locking/src/**"], coreOnly),
  imports(["packages/locking/src/internal/**"], coreOnly, noFace),
  imports(["packages/locking/src/internal/pure/**"], coreOnly, noFace, ...pureOnly),
  ...Object.entries(siblings).map(([name, allowed]) =>
    imports([`packages/${name}/src/**`], {
      regex: `^(?!(?:${allowed.join("|")})(?:/|$))(?:effect-locking|@effect-locking/[^/]+)(?:/|$)`,
      message: `Imports go one way (cli -> drivers -> locking): this package may import only ${allowed.join(", ")}.`
    })
  )
]

// ---------------------------------------------------------------------------------------------------------------------
// Determinism: the same seed must give the same run, and nothing may hang when it is interrupted
// ---------------------------------------------------------------------------------------------------------------------

const timer = "runs outside the simulated clock and scheduler: use Effect.sleep or the layer's deadline heap."
const wallClock = "jumps when the machine's clock is set: use Clock.currentTimeNanos."
const globalRandom = "cannot be replayed from a seed: use Random, or the layer's own token source."
const promise = "resumes outside the simulated scheduler: use Effect.async with a callback."
const race =
  "can hang for ever when an interrupt meets a forced yield: complete one Deferred and await it (raceAll is safe)."
const concurrent = "can hang for ever when an interrupt meets a forced yield: fork each, then join."
const run = "starts a fiber outside the caller's runtime, scheduler and scope: fork it, or Runtime.runFork(captured)."

const of = (object, names) => `MemberExpression[object.name=/^(?:${object})$/][property.name=/^(?:${names})$/]`

const forbiddenSyntax = Object.entries({
  [of("Effect|Stream", "never")]: "holds a real setInterval: await a Deferred that nobody completes.",
  [of("Effect|Stream", "timeout\\w*")]: `A time-out ${race}`,
  [of("Effect", "race|raceFirst|raceWith|raceFibersWith")]: `A race ${race}`,
  [of("Effect", "run(?:Fork|Promise|Sync|Callback)\\w*")]: `This ${run}`,
  [of("Runtime", "runPromise\\w*|defaultRuntime")]: `This ${run}`,
  [of("Effect", "promise|tryPromise|tryMapPromise")]: `A promise ${promise}`,
  [of("Effect", "makeSemaphore|unsafeMakeSemaphore")]: "Effect's semaphore is not FIFO: use the queue in internal/.",
  [of("Effect", "withConcurrency")]: `Concurrency ${concurrent}`,
  "CallExpression > ObjectExpression > Property[key.name=/^concurren(?:cy|t)$/]": `Concurrency ${concurrent}`,
  "CallExpression > ObjectExpression > Property[key.value=/^concurren(?:cy|t)$/]": `Concurrency ${concurrent}`,
  "MemberExpression[property.name=/^(?:unsafeC|c)urrentTimeMillis$/]": `currentTimeMillis ${wallClock}`,
  [of("DateTime", "now|unsafeNow|nowAsDate|nowInCurrentZone")]: `DateTime.now ${wallClock}`,
  [of("Date", "now")]: `Date.now ${wallClock}`,
  "NewExpression[callee.name='Date'][arguments.length=0]": `new Date() ${wallClock}`,
  "CallExpression[callee.name='Date']": `Date() ${wallClock}`,
  [of("Math", "random")]: `Math.random ${globalRandom}`,
  ":matches(MemberExpression[property.name=/^random(?:UUID|Bytes|Int|Fill)|^getRandomValues$/], ImportSpecifier[imported.name=/^random(?:UUID|Bytes|Int|Fill)|^getRandomValues$/])":
    `This ${globalRandom}`,
  ":function[async=true]": `An async function ${promise}`,
  "AwaitExpression": `await ${promise}`,
  "ForOfStatement[await=true]": `for await ${promise}`,
  "NewExpression[callee.name='Promise']": `A promise ${promise}`,
  "MemberExpression[object.name='Promise']": `A promise ${promise}`,
  "TryStatement": "try hides an error from the types and catches an Effect's internals: use Effect.try or Either.try.",
  // the selectors above go by these names
  "ImportDeclaration[source.value=/^effect\\u002F(?:Effect|Stream|Runtime|DateTime)$/] > ImportNamespaceSpecifier[local.name!=/^(?:Effect|Stream|Runtime|DateTime)$/]":
    "Other rules know this module by its name: import it under that.",
  "ImportDeclaration[importKind!='type'][source.value=/^effect\\u002F(?:Effect|Stream|Runtime|DateTime)$/] > ImportSpecifier[importKind!='type']":
    "Other rules know this module by its name: import * as that.",
  "VariableDeclarator[init.name=/^(?:Effect|Stream|Runtime|DateTime|Clock)$/] > ObjectPattern":
    "Other rules know this module's functions by its name: do not destructure it."
}).map(([selector, message]) => ({ selector, message }))

const noSpreadPush = {
  selector: "CallExpression[callee.property.name='push'] > SpreadElement.arguments",
  message: "A spread argument overflows the stack on a long array: push in a loop."
}

/** Names of Effect 3 that Effect 4 has not: `internal/compat.ts` has one for both. */
const renamed = Object.entries({
  Effect: "async|zipRight|zipLeft|clock|catchAll|catchAllCause|dieMessage|fork|forkDaemon|forkIn|withFiberRuntime",
  Layer: "scoped",
  Context: "GenericTag|Reference"
}).map(([object, names]) => ({
  selector: of(object, names),
  message: "Effect 4 calls it otherwise: take it from internal/compat.ts."
})).concat({
  selector: "TSQualifiedName[left.name='Duration'][right.name='DurationInput']",
  message: "Effect 4 calls it otherwise: take it from internal/compat.ts."
})

const bothLines = {
  files: ["packages/locking/src/**"],
  ignores: ["packages/locking/src/internal/compat.ts"],
  rules: { "no-restricted-syntax": ["error", noSpreadPush, ...forbiddenSyntax, ...renamed] }
}

const determinism = {
  files: ["packages/*/src/**"],
  ignores: ["packages/{benchmarks,cli,testing}/**"],
  rules: {
    "no-restricted-syntax": ["error", noSpreadPush, ...forbiddenSyntax],
    "no-restricted-globals": ["error", {
      globals: ["setTimeout", "setInterval", "setImmediate", "queueMicrotask", "performance"].map((name) => ({
        name,
        message: name === "performance" ? "Use Clock.currentTimeNanos." : `It ${timer}`
      })),
      checkGlobalObject: true
    }],
    "no-restricted-properties": [
      "error",
      { object: "process", property: "hrtime", message: "Use Clock.currentTimeNanos." },
      { object: "process", property: "nextTick", message: `It ${timer}` }
    ]
  }
}

// ---------------------------------------------------------------------------------------------------------------------

export default tseslint.config(
  {
    ignores: [
      "**/dist",
      "**/build",
      "**/docs",
      "**/coverage",
      "**/.tsbuildinfo",
      "**/.vitest",
      "**/*.md",
      "scripts/fixtures"
    ]
  },
  { linterOptions: { reportUnusedDisableDirectives: "error" } },
  eslint.configs.recommended,
  tseslint.configs.recommended,
  ...effectEslint.configs.dprint,
  {
    plugins: {
      "simple-import-sort": simpleImportSort,
      "import-x": importX,
      "eslint-comments": eslintComments
    },
    settings: {
      ...importX.flatConfigs.typescript.settings,
      "import-x/resolver-next": [createTypeScriptImportResolver({ noWarnOnMultipleProjects: true })]
    },
    rules: {
      "no-fallthrough": "off",
      "object-shorthand": "error",
      "require-yield": "off",
      "simple-import-sort/imports": "off",
      "import-x/no-cycle": ["error", { ignoreExternal: true }],
      "import-x/no-self-import": "error",
      // what is allowed by exception says why: `// eslint-disable-next-line rule -- the reason`
      "eslint-comments/require-description": ["error", { ignore: ["eslint-enable"] }],
      "no-restricted-syntax": ["error", noSpreadPush],
      "@typescript-eslint/array-type": ["warn", { default: "generic", readonly: "generic" }],
      "@typescript-eslint/consistent-type-imports": "warn",
      "@typescript-eslint/no-empty-object-type": "off",
      "@typescript-eslint/no-explicit-any": "off",
      "@typescript-eslint/no-namespace": "off",
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "@effect/dprint": [
        "error",
        {
          config: {
            indentWidth: 2,
            lineWidth: 120,
            semiColons: "asi",
            quoteStyle: "alwaysDouble",
            trailingCommas: "never",
            operatorPosition: "maintain",
            "arrowFunction.useParentheses": "force"
          }
        }
      ]
    }
  },
  {
    files: ["**/*.mjs"],
    languageOptions: { globals: { console: "readonly", process: "readonly", URL: "readonly" } }
  },
  {
    // a `main.ts` is a program: it prints
    files: ["packages/*/src/**", "packages/*/test/**"],
    ignores: ["**/main.ts", "packages/benchmarks/**"],
    rules: { "no-console": "error" }
  },
  {
    files: ["packages/*/src/**"],
    rules: {
      "@effect/no-import-from-barrel-package": ["error", {
        packageNames: ["effect", "effect-locking", "@effect/platform", "@effect/sql"]
      }]
    }
  },
  ...house,
  determinism,
  bothLines
)
