/* The relay: a thread that starts the next job of a lane as soon as the one before it has succeeded.

   It knows the good way only. When a job fails, the next one cannot be started, the ledger cannot be written, or nobody
   is next, the lane is given up, and everything about it is left to Python, which notices no difference but the time.
   What has been done is told by `relay_take`.

   One lock guards everything, and is held from the look at an ended process until the next one is started: whoever holds
   it sees no lane halfway. Only what stops all starts is without it, for threads that must not wait for a file system.

   SIGCHLD is blocked in the whole process and taken by the relay, which passes it on, as a byte to `wakeup`, when a child
   has ended that is not for it. */

#ifndef RELAY_H
#define RELAY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* A start that was prepared; all that it points to is in its own block of memory. */
typedef struct Offer {
    struct Offer *next;
    char *id;   /* as JSON */
    char *line; /* for the ledger, before it is started */
    char *program, *wd, *out, *err;
    char **argv, **environment;
    bool bound;
    cpu_set_t cpus;
} Offer;

/* A job of a lane has succeeded, and the next one was started; or could not be: then `pid` is 0. */
typedef struct {
    unsigned long long lane;
    double ended_at;
    pid_t pid;
    double at;
    long long since, until; /* clock ticks after boot, before and after the start */
} Event;

/* 0, or an errno. To `wakeup` it writes a byte 0 when there is something to take. */
int relay_open(int wakeup, int null);
void relay_close(void);

/* From `enter` to `leave` it does nothing; the thread that has entered may call all of these. */
void relay_enter(void);
void relay_leave(void);

/* This child is under way in a new lane. False: no memory. */
bool relay_watch(unsigned long long lane, pid_t pid, const char *id, double started);

/* More to start in a lane, behind those that were offered before; they are the relay's from here on. False: it has given
   that lane up. */
bool relay_offer(unsigned long long lane, int ledger, Offer *offers);

void relay_give_up(unsigned long long lane);

/* Nothing is started while it is held, nor after a moment of CLOCK_MONOTONIC. These two never wait. */
void relay_hold(bool held);
void relay_hold_after(double moment);

/* Whoever reaps children is about to look: from here on they are told again of those that are not for the relay. */
void relay_heard(void);

bool relay_pending(void);

/* So many events since the last call, in memory that is the caller's. */
size_t relay_take(Event **events);

void drop_offers(Offer *offers);

#endif
