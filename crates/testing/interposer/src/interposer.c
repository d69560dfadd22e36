/* Stands between a program and libc (LD_PRELOAD): injects faults into file operations, records them, bends clocks.
 *
 * Why C: every function here replaces one of libc's, with raw pointers and errno. In Rust each line would be unsafe and
 * none of it any safer. The file is compiled by build.rs into a library that only tests load.
 *
 * Three parts, each off unless asked for; README.md says how:
 *   rules   what to do to which operations on which paths, from a control file that is mapped and may change any time
 *   record  every change to files below one directory, in the order in which they happened, with their bytes
 *   clocks  what CLOCK_REALTIME and CLOCK_MONOTONIC show
 *
 * The layouts of the control file and of the record are repeated in control.rs and record.rs.
 */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The function that would have been called without us. */
#define REAL(result, name, ...)                                                                                        \
    static result (*real_##name)(__VA_ARGS__);                                                                         \
    if (!real_##name)                                                                                                  \
    real_##name = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* ---- control file ---- */

enum { RULES = 16, PATTERN = 256 };
enum operation {
    OPEN = 1, WRITE = 2, SYNC = 4, SYNC_RANGE = 8, TRUNCATE = 16, RENAME = 32, UNLINK = 64, MKDIR = 128, READ = 256
};
enum fault { FAIL = 1, SHORTEN = 2, DELAY = 3, PRETEND = 4, FILL = 5 };

struct clock_bend {
    _Atomic uint32_t version; /* odd while it is being changed */
    uint32_t on;
    int64_t anchor_ns; /* real time at which the clock showed shown_ns */
    int64_t shown_ns;
    int64_t rate_ppm; /* how much faster it runs */
    uint8_t reserved[32];
};

struct rule {
    _Atomic uint32_t on;
    uint32_t operations;
    uint32_t fault;
    uint32_t error;
    uint64_t skip;
    uint64_t count;
    uint64_t delay_us;
    _Atomic int64_t space;
    _Atomic uint64_t seen;
    _Atomic uint64_t struck;
    char pattern[PATTERN];
    uint8_t reserved[192];
};

struct control {
    uint64_t magic;
    uint32_t layout;
    _Atomic uint32_t active; /* rules that are on: nothing is looked at while there are none */
    uint8_t reserved[48];
    struct clock_bend realtime;
    struct clock_bend monotonic;
    uint8_t reserved_too[64];
    struct rule rules[RULES];
};
_Static_assert(sizeof(struct clock_bend) == 64, "layout of a clock");
_Static_assert(sizeof(struct rule) == 512, "layout of a rule");
_Static_assert(offsetof(struct control, rules) == 256, "layout of the control file");

#define CONTROL_MAGIC 0x54494e4850534d59ull
#define CONTROL_LAYOUT 1

static struct control *control;

/* ---- record ---- */

enum kind { CREATED = 1, MADE_DIR = 2, WRITTEN = 3, TRUNCATED = 4, RENAMED = 5, UNLINKED = 6, SYNCED = 7, MARKED = 8,
            UNKNOWN = 9 };

struct header {
    uint32_t magic;
    uint32_t kind;
    uint64_t inode;
    uint64_t number; /* offset or length */
    uint32_t first;  /* bytes of the first text that follows */
    uint32_t second; /* bytes of the second text, or of the data */
};
#define RECORD_MAGIC 0x44524f43u

static int record_fd = -1;
static int mark_fd = -1;
static int skip_sync;
static long kill_after;
static char watched[PATH_MAX];
static size_t watched_length;
/* Held over operation and record, so that the record is the order in which things happened. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void start(void) {
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    const char *path = getenv("SYMPHONY_INTERPOSER_CONTROL");
    if (path) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
        void *map = MAP_FAILED;
        if (fd >= 0)
            map = real_mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        control = map == MAP_FAILED ? NULL : map;
        if (!control || control->magic != CONTROL_MAGIC || control->layout != CONTROL_LAYOUT) {
            /* A fault that is silently not injected would let a test pass that proves nothing. */
            fprintf(stderr, "interposer: %s is not a control file of this version\n", path);
            _exit(97);
        }
        syscall(SYS_close, fd);
    }
    const char *record = getenv("SYMPHONY_INTERPOSER_RECORD");
    const char *watch = getenv("SYMPHONY_INTERPOSER_WATCH");
    if (record && watch) {
        record_fd = (int)syscall(SYS_openat, AT_FDCWD, record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (record_fd < 0 || strlen(watch) >= sizeof watched) {
            fprintf(stderr, "interposer: cannot record to %s\n", record);
            _exit(97);
        }
        watched_length = strlen(strcpy(watched, watch));
        const char *mark = getenv("SYMPHONY_INTERPOSER_MARK_FD");
        mark_fd = mark ? atoi(mark) : -1;
        const char *kill = getenv("SYMPHONY_INTERPOSER_KILL_AFTER");
        kill_after = kill ? atol(kill) : 0;
    }
    skip_sync = getenv("SYMPHONY_INTERPOSER_SKIP_SYNC") != NULL;
}

