/** A process of the chaos run on PostgreSQL. */
import { Effect } from "effect"
import * as Locking from "effect-locking/Locking"
import * as PgLocking from "../../src/PgLocking.js"
import { breaks, type Broken } from "./broken.js"
import { type Task, work } from "./work.js"

export interface Options
  extends Pick<PgLocking.PgLockingOptions, "sessionTtl" | "restartQuarantine" | "ttl" | "pollInterval">
{
  readonly broken?: Broken
}

const task: Task<Options> = JSON.parse(process.argv[2]!)

const { broken, pollInterval, restartQuarantine, sessionTtl, ttl } = task.options
const ofDriver = { connection: task.url, sessionTtl, restartQuarantine }
const ofLayer = { pollInterval, ttl, session: task.name }

work(
  task,
  broken === undefined
    ? PgLocking.layer({ ...ofDriver, ...ofLayer })
    : Locking.layer(Effect.map(PgLocking.driver(ofDriver), breaks[broken]), ofLayer)
)
