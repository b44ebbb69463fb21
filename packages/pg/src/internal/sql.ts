/**
 * The statements. The order of evaluation is the protocol: in PostgreSQL only CASE fixes it.
 */

/** On which every process with waiters listens; the payload is the lock's number. */
export const wakeChannel = "effect_locking_wake"

/** Where one driver is asked of its leases. */
export const askChannel = (id: string): string => `effect_locking_${id}`

/** The session knows its owner by this setting: DISCARD ALL clears it together with the locks. */
const marker = "effect_locking.session"

export const quoteIdentifier = (name: string): string => `"${name.replaceAll("\"", "\"\"")}"`

export const quoteLiteral = (text: string): string =>
  `${text.includes("\\") ? "E" : ""}'${text.replaceAll("'", "''").replaceAll("\\", "\\\\")}'`

/** Where fences come from, as an expression. */
export const clockFence = "(extract(epoch from clock_timestamp())*1000000)::int8"
export const sequenceFence = (sequence: string): string => `nextval(${quoteLiteral(sequence)})`

/** What one row of a batch does. */
export const Action = {
  /** A fence; 0: busy. */
  lock: "x",
  /** A fence; 0: busy, or a writer waits. */
  lockShared: "s",
  /** A fence for a further reader of a lock that this session shares; 0: a writer waits. */
  joinShared: "f",
  unlock: "u",
  /** A fence where nobody waits; where somebody does, what unlocking answers. */
  offer: "r",
  unlockShared: "v",
  /** What was locked in vain: who was kept out by it polls, since a wake-up would only make others try in vain. */
  undo: "y",
  undoShared: "z",
  /** 1: registered; -2: somebody is looking for interest at this moment, ask again. */
  interest: "i",
  withdrawInterest: "j",
  intent: "n",
  /** Readers who stood back for it are woken. */
  withdrawIntent: "o",
  /** By the writer who got the lock: there is nothing to wake anybody for. */
  dropIntent: "p",
  /** 1: a writer waits elsewhere. */
  contended: "c",
  /** Shows that the session is there. */
  beat: "h"
} as const

export type Action = (typeof Action)[keyof typeof Action]

/** What a row answers where it is no fence. */
export const Code = { busy: 0, done: 1, woke: 2, gone: 3, retry: -2, notOurs: -1 } as const

const mine = (parameter: string) => `current_setting('${marker}', true) is not distinct from ${parameter}`

const notify = (lock: string) => `${Code.woke} + length(pg_notify('${wakeChannel}', ${lock}::text)::text)`

const locked = (lock: string, fence: string) =>
  `case when pg_try_advisory_lock(${lock}) then ${fence} else ${Code.busy} end`

/** The unlock comes before the look for interest, which every waiter registers before the try it relies on. */
const unlocked = (unlock: string, lock = "t.k", interest = "t.a, t.b") =>
  `case when not ${unlock} then ${Code.gone} when pg_try_advisory_xact_lock(${interest}) then ${Code.done} else ${
    notify(lock)
  } end`

/** Who registers after the look finds the lock taken, and is seen by the next look. */
const offered = (fence: string, lock = "t.k", interest = "t.a, t.b") =>
  `case when pg_try_advisory_xact_lock(${interest}) then ${fence} when not pg_advisory_unlock(${lock}) then ${Code.gone} else ${
    notify(lock)
  } end`

/** The statements for rows of a batch. */
export interface Batch {
  /** Any number of them, row by row, in order. Parameters: marker, actions, locks, the halves of interest and of intent. */
  readonly many: string
  /** What is asked for most, by itself: half the work for the server. Parameters: marker, lock. */
  readonly lock: string
  /** Parameters: marker, lock, the halves of interest. */
  readonly unlock: string
  /** The same. */
  readonly offer: string
}

const guarded = (answer: string) => `(case when ${mine("$1")} then ${answer} else ${Code.notOurs} end)::text`

