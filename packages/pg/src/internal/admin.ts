/**
 * What operators ask. The server knows sessions and numbers; the holder itself tells the rest, when its connection for
 * wake-ups is open.
 */
import {
  type Deposed,
  DriverError,
  type HeldKey,
  type Holder,
  type LockDriver,
  type LockMode
} from "effect-locking/LockDriver"
import type { ResolvedKey } from "effect-locking/LockKey"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import type * as Scope from "effect/Scope"
import type { Owned } from "./books.js"
import type { Statement } from "./connection.js"
import { uniqueName } from "./identity.js"
import { lockId } from "./pure/lockId.js"
import type { Session } from "./session.js"
import * as sql from "./sql.js"

const prefix = "effect-locking/"

/** PostgreSQL cuts it at 63 bytes. */
export const applicationName = (id: string, name: string): string => `${prefix}${id}/${name}`

/** How long a holder has for its answer, in milliseconds. */
const patience = 500

/** How often a holder is asked to give up what it holds. */
const tries = 3

const glanceEvery = 1000

/** A payload may have 8 000 bytes. */
const longestPayload = 7000

/** What a holder tells of a lease. */
interface Told {
  readonly lock: string
  readonly mode: LockMode
  readonly fence: string
  readonly since: number
  readonly key: Pick<ResolvedKey, "namespace" | "scope" | "tenant" | "key">
  readonly session: string
  readonly metadata: Readonly<Record<string, string>>
}

type Message =
  | {
    readonly ask: "tell" | "revoke"
    readonly question: string
    readonly from: string
    readonly locks: ReadonlyArray<string>
  }
  | { readonly answer: string; readonly from: string; readonly told: ReadonlyArray<Told>; readonly isLast: boolean }

/** A lock as the server knows it. */
interface Seen {
  readonly lock: string
  readonly mode: LockMode
  readonly pid: number
  /** Of the driver that holds it; missing when it is somebody else. */
  readonly id: string | undefined
  readonly details: Readonly<Record<string, string>>
}

export interface Questions extends Pick<LockDriver, "inspect" | "list" | "forceRelease"> {
  /** Who holds one of the locks. The server's table of locks is dear, so it is looked at once a second only. */
  readonly glance: (
    locks: ReadonlyArray<string>,
    run?: Session["run"]
  ) => Effect.Effect<Holder | undefined, DriverError>
  /** From the channel of this driver. */
  readonly onMessage: (payload: string) => void
}

