import { conformance } from "./conformance.js"

conformance(5)
