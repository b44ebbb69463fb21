/**
 * The wall clock of a server, moved by hand: a small library that is loaded before all others and adds to the time what
 * a file says. The monotonic clock stays what it is, as on a machine whose time was set.
 *
 * It is compiled by the C compiler of the machine, or else by one of the distribution's packages that needs nothing
 * installed. (libfaketime is no help: it and jemalloc, which Redis has, call each other for ever.)
 */
import * as Effect from "effect/Effect"
import * as crypto from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import type { KitError } from "../KitError.js"
import { run } from "./command.js"
import { program } from "./debian.js"
import { attempt, cached } from "./files.js"

// without headers and without libraries, which a small system lacks
const source = `
struct timespec { long tv_sec, tv_nsec; };
struct timeval { long tv_sec, tv_usec; };
char *getenv(const char *);
int open(const char *, int, ...);
void *mmap(void *, unsigned long, int, int, int, long);
long syscall(long, ...);

static const long long none;
static const volatile long long *millis;

/* at first use, not at the start: other libraries ask for the time before */
static long long ahead(void) {
  if (!millis) {
    const char *file = getenv("EFFECT_LOCKING_CLOCK");
    int fd = file ? open(file, 0) : -1;
    void *map = fd < 0 ? (void *)-1 : mmap(0, 8, 1, 1, fd, 0);
    millis = map == (void *)-1 ? &none : map;
  }
  return *millis * 1000000LL;
}

#if defined __x86_64__
#define GETTIME 228
#elif defined __aarch64__
#define GETTIME 113
#else
#error "only x64 and arm64"
#endif

int clock_gettime(int clock, struct timespec *t) {
  int result = syscall(GETTIME, clock, t);
  /* the wall clock, and its coarse form */
  if (result == 0 && (clock == 0 || clock == 5)) {
    long long nanos = t->tv_sec * 1000000000LL + t->tv_nsec + ahead();
    t->tv_sec = nanos / 1000000000LL;
    t->tv_nsec = nanos % 1000000000LL;
  }
  return result;
}

int gettimeofday(struct timeval *t, void *zone) {
  struct timespec now;
  int result = clock_gettime(0, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return result;
}

long time(long *t) {
  struct timespec now;
  clock_gettime(0, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}
`

const compile = (folder: string): Effect.Effect<void, KitError> =>
  Effect.gen(function*() {
    yield* attempt("write the source of the clock", () => fs.writeFileSync(path.join(folder, "clock.c"), source))
    const args = ["-shared", "-fPIC", "-nostdlib", "-o", "clock.so", "clock.c"]
    yield* run("cc", args, { cwd: folder }).pipe(
      Effect.orElse(() =>
        Effect.flatMap(
          program({ name: "tcc", packages: ["tcc"], probe: ["-v"] }),
          ({ command, env }) => run(command, args, { cwd: folder, env })
        )
      )
    )
  })

const library: Effect.Effect<string, KitError> = Effect.suspend(() => {
  const version = crypto.hash("sha1", source).slice(0, 8)
  return Effect.map(
    cached(`clock-${process.platform}-${process.arch}-${version}`, compile),
    (folder) => path.join(folder, "clock.so")
  )
})

export interface MovableClock {
  /** To be set for the program whose clock it is. */
  readonly env: Readonly<Record<string, string>>
  /** By how many milliseconds it is ahead of the machine's from now on; behind where that is negative. */
  readonly move: (millis: number) => Effect.Effect<void, KitError>
}

/** `folder` has what it says, for as long as it is needed. */
export const movableClock = (folder: string): Effect.Effect<MovableClock, KitError> =>
  Effect.gen(function*() {
    const file = path.join(folder, "clock")
    const move = (millis: number) =>
      attempt("move the clock", () => {
        const bytes = Buffer.alloc(8)
        bytes.writeBigInt64LE(BigInt(Math.round(millis)))
        // in place: the file is part of the program's memory
        const fd = fs.openSync(file, fs.constants.O_CREAT | fs.constants.O_WRONLY)
        fs.writeSync(fd, bytes, 0, bytes.length, 0)
        fs.closeSync(fd)
      })
    yield* move(0)
    return { env: { LD_PRELOAD: yield* library, EFFECT_LOCKING_CLOCK: file }, move }
  })
