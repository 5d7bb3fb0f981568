/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A latency-sensitive service under open-loop load.
 *
 *   service REQUESTS LATENCIES THREADS START_S PERIOD_S
 *       REQUESTS: doubles, pairs of (moment after START_S in s, CPU time in
 *           ms), in order; they come again each PERIOD_S
 *       LATENCIES: doubles, one latency in s per request, of its last time;
 *           0 is not served yet
 *
 * The next request is always taken by the next free thread, which sleeps
 * until it is due.  That is a queue served first come, first served by
 * THREADS servers, without a generator that could be late itself.  Latency
 * counts from the moment the request was due, so a request that had to
 * wait for a thread is charged for the wait.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STEPS 1000       /* of work between two reads of the CPU time */
#define THREADS 1024

static const double *requests;
static double *latencies;
static size_t count;
static atomic_size_t next;
static double start_s, period_s;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_until(double when_s)
{
    struct timespec t = {(time_t)when_s, 0};
    t.tv_nsec = (long)((when_s - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Use so much CPU time, whatever the CPU gets done in it. */
static uint64_t work(double cpu_ms, uint64_t state)
{
    double until_s = read_clock(CLOCK_THREAD_CPUTIME_ID) + cpu_ms / 1000;
    while (read_clock(CLOCK_THREAD_CPUTIME_ID) < until_s)
        for (unsigned i = 0; i < STEPS; i++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            __asm__ volatile("" : "+r"(state));
        }
    return state;
}

static void *serve(void *unused)
{
    uint64_t state = 1;
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        size_t number = atomic_fetch_add(&next, 1), i = number % count;
        double due_s = start_s + requests[2 * i]
            + period_s * (double)(number / count);
        sleep_until(due_s);
        state = work(requests[2 * i + 1], state);
        latencies[i] = read_clock(CLOCK_MONOTONIC) - due_s;
    }
    return NULL;
}

/* A file as shared memory: what is written stays when we are killed. */
static void *map(const char *path, int flags, size_t *bytes)
{
    struct stat info;
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0 || (*bytes && ftruncate(fd, (off_t)*bytes) != 0)
        || fstat(fd, &info) != 0)
        fail(path);
    *bytes = (size_t)info.st_size;
    void *at = mmap(NULL, *bytes, flags & O_RDWR ? PROT_READ | PROT_WRITE
                    : PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        fail(path);
    close(fd);
    return at;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    size_t bytes = 0;
    if (argc != 6)
        return 2;
    requests = map(argv[1], O_RDONLY, &bytes);
    count = bytes / sizeof(double) / 2;
    bytes = count * sizeof(double);
    latencies = map(argv[2], O_RDWR | O_CREAT, &bytes);
    int threads = atoi(argv[3]);
    start_s = strtod(argv[4], NULL);
    period_s = strtod(argv[5], NULL);
    for (int i = 0; i < threads && i < THREADS; i++)
        if ((errno = pthread_create(&thread, NULL, serve, NULL)))
            fail("pthread_create");
    for (;;)
        pause();
}
