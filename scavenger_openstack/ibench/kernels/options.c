/* SPDX-License-Identifier: Apache-2.0 */

/* The arguments: KEY=VALUE, checked, one sentence for each that is wrong. */
#define _GNU_SOURCE
#include "soi.h"
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* A number from LOW to HIGH at the begin of TEXT; *END is what follows. */
static double number(const char *key, const char *text, double low,
                     double high, const char **end)
{
    char *after;
    errno = 0;
    double value = strtod(text, &after);
    if (after == text || errno || !(value >= low && value <= high))
        fail(2, "%s=%s: a number from %g to %g is needed", key, text, low,
             high);
    *end = after;
    return value;
}

static double whole(const char *key, const char *text, double low,
                    double high)
{
    const char *end;
    double value = number(key, text, low, high, &end);
    if (*end)
        fail(2, "%s=%s: a number is needed, '%s' follows it", key, text, end);
    return value;
}

static void read_levels(struct options *options, const char *text)
{
    const char *at = text;
    options->levels = calloc(LEVELS, sizeof *options->levels);
    if (!options->levels)
        fail(2, "no memory for the levels");
    for (;;) {
        if (options->level_count == LEVELS)
            fail(2, "levels=: at most %d levels", LEVELS);
        struct level *level = &options->levels[options->level_count++];
        level->share = number("levels (percent)", at, 0, 100, &at) / 100;
        if (*at != ':')
            fail(2, "levels=%s: PERCENT:SECONDS is needed, as in 40:5", text);
        level->seconds = number("levels (seconds)", at + 1, 0.001, 1e7, &at);
        if (*at == 0)
            return;
        if (*at++ != ',')
            fail(2, "levels=%s: a comma is needed between levels", text);
    }
}

static void read_cpus(struct options *options, const char *text)
{
    const char *at = text;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        fail(2, "--cpus %s: sched_getaffinity: %s", text, strerror(errno));
    for (;;) {
        double cpu = number("cpus", at, 0, CPU_SETSIZE - 1, &at);
        if (options->cpu_count == WORKERS || cpu != (int)cpu)
            fail(2, "--cpus %s: the numbers of at most %d CPUs are needed",
                 text, WORKERS);
        if (!CPU_ISSET((int)cpu, &allowed))
            fail(2, "CPU %.0f is not one of those that this process may "
                 "use: change --cpus or its cpuset", cpu);
        options->cpus[options->cpu_count++] = (int)cpu;
        if (*at == 0)
            return;
        if (*at++ != ',')
            fail(2, "--cpus %s: a comma is needed between CPUs", text);
    }
}

/* Each option that is a whole number of bytes or things, and its range. */
static const struct {
    const char *key;
    size_t offset;
    double low, high;
} NUMBERS[] = {
    {"size", offsetof(struct options, size), 1, 1e18},
    {"line", offsetof(struct options, line), 16, 4096},
    {"ways", offsetof(struct options, ways), 1, 4096},
    {"sets", offsetof(struct options, sets), 1, 1e9},
    {"l1d", offsetof(struct options, l1d), 1024, 1e9},
    {"l1i", offsetof(struct options, l1i), 1024, 1e9},
    {"l2", offsetof(struct options, l2), 1024, 1e10},
    {"page", offsetof(struct options, page), 4096, 17179869184.0},
    {"entries", offsetof(struct options, entries), 1, 1e7},
    {"threads", offsetof(struct options, threads), 1, WORKERS},
    {"seed", offsetof(struct options, seed), 1, 1e15},
};

static bool power_of_two(uint64_t value)
{
    return (value & (value - 1)) == 0;
}

static bool read_number(struct options *options, const char *key,
                        const char *value)
{
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
        if (strcmp(key, NUMBERS[i].key) != 0)
            continue;
        double at = whole(key, value, NUMBERS[i].low, NUMBERS[i].high);
        if (at != (double)(uint64_t)at)
            fail(2, "%s=%s: a whole number is needed", key, value);
        *(uint64_t *)((char *)options + NUMBERS[i].offset) = (uint64_t)at;
        return true;
    }
    return false;
}

void read_options(struct options *options, const char *name, int argc,
                  char **argv)
{
    *options = (struct options){.every_s = 0.1, .line = 64, .seed = 1};
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            fail(2, "'%s': options are KEY=VALUE", argv[i]);
        *value++ = 0;
        const char *key = argv[i];
        if (strcmp(key, "levels") == 0)
            read_levels(options, value);
        else if (strcmp(key, "cpus") == 0)
            read_cpus(options, value);
        else if (strcmp(key, "path") == 0)
            options->path = value;
        else if (strcmp(key, "address") == 0)
            options->address = value;
        else if (strcmp(key, "chunk_s") == 0)
            options->chunk_s = whole(key, value, 1e-9, 3600);
        else if (strcmp(key, "calibrate_s") == 0)
            options->calibrate_s = whole(key, value, 0.001, 3600);
        else if (strcmp(key, "every_s") == 0)
            options->every_s = whole(key, value, 0.001, 3600);
        else if (!read_number(options, key, value))
            fail(2, "there is no option %s=", key);
    }
    if (!power_of_two(options->line) || !power_of_two(options->page))
        fail(2, "line= and page= are powers of two");
    if (strcmp(name, "serve") != 0 && !options->level_count
        && options->calibrate_s == 0)
        fail(2, "levels=PERCENT:SECONDS or calibrate_s=SECONDS is needed");
    if (options->calibrate_s == 0)
        options->calibrate_s = 0.2;
}

/* Of all levels; the whole when it is only calibrated. */
double highest_share(const struct options *options)
{
    double highest = options->level_count ? 0 : 1;
    for (size_t i = 0; i < options->level_count; i++)
        if (options->levels[i].share > highest)
            highest = options->levels[i].share;
    return highest;
}