static int looking(void) {
    return record_fd >= 0 || skip_sync || (control && atomic_load_explicit(&control->active, memory_order_acquire));
}

static int is_watched(const char *path) {
    return record_fd >= 0 && !strncmp(path, watched, watched_length) &&
           (path[watched_length] == '/' || path[watched_length] == 0);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0 || path[0] != '/')
        return 0; /* a socket, a pipe */
    path[length] = 0;
    return 1;
}

static void absolute(int dir, const char *path, char *out) {
    char base[PATH_MAX] = "";
    if (path[0] == '/')
        snprintf(out, PATH_MAX, "%s", path);
    else {
        if (dir == AT_FDCWD ? !getcwd(base, sizeof base) : !path_of(dir, base))
            base[0] = 0;
        if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX)
            out[0] = 0;
    }
}

static uint64_t inode_of(int fd) {
    struct stat st;
    return fstat(fd, &st) ? 0 : st.st_ino;
}

static void put(enum kind kind, uint64_t inode, uint64_t number, const void *first, size_t first_length,
                const void *second, size_t second_length) {
    static long records;
    struct header header = {RECORD_MAGIC, kind, inode, number, (uint32_t)first_length, (uint32_t)second_length};
    struct iovec parts[3] = {{&header, sizeof header}, {(void *)first, first_length}, {(void *)second, second_length}};
    size_t left = sizeof header + first_length + second_length;
    int part = 0;
    while (left) {
        ssize_t done = syscall(SYS_writev, record_fd, parts + part, 3 - part);
        if (done < 0) {
            static const char text[] = "interposer: cannot write the record\n";
            syscall(SYS_write, 2, text, sizeof text - 1);
            _exit(97);
        }
        left -= (size_t)done;
        while (part < 3 && (size_t)done >= parts[part].iov_len)
            done -= (ssize_t)parts[part++].iov_len;
        if (part < 3) {
            parts[part].iov_base = (char *)parts[part].iov_base + done;
            parts[part].iov_len -= (size_t)done;
        }
    }
    if (kill_after && ++records >= kill_after)
        for (;;)
            kill(getpid(), SIGKILL);
}

static void put_path(enum kind kind, uint64_t inode, uint64_t number, const char *path) {
    put(kind, inode, number, path, strlen(path), NULL, 0);
}

/* ---- rules ---- */

static void pause_us(uint64_t us) {
    struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    syscall(SYS_nanosleep, &left, &left);
}

/* What one operation has to suffer. */
struct verdict {
    int fail;    /* errno, or 0 */
    int pretend; /* say that it was done */
    size_t length;
};

