/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Batch work on the CPU.
 *
 *   hog OUT THREADS
 *       OUT: 64-bit integers, one every 64 bytes: units done per thread
 *
 * A unit is 100,000 iterations, the same in every phase.
 */
#define _GNU_SOURCE
#include "demo.h"
#include <pthread.h>

static void *work(void *at)
{
    volatile uint64_t *units = at;
    uint64_t state = 1;
    for (;;) {
        state = spin(100000, state);
        *units += 1;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 3)
        return 2;
    int threads = atoi(argv[2]);
    char *out = share(argv[1], 64 * (size_t)threads);
    for (int i = 0; i < threads; i++)
        if ((errno = pthread_create(&thread, NULL, work, out + 64 * i)))
            fail("pthread_create");
    for (;;)
        pause();
}
