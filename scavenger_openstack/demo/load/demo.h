/* SPDX-License-Identifier: Apache-2.0 */

/* What the loads share: one clock, absolute sleeps, counters in a file. */

#ifndef SCAVENGER_DEMO_H
#define SCAVENGER_DEMO_H

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB 1048576.0

static inline void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* CLOCK_MONOTONIC in seconds: what Python's time.monotonic() says. */
static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static inline void sleep_until(double when_s)
{
    struct timespec t = {(time_t)when_s, 0};
    if (when_s <= now_s())
        return;
    t.tv_nsec = (long)((when_s - t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* The whole of a file of doubles; *count is how many. */
static inline double *read_doubles(const char *path, size_t *count)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        fail(path);
    double *all = malloc(info.st_size + 1);
    if (read(fd, all, info.st_size) != info.st_size)
        fail(path);
    close(fd);
    *count = info.st_size / sizeof(double);
    return all;
}

/* A file as shared memory: what is written stays when we are killed. */
static inline void *share(const char *path, size_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, bytes) != 0)
        fail(path);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        fail(path);
    close(fd);
    return at;
}

/* Address space without memory behind it; a touched page becomes real.
 * Small pages: where a hypervisor has to find the memory first, a huge one
 * can stop the CPU for 3 ms, whatever wants to run on it. */
static inline char *reserve(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        fail("mmap");
    madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

/* The number in a kernel file, after KEY when it is not ""; the word "max"
 * is no limit. */
static inline double read_number(int fd, const char *key)
{
    char text[8192];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return -1;
    text[n] = 0;
    char *at = *key ? strstr(text, key) : text;
    if (!at)
        return -1;
    at += strlen(key);
    return strncmp(at, "max", 3) ? strtod(at, NULL) : HUGE_VAL;
}

static inline int open_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(path);
    return fd;
}

/* Fixed work: a chain of multiplications that cannot be shortened. */
static inline uint64_t spin(uint64_t iterations, uint64_t seed)
{
    for (uint64_t i = 0; i < iterations; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        __asm__ volatile("" : "+r"(seed));
    }
    return seed;
}

#endif
