/* SPDX-License-Identifier: Apache-2.0 */

/* What the guests of the hypervisor tests do: one kind of work at a time. */

#ifndef DOMAIN_WORKLOAD_H
#define DOMAIN_WORKLOAD_H

#include <stdatomic.h>
#include <stdint.h>

#define LATENCIES 4096      /* kept of one second */
#define DISKS 2

/* One command for the workers; the next one comes in its place. */
struct order {
    char work[16], mode[16], sequence[16], address[64];
    long threads, kib, mib, per_s, rounds, bytes_per_s, port, disks;
    int fds[DISKS];         /* the first one again where there is no second */
    uint64_t disk_bytes;    /* of the smaller one */
    double began_s, due_s;
    _Atomic long next;
    _Atomic int stopped;
};

/* What was done since a moment, by which work. */
struct tally {
    char work[16];
    double since_s;
    long done, dropped, failed;
    uint64_t bytes;
    int latencies;
    double latency_s[LATENCIES];
};

typedef void *worker(void *order);

double now_s(void);
void sleep_until(double when_s);

/* The worker of this name; 0: there is none. */
worker *worker_named(const char *work);

/* Let the old workers end, and begin to count for a new order. */
void replace(struct order **current, struct order *by);

/* Take what was counted in a second, and begin again.  Returns 0, or when the
 * second ends that has begun: with a command a new one begins. */
double take(struct tally *into);

#endif
