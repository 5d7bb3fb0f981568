/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A latency-sensitive reader of a disk under open-loop load.
 *
 *   lookup DEVICE LOOKUPS OUT THREADS START_S
 *       LOOKUPS: doubles, pairs of (due after START_S in s, place 0..1)
 *       OUT: doubles, one latency in s per lookup; 0 is not yet done
 *
 * A lookup reads 4 KiB, past the page cache.  As in service.c the next one
 * is always taken by the next free thread, and latency counts from the
 * moment it was due.
 */
#define _GNU_SOURCE
#include "demo.h"
#include <pthread.h>
#include <stdatomic.h>

#define BLOCK 4096

static const double *lookups;
static double *latency;
static size_t count;
static atomic_size_t next;
static double start_s;
static int disk;
static uint64_t blocks;

static void *serve(void *unused)
{
    void *buffer;
    (void)unused;
    if (posix_memalign(&buffer, BLOCK, BLOCK) != 0)
        fail("posix_memalign");
    for (;;) {
        size_t i = atomic_fetch_add(&next, 1);
        if (i >= count)
            return NULL;
        double due_s = start_s + lookups[2 * i];
        sleep_until(due_s);
        uint64_t block = lookups[2 * i + 1] * (blocks - 1);
        if (pread(disk, buffer, BLOCK, block * BLOCK) != BLOCK)
            fail("pread");
        latency[i] = now_s() - due_s;
    }
}

int main(int argc, char **argv)
{
    pthread_t thread[64];
    if (argc != 6)
        return 2;
    disk = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (disk < 0)
        fail(argv[1]);
    blocks = lseek(disk, 0, SEEK_END) / BLOCK;
    lookups = read_doubles(argv[2], &count);
    count /= 2;
    latency = share(argv[3], count * sizeof(double));
    int threads = atoi(argv[4]);
    start_s = strtod(argv[5], NULL);
    for (int i = 0; i < threads && i < 64; i++)
        if ((errno = pthread_create(&thread[i], NULL, serve, NULL)))
            fail("pthread_create");
    for (int i = 0; i < threads && i < 64; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
