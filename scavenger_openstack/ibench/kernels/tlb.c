/* SPDX-License-Identifier: Apache-2.0 */

/* SoI10, translation lookaside buffer.  Source: iBench, section III-B.
 * Intensity: x % of entries= pages are read, a line of each, at a rate that
 * grows with x.  Unwritten pages are all the kernel's page of zeros: its
 * lines alone are cached, so that it is the TLB that is filled. */
#include "soi.h"
#include <sys/mman.h>

static char *area;
static uint64_t entries, target, page, line, seed;

static void prepare(struct options *options)
{
    if (!options->entries)
        fail(2, "tlb needs entries=N, the pages that the TLB translates");
    entries = options->entries;
    page = page_size(options);
    line = options->line;
    seed = options->seed;
    area = reserve(entries * page, page, false);
    options->size = entries * page;
}

static void hold(double share)
{
    uint64_t before = target;
    target = (uint64_t)(share * (double)entries + 0.5);
    if (target < before)
        madvise(area + target * page, (before - target) * page,
                MADV_DONTNEED);
}

static double chunk(struct worker *worker)
{
    uint64_t sum = 0, at = worker->state % (target ? target : 1);
    if (!target)
        return 1;
    for (unsigned i = 0; i < TOUCHES; i++) {
        uint64_t number = shuffle(at, target, seed);
        sum += (uint64_t)area[number * page + number * line % page];
        at = at + 1 == target ? 0 : at + 1;
    }
    __asm__ volatile("" : : "r"(sum));
    worker->state = at;
    count(worker, TOUCHES, 0);
    return 1;
}

/* The address space that the pages span, not memory. */
static uint64_t held(void)
{
    return target * page;
}

const struct kernel tlb = {
    .name = "tlb", .threads = 1, .prepare = prepare, .hold = hold,
    .chunk = chunk, .held = held};
