/**
 * For `--import`: the packages of the workspace name their sources; programs that load this run what is published.
 */
import { register } from "node:module"

register("./publishedHooks.js", import.meta.url)
