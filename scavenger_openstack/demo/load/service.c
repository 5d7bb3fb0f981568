/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A latency-sensitive service under open-loop load.
 *
 *   service calibrate
 *       prints how many iterations of work one CPU does in a millisecond
 *   service ARRIVALS OUT THREADS START_S ITERATIONS_PER_MS
 *       ARRIVALS: doubles, pairs of (arrival after START_S in s, work in ms)
 *       OUT: doubles, one latency in s per arrival; 0 is not yet served
 *       ITERATIONS_PER_MS: 0 makes a request so much CPU time, however much
 *       the CPU gets done in it
 *
 * The next arrival is always taken by the next free thread, which sleeps
 * until it is due.  That is a queue served first come, first served by
 * THREADS servers, without a generator that could be late itself.  Latency
 * counts from the moment the request was due, so a request that had to
 * wait for a thread is charged for the wait.
 *
 * All its pages are locked.  When the host is out of memory the kernel
 * throws out program text first, and this latency would then show the disk
 * as well; what memory does to the service is seen in store.c alone.
 */
#define _GNU_SOURCE
#include "demo.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>

static const double *arrivals;
static double *latency;
static size_t count;
static atomic_size_t next;
static double start_s, iterations_per_ms;

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t work(double work_ms, uint64_t state)
{
    if (iterations_per_ms > 0)
        return spin(work_ms * iterations_per_ms, state);
    for (double until_s = cpu_s() + work_ms / 1000; cpu_s() < until_s;)
        state = spin(1000, state);
    return state;
}

static void *serve(void *unused)
{
    uint64_t state = 1;
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        size_t i = atomic_fetch_add(&next, 1);
        if (i >= count)
            return NULL;
        double due_s = start_s + arrivals[2 * i];
        sleep_until(due_s);
        state = work(arrivals[2 * i + 1], state);
        latency[i] = now_s() - due_s;
    }
}

static int calibrate(void)
{
    const uint64_t iterations = 800000;
    double best = 0;
    uint64_t state = 1;
    for (int i = 0; i < 200; i++) {
        double before = cpu_s();
        state = spin(iterations, state);
        double speed = iterations / (cpu_s() - before) / 1000;
        if (speed > best)
            best = speed;
    }
    printf("%.0f\n", best);
    return state == 0;
}

int main(int argc, char **argv)
{
    pthread_t thread[1024];
    pthread_attr_t small;

    if (argc == 2 && strcmp(argv[1], "calibrate") == 0)
        return calibrate();
    if (argc != 6)
        return 2;
    arrivals = read_doubles(argv[1], &count);
    count /= 2;
    latency = share(argv[2], count * sizeof(double));
    memset(latency, 0, count * sizeof(double));
    int threads = atoi(argv[3]);
    start_s = strtod(argv[4], NULL);
    iterations_per_ms = strtod(argv[5], NULL);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        fail("mlockall");
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < threads && i < 1024; i++)
        if ((errno = pthread_create(&thread[i], &small, serve, NULL)))
            fail("pthread_create");
    for (int i = 0; i < threads && i < 1024; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
