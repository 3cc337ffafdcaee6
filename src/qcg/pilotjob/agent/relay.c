#include "relaystart.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK (256 * 1024)
#define PAUSE (2 * 1000 * 1000) /* nanoseconds */

/* Its thread lives as long as it watches `pid`, also after the lane was given up. */
typedef struct Lane {
    struct Lane *next;
    unsigned long long number; /* 0: given up */
    _Atomic pid_t pid;
    double started;
    Offer *under_way; /* of that pid */
    Output output;    /* of that pid, too */
    Offer *first;     /* of those that wait */
    cpu_set_t cpus;   /* of its thread */
} Lane;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below, never held for long */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t clock_chosen = PTHREAD_ONCE_INIT;
static int halfway, entered;
static Lane *lanes;
static Event *first_event, **last_event = &first_event;
static int wakeup = -1, null = -1;
static cpu_set_t all_cpus;

static pthread_t signalled;
static bool running;
static atomic_int ledger;
static atomic_bool closing, pending;
static atomic_bool has_told; /* of a child that is not for the relay */
static long ticks_per_second;

static long long ticks_now(void) {
    return (long long)(now(CLOCK_BOOTTIME) * ticks_per_second);
}

static void wake(unsigned char why) {
    /* Whoever finds it full looks at everything. */
    if (write(wakeup, &why, 1) < 0)
        return;
}

/* Once, until they look: the wakeup has room for few bytes, and others need it too. */
static void tell_of_children(void) {
    if (!atomic_exchange(&has_told, true))
        wake(SIGCHLD);
}

/* Lanes, with the lock */

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
    drop_offers(lane->first);
    lane->first = NULL;
}

static void remove_lane(Lane *lane) {
    Lane **place = &lanes;
    while (*place != lane)
        place = &(*place)->next;
    *place = lane->next;
    give_up(lane);
    free(lane->under_way);
    free(lane);
}

/* Whoever is not for the relay is told to those who reap. A child of a lane hides others as long as it is not reaped:
   its thread asks again, once it has done that. Whether there was somebody to tell of. */
static bool look_for_others(void) {
    siginfo_t child;
    child.si_pid = 0;
    bool found = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid && !watches(child.si_pid);
    if (found)
        tell_of_children();
    return found;
}

/* The thread of a lane */

/* Both lines in one write: that the one is over, and that the next may run from here on. It begins with a new line,
   because a full disk may have cut off whatever was written before. */
static bool write_down(const Lane *lane, double ended_at) {
    char *text;
    int length = asprintf(&text, "\n" RELAY_SUCCEEDED_LINE "%s", lane->under_way->id, (int)lane->pid, lane->started,
                          ended_at, lane->first->line);
    if (length < 0)
        return false;
    ssize_t written = write(atomic_load(&ledger), text, length);
    free(text);
    return written == length;
}

/* A child has the cores of the thread that starts it. */
static bool take_cores(Lane *lane, const Offer *offer) {
    const cpu_set_t *wanted = offer->bound ? &offer->cpus : &all_cpus;
    if (!CPU_EQUAL(wanted, &lane->cpus) && sched_setaffinity(0, sizeof *wanted, wanted) < 0)
        return false;
    lane->cpus = *wanted;
    return true;
}

/* The one under way has succeeded. Without the lock, for the lane is halfway: others only put more behind the last. */
static bool start_next(Lane *lane, Event *event) {
    const Offer *offer = lane->first;
    event->lane = lane->number;
    event->ended_at = now(CLOCK_REALTIME);
    /* While the dead leader is not reaped, its process group can be no other. */
    killpg(lane->pid, SIGKILL);
    if (!write_down(lane, event->ended_at))
        return false;
    waitid(P_PID, lane->pid, &(siginfo_t){0}, WEXITED);
    event->since = ticks_now();
    event->at = now(CLOCK_REALTIME);
    event->output = open_output(offer);
    event->pid = take_cores(lane, offer) ? start(offer, null, event->output, &lane->pid) : 0;
    event->until = ticks_now();
    /* After the start: much output takes a while to be freed. */
    close_output(lane->output);
    if (!event->pid) {
        close_output(event->output);
        event->output = no_output;
    }
    lane->output = event->output;
    return true;
}

static void tell(Event *event) {
    event->next = NULL;
    *last_event = event;
    last_event = &event->next;
    if (!atomic_exchange(&pending, true))
        wake(0);
    if (!event->pid)
        tell_of_children();
}

