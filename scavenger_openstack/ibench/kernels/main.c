/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One source of interference (SoI), at one intensity after the other.
 *
 *   scavenger-soi NAME levels=PERCENT:SECONDS[,...] [KEY=VALUE]...
 *   scavenger-soi NAME calibrate_s=SECONDS [KEY=VALUE]...
 *   scavenger-soi serve address=IP:PORT
 *
 * Source: iBench (Delimitrou and Kozyrakis, IISWC 2013), section III.  A
 * kernel is calibrated alone, then runs open: after a chunk of work comes a
 * wait of chunk_s * (1 / x - 1), the paper's wait(t_x / acc_x), which what it
 * reaches beside others does not change.  So it falls behind when another
 * slows it, and that is measured.
 *
 * Exit status: 0, 2 for what cannot be here, 3 when the remote end is gone.
 */
#define _GNU_SOURCE
#include "soi.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Shorter waits are summed up to this: a sleep has a price of its own. */
#define SHORTEST_SLEEP_S 200e-6
/* Of each sleep so much of the delay is what timer and idle CPU take when
 * alone; more is another program's, and is not made good. */
#define OWN_DELAY_S 100e-6

static const struct kernel *const KERNELS[] = {
    &memory_capacity, &memory_bandwidth, &storage_capacity,
    &storage_bandwidth, &network_bandwidth, &llc_capacity, &llc_bandwidth,
    &l2_capacity, &l2_bandwidth, &l1i, &l1d, &tlb, &integer,
    &floating_point, &prefetcher, &interconnect, &vector};

static const char *program = "scavenger-soi";
static const struct kernel *kernel;
static struct options options;
static struct worker workers[WORKERS];
static pthread_barrier_t begin_phase, end_phase;

/* Of the phase; changed between the barriers only. */
static double share, phase_end_s;
static bool calibrating;

