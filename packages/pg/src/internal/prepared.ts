/**
 * A prepared statement that asks for no more than it needs: its answers are strings, so the server need not describe
 * them each time, and the client need not look up how to read them. That is a quarter of what a lock costs in the client.
 *
 * As `pg-cursor` does, it speaks to the client as one of its queries.
 */
import type { Submittable } from "pg"

/** What it uses of the client's connection. */
interface Wire {
  readonly stream: { readonly cork: () => void; readonly uncork: () => void }
  /** By name; kept by the client. */
  readonly parsedStatements: Readonly<Record<string, string>>
  readonly parse: (statement: { readonly name: string; readonly text: string }) => void
  readonly bind: (portal: {
    readonly statement: string
    readonly values: ReadonlyArray<string>
  }) => void
  readonly execute: (portal: { readonly portal: string; readonly rows: number }) => void
  readonly sync: () => void
}

export type Row = ReadonlyArray<string>

export class Prepared implements Submittable {
  private readonly rows: Array<Row> = []

  constructor(
    readonly name: string,
    readonly text: string,
    private readonly values: ReadonlyArray<string>,
    /** The client may put a time-out of the user's round it. */
    public callback: (error: Error | undefined, rows: ReadonlyArray<Row>) => void
  ) {}

  submit(connection: unknown): null {
    const wire = connection as Wire
    wire.stream.cork()
    if (wire.parsedStatements[this.name] === undefined) wire.parse({ name: this.name, text: this.text })
    wire.bind({ statement: this.name, values: this.values })
    wire.execute({ portal: "", rows: 0 })
    wire.sync()
    wire.stream.uncork()
    return null
  }

  handleDataRow({ fields }: { readonly fields: Row }): void {
    this.rows.push(fields)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.callback(undefined, this.rows)
  }

  handleError(error: Error): void {
    this.callback(error, this.rows)
  }
}