static struct verdict judge(enum operation operation, const char *path, size_t length) {
    struct verdict verdict = {0, 0, length};
    if (!control || !atomic_load_explicit(&control->active, memory_order_acquire))
        return verdict;
    for (int i = 0; i < RULES; i++) {
        struct rule *rule = &control->rules[i];
        if (!atomic_load_explicit(&rule->on, memory_order_acquire) || !(rule->operations & operation) ||
            fnmatch(rule->pattern, path, 0))
            continue;
        if (atomic_fetch_add(&rule->seen, 1) < rule->skip)
            continue;
        if (rule->fault != FILL && atomic_fetch_add(&rule->struck, 1) >= rule->count && rule->count) {
            atomic_fetch_sub(&rule->struck, 1);
            continue;
        }
        switch (rule->fault) {
        case FAIL:
            verdict.fail = (int)rule->error;
            break;
        case SHORTEN:
            if (verdict.length > 1)
                verdict.length /= 2;
            break;
        case PRETEND:
            verdict.pretend = 1;
            break;
        case DELAY: {
            uint64_t waited = 0;
            /* In steps, so that lifting the rule ends a stall. */
            while (atomic_load_explicit(&rule->on, memory_order_acquire) &&
                   (!rule->delay_us || waited < rule->delay_us)) {
                uint64_t step = rule->delay_us && rule->delay_us - waited < 1000 ? rule->delay_us - waited : 1000;
                pause_us(step);
                waited += step;
            }
            break;
        }
        case FILL:
            break;
        }
    }
    return verdict;
}

/* Takes room for a file that grows; gives what there is of it, with the rule that ran out. */
static size_t take_room(const char *path, size_t growth, int *full) {
    *full = 0;
    if (!growth || !control || !atomic_load_explicit(&control->active, memory_order_acquire))
        return growth;
    for (int i = 0; i < RULES; i++) {
        struct rule *rule = &control->rules[i];
        if (!atomic_load_explicit(&rule->on, memory_order_acquire) || rule->fault != FILL ||
            fnmatch(rule->pattern, path, 0))
            continue;
        int64_t before = atomic_fetch_sub(&rule->space, (int64_t)growth);
        if (before < (int64_t)growth) {
            size_t room = before > 0 ? (size_t)before : 0;
            atomic_fetch_add(&rule->space, (int64_t)(growth - room));
            atomic_fetch_add(&rule->struck, 1);
            *full = 1;
            growth = room;
        }
    }
    return growth;
}

static void give_room(const char *path, int64_t bytes) {
    if (!control || !atomic_load_explicit(&control->active, memory_order_acquire))
        return;
    for (int i = 0; i < RULES; i++) {
        struct rule *rule = &control->rules[i];
        if (atomic_load_explicit(&rule->on, memory_order_acquire) && rule->fault == FILL &&
            !fnmatch(rule->pattern, path, 0))
            atomic_fetch_add(&rule->space, bytes);
    }
}

static int refuse(int error) {
    errno = error;
    return -1;
}

/* ---- opening ---- */