export const make = (options: {
  readonly id: string
  readonly session: Session
  readonly listener: Effect.Effect<void, DriverError>
  readonly revoke: (owned: Owned) => Effect.Effect<unknown, DriverError>
}): Effect.Effect<Questions, never, Scope.Scope> =>
  Effect.gen(function*() {
    const { id, listener, revoke, session } = options
    const inbox = yield* Queue.unbounded<string>()
    const pending = new Map<string, Pending>()

    const send = (to: string, message: Message) =>
      session.run({ text: "select pg_notify($1, $2)", values: [sql.askChannel(to), JSON.stringify(message)] })

    const see = (statement: Statement, run = session.run): Effect.Effect<ReadonlyArray<Seen>, DriverError> =>
      Effect.map(run(statement), (rows) => rows.map(seenOf))

    const held = (locks: ReadonlyArray<string>): ReadonlyArray<Owned> =>
      session.books.owned.filter(({ ids }) => locks.length === 0 || ids.some(({ lock }) => locks.includes(lock)))

    const tell = (
      ask: "tell" | "revoke",
      locks: ReadonlyArray<string>
    ): Effect.Effect<ReadonlyArray<Told>, DriverError> =>
      Effect.suspend(() => {
        const all = held(locks)
        const told = all.flatMap((owned) => toldOf(owned, locks))
        return ask === "tell" ? Effect.succeed(told) : Effect.as(Effect.forEach(all, revoke), told)
      })

    const onAnswer = ({ answer, from, isLast, told }: Extract<Message, { readonly answer: string }>): void => {
      const question = pending.get(answer)
      if (question === undefined) return
      for (const one of told) question.told.push(one)
      if (!isLast) return
      question.answered.add(from)
      question.left.delete(from)
      if (question.left.size === 0) Deferred.unsafeDone(question.done, Effect.void)
    }

    const handle = (message: Message): Effect.Effect<unknown, DriverError> => {
      if ("answer" in message) return Effect.sync(() => onAnswer(message))
      return Effect.flatMap(tell(message.ask, message.locks), (told) => {
        const parts = inParts(told)
        return Effect.forEach(
          parts,
          (part, i) =>
            send(message.from, { answer: message.question, from: id, told: part, isLast: i === parts.length - 1 })
        )
      })
    }

    /** Asks those who hold, and waits for the last answer, but no longer than `patience`. */
    const ask = (
      op: "tell" | "revoke",
      holders: ReadonlyArray<string>,
      locks: ReadonlyArray<string>
    ): Effect.Effect<Answers, DriverError> =>
      Effect.gen(function*() {
        const others = [...new Set(holders)].filter((holder) => holder !== id)
        const own = holders.includes(id) ? yield* tell(op, locks) : []
        const question: Pending = {
          left: new Set(others),
          answered: new Set([id]),
          told: [...own],
          done: yield* Deferred.make<void>()
        }
        if (others.length === 0) return question
        yield* listener
        const name = uniqueName()
        pending.set(name, question)
        const bell = yield* Effect.forkDaemon(
          Effect.zipRight(Effect.sleep(patience), Deferred.succeed(question.done, undefined))
        )
        return yield* Effect.ensuring(
          Effect.zipRight(
            Effect.forEach(others, (other) => send(other, { ask: op, question: name, from: id, locks })),
            Effect.as(Deferred.await(question.done), question)
          ),
          Effect.suspend(() => {
            pending.delete(name)
            return Fiber.interruptFork(bell)
          })
        )
      })

    yield* Effect.forkScoped(Effect.forever(Effect.flatMap(Queue.take(inbox), (payload) =>
      Effect.catchAllCause(
        Effect.suspend(() => handle(JSON.parse(payload) as Message)),
        (cause) => Effect.logDebug("A question about leases was not answered", cause)
      ))))

    const onLocks = (locks: ReadonlyArray<string>) => ({ text: sql.holders("$1"), values: [locks] })
    const onLock = (key: ResolvedKey) => onLocks([lockId(key)])
    let glancedAt = -Infinity

    return {
      onMessage: (payload) => inbox.unsafeOffer(payload),
      glance: (locks, run) =>
        Effect.suspend(() => {
          if (session.now() < glancedAt + glanceEvery) return Effect.succeed(undefined)
          glancedAt = session.now()
          return Effect.map(
            see(onLocks(locks), run),
            ([first]): Holder | undefined => first && { ...holderOf(first, []), session: first.details["application"] }
          )
        }),
      inspect: (key) =>
        Effect.gen(function*() {
          const seen = yield* see(onLock(key))
          const { told } = yield* ask("tell", idsOf(seen), [lockId(key)])
          return seen.map((one) => holderOf(one, told))
        }),
      list: (namespace) =>
        Effect.gen(function*() {
          const seen = yield* see({ text: sql.holders() })
          const { told } = yield* ask("tell", idsOf(seen), [])
          // the server knows of no namespaces, so what nobody tells of is in any
          return heldKeys(seen, told).filter((key) => key.namespace === undefined || key.namespace === namespace)
        }),
      forceRelease: (key, { hard }) =>
        Effect.gen(function*() {
          const lock = lockId(key)
          const seen = yield* see(onLock(key))
          const told: Array<Told> = []
          let silent = seen
          // a holder that was just granted it opens its connection for questions in a moment
          for (let i = 0; i < tries && silent.some(canAnswer); i++) {
            const answers = yield* ask("revoke", idsOf(silent), [lock])
            for (const one of answers.told) told.push(one)
            silent = silent.filter((one) => one.id === undefined || !answers.answered.has(one.id))
          }
          const holders = seen.map((one) => holderOf(one, told))
          if (silent.length === 0) return { holders, others: [] }
          if (!hard) return yield* silence(silent.length)
          const pids = silent.map(({ pid }) => pid)
          const all = yield* see({ text: sql.holders() })
          yield* session.run({
            text: "select pg_terminate_backend(pid) from unnest($1::int4[]) t(pid)",
            values: [pids]
          })
          const others = heldKeys(all.filter((one) => one.lock !== lock && pids.includes(one.pid)), [])
          return { holders, others } satisfies Deposed
        })
    }
  })

