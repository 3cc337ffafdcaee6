/* One start of the relay: what stops all of them, and what a child does to become its job. */

#ifndef RELAYSTART_H
#define RELAYSTART_H

#include "relay.h"

#include <time.h>

double now(clockid_t clock);

/* `hold` and `hold_after` of relay.h, as they are now. A child asks once more, before it becomes its job. */
bool is_held(void);

/* To be called again when handlers of signals may have changed, and never while something is started. */
void find_signals(void);

extern const Output no_output;

/* How `open_output` makes memory files; see `relay_open`. */
void set_memory_files(unsigned flags, int highest);

/* The soft limit of open files that jobs get; 0: the limit of this process. */
void set_open_files(unsigned long long limit);

/* New memory files for the streams that are captured. Without room for them, there are none: the job runs all the same. */
Output open_output(const Offer *offer);
void close_output(Output output);

/* Its pid, or 0: nothing was started. The child has the cores of the thread that calls this. `pid` is its pid before
   anybody can hear that it has ended. */
pid_t start(const Offer *offer, int null, Output output, _Atomic pid_t *pid);

#endif
