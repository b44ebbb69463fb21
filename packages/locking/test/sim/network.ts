/**
 * The network between the simulated processes and the store: each message is delayed, lost, duplicated, reordered or
 * late, by dice or by script. A call that got lost never answers; whoever made it must bound it.
 */
import type { Kernel, Process } from "./kernel.js"
import type { Prng } from "./prng.js"

/** Probabilities per message, and times in milliseconds. */
export interface Faults {
  /** One way: the least, and what dice add to it. Messages of one process overtake each other within that. */
  readonly delay: number
  readonly jitter: number
  /** The request is lost. */
  readonly loseRequest: number
  /** The request is executed, its reply is lost. */
  readonly loseReply: number
  /** As the two above, but the caller learns at once that the connection broke. */
  readonly reset: number
  /** The store refuses to do anything. */
  readonly refuse: number
  /** The request is executed twice. */
  readonly duplicate: number
  /** A wake-up or a notice of revocation is lost. */
  readonly loseNote: number
  /** A message takes up to `lateBy` longer. */
  readonly late: number
  readonly lateBy: number
}

export const noFaults: Faults = {
  delay: 10,
  jitter: 0,
  loseRequest: 0,
  loseReply: 0,
  reset: 0,
  refuse: 0,
  duplicate: 0,
  loseNote: 0,
  late: 0,
  lateBy: 0
}

export type ScriptedFault = "lose request" | "lose reply" | "reset" | "duplicate" | "late request" | "late reply"

/** Faults exactly one message: the sweep does this to each of them. */
export interface Script {
  readonly message: number
  readonly fault: ScriptedFault
  /** How much later a late message is. */
  readonly by: number
}

/** What the caller of an exchange learns, if it learns anything. */
export type Reply<A> =
  | { readonly _tag: "Answer"; readonly value: A }
  | { readonly _tag: "Refused" }
  | { readonly _tag: "Reset" }

export class Network {
  /** Messages that asked for the script's attention so far: exchanges and notes. */
  messages = 0
  /** Messages that did not arrive. */
  lost = 0
  duplicated = 0
  private readonly troubled = new Map<Process, Array<number>>()
  private readonly cutUntil = new Map<Process, number>()
  private readonly dice: Prng
  /** None until the layers stand. */
  private faults: Faults

  constructor(
    private readonly kernel: Kernel,
    private readonly server: Process,
    private readonly plannedFaults: Faults,
    private readonly script: Script | undefined
  ) {
    this.dice = kernel.stream("network")
    this.faults = { ...noFaults, delay: plannedFaults.delay }
  }

  /** From now on messages are counted, and things go wrong. */
  begin(): void {
    this.faults = this.plannedFaults
    this.messages = 0
  }

  /** No message of this process passes for a while, in either direction. */
  cut(process: Process, ms: number): void {
    this.cutUntil.set(process, Math.max(this.cutUntil.get(process) ?? 0, this.kernel.now + ms))
  }

  /** Notes that something of a process did not go as it should. */
  trouble(client: Process): void {
    const times = this.troubled.get(client)
    if (times === undefined) this.troubled.set(client, [this.kernel.now])
    else times.push(this.kernel.now)
  }

  /** How many messages of a process did not go as they should, since then. */
  troubles(process: Process, since: number): number {
    return this.troubled.get(process)?.filter((at) => at >= since).length ?? 0
  }

  isCut(process: Process): boolean {
    return (this.cutUntil.get(process) ?? -1) > this.kernel.now
  }

  /** A request, its execution at the store, and the reply. */
  exchange<A>(client: Process, label: string, execute: () => A, onReply: (reply: Reply<A>) => void): void {
    const { dice, faults, kernel } = this
    const fault = this.scripted()
    const reply = (value: Reply<A>, late: boolean) => {
      kernel.at(kernel.now + this.delay(client) + (late ? this.script!.by : 0), client, () => onReply(value))
    }
    if (dice.chance(faults.refuse)) {
      this.trouble(client)
      return reply({ _tag: "Refused" }, false)
    }
    const reset = () => {
      this.trouble(client)
      reply({ _tag: "Reset" }, false)
    }
    const sentAt = kernel.now
    const arrive = () => {
      // who asks a server that sleeps gives up, and pauses
      if (this.server.awakeSince(sentAt) < kernel.now - sentAt) this.trouble(client)
      const value = execute()
      kernel.trace(`store ${label} -> ${show(value)}`)
      if (dice.chance(faults.reset / 2) || fault === "reset") return reset()
      if (dice.chance(faults.loseReply) || this.isCut(client) || fault === "lose reply") return this.lose(client)
      reply({ _tag: "Answer", value }, fault === "late reply")
    }
    if (dice.chance(faults.loseRequest) || this.isCut(client) || fault === "lose request") this.lose(client)
    else if (dice.chance(faults.reset / 2)) reset()
    else {kernel.at(
        kernel.now + this.delay(client) + (fault === "late request" ? this.script!.by : 0),
        this.server,
        arrive
      )}
    if (dice.chance(faults.duplicate) || fault === "duplicate") {
      this.duplicated++
      kernel.at(kernel.now + this.delay(client) + (fault === "duplicate" ? this.script!.by : 0), this.server, () => {
        kernel.trace(`store ${label} again -> ${show(execute())}`)
      })
    }
  }

  /** A message from the store that nobody asked for. */
  note(client: Process, label: string, deliver: () => void): void {
    const fault = this.scripted()
    if (this.dice.chance(this.faults.loseNote) || this.isCut(client) || fault === "lose request") {
      return this.lose(client)
    }
    const late = fault === "late request" || fault === "late reply" ? this.script!.by : 0
    this.kernel.at(this.kernel.now + this.delay(client) + late, client, () => {
      this.kernel.trace(`${client.name} hears ${label}`)
      deliver()
    })
  }

  private scripted(): ScriptedFault | undefined {
    const message = this.messages++
    return this.faults === this.plannedFaults && this.script?.message === message ? this.script.fault : undefined
  }

  private lose(client: Process): void {
    this.lost++
    this.trouble(client)
  }

  private delay(client: Process): number {
    const { delay, jitter, late, lateBy } = this.faults
    const usual = delay + this.dice.next() * jitter
    if (!this.dice.chance(late)) return usual
    this.trouble(client)
    return usual + this.dice.next() * lateBy
  }
}

/** What a request says of itself again and again. */
const noise = new Set(["request", "key", "keys", "since"])

const show = (value: unknown): string => {
  if (typeof value !== "object") return value === undefined ? "done" : String(value)
  return JSON.stringify(
    value,
    (name, part) => noise.has(name) ? undefined : typeof part === "bigint" ? `${part}` : part
  )
}