static int open_at(int dir, const char *path, int flags, mode_t mode) {
    if (!looking())
        return (int)syscall(SYS_openat, dir, path, flags, mode);
    char full[PATH_MAX];
    absolute(dir, path, full);
    struct verdict verdict = judge(OPEN, full, 0);
    if (verdict.fail)
        return refuse(verdict.fail);
    if (!is_watched(full) || !(flags & (O_CREAT | O_TRUNC)))
        return (int)syscall(SYS_openat, dir, path, flags, mode);
    pthread_mutex_lock(&order);
    struct stat before;
    int existed = !stat(full, &before);
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    int error = errno;
    if (fd >= 0 && !existed)
        put_path(CREATED, inode_of(fd), 0, full);
    else if (fd >= 0 && (flags & O_TRUNC) && before.st_size)
        put_path(TRUNCATED, before.st_ino, 0, full);
    pthread_mutex_unlock(&order);
    errno = error;
    return fd;
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPENING(name, parameters, dir, path)                                                                           \
    EXPORT int name parameters {                                                                                       \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode_t mode = mode_of(flags, arguments);                                                                       \
        va_end(arguments);                                                                                             \
        return open_at(dir, path, flags, mode);                                                                        \
    }
OPENING(open, (const char *path, int flags, ...), AT_FDCWD, path)
OPENING(open64, (const char *path, int flags, ...), AT_FDCWD, path)
OPENING(openat, (int dir, const char *path, int flags, ...), dir, path)
OPENING(openat64, (int dir, const char *path, int flags, ...), dir, path)

/* ---- writing and reading ---- */

static ssize_t write_really(int fd, const void *data, size_t length, int64_t offset) {
    return offset < 0 ? syscall(SYS_write, fd, data, length) : syscall(SYS_pwrite64, fd, data, length, offset);
}

/* A negative offset is the descriptor's own. */
static ssize_t write_at(int fd, const void *data, size_t length, int64_t offset) {
    char path[PATH_MAX];
    if (!looking())
        return write_really(fd, data, length, offset);
    if (fd == mark_fd && record_fd >= 0) {
        pthread_mutex_lock(&order);
        ssize_t done = write_really(fd, data, length, offset);
        int error = errno;
        if (done > 0)
            put(MARKED, 0, 0, NULL, 0, data, (size_t)done);
        pthread_mutex_unlock(&order);
        errno = error;
        return done;
    }
    if (!path_of(fd, path))
        return write_really(fd, data, length, offset);
    struct verdict verdict = judge(WRITE, path, length);
    if (verdict.fail)
        return refuse(verdict.fail);
    if (verdict.pretend)
        return (ssize_t)length;
    length = verdict.length;

    int locked = is_watched(path);
    if (locked)
        pthread_mutex_lock(&order);
    struct stat st = {0};
    fstat(fd, &st);
    int64_t at = offset;
    if (at < 0)
        at = fcntl(fd, F_GETFL) & O_APPEND ? st.st_size : lseek(fd, 0, SEEK_CUR);
    size_t inside = at < st.st_size ? (size_t)(st.st_size - at) : 0;
    size_t growth = S_ISREG(st.st_mode) && length > inside ? length - inside : 0;
    int full = 0;
    size_t room = take_room(path, growth, &full);
    ssize_t done;
    if (full && length - growth + room == 0)
        done = refuse(ENOSPC);
    else
        done = write_really(fd, data, full ? length - growth + room : length, offset);
    int error = errno;
    if (locked) {
        if (done > 0)
            put(WRITTEN, st.st_ino, (uint64_t)at, NULL, 0, data, (size_t)done);
        pthread_mutex_unlock(&order);
    }
    errno = error;
    return done;
}

EXPORT ssize_t write(int fd, const void *data, size_t length) { return write_at(fd, data, length, -1); }
EXPORT ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return write_at(fd, data, length, at); }
EXPORT ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) { return write_at(fd, data, length, at); }

/* Several buffers are one write of the first that holds anything: a short write, which callers have to expect. */
static ssize_t write_first(int fd, const struct iovec *parts, int count, int64_t at) {
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len)
            return write_at(fd, parts[i].iov_base, parts[i].iov_len, at);
    return 0;
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    if (!looking() || (fd != mark_fd && !path_of(fd, path)))
        return syscall(SYS_writev, fd, parts, count);
    return write_first(fd, parts, count, -1);
}
EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return write_first(fd, parts, count, at);
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return write_first(fd, parts, count, at);
}

static int may_read(int fd) {
    char path[PATH_MAX];
    if (!control || !atomic_load_explicit(&control->active, memory_order_acquire) || !path_of(fd, path))
        return 1;
    struct verdict verdict = judge(READ, path, 0);
    if (verdict.fail)
        errno = verdict.fail;
    return !verdict.fail;
}

