// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program: makes one chosen call of the C library fail that touches a file below a chosen directory.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHORT = -1, NOTHING = 0 };
enum { OPEN, WRITE, RENAME, MKDIR, UNLINK, TRUNCATE, ALLOCATE, KINDS };
static const char* const names[KINDS] = {"open", "write", "rename", "mkdir", "unlink", "truncate", "allocate"};

static char directory[PATH_MAX];
static int wanted = -1, failure, microseconds;
static long turn;
static atomic_long counts[KINDS];

static int kind_of(const char* name) {
    for (int kind = 0; kind < KINDS; ++kind)
        if (!strcmp(names[kind], name)) return kind;
    return -1;
}

// Below `below` the n-th call (from 1) of this name fails with this errno; SHORT writes half, NOTHING only counts. Every write takes
// so many microseconds more.
void fault_arm(const char* below, const char* name, long n, int error, int slow) {
    for (int kind = 0; kind < KINDS; ++kind) atomic_store(&counts[kind], 0);
    snprintf(directory, sizeof directory, "%s", below);
    wanted = kind_of(name);
    turn = n;
    failure = error;
    microseconds = slow;
}

long fault_count(const char* name) { return atomic_load(&counts[kind_of(name)]); }

static int below(const char* path) { return directory[0] && path && !strncmp(path, directory, strlen(directory)); }

static int held(int file) {
    if (!directory[0]) return 0;
    const int saved = errno;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

// What becomes of a call: NOTHING, SHORT, or the errno it fails with.
static int fate(int kind) {
    const long number = atomic_fetch_add(&counts[kind], 1) + 1;
    if (kind == WRITE && microseconds) usleep((useconds_t)microseconds);
    return kind == wanted && number == turn ? failure : NOTHING;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILS(kind, touched)                          \
    if (touched) {                                    \
        const int error = fate(kind);                 \
        if (error > 0) {                              \
            errno = error;                            \
            return -1;                                \
        }                                             \
    }

#define OPENS(name)                                             \
    int name(const char* path, int flags, ...) {                \
        va_list rest;                                           \
        va_start(rest, flags);                                  \
        const mode_t mode = va_arg(rest, mode_t);               \
        va_end(rest);                                           \
        FAILS(OPEN, (flags & O_ACCMODE) != O_RDONLY && below(path)) \
        return NEXT(name)(path, flags, mode);                   \
    }
OPENS(open)
OPENS(open64)

#define WRITES(name, offset)                                                   \
    ssize_t name(int file, const void* data, size_t size, offset at) {         \
        if (held(file)) {                                                      \
            const int error = fate(WRITE);                                     \
            if (error == SHORT && size > 1) size /= 2;                         \
            if (error > 0) {                                                   \
                errno = error;                                                 \
                return -1;                                                     \
            }                                                                  \
        }                                                                      \
        return NEXT(name)(file, data, size, at);                               \
    }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

ssize_t write(int file, const void* data, size_t size) {
    if (held(file)) {
        const int error = fate(WRITE);
        if (error == SHORT && size > 1) size /= 2;
        if (error > 0) {
            errno = error;
            return -1;
        }
    }
    return NEXT(write)(file, data, size);
}

int rename(const char* from, const char* to) {
    FAILS(RENAME, below(from))
    return NEXT(rename)(from, to);
}
int mkdir(const char* path, mode_t mode) {
    FAILS(MKDIR, below(path))
    return NEXT(mkdir)(path, mode);
}
int unlink(const char* path) {
    FAILS(UNLINK, below(path))
    return NEXT(unlink)(path);
}

#define TRUNCATES(name, offset)                \
    int name(int file, offset size) {          \
        FAILS(TRUNCATE, held(file))            \
        return NEXT(name)(file, size);         \
    }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

#define ALLOCATES(name, offset)                             \
    int name(int file, offset from, offset size) {          \
        const int error = held(file) ? fate(ALLOCATE) : 0;  \
        return error > 0 ? error : NEXT(name)(file, from, size); \
    }
ALLOCATES(posix_fallocate, off_t)
ALLOCATES(posix_fallocate64, off64_t)