interface Pending {
  readonly left: Set<string>
  readonly answered: Set<string>
  readonly told: Array<Told>
  readonly done: Deferred.Deferred<void>
}

type Answers = Pick<Pending, "answered" | "told">

const silence = (count: number) =>
  Effect.fail(
    new DriverError({
      executed: "no",
      message: `${count === 1 ? "the holder" : `${count} holders`} did not answer within ${tries * patience} ms; ` +
        "`hard` ends the session, and with it all else that it holds"
    })
  )

const seenOf = ([lock, mode, pid, application, role, host, since]: ReadonlyArray<any>): Seen => {
  const [id, ...name] = application.startsWith(prefix) ? application.slice(prefix.length).split("/") : []
  return {
    lock,
    mode: mode === "ShareLock" ? "shared" : "exclusive",
    pid,
    id,
    details: {
      application: id === undefined ? application : name.join("/"),
      pid: String(pid),
      ...(role && { role }),
      ...(host && { host }),
      ...(since && { "session since": since })
    }
  }
}

const canAnswer = ({ id }: Seen): boolean => id !== undefined

const idsOf = (seen: ReadonlyArray<Seen>): ReadonlyArray<string> => seen.flatMap(({ id }) => id ?? [])

const toldOf = ({ fences, ids, request, since }: Owned, locks: ReadonlyArray<string>): ReadonlyArray<Told> =>
  ids.flatMap(({ lock }, i): ReadonlyArray<Told> => {
    if (locks.length > 0 && !locks.includes(lock)) return []
    const { key, namespace, scope, tenant } = request.keys[i]!
    return [{
      lock,
      mode: request.mode,
      fence: fences[i]!.toString(),
      since,
      key: { namespace, scope, tenant, key },
      session: request.holder.session,
      metadata: request.holder.metadata
    }]
  })

const holderOf = (seen: Seen, told: ReadonlyArray<Told>): Holder => {
  const own = told.find(({ lock, mode }) => lock === seen.lock && mode === seen.mode)
  return {
    mode: seen.mode,
    ...(own && {
      session: own.session,
      fence: BigInt(own.fence),
      since: own.since,
      metadata: own.metadata
    }),
    details: seen.details
  }
}

const heldKeys = (seen: ReadonlyArray<Seen>, told: ReadonlyArray<Told>): ReadonlyArray<HeldKey> => {
  const byLock = new Map<string, { readonly key: Told["key"] | undefined; readonly holders: Array<Holder> }>()
  for (const one of seen) {
    const entry = byLock.get(one.lock) ?? { key: told.find(({ lock }) => lock === one.lock)?.key, holders: [] }
    entry.holders.push(holderOf(one, told))
    byLock.set(one.lock, entry)
  }
  return [...byLock].map(([lock, { holders, key }]) => ({ ...key, hash: lock, holders }))
}

const inParts = (told: ReadonlyArray<Told>): ReadonlyArray<ReadonlyArray<Told>> => {
  const parts: Array<Array<Told>> = [[]]
  let size = 0
  for (const one of told) {
    const length = Buffer.byteLength(JSON.stringify(one))
    // what does not fit is told without what its holder wrote
    const fitting = length > longestPayload
      ? { ...one, metadata: {}, key: { ...one.key, key: one.key.key.slice(0, 200) } }
      : one
    if (size + length > longestPayload && parts.at(-1)!.length > 0) {
      parts.push([])
      size = 0
    }
    size += length
    parts.at(-1)!.push(fitting)
  }
  return parts
}
