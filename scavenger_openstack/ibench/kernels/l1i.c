/* SPDX-License-Identifier: Apache-2.0 */

/* SoI8, L1 i-cache.  Source: iBench, section III-B.
 * Intensity: a sweep runs through x % of the lines of the L1i, all sets of a
 * way in random order, then the next way: a jump in each line to the next. */
#define _GNU_SOURCE
#include "soi.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t line, lines, sets, target, seed;

static uint64_t number_at(uint64_t i)
{
    return i / sets * sets + shuffle(i % sets, sets, seed);
}

#if defined(SOI_X86_64) || defined(SOI_AARCH64)

static char *code;

static void put(char *at, uint32_t word, size_t bytes)
{
    memcpy(at, &word, bytes);
}

/* The line that comes first returns, each other one jumps to the one before
 * it: entered at the n-th, exactly n lines run. */
static void write_code(void)
{
    for (uint64_t i = 0; i < lines; i++) {
        char *at = code + number_at(i) * line;
        long to = i ? (long)((code + number_at(i - 1) * line) - at) : 0;
#if defined(SOI_X86_64)
        memset(at, 0xcc, line);
        if (i) {
            put(at, 0xe9, 1);                    /* jmp rel32 */
            put(at + 1, (uint32_t)(to - 5), 4);
        } else {
            put(at, 0xc3, 1);                    /* ret */
        }
#else
        put(at, i ? 0x14000000u | ((uint32_t)(to / 4) & 0x03ffffffu)
            : 0xd65f03c0u, 4);                   /* b, ret */
#endif
    }
    __builtin___clear_cache(code, code + lines * line);
}

static void prepare_code(void)
{
    code = reserve(lines * line, 0, false);
    write_code();
    /* never writable and executable at once */
    if (mprotect(code, lines * line, PROT_READ | PROT_EXEC) != 0)
        fail(2, "this host lets no program make code (mprotect: %s): leave "
             "SoI8 out, or allow execmem", strerror(errno));
}

static void sweep(uint64_t *state)
{
    void (*enter)(void);
    char *at = code + number_at(target - 1) * line;
    (void)state;
    memcpy(&enter, &at, sizeof enter);
    enter();
}

#else

static void prepare_code(void)
{
    if (lines > BLOCKS)
        fail(2, "the portable code of SoI8 has %u lines, this L1i %llu",
             BLOCKS, (unsigned long long)lines);
}

static void sweep(uint64_t *state)
{
    for (uint64_t i = 0; i < target; i++)
        *state = blocks[number_at(i)](*state);
}

#endif

static void prepare(struct options *options)
{
    uint64_t bytes = options->size ? options->size : options->l1i;
    line = options->line;
    lines = bytes / line;
    sets = options->sets ? options->sets
        : lines / (options->ways ? options->ways : 8);
    if (!bytes || !sets || lines % sets)
        fail(2, "l1i needs size= or l1i=BYTES, a whole number of ways of "
             "%llu sets", (unsigned long long)sets);
    seed = options->seed;
    prepare_code();
}

static void hold(double share)
{
    target = (uint64_t)(share * (double)lines + 0.5);
}

static double chunk(struct worker *worker)
{
    uint64_t sweeps = target ? (TOUCHES + target - 1) / target : 0;
    for (uint64_t i = 0; i < sweeps; i++)
        sweep(&worker->state);
    count(worker, sweeps * target, 0);
    return 1;
}

static uint64_t held(void)
{
    return target * line;
}

const struct kernel l1i = {
    .name = "l1i", .threads = 1, .prepare = prepare, .hold = hold,
    .chunk = chunk, .held = held};