/* Whether it goes on. */
static bool go_on(Lane *lane) {
    Event *event = malloc(sizeof *event);
    if (!event)
        return false;
    halfway++;
    pthread_mutex_unlock(&lock);
    bool done = start_next(lane, event);
    pthread_mutex_lock(&lock);
    if (--halfway == 0 && entered)
        pthread_cond_broadcast(&changed);
    if (!done) {
        free(event);
        return false;
    }
    free(lane->under_way);
    lane->under_way = lane->first;
    lane->first = lane->first->next;
    lane->pid = event->pid;
    lane->started = event->at;
    tell(event);
    look_for_others();
    return lane->pid != 0;
}

/* Waits until it has ended, or has not been there, and no one has entered. Whether the lane goes on. */
static bool wait_and_go_on(Lane *lane) {
    pid_t pid = lane->pid;
    pthread_mutex_unlock(&lock);
    siginfo_t child;
    waitid(P_PID, pid, &child, WEXITED | WNOWAIT);
    pthread_mutex_lock(&lock);
    while (entered)
        pthread_cond_wait(&changed, &lock);
    if (!lane->number)
        return false;
    /* Another child may have that pid by now, in another lane that this one has become. */
    child.si_pid = 0;
    if (waitid(P_PID, lane->pid, &child, WEXITED | WNOHANG | WNOWAIT) < 0)
        return false;
    if (child.si_pid == 0)
        return true;
    bool succeeded = child.si_code == CLD_EXITED && child.si_status == 0;
    return succeeded && lane->first && !is_held() && go_on(lane);
}

static void *follow(void *lane) {
    pthread_mutex_lock(&lock);
    while (wait_and_go_on(lane))
        ;
    remove_lane(lane);
    look_for_others();
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The thread that takes SIGCHLD */

static void *wait_for_signals(void *unused) {
    (void)unused;
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    while (!atomic_load(&closing)) {
        pthread_mutex_lock(&lock);
        bool in_vain = !look_for_others() && lanes;
        pthread_mutex_unlock(&lock);
        /* Most signals are for jobs of lanes, whose threads look as well: one for many of them is enough. */
        if (in_vain)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
        sigwaitinfo(&children, NULL);
    }
    return NULL;
}

/* For others */

/* No signal of this process is for any thread of the relay. */
static int create_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void let_children_signal(int how) {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_sigmask(how, &children, NULL);
}

void relay_enter(void) {
    pthread_mutex_lock(&lock);
    entered++;
    while (halfway)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

bool relay_enter_within(double seconds) {
    double until = now(CLOCK_MONOTONIC) + seconds;
    struct timespec moment = {.tv_sec = (time_t)until};
    moment.tv_nsec = (long)((until - moment.tv_sec) * 1e9);
    pthread_mutex_lock(&lock);
    entered++;
    while (halfway && pthread_cond_timedwait(&changed, &lock, &moment) == 0)
        ;
    bool done = !halfway;
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

/* Once: threads of an earlier relay may still wait. */
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
    atomic_store(&has_told, false);
    atomic_store(&closing, false);
    let_children_signal(SIG_BLOCK);
    int error = create_thread(&signalled, NULL, wait_for_signals, NULL);
    running = !error;
    if (error)
        let_children_signal(SIG_UNBLOCK);
    return error;
}

void relay_close(void) {
    if (!running)
        return;
    atomic_store(&closing, true);
    pthread_kill(signalled, SIGCHLD);
    pthread_join(signalled, NULL);
    running = false;
    relay_enter();
    pthread_mutex_lock(&lock);
    for (Lane *lane = lanes; lane; lane = lane->next)
        give_up(lane);
    wakeup = -1;
    pthread_mutex_unlock(&lock);
    relay_leave();
    let_children_signal(SIG_UNBLOCK);
}

/* One whose thread is there, and watches nobody yet. */
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
    int error = create_thread(&thread, &attributes, follow, lane);
    pthread_attr_destroy(&attributes);
    if (!error)
        return lane;
    remove_lane(lane);
    return NULL;
}

bool relay_watch(unsigned long long number, pid_t pid, const char *id, double started, Output output, int descriptor,
                 Offer *offers) {
    Offer *under_way = calloc(1, sizeof *under_way + strlen(id) + 1);
    relay_enter();
    find_signals();
    pthread_mutex_lock(&lock);
    /* It may have been given up, and still be watched: there are never more threads than children. */
    Lane *lane = under_way ? find_pid(pid) : NULL;
    if (under_way && !lane)
        lane = new_lane(pid);
    if (lane) {
        under_way->id = strcpy((char *)(under_way + 1), id);
        free(lane->under_way);
        lane->under_way = under_way;
        lane->number = number;
        lane->started = started;
        lane->output = output;
        lane->first = offers;
        atomic_store(&ledger, descriptor);
    } else {
        free(under_way);
        drop_offers(offers);
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
        drop_offers(offers);
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
    atomic_store(&has_told, false);
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
