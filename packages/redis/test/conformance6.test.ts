import { conformance } from "./conformance.js"

conformance(6)
