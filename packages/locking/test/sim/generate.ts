/** Random plans. Small and dense ones find more than large and sparse ones: keys, nodes and instants are few. */
import { type Faults, noFaults } from "./network.js"
import { type Api, type Chaos, type ChaosKind, isCalm, type Operation, type Plan, type Profile } from "./plan.js"
import { Prng } from "./prng.js"

const profiles: ReadonlyArray<Profile> = [
  "calm",
  "calm",
  "grid",
  "grid",
  "grid",
  "lossy",
  "lossy",
  "chaos",
  "chaos",
  "chaos",
  "amnesia",
  "clock"
]

const apis: ReadonlyArray<Api> = [
  "useLock",
  "useLock",
  "useLock",
  "useLock",
  "withLock",
  "withLock",
  "useLocks",
  "useLocks",
  "withLockIfAvailable",
  "tryAcquire",
  "acquire",
  "guard",
  "nested",
  "early",
  "renewing"
]

export const generate = (seed: number, only?: Profile): Plan => {
  const dice = new Prng(`plan/${seed}`)
  const profile = only ?? dice.pick(profiles)
  const nodes = profile === "grid" ? 1 + dice.int(2) : 1 + dice.int(3)
  const keys = 1 + dice.int(2)
  const faults = randomFaults(dice, profile)
  const chaos = randomChaos(dice, profile, nodes, keys)
  const drift = profile === "clock" ? dice.pick([1000, 30_000]) : isCalm(profile) ? 0 : 1000
  const store = {
    // what a closed layer cannot take back any more would lapse without a wake-up
    bars: dice.chance(0.8) || (isCalm(profile) && chaos.length > 0),
    notAfter: dice.chance(0.7),
    arming: profile === "amnesia" ? "each" as const : dice.pick(["each", "first"] as const)
  }
  const ttls = randomTtls(faults, profile, chaos, drift)
    // a store that grants to who gave up long ago must at least end that by itself
    .filter((ttl) => ttl !== "forever" || store.bars || store.notAfter)
  const world = { profile, nodes, keys, ttls, plain: dice.chance(0.3) }
  return {
    profile,
    nodes,
    operations: Array.from({ length: 2 + dice.int(8) }, () => randomOperation(dice, world)),
    chaos,
    faults,
    drift,
    store,
    layer: {
      pollInterval: 200,
      maxHandovers: dice.pick([0, 1, 4]),
      maxWaiters: dice.pick([1, 2, 100, 100, 100]),
      shutdownTimeout: dice.pick([100, 1000])
    }
  }
}

/** What is the same for all operations of a plan. */
interface Setting {
  readonly profile: Profile
  readonly nodes: number
  readonly keys: number
  readonly ttls: ReadonlyArray<Operation["ttl"]>
  /** Only sections under one key. */
  readonly plain: boolean
}

const randomOperation = (dice: Prng, { keys, nodes, plain, profile, ttls }: Setting): Operation => {
  const calm = isCalm(profile)
  const grid = profile === "grid"
  const api = plain ? "useLock" : dice.pick(apis)
  const steps = grid ? 1 : 1 + dice.int(8)
  const hold = grid ? 10 * dice.int(5) : dice.pick([0, 10, 100, 400])
  const cut = dice.int(6)
  const names = Array.from({ length: keys }, (_, i) => `k${i}`)
  return {
    node: dice.int(nodes),
    at: grid ? 10 * dice.int(5) : dice.pick([0, 0, dice.int(50), dice.int(500)]),
    api,
    keys: api === "useLocks" && dice.chance(0.7) ? names : [dice.pick(names)],
    mode: plain ? "exclusive" : dice.pick(["exclusive", "exclusive", "exclusive", "shared"]),
    ttl: dice.pick(ttls),
    wait: grid
      ? dice.pick(["forever", 10 * dice.int(12)])
      : dice.pick([0, 30, 150, 5000, "forever", "forever"]),
    steps,
    stepMs: hold / steps,
    finalMs: dice.pick(calm ? [0, 0, 0, 10, 20] : [0, 0, 0, 0, 10, 20, 200]),
    exit: dice.pick(["ok", "ok", "ok", "fail", "die"]),
    interruptAt: cut === 0 ? (grid ? 10 * dice.int(20) : dice.int(dice.pick([20, 60, 400]))) : null,
    interruptStep: cut === 1 ? 1 + dice.int(60) : null,
    // what ends without a release ends without a wake-up: not where lost wake-ups must show as deadlocks
    maxHold: !calm && dice.chance(0.1) ? dice.pick([1, 20, 100, 300]) : null,
    autoRenew: calm || dice.chance(0.85)
  }
}

/** A call must have time for its way there and back; what never lapses must not be left behind by anybody. */
const randomTtls = (
  faults: Faults,
  profile: Profile,
  chaos: ReadonlyArray<Chaos>,
  drift: number
): ReadonlyArray<Operation["ttl"]> => {
  if (isCalm(profile)) return [600]
  // an estimate of the server's clock is off by what drifted since the last answer
  const shortest = 30 + 10 * (faults.delay + faults.jitter) + drift / 200
  const finite = [60, 150, 600, 600].filter((ttl) => ttl >= shortest)
  // nor by a second copy of an attempt that was refused, and so is never undone
  const mayLast = profile === "lossy" && chaos.length === 0 && faults.duplicate === 0
  return mayLast ? [...finite, "forever"] : finite
}

const chaosOf: Record<Profile, ReadonlyArray<ChaosKind>> = {
  calm: ["shutdown"],
  grid: ["shutdown"],
  lossy: ["shutdown", "force release"],
  chaos: ["pause", "partition", "partition", "kill", "server pause", "shutdown", "force release"],
  amnesia: ["forget rows", "forget rows", "forget all", "partition", "pause"],
  clock: ["server clock jump", "server clock jump", "wall clock jump", "pause"]
}

const randomChaos = (dice: Prng, profile: Profile, nodes: number, keys: number): ReadonlyArray<Chaos> => {
  const calm = isCalm(profile)
  const count = calm ? (dice.chance(0.15) ? 1 : 0) : profile === "lossy" ? dice.int(2) : 1 + dice.int(3)
  return Array.from({ length: count }, () => {
    const kind = dice.pick(chaosOf[profile])
    const ms = 20 + dice.int(800)
    return {
      at: calm ? 10 * dice.int(15) : dice.int(400),
      kind,
      node: dice.int(nodes),
      ms: kind.endsWith("clock jump") ? dice.pick([-1, 1]) * dice.pick([50, 700, 60_000]) : ms,
      key: `k${dice.int(keys)}`
    }
  })
}

const randomFaults = (dice: Prng, profile: Profile): Faults => {
  if (profile === "grid") return noFaults
  const delays = { delay: dice.pick([0, 0.2, 1, 10]), jitter: dice.pick([0, 2, 20]) }
  if (profile === "calm") return { ...noFaults, ...delays }
  return {
    ...delays,
    loseRequest: dice.pick([0, 0.02, 0.1]),
    loseReply: dice.pick([0, 0.02, 0.1]),
    reset: dice.pick([0, 0, 0.05]),
    refuse: dice.pick([0, 0, 0.05]),
    duplicate: dice.pick([0, 0.05]),
    loseNote: dice.pick([0, 0.1, 1]),
    late: dice.pick([0, 0.05]),
    lateBy: 400
  }
}
