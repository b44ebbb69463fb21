import * as LockDriverSuite from "@effect-locking/testing/LockDriverSuite"
import { Duration, Effect } from "effect"
import * as MemoryStore from "effect-locking/MemoryStore"

for (const time of ["virtual", "real"] as const) {
  LockDriverSuite.lockDriverSuite({
    name: `memory, ${time} time`,
    time,
    make: Effect.map(MemoryStore.make, (store) => ({ open: MemoryStore.driver(store) })),
    capabilities: {
      modes: ["exclusive", "shared"],
      fair: false,
      push: true,
      expiry: "server",
      remote: false,
      ttl: { default: Duration.infinity, min: Duration.millis(1), infinite: true }
    },
    knows: ["fence", "token", "since", "until", "session", "metadata", "keys", "waiters"],
    ttl: time === "virtual" ? "1 second" : "200 millis"
  })
}
