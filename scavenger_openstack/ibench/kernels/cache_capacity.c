/* SPDX-License-Identifier: Apache-2.0 */

/* SoI6, SoI6' and SoI9, capacity of LLC, L2 and L1d.  Source: iBench, III-B.
 * Intensity: x % of the lines, random within a way and way after way, so each
 * set holds the same; between, a sweep of the inner caches makes us miss. */
#include "soi.h"
#include <stdlib.h>
#include <sys/mman.h>

#define WALKERS 8u           /* independent chains: as many misses at once */

static char *lines, *inner_lines;
static uint64_t line, sets, ways, seed, inner, page;
static uint64_t target, linked;      /* lines of the level, and chained */
static void *walker[WALKERS];

/* The I-th line in the order in which they are taken: all sets of a way in
 * random order, then the next way. */
static void **line_at(uint64_t i)
{
    return (void **)(lines + (i / sets * sets
                              + shuffle(i % sets, sets, seed)) * line);
}

static void prepare(struct options *options, uint64_t inner_bytes,
                    bool huge, const char *name)
{
    line = options->line;
    ways = options->ways ? options->ways : 8;
    sets = options->sets;
    if (!sets)
        sets = options->size / line / ways;
    if (!sets || (options->size && options->size != sets * ways * line))
        fail(2, "%s: size=%llu is not sets %llu x ways %llu x line %llu; "
             "name the cache's geometry", name,
             (unsigned long long)options->size, (unsigned long long)sets,
             (unsigned long long)ways, (unsigned long long)line);
    options->size = sets * ways * line;
    seed = options->seed;
    inner = inner_bytes;
    page = page_size(options);
    check_memory((double)options->size * highest_share(options)
                 + (double)inner);
    lines = reserve(options->size, options->page, huge);
    if (inner)
        inner_lines = reserve(inner, 0, false);
    for (uint64_t at = 0; at < inner; at += line)
        inner_lines[at] = 1;
}

static void prepare_llc(struct options *options)
{
    if (!options->l1d || !options->l2)
        fail(2, "llc_capacity needs l1d= and l2=, which it sweeps past");
    prepare(options, options->l1d + options->l2, true, "llc_capacity");
}

static void prepare_l2(struct options *options)
{
    if (!options->l1d)
        fail(2, "l2_capacity needs l1d=, which it sweeps past");
    prepare(options, options->l1d, true, "l2_capacity");
}

static void prepare_l1d(struct options *options)
{
    if (!options->size)
        options->size = options->l1d;
    prepare(options, 0, false, "l1d");
}

/* Close the ring at its last line and spread the walkers over it. */
static void close_ring(void)
{
    *line_at(0) = line_at(linked - 1);
    for (unsigned k = 0; k < WALKERS; k++)
        walker[k] = line_at(linked * k / WALKERS);
}

static void hold(double share)
{
    uint64_t way_bytes = sets * line, all = sets * ways * line;
    target = (uint64_t)(share * (double)(sets * ways) + 0.5);
    if (target >= linked)
        return;
    uint64_t kept = (target + sets - 1) / sets * way_bytes;
    kept = (kept + page - 1) / page * page;
    if (kept < all)
        madvise(lines + kept, all - kept, MADV_DONTNEED);
    linked = target;
    if (linked)
        close_ring();
}

static void walk(uint64_t steps)
{
    void *at[WALKERS];
    for (unsigned k = 0; k < WALKERS; k++)
        at[k] = walker[k];
    for (uint64_t i = 0; i < steps; i += WALKERS)
        for (unsigned k = 0; k < WALKERS; k++)
            at[k] = *(void **)at[k];
    for (unsigned k = 0; k < WALKERS; k++)
        walker[k] = at[k];
}

static void sweep(void)
{
    uint64_t sum = 0;
    for (uint64_t at = 0; at < inner; at += line)
        sum += (uint64_t)inner_lines[at];
    __asm__ volatile("" : : "r"(sum));
}

static double chunk(struct worker *worker)
{
    if (linked < target) {
        uint64_t end = linked + TOUCHES / 4;
        if (end > target)
            end = target;
        for (uint64_t i = linked; i < end; i++)
            *line_at(i) = i ? line_at(i - 1) : NULL;
        count(worker, end - linked, 0);
        linked = end;
        if (linked == target)
            close_ring();
        return 0;
    }
    if (!linked)
        return 1;
    /* a round: no line twice, and no more than the inner caches hold */
    uint64_t round = inner ? inner / line : TOUCHES;
    uint64_t rounds = (TOUCHES + round - 1) / round;
    if (inner && round > linked)
        round = linked;
    round = (round + WALKERS - 1) / WALKERS * WALKERS;
    for (uint64_t i = 0; i < rounds; i++) {
        walk(round);
        sweep();
    }
    count(worker, round * rounds, 0);
    return 1;
}

static uint64_t held(void)
{
    return linked * line;
}

#define CAPACITY(NAME, PREPARE)                                            \
    const struct kernel NAME = {                                           \
        .name = #NAME, .threads = 1, .prepare = PREPARE, .hold = hold,     \
        .chunk = chunk, .held = held}

CAPACITY(llc_capacity, prepare_llc);
CAPACITY(l2_capacity, prepare_l2);
CAPACITY(l1d, prepare_l1d);
