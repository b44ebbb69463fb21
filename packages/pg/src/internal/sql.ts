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
 when m.ok then case when ${unlock} then ${Code.busy} else ${Code.gone} end else ${Code.busy} end)::text
from m, v order by m.i`
}

/** The number of a lock, as the views of the server have it in two halves. */
const lockNumber = "(classid::int8 << 32) | objid::int8"

/** Shared by the sessions whose fences come from the clock; apart from the numbers of keys, like interest and intent. */
const clockLock = ["1701978229", "1668047723"] as const

const isClock = `(objsubid = 2 and classid = ${clockLock[0]} and objid = ${clockLock[1]})`

/**
 * The locks of this session, so that what a failed batch left behind can be seen: each behind whether the session is that
 * of the marker, and one row without a lock where there is none. It reads no table that databases share, which would take
 * a lock where there may be no room for one.
 */
export const ownLocks = `select ${mine("$1")}, held.* from (select) one left join (
 select case when objsubid = 1 then (${lockNumber})::text
 else (classid::int8 - (classid::int8 >> 31 << 32))::text || ',' || (objid::int8 - (objid::int8 >> 31 << 32))::text end,
 mode from pg_lock_status() where locktype = 'advisory' and pid = pg_backend_pid() and not ${isClock}) held on true`

/** Claims the session that was asked before, if nobody has; without the marker as its answer it is shared with somebody. */
export const claimSession = `select case when pg_backend_pid() = $2::int
 and coalesce(current_setting('${marker}', true), '') in ('', $1) then set_config('${marker}', $1, false) end`

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

/** When the server last forgot its sessions. */
const serverStart = "greatest(pg_postmaster_start_time(), (pg_stat_get_wal()).stats_reset)"

/**
 * What a session must know of its server: among it when the server last forgot its sessions and what time it is, in
 * microseconds, and the two ends of the connection as the server sees them.
 */
export const facts = `select current_setting('server_version_num')::int, pg_backend_pid(), pg_is_in_recovery(),
 ${slots},
 (extract(epoch from ${serverStart})*1000000)::int8::text,
 ${clockFence}::text,
 concat_ws(' ', host(inet_client_addr()), inet_client_port(), host(inet_server_addr()), inet_server_port())`

/**
 * For how many milliseconds a server that has just started may have forgotten what others believe to hold. One on which
 * nothing was granted before its start, by the sequence of the fences, has forgotten nothing. Statistics that somebody
 * reset by hand look like a start, but no session is older than the last one.
 */
export const forgetfulFor = (
  keptFor: number,
  sequence: { readonly schema: string; readonly name: string } | undefined
): string =>
  `select greatest(0, ${keptFor} - extract(epoch from clock_timestamp() - s.start)*1000)::float8${
    sequence === undefined ? "" : ` * (exists (select from pg_sequence q join pg_class c on c.oid = q.seqrelid
 join pg_namespace n on n.oid = c.relnamespace where c.relname = ${quoteLiteral(sequence.name)}
 and n.nspname = ${quoteLiteral(sequence.schema)} and q.seqstart < extract(epoch from s.start)*1000000))::int`
  } from (select greatest(pg_postmaster_start_time(), least((pg_stat_get_wal()).stats_reset,
 (select backend_start from pg_stat_get_activity(pg_backend_pid())))) as start) s`

/**
 * A try inside a transaction. Parameters: lock; how long the server must have been up, in milliseconds. The notice goes
 * out with the commit, to those too who came to wait meanwhile; never after a rollback, for which waiters have their poll.
 */
export const lockTransaction = `select case
 when current_setting('transaction_isolation') <> 'read committed' then 'isolation'
 when $2::float8 > 0 and extract(epoch from clock_timestamp() - ${serverStart})*1000 < $2::float8 then 'early'
 when pg_try_advisory_xact_lock($1::int8) then 'locked' || pg_notify('${wakeChannel}', $1::text)::text else 'busy' end`

/** How many advisory locks there are in all databases of the server. */
export const lockCount = "select count(*)::int from pg_locks where locktype = 'advisory'"

/** What is known of the sequence, and whether there are sessions whose fences come from the clock. */
export const sequenceFacts = `select c.oid is not null, s.seqcache::text, s.seqincrement::text, s.seqstart::text,
 c.oid is not null and has_sequence_privilege(c.oid, 'USAGE') and has_sequence_privilege(c.oid, 'UPDATE'),
 exists (select from pg_lock_status() where locktype = 'advisory' and ${isClock}
  and database = (select oid from pg_database where datname = current_database()))
from (select to_regclass($1) r) q left join pg_class c on c.oid = q.r and c.relkind = 'S'
left join pg_sequence s on s.seqrelid = c.oid`

/** A sequence of the same name in another schema: programs that draw from both would mix their fences. */
export const otherSequences = `select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'S' and c.relname = $1 and n.nspname <> $2`

/** The first value is the moment of its creation, so that a session can see whether it is older than the server's start. */
export const createSequence = (sequence: string, at: string): string =>
  `create sequence if not exists ${sequence} as int8 increment by 8 start with ${at} cache 1`

const bumpLock = 7_309_940_836_261_953_901n

/** One after the other, to the end of the transaction: who makes a source of fences ready, and who moves it. */
const serially = `select pg_advisory_xact_lock(${bumpLock})`

/**
 * Two at once would both find none, and one of them would fail. And it waits for the disk: a sequence that a crash takes
 * back would say that there was never a grant before.
 */
export const beginCreation = `begin; ${serially}, set_config('synchronous_commit', 'on', true)`

/** From the end of it no sequence is made where this session is seen, and whatever was made before is seen here. */
export const claimClock = `${serially}; select pg_advisory_lock_shared(${clockLock.join(", ")})`

/**
 * Moves the sequence up to the clock, in one transaction. A crash and a fail-over end every session, so a bump at each
 * start keeps fences rising over both. Bumps are serial, and the margin keeps them from running over values that are
 * drawn meanwhile.
 */
export const bump = (sequence: string, last: bigint): string =>
  `${serially};
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
