#include "relaystart.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK (256 * 1024)
#define PAUSE (2 * 1000 * 1000) /* nanoseconds */

/* A lane and its thread, which lives until `pid` has ended, also after the lane was given up. */
typedef struct Lane {
    struct Lane *next;
    unsigned long long number; /* 0: given up */
    _Atomic pid_t pid;
    double started;
    Offer *active;  /* the job with that pid */
    Output output;  /* of the active job */
    Usage usage;    /* of the active job, once it has ended */
    Offer *first;   /* of the jobs that wait */
    cpu_set_t cpus; /* of the thread */
} Lane;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all variables up to `all_cpus` */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t clock_chosen = PTHREAD_ONCE_INIT;
static int handovers, entered; /* handovers under way; calls of `relay_enter` */
static Lane *lanes;
static Event *first_event, **last_event = &first_event;
static int wakeup = -1, null = -1;
static cpu_set_t all_cpus;

static pthread_t signal_thread;
static bool running;
static atomic_int ledger;
static atomic_bool closing, pending;
static atomic_bool sigchld_sent; /* and not read by the caller yet */
static long ticks_per_second;

static long long ticks_now(void) {
    return (long long)(now(CLOCK_BOOTTIME) * ticks_per_second);
}

static void wake(unsigned char why) {
    /* The reader of a full wakeup socket checks everything. */
    if (write(wakeup, &why, 1) < 0)
        return;
}

/* Only once until the caller reaps: the wakeup socket has room for few bytes, and other signals need it too. */
static void notify_child_ended(void) {
    if (!atomic_exchange(&sigchld_sent, true))
        wake(SIGCHLD);
}

/* Lanes; called with the lock */

static Lane *find(unsigned long long number) {
    Lane *lane = lanes;
    while (lane && lane->number != number)
        lane = lane->next;
    return lane;
}

static Lane *find_pid(pid_t pid) {
    Lane *lane = lanes;
    while (lane && lane->pid != pid)
        lane = lane->next;
    return lane;
}

static bool watches(pid_t pid) {
    const Lane *lane = find_pid(pid);
    return lane && lane->number;
}

static void give_up(Lane *lane) {
    lane->number = 0;
    free_offers(lane->first);
    lane->first = NULL;
}

static void remove_lane(Lane *lane) {
    Lane **place = &lanes;
    while (*place != lane)
        place = &(*place)->next;
    *place = lane->next;
    give_up(lane);
    free(lane->active);
    free(lane);
}

static long microseconds(struct timeval time) {
    return time.tv_sec * 1000000L + time.tv_usec;
}

/* What an ended child used. The C library has no `waitid` with this argument of the system call. */
static int wait_for_usage(pid_t pid, siginfo_t *child, int options, Usage *usage) {
    struct rusage used;
    if (syscall(SYS_waitid, P_PID, pid, child, options, &used) < 0)
        return -1;
    if (child->si_pid)
        *usage = (Usage){microseconds(used.ru_utime), microseconds(used.ru_stime), used.ru_maxrss, used.ru_minflt,
                         used.ru_majflt, used.ru_inblock * 512, used.ru_oublock * 512};
    return 0;
}

/* Notify the caller of an ended child that does not belong to a lane. Returns whether there was one. An ended child of
   a lane hides others from `waitid` until it is reaped, so the thread of the lane calls this again after that. */
static bool check_other_children(void) {
    siginfo_t child;
    child.si_pid = 0;
    bool found = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid && !watches(child.si_pid);
    if (found)
        notify_child_ended();
    return found;
}

/* The thread of a lane */

/* Write the end of the active job and the start of the next one to the ledger, in one write. It begins with a newline,
   because a full disk may have cut off the line before. */
static bool write_ledger(const Lane *lane, double ended_at) {
    char *text;
    const Usage *used = &lane->usage;
    int length = asprintf(&text, "\n" RELAY_SUCCEEDED_LINE "%s", lane->active->id, (int)lane->pid, lane->started,
                          ended_at, used->user, used->system, used->memory, used->minor_faults, used->major_faults,
                          used->read, used->written, lane->first->line);
    if (length < 0)
        return false;
    ssize_t written = write(atomic_load(&ledger), text, length);
    free(text);
    return written == length;
}

