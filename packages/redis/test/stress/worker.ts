import * as Stress from "@effect-locking/testing/Stress"
import * as Locking from "effect-locking/Locking"
import { Redis } from "ioredis"
import * as single from "../../src/internal/single.js"

Stress.work(({ name, store }) =>
  Locking.layer(
    // the driver duplicates the client
    single.make(new Redis(store, { lazyConnect: true }), {
      retention: 3_600_000,
      fairPatience: 1_500,
      // nobody looks, polls or loses a lease before the test has judged
      beat: Infinity
    }),
    {
      session: name,
      pollInterval: "1 minute",
      ttl: "1 minute",
      waitTimeout: "2 minutes"
    }
  )
)