_Atomic double resting_until_s;
_Atomic bool phase_over;

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void sleep_until(double when_s)
{
    struct timespec t = {(time_t)when_s, 0};
    t.tv_nsec = (long)((when_s - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

_Noreturn void fail(int status, const char *format, ...)
{
    va_list values;
    char text[1024];
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    dprintf(2, "%s: %s\n", program, text);
    _exit(status);
}

static double lower(double a, double b)
{
    return a < b ? a : b;
}

static uint64_t read_counter(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* One chunk; counted, and its time with it unless it only reached a level. */
static double timed_chunk(struct worker *worker, double *after_s)
{
    double begun_s = now_s();
    double work = kernel->chunk(worker);
    *after_s = now_s();
    if (work > 0) {
        atomic_fetch_add_explicit(&worker->chunks, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&worker->work_ns, (uint64_t)(
            (*after_s - begun_s) * 1e9), memory_order_relaxed);
    }
    return work;
}

static long preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

/* Chunks without waiting.  Those in which another program had the CPU are
 * left out of the mean, unless they all are. */
static void calibrate(struct worker *worker)
{
    double all_s = 0, clean_s = 0, after_s;
    uint64_t all = 0, clean = 0;
    double end_s = 0;
    do {
        long before = preemptions();
        double begun_s = now_s();
        double work = timed_chunk(worker, &after_s);
        if (work == 0)
            continue;
        if (end_s == 0)      /* the first one warms up */
            end_s = after_s + options.calibrate_s;
        else {
            all++;
            all_s += after_s - begun_s;
            if (preemptions() == before) {
                clean++;
                clean_s += after_s - begun_s;
            }
        }
    } while (end_s == 0 || !all || after_s < end_s);
    worker->chunk_s = clean ? clean_s / (double)clean : all_s / (double)all;
}

static void run_level(struct worker *worker)
{
    double owed_s = 0, after_s = now_s();
    while (share > 0 && after_s < phase_end_s) {
        double work = timed_chunk(worker, &after_s);
        owed_s += work * worker->chunk_s * (1 / share - 1);
        if (owed_s < SHORTEST_SLEEP_S || after_s >= phase_end_s)
            continue;
        double until_s = lower(after_s + owed_s, phase_end_s);
        if (worker->index == 0)
            atomic_store(&resting_until_s, until_s);
        sleep_until(until_s);
        after_s = now_s();
        owed_s = -lower(after_s - until_s, OWN_DELAY_S);
    }
    if (share > 0)
        return;
    if (worker->index == 0)
        atomic_store(&resting_until_s, phase_end_s);
    sleep_until(phase_end_s);
}

static void *work(void *at)
{
    struct worker *worker = at;
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        pthread_barrier_wait(&begin_phase);
        if (worker->index > 0 && kernel->answer)
            kernel->answer(worker);
        else if (calibrating)
            calibrate(worker);
        else
            run_level(worker);
        if (worker->index == 0)
            atomic_store(&phase_over, true);
        pthread_barrier_wait(&end_phase);
    }
    return NULL;
}

/* What all workers did since the begin of the phase. */
struct sum {
    uint64_t operations, bytes, chunks, work_ns;
};

static struct sum sum_up(void)
{
    struct sum sum = {0};
    for (unsigned i = 0; i < options.threads; i++) {
        sum.operations += read_counter(&workers[i].operations);
        sum.bytes += read_counter(&workers[i].bytes);
        sum.chunks += read_counter(&workers[i].chunks);
        sum.work_ns += read_counter(&workers[i].work_ns);
    }
    return sum;
}

static void enter_phase(double level)
{
    share = level;
    for (unsigned i = 0; i < options.threads; i++) {
        atomic_store(&workers[i].operations, 0);
        atomic_store(&workers[i].bytes, 0);
        atomic_store(&workers[i].chunks, 0);
        atomic_store(&workers[i].work_ns, 0);
    }
    atomic_store(&resting_until_s, 0);
    atomic_store(&phase_over, false);
    if (kernel->hold)
        kernel->hold(level);
}

static void report_calibration(void)
{
    double mean_s = 0;
    unsigned active = kernel->answer ? 1 : (unsigned)options.threads;
    struct sum sum = sum_up();
    for (unsigned i = 0; i < active; i++)
        mean_s += workers[i].chunk_s / active;
    double per_s = active / mean_s / (double)sum.chunks;
    printf("{\"event\": \"calibrated\", \"chunk_s\": %.9g, "
           "\"operations_per_s\": %.9g", mean_s,
           (double)sum.operations * per_s);
    if (kernel->counts_bytes)
        printf(", \"bytes_per_s\": %.9g", (double)sum.bytes * per_s);
    printf("}\n");
}

static void report_level(double begin_s, struct sum *last)
{
    struct sum sum = sum_up();
    printf("{\"event\": \"level\", \"percent\": %.6g, \"seconds\": %.6f, "
           "\"operations\": %llu", share * 100, now_s() - begin_s,
           (unsigned long long)sum.operations);
    if (kernel->counts_bytes)
        printf(", \"bytes\": %llu", (unsigned long long)sum.bytes);
    if (kernel->held)
        printf(", \"held_bytes\": %llu", (unsigned long long)kernel->held());
    if (sum.chunks > last->chunks)
        printf(", \"chunk_s\": %.9g", (double)(sum.work_ns - last->work_ns)
               * 1e-9 / (double)(sum.chunks - last->chunks));
    printf("}\n");
    *last = sum;
}

static void run_calibration(void)
{
    double top = 1;
    if (kernel->held)            /* no more than it is asked to hold */
        top = highest_share(&options);
    if (kernel->calibrated_bytes > 0)
        top = lower(top, kernel->calibrated_bytes / (double)options.size);
    enter_phase(top > 0.01 ? top : 0.01);
    calibrating = true;
    pthread_barrier_wait(&begin_phase);
    pthread_barrier_wait(&end_phase);
    calibrating = false;
    report_calibration();
}

static void run_levels(void)
{
    for (size_t i = 0; i < options.level_count; i++) {
        struct sum last = {0};
        enter_phase(options.levels[i].share);
        double begin_s = now_s(), next_s = begin_s + options.every_s;
        phase_end_s = begin_s + options.levels[i].seconds;
        double end_s = phase_end_s;
        pthread_barrier_wait(&begin_phase);
        for (; next_s < end_s; next_s += options.every_s) {
            sleep_until(next_s);
            report_level(begin_s, &last);
        }
        pthread_barrier_wait(&end_phase);
        report_level(begin_s, &last);
    }
}

static void start_worker(unsigned index)
{
    struct worker *worker = &workers[index];
    pthread_attr_t attributes;
    pthread_t thread;
    cpu_set_t cpus;
    worker->index = index;
    worker->state = options.seed * 0x9e3779b97f4a7c15ull + index + 1;
    worker->chunk_s = options.chunk_s;
    pthread_attr_init(&attributes);
    if (options.cpu_count) {
        CPU_ZERO(&cpus);
        CPU_SET(options.cpus[index % options.cpu_count], &cpus);
        pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    }
    int error = pthread_create(&thread, &attributes, work, worker);
    if (error)
        fail(2, "no thread %u (%s): lower --threads", index + 1,
             strerror(error));
    pthread_attr_destroy(&attributes);
}

/* The first that the kernel kills when memory is short is this one. */
static void volunteer(void)
{
    FILE *to = fopen("/proc/self/oom_score_adj", "we");
    if (to) {
        fputs("1000", to);
        fclose(to);
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    /* killed when the thread that started it ends; when that was before this
     * line, the next line of its output has no reader */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (strcmp(name, KERNELS[i]->name) == 0)
            kernel = KERNELS[i];
    if (!kernel && strcmp(name, "serve") != 0)
        fail(2, "there is no kernel '%s': name one of the 17, or serve",
             name);
    read_options(&options, name, argc - 2, argv + 2);
    volunteer();
    if (!kernel)
        serve(&options);
    if (!options.threads)
        options.threads = kernel->answer && options.cpu_count
            ? options.cpu_count : 1;
    if (options.threads > kernel->threads)
        fail(2, "%s has at most %u threads: start it once for each CPU",
             name, kernel->threads);
    kernel->prepare(&options);
    pthread_barrier_init(&begin_phase, NULL, (unsigned)options.threads + 1);
    pthread_barrier_init(&end_phase, NULL, (unsigned)options.threads + 1);
    for (unsigned i = 0; i < options.threads; i++)
        start_worker(i);
    if (options.chunk_s == 0 || !options.level_count)
        run_calibration();
    run_levels();
    printf("{\"event\": \"end\"}\n");
    fflush(stdout);
    _exit(0);
}
