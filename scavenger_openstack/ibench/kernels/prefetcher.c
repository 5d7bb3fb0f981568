/* SPDX-License-Identifier: Apache-2.0 */

/* SoI13, prefetchers.  Source: iBench, section III-B: a small program in a
 * quarter of the L1i whose instructions interleave with the application's.
 * Intensity: the time it is not idle.  It yields the CPU after each chunk. */
#include "soi.h"
#include <sched.h>

#define CALLS 1024u

static uint64_t used;        /* functions: the last power of two */

static void prepare(struct options *options)
{
    uint64_t l1i_bytes = options->l1i ? options->l1i : options->size;
    if (!l1i_bytes)
        fail(2, "prefetcher needs l1i=BYTES, of which it takes a quarter");
    for (used = 1; used * 2 <= l1i_bytes / 4 / 64 && used * 2 <= BLOCKS;)
        used *= 2;
}

static double chunk(struct worker *worker)
{
    uint64_t state = worker->state;
    for (unsigned i = 0; i < CALLS; i++)
        state = blocks[state >> 33 & (used - 1)](state);
    worker->state = state;
    count(worker, CALLS, 0);
    sched_yield();
    return 1;
}

const struct kernel prefetcher = {
    .name = "prefetcher", .threads = WORKERS, .prepare = prepare,
    .chunk = chunk};
