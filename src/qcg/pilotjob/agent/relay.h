/* The relay: one thread for each lane, which starts the next job of the lane as soon as the job before has succeeded.

   It handles success only. When a job fails, the next job cannot be started, the ledger cannot be written, or no job is
   left, the relay gives the lane up, and Python handles it from there. `relay_take` returns the finished handovers.

   The thread of a lane is bound to the cores of the lane, so that a job starts on its cores and need not move. Between
   the end of a job and the start of the next one, a lane is in a handover. `relay_enter` waits until no lane is in a
   handover. `relay_hold` and `relay_hold_after` stop all starts without waiting, for threads that must not wait for a
   file system.

   SIGCHLD is blocked in the whole process. One more thread receives it, and writes it as a byte to `wakeup` when a
   child has ended that does not belong to a lane. */

#ifndef RELAY_H
#define RELAY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* Version of the functions that Python calls, to be raised with every change of them. */
#define RELAY_INTERFACE 5

/* The line of the ledger for a job that has succeeded: id as JSON, pid, start, end, usage. `host/ledger_format.py` describes
   the ledger and has the same format; Python compares the two before it uses the relay. */
#define RELAY_SUCCEEDED_LINE "[\"x\",%s,%d,%.6f,%.6f,[%ld,%ld,%ld,%ld,%ld,%ld,%ld]]\n"

/* A prepared start. All its pointers point into the same block of memory. */
typedef struct Offer {
    struct Offer *next;
    char *id;   /* as JSON */
    char *line; /* written to the ledger before the start */
    char *program, *wd, *out, *err;
    char **argv, **environment;
    bool captured; /* streams without a path go to memory files */
    bool bound;    /* to `cpus` */
    cpu_set_t cpus;
} Offer;

/* Descriptors of the memory files with a job's captured output; -1 for a stream that is not captured. The relay closes
   them at a handover to the next job; in all other cases the caller has to. So the caller may use those of a job in a
   lane only between `relay_enter` and `relay_leave`, and after `relay_take`. */
typedef struct Output {
    int out, err;
} Output;

/* What a job used, with its descendants that were waited for. `host/usage.py` describes the fields. */
typedef struct Usage {
    long user, system, memory, minor_faults, major_faults, read, written;
} Usage;

/* A handover: a job of a lane has succeeded and the next one was started, or could not be started (`pid` is 0). */
typedef struct Event {
    struct Event *next;
    unsigned long long lane;
    double ended_at;        /* end of the job that succeeded */
    Usage usage;            /* of that job */
    pid_t pid;              /* of the next job, as all below */
    double at;              /* start time */
    long long since, until; /* clock ticks after boot, before and after the start */
    Output output;
} Event;

/* Start the relay. Returns 0 or an errno. The relay writes a byte 0 to `wakeup` when there are events to take. Memory
   files are made with `memory_flags`, and closed again when their descriptor is not below `highest`. Jobs get the soft
   limit `open_files` of open files; 0: the limit of this process. */
int relay_open(int wakeup, int null, unsigned memory_flags, int highest, unsigned long long open_files);

/* Stop the relay. Events can still be taken. */
void relay_close(void);

/* Suspend and resume handovers; calls may be nested. One thread may call all functions, other threads only
   `relay_hold` and `relay_hold_after`. */
void relay_enter(void);
void relay_leave(void);

/* `relay_enter` with a timeout, for callers that must not wait for a hanging file system. False: not suspended. */
bool relay_enter_within(double seconds);

/* Make a new lane with this child, which may have ended and must not be reaped, as its active job. The relay takes
   ownership of `offers`, the next jobs. False: no thread can be created. May wait as `relay_enter` does. */
bool relay_watch(unsigned long long lane, pid_t pid, const char *id, double started, Output output, int ledger,
                 Offer *offers);

/* Append jobs to a lane. False: the relay has given the lane up. */
bool relay_offer(unsigned long long lane, int ledger, Offer *offers);

/* Give a lane up. All its events can be taken afterwards. May wait as `relay_enter` does. */
void relay_give_up(unsigned long long lane);

/* Start no job while held, or after this time of CLOCK_MONOTONIC. Neither function waits. */
void relay_hold(bool held);
void relay_hold_after(double moment);

/* Whether this child is the active job of a lane. The relay reaps it, or gives its lane up and reports that. */
bool relay_watches(pid_t pid);

/* To be called before the caller reaps children: SIGCHLD is written to `wakeup` once, and then not before this. */
void relay_heard(void);

/* Whether there are events to take. */
bool relay_pending(void);

/* All events since the last call, those of one lane in order. The caller has to free them. */
Event *relay_take(void);

void free_offers(Offer *offers);

#endif
