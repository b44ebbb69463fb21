/**
 * A store in memory with nodes that reach it over a network which can be told to fail. What `TestLocking` offers is a
 * thin face over it.
 */
import type * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import {
  type Capabilities,
  type Claim,
  type Contention,
  DriverError,
  type LockDriver,
  type OwnerToken,
  type Renewal
} from "../LockDriver.js"
import { currentClock, forker, fromCallback, interruptNow, type RuntimeFiber, zipRight } from "./compat.js"
import * as modelDriver from "./modelDriver.js"
import { StoreModel } from "./pure/storeModel.js"

export const operations = [
  "attempt",
  "arm",
  "withdraw",
  "renew",
  "release",
  "offer",
  "inspect",
  "list",
  "forceRelease"
] as const

export type Operation = typeof operations[number]

export type Calls = { readonly [op in Operation]: number }

export const noCalls = (): { [op in Operation]: number } => ({
  attempt: 0,
  arm: 0,
  withdraw: 0,
  renew: 0,
  release: 0,
  offer: 0,
  inspect: 0,
  list: 0,
  forceRelease: 0
})

export interface Where {
  readonly node?: string | undefined
  /** `grant`: an attempt, but only one that is granted. */
  readonly op?: Operation | "grant" | undefined
}

/** What befalls calls or wake-ups. The newest rule that fits is the one that counts. */
type Rule =
  & Where
  & (
    | { readonly _tag: "Refuse" | "DropReply" | "DropWakeup" }
    | { readonly _tag: "AnswerLate" | "DelayWakeup"; readonly delay: Duration.Duration }
  )
  & { left: number }

/** Nothing passes between a node and the store until it opens. */
interface Gate {
  readonly node: string | undefined
  readonly waiting: Set<() => void>
}

export interface Node {
  readonly name: string
  readonly calls: { [op in Operation]: number }
  /** `dead`: killed. `over`: its test is over, and nothing may stand in the way of its close. */
  state: "alive" | "dead" | "over"
  /** Ends the waits of calls that are not answered yet. */
  readonly parked: Set<() => void>
  /** What the store may have granted to it. */
  readonly claims: Map<OwnerToken, Claim>
  /** Closes what lives on the node. */
  close: Effect.Effect<void>
}

export interface TestStore {
  readonly model: StoreModel
  /** The store's clock. */
  readonly now: () => number
  readonly jump: (millis: number) => void
  readonly addRule: (rule: Rule) => void
  readonly mute: (duration: Duration.Duration, node: string | undefined) => void
  readonly heal: () => void
  readonly nodes: ReadonlyArray<Node>
  readonly addNode: (name: string) => Node
  readonly driver: (node: Node) => Effect.Effect<LockDriver, never, Scope.Scope>
  /** Ends the faults of a node that is over; what a dead one says from now on is not heard, and it is told that all is well. */
  readonly stop: (node: Node, state: "dead" | "over") => void
  /** Releases what is left of a node that is over. */
  readonly giveBack: (node: Node) => void
}

const capabilities: Capabilities = {
  modes: ["exclusive", "shared"],
  fair: false,
  push: true,
  expiry: "server",
  remote: true,
  ttl: { default: Duration.seconds(15), min: Duration.millis(1), infinite: true }
}

const notSent = (message: string) => new DriverError({ executed: "no", message })
const noAnswer = new DriverError({ executed: "unknown", message: "the connection was closed before the answer" })

