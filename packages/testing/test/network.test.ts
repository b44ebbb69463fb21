import * as LockDriverSuite from "@effect-locking/testing/LockDriverSuite"
import * as Network from "./network.js"

LockDriverSuite.lockDriverSuite({
  name: "memory behind a network, virtual time",
  time: "virtual",
  make: Network.make,
  capabilities: { remote: true, expiry: "server", push: true, maxKeys: 1_000 },
  knows: ["fence", "token", "since", "until", "session", "metadata", "keys", "waiters"]
})
