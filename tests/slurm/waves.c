/* A parallel program that works in bursts, for about the seconds of its argument: processes agree, then rest for a while.
   They rest most of the time, so that what else the machine does changes little. Each tells where it runs. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, one = 1, sum = 0, cpu = -1, length;
    int bursts = argc > 1 ? (int)(atof(argv[1]) * 20) : 20;
    char host[256], line[512];
    cpu_set_t set;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int burst = 0; burst < bursts; burst++) {
        for (int step = 0; step < 4; step++)
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        usleep(50000);
    }
    gethostname(host, sizeof host);
    sched_getaffinity(0, sizeof set, &set);
    if (CPU_COUNT(&set) == 1)
        for (cpu = 0; !CPU_ISSET(cpu, &set); cpu++);
    /* At once: the lines of different processes must not be mixed up. */
    length = snprintf(line, sizeof line, "rank %d of %d on %s cpu %d\n", rank, sum, host, cpu);
    if (write(1, line, length) != length) return 1;
    MPI_Finalize();
    return 0;
}
