#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct Lane {
    struct Lane *next;
    unsigned long long number;
    pid_t pid;
    double started;
    Offer *under_way; /* of that pid */
    Offer *first; /* of those that wait */
} Lane;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_t thread;
static bool running;
static atomic_bool closing;
static int wakeup = -1, null = -1, ledger = -1;
static Lane *lanes;
static Event *events;
static size_t event_room;
static atomic_size_t event_count;
static atomic_bool held;
static _Atomic double held_after = INFINITY;
static atomic_bool has_told; /* of a child that is not for the relay */
static int to_default[NSIG], to_default_count;
static long ticks_per_second;

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static long long ticks_now(void) {
    return (long long)(now(CLOCK_BOOTTIME) * ticks_per_second);
}

static bool is_held(void) {
    return atomic_load(&held) || now(CLOCK_MONOTONIC) >= atomic_load(&held_after);
}

static void wake(unsigned char why) {
    /* A full socket is as good as one more byte. */
    if (write(wakeup, &why, 1) < 0)
        return;
}

/* Once, until they look: the wakeup has room for few bytes, and others need it too. */
static void tell_of_children(void) {
    if (!atomic_exchange(&has_told, true))
        wake(SIGCHLD);
}

/* Lanes and offers */

void drop_offers(Offer *offers) {
    while (offers) {
        Offer *offer = offers;
        offers = offers->next;
        free(offer);
    }
}

static void drop_lane(Lane **place) {
    Lane *lane = *place;
    *place = lane->next;
    drop_offers(lane->first);
    free(lane->under_way);
    free(lane);
}

/* Starting */

/* All folders of a path, and itself if it is one. */
static bool make_folders(const char *path, bool itself) {
    char folder[PATH_MAX];
    if (strlen(path) >= sizeof folder)
        return false;
    strcpy(folder, path);
    for (char *end = folder + 1; *end; end++)
        if (*end == '/') {
            *end = '\0';
            if (mkdir(folder, 0777) < 0 && errno != EEXIST)
                return false;
            *end = '/';
        }
    return !itself || mkdir(folder, 0777) == 0 || errno == EEXIST;
}

static int open_for_writing(const char *path) {
    /* Not blocking: a named pipe without a reader would hold up all jobs of this host. */
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC;
    int descriptor = open(path, flags, 0666);
    if (descriptor < 0 && errno == ENOENT && make_folders(path, false))
        descriptor = open(path, flags, 0666);
    return descriptor < 0 || fcntl(descriptor, F_SETFL, 0) < 0 ? -1 : descriptor;
}

/* In the child, which has the memory of the parent and must leave no trace in it but `error`. */
static void become(const Offer *offer, volatile int *error) {
    setsid();
    /* What is ignored here is not ignored there; and no handler of this process may run in the child. */
    for (int index = 0; index < to_default_count; index++)
        signal(to_default[index], SIG_DFL);
    if (chdir(offer->wd) < 0 && (errno != ENOENT || !make_folders(offer->wd, true) || chdir(offer->wd) < 0))
        goto failed;
    int out = null, err = null;
    if (offer->out && (out = open_for_writing(offer->out)) < 0)
        goto failed;
    if (offer->err && offer->out && strcmp(offer->err, offer->out) == 0)
        err = out;
    else if (offer->err && (err = open_for_writing(offer->err)) < 0)
        goto failed;
    if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        goto failed;
    if (offer->bound && sched_setaffinity(0, sizeof offer->cpus, &offer->cpus) < 0)
        goto failed;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!is_held())
        execve(offer->program, offer->argv, offer->environment);
failed:
    *error = 1;
    _exit(127);
}

static __attribute__((noinline)) pid_t start(const Offer *offer) {
    volatile int error = 0;
    pid_t pid = vfork();
    if (pid == 0)
        become(offer, &error);
    if (pid > 0 && error) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return 0;
    }
    return pid < 0 ? 0 : pid;
}

/* Both lines in one write: that the one is over, and that the next may run from here on. It begins with a new line,
   because a full disk may have cut off whatever was written before. */
static bool write_down(const Lane *lane, double ended_at) {
    char *text;
    int length = asprintf(&text, "\n[\"x\",%s,%d,%.6f,%.6f]\n%s", lane->under_way->id, (int)lane->pid, lane->started,
                          ended_at, lane->first->line);
    if (length < 0)
        return false;
    ssize_t written = write(ledger, text, length);
    free(text);
    return written == length;
}

static void pass_on(Lane *lane, double ended_at) {
    Offer *offer = lane->first;
    lane->first = offer->next;
    Event *event = &events[event_count];
    event->lane = lane->number;
    event->ended_at = ended_at;
    event->since = ticks_now();
    event->pid = start(offer);
    event->at = now(CLOCK_REALTIME);
    event->until = ticks_now();
    if (atomic_fetch_add(&event_count, 1) == 0)
        wake(0);
    if (!event->pid)
        tell_of_children();
    lane->pid = event->pid;
    lane->started = event->at;
    free(lane->under_way);
    lane->under_way = offer;
}

