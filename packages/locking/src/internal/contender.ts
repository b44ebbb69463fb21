/**
 * The one who talks to the store for a key: attempt, and where it is busy arm, attempt, sleep, attempt again, until a
 * grant, the deadline or the end of the layer. One loop for every mode.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { type Busy, type Contention, DriverError, type Full, type Grant, type LockRequest } from "../LockDriver.js"
import * as LockError from "../LockError.js"
import * as calls from "./calls.js"
import { zipRight } from "./compat.js"
import { Activity, begin, type Core, finish, type Hold, type KeyRecord, nextToken, type Request } from "./core.js"
import { abandon, background } from "./giveback.js"
import { adopt, hasFences } from "./grant.js"
import * as holds from "./hold.js"
import { meet } from "./loss.js"
import { probes, sometimes } from "./probes.js"
import * as trust from "./pure/trust.js"
import * as records from "./record.js"
import { holderOf, keyHash, refuse } from "./report.js"
import * as tracing from "./tracing.js"
import * as waiting from "./waiting.js"

/** A wait shorter than this still gives its attempts a chance to be answered. */
const shortestAttempt = 50

/** What happens this soon after another happened with it. */
const atOnce = 5

/** Pauses between tries while no wake-up can be relied on. */
const shortestPause = 50
const longestPause = 1000

/** Who keeps a place in the order of arrival gives a sign of life as often as this. */
const longestBeat = 500

type Failure =
  | LockError.LockBusy
  | LockError.WaitTimeout
  | LockError.QueueFull
  | LockError.KeyLimit
  | LockError.LockingClosed
  | LockError.ProviderFailed
  | LockError.OutcomeUnknown

type Contending = Effect.Effect<Hold, Failure>

class Contest {
  /** Made when there is something to end: a call that crosses the network, or a sleep. */
  activity: Activity | undefined = undefined
  /** Ends the call that is joined, and the sleep; a wake-up ends the sleep alone. */
  readonly asking = new calls.Joiner()
  readonly sleeping = new calls.Joiner()
  contention: Contention | undefined = undefined
  token: string
  /** Its first attempt over the network has no answer yet. */
  attempting: boolean
  /** The store may know that we wait. */
  interested = false
  armed = false
  woken = false
  /** An attempt got no answer, and no later one can have told what became of it. */
  unanswered = false
  /** Tries in a row that no wake-up led to, or that got no answer. */
  idle = 0
  /** Until when the attempt on its way, or one that was given up, may still act. */
  mayActUntil = -Infinity

  constructor(
    readonly core: Core,
    readonly request: Request,
    readonly records: ReadonlyArray<KeyRecord>,
    readonly restore: calls.Restore
  ) {
    this.token = nextToken(core)
    this.attempting = core.driver.capabilities.remote
  }
}

/** Ends with a hold of the grant, which then owns the records; after every other exit nothing of the contest is left behind. */
export const contend = (
  core: Core,
  request: Request,
  owned: ReadonlyArray<KeyRecord>,
  restore: calls.Restore
): Contending =>
  Effect.suspend(() => {
    const contest = new Contest(core, request, owned, restore)
    // what stays in the process has its answer before anybody could close the layer
    if (contest.attempting) {
      core.attempting++
      enlist(contest)
    }
    if (!request.standBack) return attempt(contest)
    sometimes("stood back")
    return zipRight(arm(contest), pause(contest))
  })

const enlist = (contest: Contest): void => {
  if (contest.activity !== undefined) return
  const end = () => {
    contest.asking.resume?.()
    contest.sleeping.resume?.()
  }
  contest.activity = new Activity("acquire", end)
  begin(contest.core, contest.activity)
}

class Wanted implements LockRequest {
  readonly keys: LockRequest["keys"]
  readonly mode: LockRequest["mode"]
  readonly ttl: Duration.Duration
  readonly fair: boolean
  readonly waiting: boolean
  readonly holder: Holding

  constructor({ core, request }: Contest) {
    this.keys = request.keys
    this.mode = request.call.mode
    this.ttl = Duration.millis(request.call.ttl)
    this.fair = request.call.fair
    this.waiting = request.waiting
    this.holder = new Holding(core.settings.session, metadataOf(request))
  }
}

class Holding {
  constructor(readonly session: string, readonly metadata: Readonly<Record<string, string>>) {}
}

const contentionOf = (contest: Contest): Contention =>
  contest.contention ??= contest.core.driver.contend(new Wanted(contest))

const metadataOf = ({ call, trace }: Request): Readonly<Record<string, string>> =>
  trace === undefined ? call.metadata : { [tracing.traceparent]: trace, ...call.metadata }

