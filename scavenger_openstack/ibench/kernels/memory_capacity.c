/* SPDX-License-Identifier: Apache-2.0 */

/* SoI1, memory capacity.  Source: iBench, section III-B, first snippet.
 * Intensity: x % of size= is held, and touched at random addresses by 32
 * independent sums (the paper's SSA); new pages come in random order. */
#include "soi.h"
#include <sys/mman.h>

#define SUMS 32u
#define PAGES 256u           /* made real in a chunk */

static uint64_t *data;
static uint64_t page, pages, held_pages, target_pages, first_new, seed;

static void prepare(struct options *options)
{
    if (!options->size)
        fail(2, "memory_capacity needs size=BYTES, the memory that is 100 %%");
    seed = options->seed;
    page = page_size(options);
    pages = options->size / page;
    if (!pages)
        fail(2, "--size is less than a page, %llu bytes",
             (unsigned long long)page);
    check_memory((double)(pages * page) * highest_share(options));
    data = (uint64_t *)reserve(pages * page, page, false);
}

static void hold(double share)
{
    target_pages = (uint64_t)(share * (double)pages + 0.5);
    first_new = held_pages;
    if (target_pages >= held_pages)
        return;
    madvise((char *)data + target_pages * page,
            (held_pages - target_pages) * page, MADV_DONTNEED);
    held_pages = first_new = target_pages;
}

static double chunk(struct worker *worker)
{
    uint64_t access[SUMS] = {0}, state = worker->state;
    uint64_t words = page / sizeof *data;
    if (held_pages < target_pages) {
        uint64_t end = held_pages + PAGES;
        if (end > target_pages)
            end = target_pages;
        for (uint64_t i = held_pages; i < end; i++)
            data[(first_new + shuffle(i - first_new, target_pages - first_new,
                                      seed)) * words] = i + 1;
        count(worker, end - held_pages, 0);
        held_pages = end;
        return 0;
    }
    uint64_t all = held_pages * words;
    if (!all)                /* x % is less than half a page */
        return 1;
    for (unsigned i = 0; i < TOUCHES; i += SUMS)
        for (unsigned k = 0; k < SUMS; k++) {
            /* random % all without a division */
            uint64_t r = (uint64_t)(((unsigned __int128)next_random(&state)
                                     * all) >> 64);
            access[k] += data[r] << 1;
        }
    for (unsigned k = 0; k < SUMS; k++)
        __asm__ volatile("" : : "r"(access[k]));
    worker->state = state;
    count(worker, TOUCHES, 0);
    return 1;
}

/* While a level is being reached its pages are among all of it. */
static uint64_t held(void)
{
    return held_pages * page;
}

const struct kernel memory_capacity = {
    .name = "memory_capacity", .threads = 1, .prepare = prepare,
    .hold = hold, .chunk = chunk, .held = held,
    .calibrated_bytes = 64.0 * MIB};