static bool has_room(void) {
    if (event_count < event_room)
        return true;
    size_t more = event_room ? 2 * event_room : 256;
    Event *bigger = realloc(events, more * sizeof *bigger);
    if (bigger) {
        events = bigger;
        event_room = more;
    }
    return bigger != NULL;
}

/* Whether the lane goes on. */
static bool look_at(Lane *lane) {
    siginfo_t child;
    child.si_pid = 0;
    if (waitid(P_PID, lane->pid, &child, WEXITED | WNOHANG | WNOWAIT) < 0)
        return false;
    if (child.si_pid == 0)
        return true;
    if (child.si_code != CLD_EXITED || child.si_status != 0 || lane->first == NULL || is_held() || !has_room())
        return false;
    double ended_at = now(CLOCK_REALTIME);
    if (!write_down(lane, ended_at))
        return false;
    /* While the dead leader is not reaped, its process group can be no other. */
    killpg(lane->pid, SIGKILL);
    waitid(P_PID, lane->pid, &child, WEXITED);
    pass_on(lane, ended_at);
    return lane->pid != 0;
}

/* `pid` has ended, or some of all of them when it is 0. Whether there was such a lane. */
static bool look_at_lanes(pid_t pid) {
    bool found = false;
    relay_enter();
    for (Lane **place = &lanes; *place;) {
        bool goes_on = true;
        if (pid == 0 || (*place)->pid == pid) {
            found = true;
            goes_on = look_at(*place);
        }
        if (goes_on)
            place = &(*place)->next;
        else
            drop_lane(place);
    }
    relay_leave();
    return found;
}

static void *run(void *unused) {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    while (!atomic_load(&closing)) {
        siginfo_t child;
        child.si_pid = 0;
        if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid != 0) {
            if (look_at_lanes(child.si_pid))
                continue;
            /* As long as it is there, it hides others. */
            look_at_lanes(0);
            tell_of_children();
        }
        sigwaitinfo(&children, NULL);
    }
    return NULL;
}

/* Those that a child must not inherit as they are. */
static void find_signals(void) {
    to_default_count = 0;
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            to_default[to_default_count++] = number;
    }
}

/* For others */

void relay_enter(void) {
    pthread_mutex_lock(&lock);
}

void relay_leave(void) {
    pthread_mutex_unlock(&lock);
}

int relay_open(int wakeup_descriptor, int null_descriptor) {
    if (running)
        return EBUSY;
    wakeup = wakeup_descriptor;
    null = null_descriptor;
    ticks_per_second = sysconf(_SC_CLK_TCK);
    atomic_store(&held, false);
    atomic_store(&held_after, INFINITY);
    atomic_store(&has_told, false);
    atomic_store(&closing, false);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, run, NULL);
    running = !error;
    if (running)
        sigaddset(&before, SIGCHLD);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void relay_close(void) {
    if (!running)
        return;
    atomic_store(&closing, true);
    pthread_kill(thread, SIGCHLD);
    pthread_join(thread, NULL);
    running = false;
    while (lanes)
        drop_lane(&lanes);
    atomic_store(&event_count, 0);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_sigmask(SIG_UNBLOCK, &children, NULL);
}

bool relay_watch(unsigned long long number, pid_t pid, const char *id, double started) {
    Lane *lane = calloc(1, sizeof *lane);
    Offer *under_way = calloc(1, sizeof *under_way + strlen(id) + 1);
    if (!lane || !under_way) {
        free(lane);
        free(under_way);
        return false;
    }
    under_way->id = strcpy((char *)(under_way + 1), id);
    lane->number = number;
    lane->pid = pid;
    lane->started = started;
    lane->under_way = under_way;
    relay_enter();
    find_signals();
    lane->next = lanes;
    lanes = lane;
    relay_leave();
    return true;
}

static Lane **find(unsigned long long number) {
    Lane **place = &lanes;
    while (*place && (*place)->number != number)
        place = &(*place)->next;
    return place;
}

bool relay_offer(unsigned long long number, int descriptor, Offer *offers) {
    relay_enter();
    ledger = descriptor;
    Lane *lane = *find(number);
    if (lane) {
        Offer **end = &lane->first;
        while (*end)
            end = &(*end)->next;
        *end = offers;
    }
    relay_leave();
    if (!lane)
        drop_offers(offers);
    return lane != NULL;
}

void relay_give_up(unsigned long long number) {
    relay_enter();
    Lane **place = find(number);
    if (*place)
        drop_lane(place);
    relay_leave();
}

void relay_hold(bool hold) {
    atomic_store(&held, hold);
}

void relay_hold_after(double moment) {
    atomic_store(&held_after, moment);
}

void relay_heard(void) {
    atomic_store(&has_told, false);
}

bool relay_pending(void) {
    return atomic_load(&event_count) != 0;
}

size_t relay_take(Event **taken) {
    relay_enter();
    size_t count = atomic_exchange(&event_count, 0);
    *taken = events;
    events = NULL;
    event_room = 0;
    relay_leave();
    return count;
}