export const make: Effect.Effect<TestStore, never, Scope.Scope> = Effect.gen(function*() {
  const clock: Clock.Clock = yield* currentClock
  const time = yield* modelDriver.storeTime
  const fork = yield* forker
  const model = new StoreModel()
  const nodes: Array<Node> = []
  const rules: Array<Rule> = []
  const gates = new Set<Gate>()
  const sleepers = new Set<RuntimeFiber<void>>()
  let offset = 0

  const now = () => time() + offset

  /** Runs `then` after the delay, unless it is cancelled. */
  const after = (delay: Duration.Duration, then: () => void): () => void => {
    const sleeper = fork(zipRight(Effect.yieldNow(), Effect.map(clock.sleep(delay), then)))
    sleepers.add(sleeper)
    sleeper.addObserver(() => sleepers.delete(sleeper))
    return () => interruptNow(sleeper)
  }

  yield* Effect.addFinalizer(() => Effect.sync(() => sleepers.forEach(interruptNow)))

  const isMuted = (node: Node) => gateOf(node) !== undefined

  const gateOf = (node: Node): Gate | undefined => {
    if (node.state !== "alive") return undefined
    for (const gate of gates) if (gate.node === undefined || gate.node === node.name) return gate
    return undefined
  }

  const open = (gate: Gate) => {
    gates.delete(gate)
    for (const pass of [...gate.waiting]) pass()
  }

  const take = (tag: Rule["_tag"], node: Node, ops: ReadonlyArray<Where["op"]>): Rule | undefined => {
    if (node.state !== "alive") return undefined
    const rule = rules.find((rule) =>
      rule._tag === tag && rule.left > 0 &&
      (rule.node === undefined || rule.node === node.name) &&
      (rule.op === undefined || ops.includes(rule.op))
    )
    if (rule !== undefined) rule.left--
    return rule
  }

  /** Goes on when `register`'s callback is called, or when the node is stopped. */
  const park = <A>(
    node: Node,
    register: (pass: () => void) => () => void,
    then: Effect.Effect<A, DriverError>
  ): Effect.Effect<A, DriverError> =>
    fromCallback((resume) => {
      const leave = () => {
        node.parked.delete(pass)
        cancel()
      }
      const pass = () => {
        leave()
        resume(then)
      }
      const cancel = register(pass)
      node.parked.add(pass)
      return Effect.sync(leave)
    })

  const call = <A>(
    node: Node,
    op: Operation,
    execute: Effect.Effect<A, DriverError>,
    whenDead: Effect.Effect<A, DriverError>
  ): Effect.Effect<A, DriverError> => {
    const answer = (value: A): Effect.Effect<A, DriverError> => {
      const ops = op === "attempt" && (value as { readonly _tag: string })._tag === "Grant"
        ? [op, "grant" as const]
        : [op]
      if (take("DropReply", node, ops) !== undefined) return park(node, () => () => {}, Effect.fail(noAnswer))
      const late = take("AnswerLate", node, ops)
      return late?._tag === "AnswerLate"
        ? park(node, (pass) => after(late.delay, pass), Effect.succeed(value))
        : Effect.succeed(value)
    }
    const send: Effect.Effect<A, DriverError> = Effect.suspend(() => {
      if (node.state === "dead") return whenDead
      const gate = gateOf(node)
      if (gate === undefined) return Effect.flatMap(execute, answer)
      const wait = (pass: () => void) => {
        gate.waiting.add(pass)
        return () => gate.waiting.delete(pass)
      }
      return park(node, wait, send)
    })
    return Effect.suspend(() => {
      if (node.state === "dead") return whenDead
      node.calls[op]++
      return take("Refuse", node, [op]) === undefined
        ? send
        : Effect.fail(notSent("the store refused the request"))
    })
  }

  const wakeUp = (node: Node, wake: () => void) => {
    if (node.state === "dead" || isMuted(node) || take("DropWakeup", node, []) !== undefined) return
    const late = take("DelayWakeup", node, [])
    if (late?._tag === "DelayWakeup") {
      after(late.delay, () => {
        if (node.state !== "dead") wake()
      })
    } else wake()
  }

  /** What was given back is not the node's any more. */
  const noting = <A>(node: Node, claim: Claim, execute: Effect.Effect<A, DriverError>) =>
    Effect.map(execute, (answer) => {
      if (typeof answer === "string") node.claims.delete(claim.token)
      return answer
    })

  const dead = Effect.fail(notSent("the node was killed"))

  const contention = (node: Node, inner: Contention): Contention => ({
    attempt: (attempt) => {
      const execute = Effect.map(inner.attempt(attempt), (answer) => {
        if (answer._tag === "Grant") node.claims.set(attempt.token, answer)
        return answer
      })
      return call(node, "attempt", execute, dead)
    },
    arm: (wake) => call(node, "arm", inner.arm(() => wakeUp(node, wake)), dead),
    withdraw: call(node, "withdraw", inner.withdraw, Effect.void)
  })

  return {
    model,
    now,
    nodes,
    jump(millis) {
      offset += millis
    },
    addRule(rule) {
      rules.unshift(rule)
    },
    mute(duration, node) {
      const gate: Gate = { node, waiting: new Set() }
      gates.add(gate)
      if (Duration.isFinite(duration)) after(duration, () => open(gate))
    },
    heal() {
      rules.length = 0
      gates.forEach(open)
    },
    addNode(name) {
      const node: Node = {
        name,
        calls: noCalls(),
        state: "alive",
        parked: new Set(),
        claims: new Map(),
        close: Effect.void
      }
      nodes.push(node)
      return node
    },
    driver: (node) =>
      Effect.map(
        modelDriver.make({
          name: "test",
          capabilities,
          model,
          now,
          reached: () => node.state === "alive" && !isMuted(node)
        }),
        (inner): LockDriver => ({
          ...inner,
          contend: (request) => contention(node, inner.contend(request)),
          renew: (grants) =>
            call(node, "renew", inner.renew(grants), Effect.succeed(grants.map((): Renewal => ({ _tag: "Unknown" })))),
          release: (claim) =>
            call(node, "release", noting(node, claim, inner.release(claim)), Effect.succeed("released")),
          offer: (grant) => call(node, "offer", noting(node, grant, inner.offer!(grant)), Effect.succeed("released")),
          inspect: (key) => call(node, "inspect", inner.inspect(key), dead),
          list: (namespace) => call(node, "list", inner.list(namespace), dead),
          forceRelease: (key, options) => call(node, "forceRelease", inner.forceRelease(key, options), dead)
        })
      ),
    stop(node, state) {
      if (node.state === "dead") return
      node.state = state
      for (const pass of [...node.parked]) pass()
    },
    giveBack(node) {
      if (node.state === "dead") return
      for (const claim of node.claims.values()) model.release(now(), claim)
    }
  }
})
