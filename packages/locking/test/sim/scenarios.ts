/** Small plans under which the sweep does every single fault. Their names are stable: mutants point to them. */
import { noFaults } from "./network.js"
import { chaos, operation as op, type Plan, plan } from "./plan.js"

const near = { ...noFaults, delay: 2 }

export const scenarios: Readonly<Record<string, Plan>> = {
  "one node, queue of three": plan([op(), op(), op()], { nodes: 1 }),

  "two nodes contend": plan([op(), op({ node: 1 })]),

  "sections fail and die": plan([op({ exit: "fail" }), op({ node: 1, exit: "die" }), op({ api: "withLock" })]),

  "slow finalizers": plan([op({ finalMs: 20 }), op({ node: 1, finalMs: 20 }), op({ at: 10 })]),

  "deposed at once": plan(
    [op({ steps: 3 }), op({ node: 1, at: 20 })],
    { profile: "lossy", chaos: [chaos({ kind: "force release", at: 10 })] }
  ),

  "short leases, renewed": plan(
    [op({ ttl: 60, steps: 8, stepMs: 20 }), op({ node: 1, ttl: 60, at: 20 })],
    { profile: "lossy", faults: near }
  ),

  "an answer that waits": plan(
    [op({ ttl: 60, steps: 8, stepMs: 20 }), op({ node: 1, ttl: 60, at: 100 })],
    { profile: "chaos", faults: near, chaos: [chaos({ kind: "pause", at: 3, ms: 45 })] }
  ),

  "renewals that hang": plan(
    [op({ ttl: 60, steps: 8, stepMs: 20 }), op({ node: 1, ttl: 60, at: 100 })],
    { profile: "chaos", faults: near, chaos: [chaos({ kind: "partition", at: 10, ms: 300 })] }
  ),

  "an answer that comes too late": plan(
    [op({ ttl: 60, steps: 4, stepMs: 20 }), op({ node: 1, ttl: 60, at: 100 })],
    { profile: "chaos", faults: near, chaos: [chaos({ kind: "pause", at: 3, ms: 100 })] }
  ),

  "hand-over beside another node": plan(
    [op({ stepMs: 10 }), op({ stepMs: 10 }), op({ stepMs: 10 }), op({ stepMs: 10 }), op({ node: 1, at: 10 })],
    { layer: { pollInterval: 200, maxHandovers: 1, maxWaiters: 100, shutdownTimeout: 1000 } }
  ),

  "offers that wait": plan(
    [
      op({ ttl: 60, steps: 2, stepMs: 10 }),
      op({ ttl: 60, steps: 8, stepMs: 20 }),
      op({ node: 1, ttl: 60, at: 100 })
    ],
    {
      profile: "chaos",
      faults: near,
      layer: { pollInterval: 200, maxHandovers: 0, maxWaiters: 100, shutdownTimeout: 1000 },
      chaos: [chaos({ kind: "pause", at: 25, ms: 45 })]
    }
  ),

  "offers to who has left": plan(
    [
      op({ steps: 1, stepMs: 10 }),
      op({ interruptAt: 15 }),
      op({ interruptAt: 16 }),
      op({ interruptAt: 17 }),
      op({ node: 1, at: 100 })
    ],
    {
      faults: near,
      layer: { pollInterval: 200, maxHandovers: 0, maxWaiters: 100, shutdownTimeout: 1000 }
    }
  ),

  "readers and writers": plan([
    op({ mode: "shared" }),
    op({ mode: "shared", node: 1, at: 10 }),
    op({ at: 10 }),
    op({ mode: "shared", at: 20 }),
    op({ mode: "shared", at: 20, stepMs: 10 })
  ]),

  "several keys": plan([
    op({ api: "useLocks", keys: ["a", "b"] }),
    op({ api: "useLocks", keys: ["b", "a"], node: 1 }),
    op({ keys: ["b"], at: 10 })
  ]),

  "leases in scopes": plan([
    op({ api: "acquire" }),
    op({ api: "guard", node: 1 }),
    op({ api: "tryAcquire", at: 60 }),
    op({ api: "early", steps: 2, stepMs: 20, at: 10 })
  ]),

  "leases that end by themselves": plan(
    [
      op({ ttl: 60, autoRenew: false, steps: 6, stepMs: 20 }),
      op({ ttl: 90, maxHold: 40, steps: 6, stepMs: 20, at: 10 }),
      op({ node: 1, ttl: 90, at: 20 })
    ],
    { profile: "lossy", faults: near }
  ),

  "closing waits for nobody": plan(
    [op({ ttl: 60, stepMs: 20, finalMs: 150 }), op({ node: 1, ttl: 60, at: 20 })],
    {
      profile: "lossy",
      faults: near,
      layer: { pollInterval: 200, maxHandovers: 4, maxWaiters: 100, shutdownTimeout: 50 }
    }
  ),

  "arming meets the release": plan([op(), op({ node: 1, at: 30 })]),

  "a store that does not bar": plan(
    [op({ interruptAt: 2 }), op({ node: 1, interruptAt: 5 }), op({ at: 200, stepMs: 10 })],
    {
      profile: "calm",
      faults: { ...noFaults, delay: 2, jitter: 20 },
      store: { bars: false, notAfter: false, arming: "first" }
    }
  ),

  "little room": plan(
    [op({ stepMs: 20 }), op({ stepMs: 20 }), op({ stepMs: 20 }), op({ stepMs: 20, wait: 40 })],
    { nodes: 1, layer: { pollInterval: 200, maxHandovers: 0, maxWaiters: 2, shutdownTimeout: 100 } }
  )
}
