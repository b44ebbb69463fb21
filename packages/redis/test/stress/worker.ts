import * as Stress from "@effect-locking/testing/Stress"
import { Redis } from "ioredis"
import { RedisLocking } from "../../src/index.js"

Stress.work(({ name, store }) =>
  RedisLocking.layer({
    // the driver duplicates it
    client: new Redis(store, { lazyConnect: true }),
    session: name,
    // no lease ends, and nobody polls, before the test has judged
    pollInterval: "1 minute",
    ttl: "1 minute",
    waitTimeout: "2 minutes"
  })
)
