// A place to try things: `pnpm tsx scratchpad/playground.ts`
import { Console, Effect } from "effect"

Effect.runFork(Console.log("try something here"))
