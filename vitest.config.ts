import * as fs from "node:fs"
import * as path from "node:path"
import { defineConfig } from "vitest/config"

const root = import.meta.dirname

const members = ["scratchpad", ...fs.readdirSync(path.join(root, "packages")).map((name) => `packages/${name}`)]

export default defineConfig({
  test: {
    // CI reads its counts from the file
    reporters: process.env["CI"] ? ["default", "json"] : ["default"],
    outputFile: { json: path.join(root, ".vitest/results.json") },
    coverage: { include: ["packages/*/src/**"], exclude: ["packages/benchmarks/**"] },
    projects: members.filter((dir) => fs.existsSync(path.join(root, dir, "test"))).map((dir) => ({
      test: {
        name: path.basename(dir),
        root: path.join(root, dir),
        include: ["test/**/*.test.ts"],
        setupFiles: [path.join(root, "vitest.setup.ts")],
        pool: "forks",
        // tests count fibers and metrics: one at a time within a file
        sequence: { concurrent: false },
        testTimeout: 30_000,
        fakeTimers: { toFake: undefined }
      }
    }))
  }
})
