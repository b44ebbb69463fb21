/**
 * Session locks are not transactional: a statement that failed half way keeps the locks that it took. What the server
 * names as ours and the books do not is given up again.
 */
import { type Books, undoOf } from "./books.js"
import type { Connection } from "./connection.js"
import { answers, type Row, toStatement } from "./queue.js"
import * as sql from "./sql.js"

export const repair = (options: {
  readonly connection: Connection
  readonly batch: sql.Batch
  readonly marker: string
  readonly books: Books
  /** What the failed statement may have locked or unlocked. */
  readonly touched: ReadonlyArray<Row>
  readonly done: (isRepaired: boolean) => void
}): void => {
  const { batch, books, connection, done, marker, touched } = options
  connection.send({ text: sql.ownLocks, values: [marker] }, (held) => {
    if (held instanceof Error) return done(false)
    const expected = books.expected()
    const undo = new Map(touched.flatMap((row) => {
      const known = undoOf(row)
      return known === undefined ? [] : [known]
    }))
    const rows: Array<Row> = []
    for (const [isOurs, id, mode] of held) {
      // another session refuses what was prepared on ours
      if (isOurs !== true) return done(false)
      if (id === null) break
      const name = `${id} ${mode}`
      if (expected.delete(name)) continue
      const row = undo.get(name)
      if (row === undefined) return done(false)
      rows.push(row)
    }
    // a lock that is in the books and not at the server cannot be mended
    if (expected.size > 0) return done(false)
    if (rows.length === 0) return done(true)
    connection.send(
      toStatement(batch, marker, rows),
      (codes) => done(!(codes instanceof Error || answers(codes, sql.Code.notOurs) || answers(codes, sql.Code.gone)))
    )
  })
}
