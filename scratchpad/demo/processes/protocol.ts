/** What the demo and its processes say to each other, a line of JSON each. */
import type { Transfer } from "../ledger.js"

/** What a process is. */
export interface Role {
  readonly driver: string
  readonly name: string
  readonly url: string
  readonly seed: number
}

export type Order =
  | {
    readonly order: "transfer"
    readonly transfers: ReadonlyArray<Transfer>
    readonly callers: number
    readonly locked: boolean
  }
  /** Pays into the till, again and again. */
  | { readonly order: "pay"; readonly ttl: number }
  /** The turns that are begun are ended, and no more are begun. */
  | { readonly order: "stop" }

/** A transfer as its caller saw it. Times are microseconds of the clock that all processes of the machine share. */
export interface Visit {
  readonly caller: number
  readonly from: string
  readonly to: string
  readonly asked: number
  readonly start: number
  readonly end: number
  readonly undid: boolean
}

export type Report =
  | { readonly report: "ready" | "over" }
  | { readonly report: "transferred"; readonly visits: ReadonlyArray<Visit> }
  | { readonly report: "asks"; readonly at: number }
  | { readonly report: "begins"; readonly at: number; readonly fence: string; readonly found: number }
  /** Its lease is over, by its own clock or by the word of the server. */
  | { readonly report: "lost"; readonly at: number; readonly message: string }
  | { readonly report: "wrote"; readonly at: number; readonly balance: number; readonly refused: string | undefined }
  | { readonly report: "ends"; readonly at: number; readonly failed: string | undefined }
