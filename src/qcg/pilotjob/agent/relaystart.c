#include "relaystart.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool held;
static _Atomic double held_after = INFINITY;
static int signals_to_reset[NSIG], signals_to_reset_count; /* signals that are caught or ignored here */
static unsigned memory_flags;
static int highest;
static rlim_t open_files;

const Output no_output = {-1, -1};

void free_offers(Offer *offers) {
    while (offers) {
        Offer *offer = offers;
        offers = offers->next;
        free(offer);
    }
}

double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

bool is_held(void) {
    return atomic_load(&held) || now(CLOCK_MONOTONIC) >= atomic_load(&held_after);
}

void relay_hold(bool hold) {
    atomic_store(&held, hold);
}

void relay_hold_after(double moment) {
    atomic_store(&held_after, moment);
}

void find_signals_to_reset(void) {
    signals_to_reset_count = 0;
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            signals_to_reset[signals_to_reset_count++] = number;
    }
}

void set_memory_files(unsigned flags, int highest_descriptor) {
    memory_flags = flags;
    highest = highest_descriptor;
}

void set_open_files(unsigned long long limit) {
    open_files = limit;
}

/* Set the soft limit, up to the hard limit. Returns whether it changed. */
static bool limit_open_files(rlim_t soft) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return false;
    if (soft > limit.rlim_max)
        soft = limit.rlim_max;
    if (soft == limit.rlim_cur)
        return false;
    limit.rlim_cur = soft;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int new_memory_file(void) {
    int descriptor = memfd_create("output", memory_flags);
    /* While Python starts a job, this process has the lower limit of jobs. */
    if (descriptor < 0 && errno == EMFILE && open_files && limit_open_files(RLIM_INFINITY))
        descriptor = memfd_create("output", memory_flags);
    /* Append mode: a job that opens /dev/stdout again and truncates it leaves no gap. */
    if (descriptor >= 0 && descriptor < highest && fcntl(descriptor, F_SETFL, O_APPEND) == 0)
        return descriptor;
    if (descriptor >= 0)
        close(descriptor);
    return -1;
}

Output open_output(const Offer *offer) {
    Output output = no_output;
    if (offer->captured && !offer->out)
        output.out = new_memory_file();
    if (offer->captured && !offer->err)
        output.err = new_memory_file();
    return output;
}

void close_output(Output output) {
    if (output.out >= 0)
        close(output.out);
    if (output.err >= 0)
        close(output.err);
}

/* Make the parent directories of a path, and the path itself if `itself`. */
static bool make_directories(const char *path, bool itself) {
    char directory[PATH_MAX];
    if (strlen(path) >= sizeof directory)
        return false;
    strcpy(directory, path);
    for (char *end = directory + 1; *end; end++)
        if (*end == '/') {
            *end = '\0';
            if (mkdir(directory, 0777) < 0 && errno != EEXIST)
                return false;
            *end = '/';
        }
    return !itself || mkdir(directory, 0777) == 0 || errno == EEXIST;
}

static int open_for_writing(const char *path) {
    /* Without blocking, because a named pipe without a reader would block the lane. */
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC;
    int descriptor = open(path, flags, 0666);
    if (descriptor < 0 && errno == ENOENT && make_directories(path, false))
        descriptor = open(path, flags, 0666);
    return descriptor < 0 || fcntl(descriptor, F_SETFL, 0) < 0 ? -1 : descriptor;
}

/* Run the job in the child. It shares the memory of its parent, and may change `own_pid` and `error` only. */
static void exec_job(const Offer *offer, int null, Output output, pid_t parent, _Atomic pid_t *own_pid,
                   volatile int *error) {
    atomic_store(own_pid, getpid());
    setsid();
    /* A hanging file system may block the child below. It holds the lock of the agent, so no other agent could start
       when this one dies, and it cannot be found by its environment yet. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        goto failed;
    /* Jobs must not inherit ignored signals, and no handler of this process may run in the child. */
    for (int index = 0; index < signals_to_reset_count; index++)
        signal(signals_to_reset[index], SIG_DFL);
    if (chdir(offer->wd) < 0 && (errno != ENOENT || !make_directories(offer->wd, true) || chdir(offer->wd) < 0))
        goto failed;
    int out = output.out >= 0 ? output.out : null, err = output.err >= 0 ? output.err : null;
    if (offer->out && (out = open_for_writing(offer->out)) < 0)
        goto failed;
    if (offer->err && offer->out && strcmp(offer->err, offer->out) == 0)
        err = out;
    else if (offer->err && (err = open_for_writing(offer->err)) < 0)
        goto failed;
    if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        goto failed;
    if (open_files)
        limit_open_files(open_files);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!is_held() && prctl(PR_SET_PDEATHSIG, 0) == 0)
        execve(offer->program, offer->argv, offer->environment);
failed:
    *error = 1;
    _exit(127);
}

__attribute__((noinline)) pid_t start(const Offer *offer, int null, Output output, _Atomic pid_t *own_pid) {
    volatile int error = 0;
    pid_t parent = getpid(), pid = vfork();
    if (pid == 0)
        exec_job(offer, null, output, parent, own_pid, &error);
    if (pid > 0 && error) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return 0;
    }
    return pid < 0 ? 0 : pid;
}
