/* The relay: threads that start the next job of a lane as soon as the one before it has succeeded, one for each lane.

   It knows the good way only. When a job fails, the next one cannot be started, the ledger cannot be written, or nobody
   is next, the lane is given up, and everything about it is left to Python, which notices no difference but the time.
   What has been done is told by `relay_take`.

   A thread is bound to the cores of its lane: a job is started where it runs, beside those of other lanes, and need not
   move there. From the look at an ended process until the next one is started, its lane is halfway; `relay_enter` waits
   until none is. What stops all starts does not wait, for threads that must not wait for a file system.

   SIGCHLD is blocked in the whole process and taken by one more thread, which passes it on, as a byte to `wakeup`, when
   a child has ended that is not for the relay. */

#ifndef RELAY_H
#define RELAY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* To be raised with every change of the functions that Python calls. */
#define RELAY_INTERFACE 4

/* The line of the ledger for a job that has succeeded: id as JSON, pid, start, end. `host/ledger_format.py` describes
   the ledger and has the same text; Python compares the two before it uses the relay. */
#define RELAY_SUCCEEDED_LINE "[\"x\",%s,%d,%.6f,%.6f]\n"

/* A start that was prepared; all that it points to is in its own block of memory. */
typedef struct Offer {
    struct Offer *next;
    char *id;   /* as JSON */
    char *line; /* for the ledger, before it is started */
    char *program, *wd, *out, *err;
    char **argv, **environment;
    bool captured; /* streams without a file go to memory files */
    bool bound;
    cpu_set_t cpus;
} Offer;

/* The descriptors of the memory files of a job's captured output; -1 for a stream that is not captured. The relay
   closes them when the job has succeeded and the next one of its lane was its turn; in all other cases they are the
   caller's. So, for a job in a lane of the relay, they are to be used between `relay_enter` and `relay_leave` only, and
   after `relay_take`. */
typedef struct Output {
    int out, err;
} Output;

/* A job of a lane has succeeded, and the next one was started; or could not be: then `pid` is 0. */
typedef struct Event {
    struct Event *next;
    unsigned long long lane;
    double ended_at;
    pid_t pid;
    double at;
    long long since, until; /* clock ticks after boot, before and after the start */
    Output output;          /* of the one that was started */
} Event;

/* 0, or an errno. To `wakeup` it writes a byte 0 when there is something to take. Memory files are made with
   `memory_flags`, and not kept when their descriptor is not below `highest`. Jobs get the soft limit `open_files` of open
   files; 0: the limit of this process. */
int relay_open(int wakeup, int null, unsigned memory_flags, int highest, unsigned long long open_files);

/* What it has done can still be taken. */
void relay_close(void);

/* From `enter` to `leave` no lane is halfway. All of these are for one thread, but `hold` and `hold_after`. */
void relay_enter(void);
void relay_leave(void);

/* The same, for a caller that must not wait for a file system that holds up a start. False: it has not entered. */
bool relay_enter_within(double seconds);

/* This child is under way in a new lane, or was a moment ago, and these are to be started behind it; they are the relay's
   from here on. False: there is no room for a thread of its own. Enters. */
bool relay_watch(unsigned long long lane, pid_t pid, const char *id, double started, Output output, int ledger,
                 Offer *offers);

/* More to start in a lane, behind those that were offered before. False: it has given that lane up. */
bool relay_offer(unsigned long long lane, int ledger, Offer *offers);

/* After it, all that was done there can be taken, and nothing more is. Enters. */
void relay_give_up(unsigned long long lane);

/* Nothing is started while it is held, nor after a moment of CLOCK_MONOTONIC. These two never wait. */
void relay_hold(bool held);
void relay_hold_after(double moment);

/* Whether this child is for the relay, which reaps it, or gives its lane up and tells of it. */
bool relay_watches(pid_t pid);

/* Whoever reaps children is about to look: from here on they are told again of those that are not for the relay. */
void relay_heard(void);

bool relay_pending(void);

/* All events since the last call, those of one lane in their order; they are the caller's. */
Event *relay_take(void);

void drop_offers(Offer *offers);

#endif
