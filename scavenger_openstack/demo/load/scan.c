/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Batch work on a disk: reads all over it, past the page cache.
 *
 *   scan DEVICE OUT THREADS
 *       OUT: 64-bit integers, one every 64 bytes: MiB read per thread
 */
#define _GNU_SOURCE
#include "demo.h"
#include <pthread.h>

#define PIECE ((size_t)1 << 20)

static int disk;
static uint64_t pieces;

static void *work(void *at)
{
    volatile uint64_t *units = at;
    uint64_t state = (uintptr_t)at;
    void *buffer;
    if (posix_memalign(&buffer, 4096, PIECE) != 0)
        fail("posix_memalign");
    for (;;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        off_t piece = (state >> 33) % pieces;
        if (pread(disk, buffer, PIECE, piece * PIECE) != (ssize_t)PIECE)
            fail("pread");
        *units += 1;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 4)
        return 2;
    disk = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (disk < 0)
        fail(argv[1]);
    pieces = lseek(disk, 0, SEEK_END) / PIECE;
    int threads = atoi(argv[3]);
    char *out = share(argv[2], 64 * (size_t)threads);
    for (int i = 0; i < threads; i++)
        if ((errno = pthread_create(&thread, NULL, work, out + 64 * i)))
            fail("pthread_create");
    for (;;)
        pause();
}
