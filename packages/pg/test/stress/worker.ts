import * as Stress from "@effect-locking/testing/Stress"
import { PgLocking } from "../../src/index.js"

Stress.work(({ name, store }) =>
  PgLocking.layer({ connection: store, session: name, pollInterval: "30 seconds", waitTimeout: "2 minutes" })
)
