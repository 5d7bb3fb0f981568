/* SPDX-License-Identifier: Apache-2.0 */

/* SoI2, SoI7 and SoI7', bandwidth of memory, LLC and L2.  Source: iBench,
 * section III-B, second snippet: access[i] = data[i] * data[i + 4], serial.
 * Intensity: the rate, over 10 % of size= that the next inner cache misses. */
#include "soi.h"

/* 10 % of a large memory is more than the rate needs; four times the LLC is
 * not held by it. */
#define MOST_MEMORY (256.0 * MIB)

typedef double quad __attribute__((vector_size(32)));
#define QUADS TOUCHES

static quad *areas[WORKERS];
static uint64_t quads;                       /* of data; as many of access */
static uint64_t position[WORKERS][16];       /* a line each */

/* The same loop twice: as wide as this CPU's vectors are. */
#define STREAM                                                             \
    for (uint64_t i = 0; i < n; i++)                                       \
        access[i] = data[i] * data[i + 1];

static void stream(quad *access, const quad *data, uint64_t n)
{
    STREAM
}

#ifdef SOI_X86_64
__attribute__((target("avx")))
static void stream_wide(quad *access, const quad *data, uint64_t n)
{
    STREAM
}
#endif

static void (*stream_part)(quad *, const quad *, uint64_t) = stream;

static void prepare_area(struct options *options, double bytes, bool huge)
{
    quads = (uint64_t)(bytes / (double)options->threads / 2) / sizeof(quad);
    if (quads < 8)
        fail(2, "--size is too small to stream over a part of it");
    check_memory(bytes);
#ifdef SOI_X86_64
    if (__builtin_cpu_supports("avx"))
        stream_part = stream_wide;
#endif
    for (unsigned i = 0; i < options->threads; i++) {
        areas[i] = (quad *)reserve((2 * quads + 1) * sizeof(quad),
                                   options->page, huge);
        for (uint64_t k = 0; k < 2 * quads + 1; k++)
            areas[i][k] = (quad){1, 1, 1, 1};
    }
}

static void prepare_memory(struct options *options)
{
    if (!options->size)
        fail(2, "memory_bandwidth needs size=BYTES, the memory of the host");
    double llc = (double)(options->sets * options->ways * options->line);
    double bytes = (double)options->size / 10;
    double most = 4 * llc > MOST_MEMORY ? 4 * llc : MOST_MEMORY;
    if (bytes < 4 * llc)
        fail(2, "10 %% of --size is less than 4 times the LLC, %.0f MiB: what "
             "streams over it stays in the cache", llc / MIB);
    prepare_area(options, bytes < most ? bytes : most, true);
}

static void prepare_cache(struct options *options, uint64_t inner,
                          const char *name)
{
    double size = (double)options->size;
    if (!options->size)
        size = (double)(options->sets * options->ways * options->line);
    if (size == 0 || !inner)
        fail(2, "%s needs size=BYTES of the cache and that of the one "
             "before it (l2= or l1d=)", name);
    /* each thread has an inner cache of its own */
    double least = 2 * (double)inner * (double)options->threads;
    double bytes = size / 10 > least ? size / 10 : least;
    if (bytes > size)
        fail(2, "%s: twice the inner cache, %.0f KiB, for each thread is "
             "more than the cache, %.0f KiB", name, (double)inner / 1024,
             size / 1024);
    prepare_area(options, bytes, true);
}

static void prepare_llc(struct options *options)
{
    prepare_cache(options, options->l2, "llc_bandwidth");
}

static void prepare_l2(struct options *options)
{
    prepare_cache(options, options->l1d, "l2_bandwidth");
}

static double chunk(struct worker *worker)
{
    quad *data = areas[worker->index], *access = data + quads + 1;
    uint64_t at = position[worker->index][0];
    for (uint64_t left = QUADS; left;) {
        uint64_t run = quads - at < left ? quads - at : left;
        stream_part(access + at, data + at, run);
        at = at + run == quads ? 0 : at + run;
        left -= run;
    }
    position[worker->index][0] = at;
    /* a number is read and one written; what the caches fetch to write is
     * not counted */
    count(worker, QUADS * 4, QUADS * 2 * sizeof(quad));
    return 1;
}

#define BANDWIDTH(NAME, PREPARE)                                           \
    const struct kernel NAME = {                                           \
        .name = #NAME, .threads = WORKERS, .counts_bytes = true,           \
        .prepare = PREPARE, .chunk = chunk}

BANDWIDTH(memory_bandwidth, prepare_memory);
BANDWIDTH(llc_bandwidth, prepare_llc);
BANDWIDTH(l2_bandwidth, prepare_l2);