const attempt = (contest: Contest): Contending => {
  const { core, request } = contest
  if (core.closed) return fail(contest, closed(core))
  const start = core.timer.now()
  const limit = limitOf(contest, start)
  const before = { unanswered: contest.unanswered, mayActUntil: contest.mayActUntil }
  contest.woken = false
  // who asks for order has its place from the first attempt on
  if (request.call.fair && request.waiting) contest.interested = true
  contest.unanswered = true
  contest.mayActUntil = start + limit
  const call = () => contentionOf(contest).attempt({ token: contest.token, left: Duration.millis(limit) })
  return Effect.flatMap(ask(contest, call, start + limit), (exit) => {
    const answer = exit === undefined ? "no answer" : answerOf(exit)
    if (answer === "no answer" || answer._tag === "DriverError") {
      request.last = answer
      if (answer === "no answer" || answer.executed === "unknown") sometimes("acquire outcome unknown")
      else Object.assign(contest, before)
      return again(contest)
    }
    // an answer tells what the attempts before it did, not what one still on its way may do
    contest.mayActUntil = before.mayActUntil
    contest.unanswered = before.unanswered && before.mayActUntil > core.timer.now()
    if (answer._tag === "Full") return full(contest, answer)
    return answer._tag === "Grant" ? win(contest, answer, start) : busy(contest, answer)
  })
}

/** What a driver says, or that it broke its contract. */
const answerOf = (exit: Exit.Exit<Grant | Busy | Full, DriverError>): Grant | Busy | Full | DriverError => {
  if (Exit.isSuccess(exit)) {
    const answer = exit.value
    return answer?._tag === "Busy" || answer?._tag === "Full" || (answer?._tag === "Grant" && hasFences(answer)) ?
      answer :
      new DriverError({
        executed: "unknown",
        message: "the driver answered neither a grant with a fence for each key nor that a key is busy"
      })
  }
  return exit.cause._tag === "Fail"
    ? exit.cause.error
    : new DriverError({ executed: "unknown", message: "the driver died or was interrupted", cause: exit.cause })
}

/** One deadline bounds everything; a single attempt has its own limit only. */
const limitOf = ({ request }: Contest, now: number): number =>
  request.waiting
    ? Math.min(request.call.attemptTimeout, Math.max(request.deadline - now, shortestAttempt))
    : request.call.attemptTimeout

/** A call that stays in the process cannot be interrupted, so it needs no guard. */
const ask = <A, E>(contest: Contest, call: () => Effect.Effect<A, E>, until: number) =>
  contest.core.driver.capabilities.remote
    ? calls.ask(
      contest.core,
      call,
      until,
      contest.restore,
      contest.asking,
      () => contest.core.closed,
      () => interrupted(contest)
    )
    : calls.ask(contest.core, call, until, contest.restore)

const win = (contest: Contest, grant: Grant, start: number): Contending => {
  const { core, request } = contest
  const now = core.timer.now()
  const ttl = Duration.toMillis(grant.ttl)
  if (core.closed || !trust.isTrusted(trust.granted(start, ttl), now)) {
    abandon(core, grant, contest.unanswered ? contest.mayActUntil : 0, now + ttl)
    contest.unanswered = false
    if (core.closed) return fail(contest, closed(core))
    sometimes("lease stale on arrival")
    contest.token = nextToken(core)
    request.last = "no answer"
    return again(contest)
  }
  if (now >= request.deadline) sometimes("grant beats time-out")
  if (contest.armed && !contest.woken && contest.idle > 0) sometimes("poll cured a lost note")
  const unansweredUntil = contest.unanswered ? contest.mayActUntil : 0
  const held = adopt(core, grant, start, request, contest.records, now, unansweredUntil)
  // in one step with the adoption: a grant that nobody holds could be lost with nobody to tell
  const hold = holds.open(core, held, request, now)
  leave(contest)
  // readers who came meanwhile join
  if (held.mode === "shared") {
    for (const record of held.records) records.settle(core, record)
  }
  meet(core, held)
  return Effect.succeed(hold)
}

const busy = (contest: Contest, answer: Busy): Contending => {
  const { core, request } = contest
  request.last = answer
  request.lastAt = core.timer.now()
  if (core.closed) return fail(contest, closed(core))
  if (!request.waiting || core.timer.now() >= request.deadline) return fail(contest, outcome(contest))
  if (waiting.isFull(core, request)) {
    return fail(
      contest,
      new LockError.QueueFull({ backend: core.settings.backend, limit: core.settings.maxWaiters })
    )
  }
  hasAnswer(contest)
  waiting.add(core, request)
  if (contest.armed) return contest.woken ? attempt(contest) : pause(contest)
  // subscribe, then try, then sleep: only a try after the subscription may rely on it
  return tracing.waiting(
    core,
    request,
    answer.holder?.metadata?.[tracing.traceparent],
    Effect.flatMap(arm(contest), () => contest.armed ? attempt(contest) : pause(contest))
  )
}

const full = (contest: Contest, { limit }: Full): Contending =>
  fail(contest, new LockError.KeyLimit({ backend: contest.core.settings.backend, limit }))

/** No usable answer: the last one decides when the time is over. */
const again = (contest: Contest): Contending =>
  contest.core.closed
    ? fail(contest, closed(contest.core))
    : contest.request.waiting && contest.core.timer.now() < contest.request.deadline
    ? pause(contest)
    : fail(contest, outcome(contest))

