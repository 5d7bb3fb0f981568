/* SPDX-License-Identifier: Apache-2.0 */

#define _GNU_SOURCE
#include "domain_workload.h"
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define STEPS 20000         /* of one round of CPU work */
#define BACKLOG_S 1.0       /* a lookup that waited longer is dropped */
#define HELD_UP_S 0.05      /* what is later than this does not catch up */
#define ALIGNMENT 4096      /* of direct I/O */
#define SEED 88172645463325252ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tally tally;
static volatile uint64_t sink;

double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

void sleep_until(double when_s)
{
    struct timespec t = {(time_t)when_s, 0};

    t.tv_nsec = (long)((when_s - t.tv_sec) * 1e9);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
}

/* --- counting */

/* Only with the lock. */
static void begin(const char *work)
{
    memset(&tally, 0, sizeof(tally));
    strcpy(tally.work, work);
    tally.since_s = now_s();
}

void replace(struct order **current, struct order *by)
{
    pthread_mutex_lock(&lock);
    /* It is never freed: a worker may be stuck in a request. */
    (*current)->stopped = 1;
    *current = by;
    begin(by->work);
    by->began_s = by->due_s = tally.since_s;
    pthread_mutex_unlock(&lock);
}

double take(struct tally *into)
{
    double due_s;

    pthread_mutex_lock(&lock);
    due_s = tally.since_s + 1;
    if (now_s() >= due_s) {
        due_s = 0;
        *into = tally;
        begin(into->work);
    }
    pthread_mutex_unlock(&lock);
    return due_s;
}

/* What a stopped worker did is not counted. */
static void did(struct order *o, uint64_t bytes, double latency_s)
{
    pthread_mutex_lock(&lock);
    if (!o->stopped) {
        tally.done++;
        tally.bytes += bytes;
        if (latency_s >= 0 && tally.latencies < LATENCIES)
            tally.latency_s[tally.latencies++] = latency_s;
    }
    pthread_mutex_unlock(&lock);
}

static void did_not(struct order *o, long *count)
{
    pthread_mutex_lock(&lock);
    if (!o->stopped)
        ++*count;
    pthread_mutex_unlock(&lock);
    if (count == &tally.failed)
        usleep(100000);
}

/* --- work */

static uint64_t dice(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

static void spin(long rounds)
{
    uint64_t x = SEED;

    for (long i = 0; i < rounds * STEPS; i++)
        x = x * 6364136223846793005ull + 1442695040888963407ull;
    sink = x;
}

/* Wait for the turn of a piece of a paced stream.  One that was held up does
 * not catch up: after a cap it is as fast as before. */
static void pace(struct order *o, uint64_t bytes)
{
    double due_s;

    if (!o->bytes_per_s)
        return;
    pthread_mutex_lock(&lock);
    due_s = o->due_s += (double)bytes / o->bytes_per_s;
    if (due_s < now_s() - HELD_UP_S)
        o->due_s = now_s();
    pthread_mutex_unlock(&lock);
    sleep_until(due_s);
}

static void *cpu(void *order)
{
    struct order *o = order;

    while (!o->stopped) {
        spin(1);
        did(o, 0, -1);
    }
    return 0;
}

static void *disk(void *order)
{
    struct order *o = order;
    size_t piece = o->kib * 1024;
    uint64_t pieces = o->disk_bytes / piece, seed = SEED + (uintptr_t)&seed;
    unsigned turn = 0;
    int writes = !strcmp(o->mode, "write"), mixed = !strcmp(o->mode, "mixed");
    char *buffer;

    if (posix_memalign((void **)&buffer, ALIGNMENT, piece))
        return 0;
    memset(buffer, 'x', piece);
    while (!o->stopped) {
        double began_s;
        uint64_t at;
        ssize_t got;
        int fd = o->fds[turn++ % DISKS];

        pace(o, piece);
        at = piece * ((*o->sequence ? (uint64_t)atomic_fetch_add(&o->next, 1)
                       : dice(&seed)) % pieces);
        began_s = now_s();
        got = writes || (mixed && dice(&seed) % 2)
            ? pwrite(fd, buffer, piece, at)
            : pread(fd, buffer, piece, at);
        if (got == (ssize_t)piece)
            did(o, piece, now_s() - began_s);
        else
            did_not(o, &tally.failed);
    }
    free(buffer);
    return 0;
}

/* At a random moment of its turn: a steady beat would meet each tick of the
 * guest's kernel in one phase, which is another at each boot. */
static void *lookup(void *order)
{
    struct order *o = order;
    size_t piece = o->kib * 1024;
    uint64_t seed = SEED + (uintptr_t)&seed;
    char *buffer;

    if (posix_memalign((void **)&buffer, ALIGNMENT, piece))
        return 0;
    while (!o->stopped) {
        double phase = dice(&seed) % 1000 / 1000.0;
        double due_s = o->began_s
            + (atomic_fetch_add(&o->next, 1) + phase) / o->per_s;

        sleep_until(due_s);
        if (now_s() - due_s > BACKLOG_S) {
            did_not(o, &tally.dropped);
            continue;
        }
        if (pread(o->fds[0], buffer, piece,
                  dice(&seed) % (o->disk_bytes / piece) * piece)
                != (ssize_t)piece) {
            did_not(o, &tally.failed);
            continue;
        }
        spin(o->rounds);
        did(o, piece, now_s() - due_s);
    }
    free(buffer);
    return 0;
}

/* A socket that is connected; -1: not now. */
static int connected(const struct order *o, int kind)
{
    const struct timeval patience = {.tv_usec = 200000};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(o->port)};
    int fd = socket(AF_INET, kind | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, o->address, &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (!connect(fd, (void *)&to, sizeof(to)))
        return fd;
    close(fd);
    return -1;
}

static void *net(void *order)
{
    struct order *o = order;
    int tcp = !strcmp(o->mode, "tcp"), fd = -1;
    size_t piece = tcp ? 65536 : 1400;
    char *buffer = calloc(1, piece);

    while (!o->stopped && buffer) {
        ssize_t sent;

        if (fd < 0) {
            fd = connected(o, tcp ? SOCK_STREAM : SOCK_DGRAM);
            if (fd < 0) {
                did_not(o, &tally.failed);
                continue;
            }
        }
        pace(o, piece);
        sent = send(fd, buffer, piece, MSG_NOSIGNAL);
        if (sent > 0) {
            did(o, sent, -1);
        } else if (errno != EAGAIN && errno != ENOBUFS) {
            did_not(o, &tally.failed);
            close(fd);
            fd = -1;
        }
    }
    close(fd);
    free(buffer);
    return 0;
}

static void *memory(void *order)
{
    struct order *o = order;
    size_t size = (size_t)o->mib << 20;
    char *held = calloc(1, size);

    while (!o->stopped) {
        if (!held) {
            did_not(o, &tally.failed);
            continue;
        }
        for (size_t at = 0; at < size && !o->stopped; at += 4096)
            held[at]++;
        did(o, size, -1);
        usleep(10000);
    }
    free(held);
    return 0;
}

static void *rest(void *order)
{
    return order;
}

worker *worker_named(const char *work)
{
    static const struct {
        const char *name;
        worker *run;
    } works[] = {{"rest", rest}, {"cpu", cpu}, {"disk", disk},
                 {"lookup", lookup}, {"net", net}, {"memory", memory}};

    for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
        if (!strcmp(work, works[i].name))
            return works[i].run;
    return 0;
}
