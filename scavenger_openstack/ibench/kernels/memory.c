/* SPDX-License-Identifier: Apache-2.0 */

/* Memory of the kernels: mappings, and whether a footprint fits here. */
#define _GNU_SOURCE
#include "soi.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t base_page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* As asked for, never less than a page of this machine. */
uint64_t page_size(const struct options *options)
{
    return options->page > base_page() ? options->page : base_page();
}

/*
 * A mapping without memory behind it, aligned to 2 MiB.
 *
 * PAGE larger than a page of this machine asks for huge pages of that size
 * from the pool, or there is none.  Else HUGE asks for transparent ones where
 * the kernel has them, so that a cache's sets are covered as its index says.
 */
char *reserve(size_t bytes, uint64_t page, bool huge)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t align = 2 * MIB;
    if (page > base_page()) {
        int bits = 63 - __builtin_clzll(page);
        bytes = (bytes + page - 1) / page * page;
        /* not NORESERVE: a pool that is empty refuses now, not by SIGBUS */
        char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB
                        | bits << 26, -1, 0);
        if (at == MAP_FAILED)
            fail(2, "no %llu huge pages of %llu KiB here (%s): set "
                 "vm.nr_hugepages, or leave page out of --geometry",
                 (unsigned long long)(bytes / page),
                 (unsigned long long)(page >> 10), strerror(errno));
        return at;
    }
    char *at = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, flags, -1,
                    0);
    if (at == MAP_FAILED)
        fail(2, "no address space for %.0f MiB (%s): lower --size",
             (double)bytes / MIB, strerror(errno));
    at += -(uintptr_t)at & (align - 1);
    madvise(at, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return at;
}

/* The lowest FILE of the cgroup PATH below MOUNT and of those above it. */
static double lowest_limit(const char *mount, const char *path,
                           const char *file)
{
    char name[PATH_MAX + 64], above[PATH_MAX];
    double lowest = -1;
    snprintf(above, sizeof above, "%s", path);
    for (;;) {
        double limit;
        snprintf(name, sizeof name, "%s%s/%s", mount, above, file);
        FILE *from = fopen(name, "re");
        if (from) {
            if (fscanf(from, "%lf", &limit) == 1
                && (lowest < 0 || limit < lowest))
                lowest = limit;
            fclose(from);
        }
        char *slash = strrchr(above, '/');
        if (!slash || !above[0])
            return lowest;
        *slash = 0;
    }
}

/* The memory limit of this process's cgroup in bytes, below 0 if none. */
static double memory_limit(void)
{
    char line[PATH_MAX + 64];
    double lowest = -1;
    FILE *from = fopen("/proc/self/cgroup", "re");
    while (from && fgets(line, sizeof line, from)) {
        double limit = -1;
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        if (strcmp(controllers, ":") == 0) {
            limit = lowest_limit("/sys/fs/cgroup", path, "memory.max");
            if (limit < 0)
                limit = lowest_limit("/sys/fs/cgroup/unified", path,
                                     "memory.max");
        } else if (strcmp(controllers, ":memory") == 0) {
            limit = lowest_limit("/sys/fs/cgroup/memory", path,
                                 "memory.limit_in_bytes");
        }
        if (limit >= 0 && (lowest < 0 || limit < lowest))
            lowest = limit;
    }
    if (from)
        fclose(from);
    return lowest;
}

static double available_memory(void)
{
    char line[256];
    double kib = -1;
    FILE *from = fopen("/proc/meminfo", "re");
    while (from && fgets(line, sizeof line, from))
        if (sscanf(line, "MemAvailable: %lf", &kib) == 1)
            break;
    if (from)
        fclose(from);
    return kib * 1024;
}

void check_memory(double bytes)
{
    double limit = memory_limit(), free = available_memory();
    if (limit >= 0 && bytes > limit)
        fail(2, "a footprint of %.1f MiB is above the memory limit of this "
             "cgroup, %.1f MiB: lower --size or the intensity", bytes / MIB,
             limit / MIB);
    if (free >= 0 && bytes > free)
        fail(2, "a footprint of %.1f MiB is more than the available memory, "
             "%.1f MiB: lower --size or the intensity", bytes / MIB,
             free / MIB);
}
