// The closing lines of .ci/run, from vitest's report and the exit codes of `test`, `checks` and `demo`
import * as fs from "node:fs"

const [test, checks, demo] = process.argv.slice(2).map(Number)

let report
try {
  report = JSON.parse(fs.readFileSync(new URL("../.vitest/results.json", import.meta.url), "utf8"))
} catch {
  report = { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] }
}
const passed = report.numPassedTests
// the suite for drivers leaves out what a driver says it cannot do, and reports it
const isLeftOut = ({ ancestorTitles, status }) =>
  status === "skipped" && ancestorTitles.some((_) => _.startsWith("lock driver: "))
const leftOut = report.testResults.flatMap((file) => file.assertionResults).filter(isLeftOut).length
const skipped = report.numPendingTests + report.numTodoTests - leftOut
// a file that breaks before its first test counts as one failure
const broken = report.testResults.filter((file) => file.status === "failed" && file.assertionResults.length === 0)
let failed = report.numFailedTests + broken.length
for (const file of broken) console.log(`broken test file: ${file.name}\n${file.message ?? ""}`)
for (const test of report.testResults.flatMap((file) => file.assertionResults)) {
  if (test.status === "failed") {
    console.log(`failed: ${test.fullName}\n${(test.failureMessages ?? []).join("\n").slice(0, 2000)}`)
  }
}

if (test !== 0 && failed === 0) {
  failed++
  console.log("`pnpm test` failed outside the vitest tests (a run that broke off, or the simulation)")
}
if (checks !== 0) {
  failed++
  console.log("`pnpm checks` failed")
}
if (demo !== 0) {
  failed++
  console.log("`pnpm demo` failed")
}
if (passed === 0) console.log("no test passed")
if (skipped > 0) console.log("a skipped test is a failure here: nothing may be missing on this machine")

console.log(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`)
process.exit(failed > 0 || skipped > 0 || passed === 0 ? 1 : 0)
