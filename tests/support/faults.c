/* Preloaded into a command: fails its n-th call that touches files under a path, with a given error.
 *
 * FAULT_PROCESS  only in processes with this text in their command line
 * FAULT_PATH   only files whose path contains this text
 * FAULT_CALL   which of these calls fails, counted from 1; 0 counts only
 * FAULT_ERRNO  the error
 * FAULT_MORE   how many of the calls after it fail, too
 * FAULT_COUNT  where the number of calls and the name of the failed one are written at the end
 *
 * Children of that process are left alone: the variables are removed at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/syscall.h>
#include <unistd.h>

static char wanted[PATH_MAX], count_file[PATH_MAX], failed[64] = "nothing";
static long fail_at, calls, more;
static int error_number = EIO;
static pid_t owner;

static void take(const char *name, char *place) {
    const char *value = getenv(name);
    if (value != NULL) snprintf(place, PATH_MAX, "%s", value);
    unsetenv(name);
}

static int is_wanted_process(void) {
    char line[8192];
    const char *text = getenv("FAULT_PROCESS");
    ssize_t length, place;
    int fd;
    if (text == NULL) return 1;
    fd = open("/proc/self/cmdline", O_RDONLY);
    length = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0) close(fd);
    for (place = 0; place < length; place++)
        if (!line[place]) line[place] = ' ';
    line[length > 0 ? length : 0] = 0;
    return strstr(line, text) != NULL;
}

__attribute__((constructor)) static void begin(void) {
    char text[PATH_MAX] = "";
    if (!is_wanted_process()) return;
    unsetenv("FAULT_PROCESS");
    owner = getpid();
    take("FAULT_PATH", wanted);
    take("FAULT_COUNT", count_file);
    take("FAULT_CALL", text);
    fail_at = atol(text);
    text[0] = 0;
    take("FAULT_ERRNO", text);
    if (text[0]) error_number = atoi(text);
    text[0] = 0;
    take("FAULT_MORE", text);
    more = atol(text);
    unsetenv("LD_PRELOAD");
}

__attribute__((destructor)) static void end(void) {
    char text[128];
    int fd, length;
    if (!count_file[0] || getpid() != owner) return;
    wanted[0] = 0;
    fd = open(count_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return;
    length = snprintf(text, sizeof text, "%ld %s\n", calls, failed);
    if (write(fd, text, length) != length) abort();
    close(fd);
}

/* A process that ends like this runs no destructors. */
void _exit(int status) {
    end();
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

static int fails(const char *call, const char *path) {
    long number;
    if (!wanted[0] || path == NULL || strstr(path, wanted) == NULL || getpid() != owner) return 0;
    number = __sync_add_and_fetch(&calls, 1);
    if (!fail_at || number < fail_at || number > fail_at + more) return 0;
    if (number == fail_at) snprintf(failed, sizeof failed, "%s", call);
    errno = error_number;
    return 1;
}

static int fails_on(const char *call, int fd) {
    char link[64], path[PATH_MAX];
    ssize_t length;
    int saved = errno;
    if (!wanted[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0) return 0;
    path[length] = 0;
    return fails(call, path);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) REAL(int, name, const char *, int, ...); \
        return fails(#name, path) ? -1 : real(path, flags, mode); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        MODE(flags) REAL(int, name, int, const char *, int, ...); \
        return fails(#name, path) ? -1 : real(at, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    return fails_on("write", fd) ? -1 : real(fd, data, size);
}
#define PWRITE(name, offset) \
    ssize_t name(int fd, const void *data, size_t size, offset at) { \
        REAL(ssize_t, name, int, const void *, size_t, offset); \
        return fails_on(#name, fd) ? -1 : real(fd, data, size, at); }
PWRITE(pwrite, off_t) PWRITE(pwrite64, off64_t)
#define ON_FD(name) int name(int fd) { REAL(int, name, int); return fails_on(#name, fd) ? -1 : real(fd); }
ON_FD(fsync) ON_FD(fdatasync)
#define TRUNCATE(name, offset) \
    int name(int fd, offset size) { REAL(int, name, int, offset); return fails_on(#name, fd) ? -1 : real(fd, size); }
TRUNCATE(ftruncate, off_t) TRUNCATE(ftruncate64, off64_t)
#define TWO(name) \
    int name(const char *from, const char *to) { \
        REAL(int, name, const char *, const char *); \
        return fails(#name, to) ? -1 : real(from, to); }
TWO(rename) TWO(symlink) TWO(link)
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return fails("mkdir", path) ? -1 : real(path, mode);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return fails("unlink", path) ? -1 : real(path);
}
ssize_t read(int fd, void *data, size_t size) {
    REAL(ssize_t, read, int, void *, size_t);
    return fails_on("read", fd) ? -1 : real(fd, data, size);
}
#define PREAD(name, offset) \
    ssize_t name(int fd, void *data, size_t size, offset at) { \
        REAL(ssize_t, name, int, void *, size_t, offset); \
        return fails_on(#name, fd) ? -1 : real(fd, data, size, at); }
PREAD(pread, off_t) PREAD(pread64, off64_t)