EXPORT ssize_t read(int fd, void *data, size_t length) {
    return may_read(fd) ? syscall(SYS_read, fd, data, length) : -1;
}
EXPORT ssize_t pread(int fd, void *data, size_t length, off_t at) {
    return may_read(fd) ? syscall(SYS_pread64, fd, data, length, at) : -1;
}
EXPORT ssize_t pread64(int fd, void *data, size_t length, off64_t at) {
    return may_read(fd) ? syscall(SYS_pread64, fd, data, length, at) : -1;
}

/* ---- lengths ---- */

static int truncate_to(int fd, int64_t length) {
    char path[PATH_MAX];
    if (!looking() || !path_of(fd, path))
        return (int)syscall(SYS_ftruncate, fd, length);
    struct verdict verdict = judge(TRUNCATE, path, 0);
    if (verdict.fail)
        return refuse(verdict.fail);
    int locked = is_watched(path);
    if (locked)
        pthread_mutex_lock(&order);
    struct stat st = {0};
    fstat(fd, &st);
    int full = 0;
    size_t growth = length > st.st_size ? (size_t)(length - st.st_size) : 0;
    size_t room = take_room(path, growth, &full);
    int result = full ? refuse(ENOSPC) : (int)syscall(SYS_ftruncate, fd, length);
    int error = errno;
    if (full)
        give_room(path, (int64_t)room);
    else if (!result && length < st.st_size)
        give_room(path, st.st_size - length);
    if (locked) {
        if (!result)
            put(TRUNCATED, inode_of(fd), (uint64_t)length, NULL, 0, NULL, 0);
        pthread_mutex_unlock(&order);
    }
    errno = error;
    return result;
}

EXPORT int ftruncate(int fd, off_t length) { return truncate_to(fd, length); }
EXPORT int ftruncate64(int fd, off64_t length) { return truncate_to(fd, length); }

/* ---- syncing ---- */

static int sync_file(int fd, long call) {
    char path[PATH_MAX];
    if (!looking() || !path_of(fd, path))
        return (int)syscall(call, fd);
    struct verdict verdict = judge(SYNC, path, 0);
    if (verdict.fail)
        return refuse(verdict.fail);
    if (verdict.pretend)
        return 0;
    int locked = is_watched(path);
    /* Nothing that is written while it runs counts as synced. */
    if (locked)
        pthread_mutex_lock(&order);
    int result = skip_sync ? 0 : (int)syscall(call, fd);
    int error = errno;
    if (locked) {
        if (!result)
            put(SYNCED, inode_of(fd), 0, NULL, 0, NULL, 0);
        pthread_mutex_unlock(&order);
    }
    errno = error;
    return result;
}

EXPORT int fsync(int fd) { return sync_file(fd, SYS_fsync); }
EXPORT int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

/* Starts and awaits writeback but promises nothing: not recorded as a sync. */
EXPORT int sync_file_range(int fd, off64_t offset, off64_t length, unsigned flags) {
    REAL(int, sync_file_range, int, off64_t, off64_t, unsigned);
    char path[PATH_MAX];
    if (looking() && path_of(fd, path)) {
        struct verdict verdict = judge(SYNC_RANGE, path, 0);
        if (verdict.fail)
            return refuse(verdict.fail);
        if (verdict.pretend || skip_sync)
            return 0;
    }
    return real_sync_file_range(fd, offset, length, flags);
}

/* ---- names ---- */

static int rename_at(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    if (!looking())
        return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    char source[PATH_MAX], target[PATH_MAX];
    absolute(from_dir, from, source);
    absolute(to_dir, to, target);
    struct verdict verdict = judge(RENAME, target, 0);
    if (verdict.fail)
        return refuse(verdict.fail);
    int locked = is_watched(source) || is_watched(target);
    if (locked)
        pthread_mutex_lock(&order);
    int result = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    int error = errno;
    if (locked) {
        if (!result && flags)
            put_path(UNKNOWN, 0, 0, "renameat2 with flags");
        else if (!result)
            put(RENAMED, 0, 0, source, strlen(source), target, strlen(target));
        pthread_mutex_unlock(&order);
    }
    errno = error;
    return result;
}

