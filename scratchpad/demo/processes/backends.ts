/** The drivers that the demo can show over processes. */
import type { Backend } from "./bank.js"
import * as Pg from "./pg.js"
import * as Redis from "./redis.js"

export const all: ReadonlyArray<Backend> = [Pg.backend, Redis.backend]

export const find = (name: string): Backend | undefined => all.find((backend) => backend.name === name)