/* Bind the thread to the cores of a job, because a child inherits the cores of the thread that starts it. */
static bool bind_thread(Lane *lane, const Offer *offer) {
    const cpu_set_t *wanted = offer->bound ? &offer->cpus : &all_cpus;
    if (!CPU_EQUAL(wanted, &lane->cpus) && sched_setaffinity(0, sizeof *wanted, wanted) < 0)
        return false;
    lane->cpus = *wanted;
    return true;
}

/* Start the next job after the active one has succeeded. Called without the lock: during a handover, other threads only
   append jobs to the lane. */
static bool start_next(Lane *lane, Event *event) {
    const Offer *offer = lane->first;
    event->lane = lane->number;
    event->ended_at = now(CLOCK_REALTIME);
    event->usage = lane->usage;
    /* The id of the process group is not used again before its leader is reaped. */
    killpg(lane->pid, SIGKILL);
    if (!write_ledger(lane, event->ended_at))
        return false;
    waitid(P_PID, lane->pid, &(siginfo_t){0}, WEXITED);
    event->since = ticks_now();
    event->at = now(CLOCK_REALTIME);
    event->output = open_output(offer);
    event->pid = bind_thread(lane, offer) ? start(offer, null, event->output, &lane->pid) : 0;
    event->until = ticks_now();
    /* After the start, because freeing much output takes a while. */
    close_output(lane->output);
    if (!event->pid) {
        close_output(event->output);
        event->output = no_output;
    }
    lane->output = event->output;
    return true;
}

static void post_event(Event *event) {
    event->next = NULL;
    *last_event = event;
    last_event = &event->next;
    if (!atomic_exchange(&pending, true))
        wake(0);
    if (!event->pid)
        notify_child_ended();
}

/* Start the next job and report the handover. Returns whether the lane continues. */
static bool hand_over(Lane *lane) {
    Event *event = malloc(sizeof *event);
    if (!event)
        return false;
    handovers++;
    pthread_mutex_unlock(&lock);
    bool done = start_next(lane, event);
    pthread_mutex_lock(&lock);
    if (--handovers == 0 && entered)
        pthread_cond_broadcast(&changed);
    if (!done) {
        free(event);
        return false;
    }
    free(lane->active);
    lane->active = lane->first;
    lane->first = lane->first->next;
    lane->pid = event->pid;
    lane->started = event->at;
    post_event(event);
    check_other_children();
    return lane->pid != 0;
}

/* Wait until the active job has ended and handovers are not suspended. Returns whether the lane continues. */
static bool wait_and_hand_over(Lane *lane) {
    pid_t pid = lane->pid;
    pthread_mutex_unlock(&lock);
    siginfo_t child;
    waitid(P_PID, pid, &child, WEXITED | WNOWAIT);
    pthread_mutex_lock(&lock);
    while (entered)
        pthread_cond_wait(&changed, &lock);
    if (!lane->number)
        return false;
    /* `relay_watch` may have used this lane again meanwhile, for another child with the same pid. */
    child.si_pid = 0;
    if (wait_for_usage(lane->pid, &child, WEXITED | WNOHANG | WNOWAIT, &lane->usage) < 0)
        return false;
    if (child.si_pid == 0)
        return true;
    bool succeeded = child.si_code == CLD_EXITED && child.si_status == 0;
    return succeeded && lane->first && !is_held() && hand_over(lane);
}