EXPORT int rename(const char *from, const char *to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return rename_at(from_dir, from, to_dir, to, 0);
}
EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return rename_at(from_dir, from, to_dir, to, flags);
}

static int unlink_at(int dir, const char *path, int flags) {
    if (!looking())
        return (int)syscall(SYS_unlinkat, dir, path, flags);
    char full[PATH_MAX];
    absolute(dir, path, full);
    struct verdict verdict = judge(UNLINK, full, 0);
    if (verdict.fail)
        return refuse(verdict.fail);
    struct stat st = {0};
    fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW);
    int locked = is_watched(full);
    if (locked)
        pthread_mutex_lock(&order);
    int result = (int)syscall(SYS_unlinkat, dir, path, flags);
    int error = errno;
    if (locked) {
        if (!result)
            put_path(UNLINKED, st.st_ino, 0, full);
        pthread_mutex_unlock(&order);
    }
    if (!result && S_ISREG(st.st_mode))
        give_room(full, st.st_size);
    errno = error;
    return result;
}

EXPORT int unlink(const char *path) { return unlink_at(AT_FDCWD, path, 0); }
EXPORT int unlinkat(int dir, const char *path, int flags) { return unlink_at(dir, path, flags); }
EXPORT int rmdir(const char *path) { return unlink_at(AT_FDCWD, path, AT_REMOVEDIR); }

static int mkdir_at(int dir, const char *path, mode_t mode) {
    if (!looking())
        return (int)syscall(SYS_mkdirat, dir, path, mode);
    char full[PATH_MAX];
    absolute(dir, path, full);
    struct verdict verdict = judge(MKDIR, full, 0);
    if (verdict.fail)
        return refuse(verdict.fail);
    int locked = is_watched(full);
    if (locked)
        pthread_mutex_lock(&order);
    int result = (int)syscall(SYS_mkdirat, dir, path, mode);
    int error = errno;
    struct stat st;
    if (locked) {
        if (!result && !stat(full, &st))
            put_path(MADE_DIR, st.st_ino, 0, full);
        pthread_mutex_unlock(&order);
    }
    errno = error;
    return result;
}

EXPORT int mkdir(const char *path, mode_t mode) { return mkdir_at(AT_FDCWD, path, mode); }
EXPORT int mkdirat(int dir, const char *path, mode_t mode) { return mkdir_at(dir, path, mode); }

/* ---- what the record cannot follow is at least in it ---- */

static void unknown(const char *path, const char *what) {
    if (!is_watched(path))
        return;
    pthread_mutex_lock(&order);
    put_path(UNKNOWN, 0, 0, what);
    pthread_mutex_unlock(&order);
}

static void unknown_fd(int fd, const char *what) {
    char path[PATH_MAX];
    if (record_fd >= 0 && path_of(fd, path))
        unknown(path, what);
}

#define MAPPING(name, offset_type)                                                                                     \
    EXPORT void *name(void *at, size_t length, int protection, int flags, int fd, offset_type offset) {               \
        REAL(void *, name, void *, size_t, int, int, int, offset_type);                                                \
        if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED))                                              \
            unknown_fd(fd, #name " of a file for writing");                                                            \
        return real_##name(at, length, protection, flags, fd, offset);                                                 \
    }
MAPPING(mmap, off_t)
MAPPING(mmap64, off64_t)

#define ALLOCATING(name, offset_type)                                                                                  \
    EXPORT int name(int fd, int mode, offset_type offset, offset_type length) {                                        \
        REAL(int, name, int, int, offset_type, offset_type);                                                           \
        unknown_fd(fd, #name);                                                                                         \
        return real_##name(fd, mode, offset, length);                                                                  \
    }
ALLOCATING(fallocate, off_t)
ALLOCATING(fallocate64, off64_t)

EXPORT ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags) {
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    unknown_fd(to, "copy_file_range");
    return real_copy_file_range(from, from_at, to, to_at, length, flags);
}

