/* Each process tells who and where it is. All of them add up, so that those who do not know each other are seen. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *value(const char *name) {
    const char *found = getenv(name);
    return found ? found : "-";
}

int main(int argc, char **argv) {
    int rank, size, one = 1, sum = 0, length = 0;
    char host[256], cpus[4096] = "", line[16384];
    cpu_set_t set;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    gethostname(host, sizeof host);
    sched_getaffinity(0, sizeof set, &set);
    for (int cpu = 0; cpu < CPU_SETSIZE && length < 4000; cpu++)
        if (CPU_ISSET(cpu, &set))
            length += snprintf(cpus + length, sizeof cpus - length, "%s%d", length ? "," : "", cpu);
    length = snprintf(line, sizeof line, "rank=%d size=%d sum=%d host=%s cpus=%s gpus=%s marker=%s venv=%s args=", rank,
                      size, sum, host, cpus, value("CUDA_VISIBLE_DEVICES"), value("QCG_PM_STEP_ID"),
                      value("VIRTUAL_ENV"));
    for (int place = 1; place < argc; place++)
        length += snprintf(line + length, sizeof line - length, "<%s>", argv[place]);
    line[length++] = '\n';
    /* At once: the lines of different processes must not be mixed up. */
    if (write(1, line, length) != length) return 1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