static void *run_lane(void *lane) {
    pthread_mutex_lock(&lock);
    while (wait_and_hand_over(lane))
        ;
    remove_lane(lane);
    check_other_children();
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The thread that receives SIGCHLD */

static void *wait_for_signals(void *unused) {
    (void)unused;
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    while (!atomic_load(&closing)) {
        pthread_mutex_lock(&lock);
        bool none_found = !check_other_children() && lanes;
        pthread_mutex_unlock(&lock);
        /* Most signals are about jobs of lanes, whose threads check for other children too: so wait for several. */
        if (none_found)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
        sigwaitinfo(&children, NULL);
    }
    return NULL;
}

/* The functions of relay.h */

/* Create a thread with all signals blocked. */
static int create_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void mask_sigchld(int how) {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_sigmask(how, &children, NULL);
}

void relay_enter(void) {
    pthread_mutex_lock(&lock);
    entered++;
    while (handovers)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

bool relay_enter_within(double seconds) {
    double until = now(CLOCK_MONOTONIC) + seconds;
    struct timespec moment = {.tv_sec = (time_t)until};
    moment.tv_nsec = (long)((until - moment.tv_sec) * 1e9);
    pthread_mutex_lock(&lock);
    entered++;
    while (handovers && pthread_cond_timedwait(&changed, &lock, &moment) == 0)
        ;
    bool done = !handovers;
    if (!done && --entered == 0)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return done;
}

void relay_leave(void) {
    pthread_mutex_lock(&lock);
    if (--entered == 0)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Called once, because threads of an earlier relay may still wait for `changed`. */
static void choose_clock(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

int relay_open(int wakeup_descriptor, int null_descriptor, unsigned memory_flags, int highest,
               unsigned long long open_files) {
    if (running)
        return EBUSY;
    pthread_once(&clock_chosen, choose_clock);
    wakeup = wakeup_descriptor;
    null = null_descriptor;
    set_memory_files(memory_flags, highest);
    set_open_files(open_files);
    ticks_per_second = sysconf(_SC_CLK_TCK);
    if (sched_getaffinity(0, sizeof all_cpus, &all_cpus) < 0)
        return errno;
    relay_hold(false);
    relay_hold_after(INFINITY);
    atomic_store(&sigchld_sent, false);
    atomic_store(&closing, false);
    mask_sigchld(SIG_BLOCK);
    int error = create_thread(&signal_thread, NULL, wait_for_signals, NULL);
    running = !error;
    if (error)
        mask_sigchld(SIG_UNBLOCK);
    return error;
}

void relay_close(void) {
    if (!running)
        return;
    atomic_store(&closing, true);
    pthread_kill(signal_thread, SIGCHLD);
    pthread_join(signal_thread, NULL);
    running = false;
    relay_enter();
    pthread_mutex_lock(&lock);
    for (Lane *lane = lanes; lane; lane = lane->next)
        give_up(lane);
    wakeup = -1;
    pthread_mutex_unlock(&lock);
    relay_leave();
    mask_sigchld(SIG_UNBLOCK);
}

/* Make a lane and its thread. Its caller has to set the active job before it releases the lock. */
static Lane *new_lane(pid_t pid) {
    Lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    lane->pid = pid;
    lane->cpus = all_cpus;
    lane->next = lanes;
    lanes = lane;
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    int error = create_thread(&thread, &attributes, run_lane, lane);
    pthread_attr_destroy(&attributes);
    if (!error)
        return lane;
    remove_lane(lane);
    return NULL;
}

bool relay_watch(unsigned long long number, pid_t pid, const char *id, double started, Output output, int descriptor,
                 Offer *offers) {
    Offer *active = calloc(1, sizeof *active + strlen(id) + 1);
    relay_enter();
    find_signals_to_reset();
    pthread_mutex_lock(&lock);
    /* Use the lane again that was given up and still waits for this child: never more threads than children. */
    Lane *lane = active ? find_pid(pid) : NULL;
    if (active && !lane)
        lane = new_lane(pid);
    if (lane) {
        active->id = strcpy((char *)(active + 1), id);
        free(lane->active);
        lane->active = active;
        lane->number = number;
        lane->started = started;
        lane->output = output;
        lane->first = offers;
        atomic_store(&ledger, descriptor);
    } else {
        free(active);
        free_offers(offers);
    }
    pthread_mutex_unlock(&lock);
    relay_leave();
    return lane != NULL;
}

bool relay_offer(unsigned long long number, int descriptor, Offer *offers) {
    pthread_mutex_lock(&lock);
    atomic_store(&ledger, descriptor);
    Lane *lane = find(number);
    if (lane) {
        Offer **end = &lane->first;
        while (*end)
            end = &(*end)->next;
        *end = offers;
    }
    pthread_mutex_unlock(&lock);
    if (!lane)
        free_offers(offers);
    return lane != NULL;
}

void relay_give_up(unsigned long long number) {
    relay_enter();
    pthread_mutex_lock(&lock);
    Lane *lane = find(number);
    if (lane)
        give_up(lane);
    pthread_mutex_unlock(&lock);
    relay_leave();
}

bool relay_watches(pid_t pid) {
    pthread_mutex_lock(&lock);
    bool found = watches(pid);
    pthread_mutex_unlock(&lock);
    return found;
}

void relay_heard(void) {
    atomic_store(&sigchld_sent, false);
}

bool relay_pending(void) {
    return atomic_load(&pending);
}

Event *relay_take(void) {
    pthread_mutex_lock(&lock);
    Event *events = first_event;
    first_event = NULL;
    last_event = &first_event;
    atomic_store(&pending, false);
    pthread_mutex_unlock(&lock);
    return events;
}