EXPORT int link(const char *from, const char *to) {
    char full[PATH_MAX];
    absolute(AT_FDCWD, to, full);
    unknown(full, "link");
    return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- clocks ---- */

#define SECOND 1000000000ll

static int64_t nanoseconds(const struct timespec *t) { return (int64_t)t->tv_sec * SECOND + t->tv_nsec; }

static struct timespec timespec_of(int64_t ns) {
    if (ns < 0)
        ns = 0;
    return (struct timespec){(time_t)(ns / SECOND), (long)(ns % SECOND)};
}

/* The clock's present bend, if there is one; read without a lock. */
static int bend_of(clockid_t clock, struct clock_bend *out) {
    if (!control)
        return 0;
    struct clock_bend *bend;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        bend = &control->realtime;
        break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        bend = &control->monotonic;
        break;
    default:
        return 0;
    }
    uint32_t version;
    do {
        version = atomic_load_explicit(&bend->version, memory_order_acquire);
        memcpy(out, bend, sizeof *out);
        atomic_thread_fence(memory_order_acquire);
    } while ((version & 1) || version != atomic_load_explicit(&bend->version, memory_order_relaxed));
    return out->on;
}

static int64_t shown(const struct clock_bend *bend, int64_t real) {
    __int128 passed = real - bend->anchor_ns;
    return bend->shown_ns + (int64_t)(passed * (1000000 + bend->rate_ppm) / 1000000);
}

/* When the kernel's clock shows what the bent one will show at that time. */
static int64_t unbent(const struct clock_bend *bend, int64_t at) {
    __int128 passed = at - bend->shown_ns;
    return bend->anchor_ns + (int64_t)(passed * 1000000 / (1000000 + bend->rate_ppm));
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *out) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int result = real_clock_gettime(clock, out);
    struct clock_bend bend;
    if (!result && bend_of(clock, &bend))
        *out = timespec_of(shown(&bend, nanoseconds(out)));
    return result;
}

EXPORT int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (!result)
        *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return result;
}

EXPORT time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

/* Absolute deadlines were reckoned by the bent clock; the kernel waits by its own. */
static const struct timespec *deadline(clockid_t clock, const struct timespec *at, struct timespec *room) {
    struct clock_bend bend;
    if (!at || !bend_of(clock, &bend))
        return at;
    *room = timespec_of(unbent(&bend, nanoseconds(at)));
    return room;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    REAL(int, clock_nanosleep, clockid_t, int, const struct timespec *, struct timespec *);
    struct timespec room;
    if (flags & TIMER_ABSTIME)
        until = deadline(clock, until, &room);
    return real_clock_nanosleep(clock, flags, until, left);
}

EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *next, struct itimerspec *old) {
    REAL(int, timerfd_settime, int, int, const struct itimerspec *, struct itimerspec *);
    struct itimerspec room;
    struct timespec at;
    if (next && (flags & TFD_TIMER_ABSTIME) && nanoseconds(&next->it_value)) {
        room = *next;
        /* The descriptor does not say which clock it has; ours are all monotonic. */
        room.it_value = *deadline(CLOCK_MONOTONIC, &next->it_value, &at);
        next = &room;
    }
    return real_timerfd_settime(fd, flags, next, old);
}

/* The standard library waits on futexes with absolute deadlines, by this function. */
EXPORT long syscall(long number, ...) {
    REAL(long, syscall, long, ...);
    long argument[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(arguments, long);
    va_end(arguments);
    struct timespec room;
    if (number == SYS_futex && control && argument[3] && (argument[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET) {
        clockid_t clock = argument[1] & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        argument[3] = (long)deadline(clock, (const struct timespec *)argument[3], &room);
    }
    return real_syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