export const batch = (fence: string): Batch => ({
  many: `select ${
    guarded(`case t.o
 when '${Action.lock}' then ${locked("t.k", fence)}
 when '${Action.lockShared}' then case when pg_try_advisory_xact_lock_shared(t.c, t.d)
  then case when pg_try_advisory_lock_shared(t.k) then ${fence} else ${Code.busy} end else ${Code.busy} end
 when '${Action.joinShared}' then case when pg_try_advisory_xact_lock_shared(t.c, t.d) then ${fence} else ${Code.busy} end
 when '${Action.offer}' then ${offered(fence)}
 when '${Action.unlock}' then ${unlocked("pg_advisory_unlock(t.k)")}
 when '${Action.unlockShared}' then ${unlocked("pg_advisory_unlock_shared(t.k)")}
 when '${Action.interest}' then case when pg_try_advisory_lock_shared(t.a, t.b) then ${Code.done} else ${Code.retry} end
 when '${Action.withdrawInterest}' then case when pg_advisory_unlock_shared(t.a, t.b) then ${Code.done} else ${Code.gone} end
 when '${Action.intent}' then case when pg_try_advisory_lock(t.c, t.d) then ${Code.done} else ${Code.busy} end
 when '${Action.withdrawIntent}' then ${unlocked("pg_advisory_unlock(t.c, t.d)")}
 when '${Action.dropIntent}' then case when pg_advisory_unlock(t.c, t.d) then ${Code.done} else ${Code.gone} end
 when '${Action.undo}' then case when pg_advisory_unlock(t.k) then ${Code.done} else ${Code.gone} end
 when '${Action.undoShared}' then case when pg_advisory_unlock_shared(t.k) then ${Code.done} else ${Code.gone} end
 when '${Action.contended}' then case when pg_try_advisory_xact_lock_shared(t.c, t.d) then 0 else 1 end
 else ${Code.done} end`)
  }
from unnest($2::text[], $3::int8[], $4::int4[], $5::int4[], $6::int4[], $7::int4[]) with ordinality t(o, k, a, b, c, d, i)`,
  lock: `select ${guarded(locked("$2::int8", fence))}`,
  unlock: `select ${guarded(unlocked("pg_advisory_unlock($2::int8)", "$2::int8", "$3::int4, $4::int4"))}`,
  offer: `select ${guarded(offered(fence, "$2::int8", "$3::int4, $4::int4"))}`
})

/**
 * All of several keys, or none: stops at the first that is busy and unlocks what it took. Parameters: marker, locks,
 * the halves of intent, and whether the session shares the lock already. One row for each key that was tried.
 */
export const group = (fence: string, shared: boolean): string => {
  const at = (array: string, i: string) => `(${array})[${i}]`
  const attempt = (i: string) =>
    shared
      ? `case when pg_try_advisory_xact_lock_shared(${at("$3::int4[]", i)}, ${at("$4::int4[]", i)})
   then case when ${at("$5::bool[]", i)} then true else pg_try_advisory_lock_shared(${at("$2::int8[]", i)}) end
   else false end`
      : `pg_try_advisory_lock(${at("$2::int8[]", i)})`
  const unlock = shared
    ? `case when ${at("$5::bool[]", "m.i")} then true else pg_advisory_unlock_shared(${at("$2::int8[]", "m.i")}) end`
    : `pg_advisory_unlock(${at("$2::int8[]", "m.i")})`
  return `with recursive a(i, ok) as (
 select 1, case when ${mine("$1")} then ${attempt("1")} end
 union all select a.i + 1, ${attempt("a.i + 1")} from a where a.ok and a.i < cardinality($2::int8[])),
m as materialized (select * from a),
v as materialized (select bool_and(ok) and count(*) = cardinality($2::int8[]) as won from m)
select (case when m.ok is null then ${Code.notOurs} when v.won then ${fence}
 when m.ok then case when ${unlock} then ${Code.busy} else ${Code.busy} end else ${Code.busy} end)::text
from m, v order by m.i`
}

/** The number of a lock, as the views of the server have it in two halves. */
const lockNumber = "(classid::int8 << 32) | objid::int8"

/**
 * The locks of this session, so that what a failed batch left behind can be seen. It reads no table that databases share,
 * which would take a lock where there may be no room for one.
 */
export const ownLocks = `select case when objsubid = 1 then (${lockNumber})::text
 else (classid::int8 - (classid::int8 >> 31 << 32))::text || ',' || (objid::int8 - (objid::int8 >> 31 << 32))::text end,
 mode from pg_lock_status() where locktype = 'advisory' and pid = pg_backend_pid()`

/** Claims the session if nobody has; another answer than the marker means that it is shared with somebody. */
export const claimSession = `select case when coalesce(current_setting('${marker}', true), '') in ('', $1)
 then set_config('${marker}', $1, false) else current_setting('${marker}') end`

/** A dead link is noticed after eleven seconds. */
const keepalives = ["set tcp_keepalives_idle = 5", "set tcp_keepalives_interval = 2", "set tcp_keepalives_count = 3"]