const arm = (contest: Contest): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { core, request } = contest
    const now = core.timer.now()
    contest.interested = true
    const wake = () => {
      contest.woken = true
      contest.idle = 0
      contest.sleeping.resume?.()
    }
    // a subscription that comes after the deadline is of no use
    const until = Math.min(now + request.call.attemptTimeout, request.deadline)
    return Effect.map(ask(contest, () => contentionOf(contest).arm(wake), until), (exit) => {
      contest.armed = exit !== undefined && Exit.isSuccess(exit)
    })
  })

/** Sleeps until a wake-up, the holder's end, the next poll or the deadline, whichever comes first. */
const pause = (contest: Contest): Contending =>
  Effect.flatMap(contest.core.random.next, (random) => {
    const { core, request } = contest
    if (contest.woken || core.closed) return attempt(contest)
    enlist(contest)
    const until = Math.min(request.deadline, nextTry(contest, random))
    contest.idle++
    return Effect.flatMap(
      calls.sleep(
        core,
        until,
        contest.restore,
        contest.sleeping,
        () => contest.woken || core.closed,
        () => interrupted(contest)
      ),
      () => {
        const late = core.timer.now() - request.deadline
        // a wake-up at the deadline earns a last try, and one that stood back has not tried at all
        const isOver = late >= (contest.woken ? atOnce : 0) && !core.closed && request.last !== undefined
        return isOver ? fail(contest, outcome(contest)) : attempt(contest)
      }
    )
  })

const nextTry = (contest: Contest, random: number): number => {
  const { core, request } = contest
  const now = core.timer.now()
  const backoff = Math.min(longestPause, shortestPause * 2 ** Math.min(contest.idle, 10))
  const { last } = request
  if (last === "no answer" || last?._tag === "DriverError") {
    const retryAfter = last === "no answer" || last.retryAfter === undefined ? 0 : Duration.toMillis(last.retryAfter)
    return now + Math.max(retryAfter, backoff * (0.5 + random / 2))
  }
  const { push, remote } = core.driver.capabilities
  // who stood back relies on no wake-up: those who were woken may be done before it was armed
  if (last === undefined) return now + Math.min(shortestPause, core.settings.pollInterval) * (0.75 + random / 2)
  if (!probes.safetyNets && contest.armed) return Infinity
  const holdersEnd = last.endsIn === undefined ? Infinity : now + Duration.toMillis(last.endsIn) + 1
  // inside one process no wake-up is lost, so there is nothing to poll for
  const interval = request.call.fair ? Math.min(core.settings.pollInterval, longestBeat) : core.settings.pollInterval
  const poll = !contest.armed || !push ? backoff : remote ? interval : Infinity
  return Math.min(holdersEnd, now + poll * (0.75 + random / 2))
}

const closed = (core: Core): LockError.LockingClosed => new LockError.LockingClosed({ backend: core.settings.backend })

const outcome = (contest: Contest): Failure => {
  const { core, request } = contest
  const { backend } = core.settings
  const now = core.timer.now()
  const last = request.last
  if (last !== undefined && last !== "no answer" && last._tag === "Busy") {
    const fields = { backend, keyHash: keyHash(request), waited: Duration.millis(now - request.startedAt) }
    const holder = holderOf(core, request)
    return request.waiting
      ? new LockError.WaitTimeout({ ...fields, holder, waitTimeout: Duration.millis(request.call.waitTimeout) })
      : new LockError.LockBusy({ ...fields, holder })
  }
  if (last !== undefined && last !== "no answer" && last.executed === "no" && !contest.unanswered) {
    return new LockError.ProviderFailed({
      backend,
      keyHash: keyHash(request),
      cause: last.cause ?? last,
      retryAfter: last.retryAfter
    })
  }
  return new LockError.OutcomeUnknown({
    backend,
    keyHash: keyHash(request),
    cause: last === undefined || last === "no answer" ? undefined : last.cause ?? last
  })
}

const fail = (contest: Contest, failure: Failure): Contending => {
  quit(contest)
  return refuse(contest.core, failure)
}

const interrupted = (contest: Contest): void => {
  contest.core.instruments.acquired.interrupted(1)
  quit(contest)
}

/** Leaves without a grant: whatever an unanswered attempt took, or may still take, goes back. */
const quit = (contest: Contest): void => {
  const { core, request } = contest
  if (contest.unanswered) {
    sometimes("attempt abandoned")
    const claim = { token: contest.token, keys: request.keys, mode: request.call.mode }
    abandon(core, claim, contest.mayActUntil, contest.mayActUntil + request.call.ttl)
  }
  leave(contest)
  for (const record of contest.records) records.stepDown(core, record, request)
}

const hasAnswer = (contest: Contest): void => {
  if (!contest.attempting) return
  contest.attempting = false
  contest.core.attempting--
}

const leave = (contest: Contest): void => {
  const { core, request } = contest
  hasAnswer(contest)
  if (contest.activity !== undefined) finish(core, contest.activity)
  waiting.remove(core, request)
  if (!contest.interested) return
  const withdraw = () => contentionOf(contest).withdraw
  background(core, calls.askFreely(core, withdraw, request.call.attemptTimeout))
}
