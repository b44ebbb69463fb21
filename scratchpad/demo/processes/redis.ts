/** The demo on a Redis server. */
import { RedisFence, RedisLocking } from "@effect-locking/redis"
import * as RedisServer from "@effect-locking/testing/RedisServer"
import { Context, Effect, Layer } from "effect"
import { LockError, Locking } from "effect-locking"
import { Redis } from "ioredis"
import { type Backend, type Bank, type Change, Unavailable } from "./bank.js"

// what a write undid; who wrote, in the order in which the server ran the writes
const [accounts, undone, writes] = ["accounts", "undone", "writes"] as const

const fenceKey = (account: string) => `fence:${account}`

/** All changes or none: fences are compared before anything is written. */
const writeScript = `${RedisFence.lua}
for i=4,#KEYS do
  local fence=ARGV[(i-3)*4]
  local passes,seen=true,nil
  if fence~='' then passes,seen=fenced(KEYS[i],fence,'0') end
  if not passes then return {seen,fence} end
end
local undid=''
for a=1,#ARGV,4 do
  local account,read,balance,fence=ARGV[a],ARGV[a+1],ARGV[a+2],ARGV[a+3]
  local lost=redis.call('HGET',KEYS[1],account)-read
  if lost~=0 then undid='yes' redis.call('RPUSH',KEYS[2],string.format('%.0f',lost)) end
  redis.call('HSET',KEYS[1],account,balance)
  if fence~='' then redis.call('RPUSH',KEYS[3],account..' '..fence) end
end
return {undid}`

const bank = (client: Redis): Bank => ({
  open: (balances) =>
    Effect.promise(async () => {
      await client.del(accounts, undone, writes, ...Array.from(balances.keys(), fenceKey))
      await client.hset(accounts, new Map(balances))
    }),
  read: (account) => Effect.promise(async () => Number(await client.hget(accounts, account))),
  write: (changes) => {
    const keys = [accounts, undone, writes, ...changes.map(({ account }) => fenceKey(account))]
    const values = changes.flatMap(({ account, balance, fence, read }: Change) => [
      account,
      read,
      balance,
      fence === undefined ? "" : String(fence)
    ])
    return Effect.flatMap(
      Effect.promise(async () => await client.eval(writeScript, keys.length, ...keys, ...values) as Array<string>),
      ([first, lock]) =>
        lock === undefined
          ? Effect.succeed(first === "yes")
          : new LockError.StaleFence({ backend: backend.name, resource: BigInt(first!), lock: BigInt(lock) })
    )
  },
  verdict: Effect.promise(async () => {
    const sums = (await client.lrange(undone, 0, -1)).map(Number)
    const last = new Map<string, bigint>()
    let fencesRise = true
    for (const write of await client.lrange(writes, 0, -1)) {
      const [account, fence] = write.split(" ") as [string, string]
      if (BigInt(fence) <= (last.get(account) ?? 0n)) fencesRise = false
      last.set(account, BigInt(fence))
    }
    return {
      balances: new Map(Object.entries(await client.hgetall(accounts)).map(([key, value]) => [key, Number(value)])),
      overwritten: sums.length,
      overwrittenSum: sums.reduce((a, b) => a + b, 0),
      fencesRise
    }
  })
})

const connect = (url: string) =>
  Effect.acquireRelease(
    Effect.sync(() => new Redis(url)),
    (client) => Effect.sync(() => client.disconnect())
  )

export const backend: Backend = {
  name: "redis",
  server: "Redis",
  fences: "RedisFence.lua",
  start: RedisServer.make().pipe(
    Effect.map((server) => server.url()),
    Effect.mapError(({ message }) =>
      new Unavailable({
        message: `The demo needs a Redis or Valkey server on this machine.\n${message}\n` +
          "The demo in memory needs nothing: pnpm demo"
      })
    )
  ),
  bank: (url) => Effect.map(connect(url), bank),
  locking: (url, { session, ttl }) =>
    Effect.flatMap(connect(url), (client) =>
      Effect.map(
        Layer.build(RedisLocking.layer({ client, session, ttl })),
        (context) => Context.get(context, Locking.Locking)
      ))
}
