/* Starting one job for the relay, and holding all starts. */

#ifndef RELAYSTART_H
#define RELAYSTART_H

#include "relay.h"

#include <time.h>

double now(clockid_t clock);

/* Whether `relay_hold` or `relay_hold_after` forbids starts now. A child checks it again right before `execve`. */
bool is_held(void);

/* Find the signals that a child has to reset. To be called when handlers may have changed, never during a start. */
void find_signals_to_reset(void);

extern const Output no_output;

/* Flags and limit of memory files for `open_output`; see `relay_open`. */
void set_memory_files(unsigned flags, int highest);

/* The soft limit of open files that jobs get; 0: the limit of this process. */
void set_open_files(unsigned long long limit);

/* Make memory files for captured streams. Errors are ignored: the job then runs without capture. */
Output open_output(const Offer *offer);
void close_output(Output output);

/* Start a job. Returns its pid, or 0 on failure. The child inherits the cores of the calling thread. `pid` is set
   before the end of the child can be noticed. */
pid_t start(const Offer *offer, int null, Output output, _Atomic pid_t *pid);

#endif
