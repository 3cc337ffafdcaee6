/* The limit: how fast this machine starts and ends processes when nothing else is done.

   limit COUNT PARALLEL THREADS FOLDER [bound] starts /bin/true COUNT times, PARALLEL at a time, each with an output file
   of its own in FOLDER, from THREADS threads (each keeps its share of PARALLEL busy), and prints the seconds that it
   took. With `bound`, each thread and what it starts stay on a core of their own. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long count;
static long next_job;
static const char *folder;
static bool bound;

struct share {
    long number, width;
};

static void fail(const char *what, int error) {
    fprintf(stderr, "limit: %s: %s\n", what, strerror(error));
    exit(1);
}

static void start(long number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%ld", folder, number);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char *argv[] = {"/bin/true", NULL};
    int error = posix_spawn(NULL, argv[0], &actions, NULL, argv, environ);
    if (error)
        fail("posix_spawn", error);
    posix_spawn_file_actions_destroy(&actions);
}

static bool start_next(void) {
    long number = __atomic_fetch_add(&next_job, 1, __ATOMIC_RELAXED);
    if (number < count)
        start(number);
    return number < count;
}

/* This thread, and what it starts, on one of the CPUs that this process may use: another one for each number. */
static void bind_to(long number) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(getpid(), sizeof all, &all))
        fail("sched_getaffinity", errno);
    number %= CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && number-- == 0)
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        fail("sched_setaffinity", errno);
}

/* Keep `width` processes running until all are started; __WNOTHREAD: those of other threads are theirs to wait for. */
static void *work(void *given) {
    const struct share *share = given;
    long running = 0;
    if (bound)
        bind_to(share->number);
    while (running < share->width && start_next())
        running++;
    while (running) {
        int status;
        if (waitpid(-1, &status, __WNOTHREAD) < 0) {
            if (errno != EINTR)
                fail("waitpid", errno);
            continue;
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            fprintf(stderr, "limit: /bin/true did not succeed\n");
            exit(1);
        }
        if (!start_next())
            running--;
    }
    return NULL;
}

int main(int argc, char **argv) {
    bound = argc == 6 && strcmp(argv[5], "bound") == 0;
    if (argc != 5 && !bound) {
        fprintf(stderr, "usage: limit COUNT PARALLEL THREADS FOLDER [bound]\n");
        return 2;
    }
    count = atol(argv[1]);
    long parallel = atol(argv[2]), threads = atol(argv[3]);
    folder = argv[4];
    if (count < 1 || threads < 1 || parallel < threads) {
        fprintf(stderr, "limit: COUNT and THREADS are at least 1, PARALLEL at least THREADS\n");
        return 2;
    }
    struct timespec began, ended;
    pthread_t others[threads];
    struct share shares[threads];
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (long number = 0; number < threads; number++) {
        shares[number] = (struct share){number, parallel / threads + (number < parallel % threads)};
        int error = pthread_create(&others[number], NULL, work, &shares[number]);
        if (error)
            fail("pthread_create", error);
    }
    for (long number = 0; number < threads; number++)
        pthread_join(others[number], NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.6f\n", ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9);
    return 0;
}