export const sessionSettings = (options: {
  readonly sessionTtl: number
  readonly applicationName: string
  readonly serverVersion: number
}): string =>
  [
    `set idle_session_timeout = ${options.sessionTtl}`,
    `set statement_timeout = ${options.sessionTtl}`,
    `set idle_in_transaction_session_timeout = ${options.sessionTtl}`,
    // closes the one hole of the idle time-out: a request of which only half arrived
    ...(options.serverVersion >= 170_000 ? [`set transaction_timeout = ${options.sessionTtl}`] : []),
    "set lock_timeout = 0",
    ...keepalives,
    "set default_transaction_read_only = off",
    "set default_transaction_isolation = 'read committed'",
    // fences survive a crash by their clock part, so no grant waits for the disk
    "set synchronous_commit = off",
    "set client_min_messages = error",
    `set application_name = ${quoteLiteral(options.applicationName)}`
  ].join("; ")

export const listenerSettings = (applicationName: string): string =>
  [
    "set idle_session_timeout = 0",
    "set statement_timeout = 0",
    ...keepalives,
    "set client_min_messages = error",
    `set application_name = ${quoteLiteral(applicationName)}`
  ].join("; ")

/** How many locks the server has room for, nominally. */
const slots = `current_setting('max_locks_per_transaction')::int8
  * (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8)`

/** What a session must know of its server. `start` is when the server last forgot its sessions, in microseconds. */
export const facts = `select current_setting('server_version_num')::int, pg_backend_pid(), pg_is_in_recovery(),
 ${slots},
 (extract(epoch from greatest(pg_postmaster_start_time(), (select stats_reset from pg_stat_wal)))*1000000)::int8::text,
 ${clockFence}::text`

/** How many advisory locks there are in all databases of the server. */
export const lockCount = "select count(*)::int from pg_locks where locktype = 'advisory'"

export const sequenceFacts = `select c.oid is not null, s.seqcache::text, s.seqincrement::text, s.seqstart::text,
 c.oid is not null and has_sequence_privilege(c.oid, 'USAGE') and has_sequence_privilege(c.oid, 'UPDATE')
from (select to_regclass($1) r) q left join pg_class c on c.oid = q.r and c.relkind = 'S'
left join pg_sequence s on s.seqrelid = c.oid`

/** A sequence of the same name in another schema: programs that draw from both would mix their fences. */
export const otherSequences = `select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'S' and c.relname = $1 and n.nspname <> $2`

/** The first value is the moment of its creation, so that a session can see whether it is older than the server's start. */
export const createSequence = (sequence: string, at: string): string =>
  `create sequence if not exists ${sequence} as int8 increment by 8 start with ${at} cache 1`

const bumpLock = 7_309_940_836_261_953_901n

/**
 * Two at once would both find none, and one of them would fail. And it waits for the disk: a sequence that a crash takes
 * back would say that there was never a grant before.
 */
export const createSequenceOnce = (sequence: string, at: string): string =>
  `select pg_advisory_xact_lock(${bumpLock}), set_config('synchronous_commit', 'on', true);
${createSequence(sequence, at)}`

/**
 * Moves the sequence up to the clock, in one transaction. A crash and a fail-over end every session, so a bump at each
 * start keeps fences rising over both. Bumps are serial, and the margin keeps them from running over values that are
 * drawn meanwhile.
 */
export const bump = (sequence: string, last: bigint): string =>
  `select pg_advisory_xact_lock(${bumpLock});
select case when us > coalesce(pg_sequence_last_value(${quoteLiteral(sequence)}::regclass), 0) + 10000
 then setval(${quoteLiteral(sequence)}, us) end
from (select greatest(${clockFence}, ${last + 1n}) us offset 0) e`

/** Who holds one of some locks, or any lock of this library, in this database. */
export const holders = (locks?: string): string =>
  `select x.lock::text, x.mode, a.pid, a.application_name, a.usename::text, host(a.client_addr), a.backend_start::text
from (select pid, mode, ${lockNumber} as lock from pg_locks where locktype = 'advisory' and granted
 and objsubid = 1 and database = (select oid from pg_database where datname = current_database())) x
join pg_stat_activity a on a.pid = x.pid
where ${locks === undefined ? "a.application_name like 'effect-locking/%'" : `x.lock = any(${locks}::int8[])`}
order by x.lock, a.pid`

export const checks = `select current_setting('server_version'),
 (select count(*)::int from pg_stat_replication),
 (select count(*)::int from pg_stat_replication where sync_state = 'async'),
 (${lockCount}),
 (${slots})::int`
