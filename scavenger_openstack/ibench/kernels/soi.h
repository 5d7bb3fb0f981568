/* SPDX-License-Identifier: Apache-2.0 */

/* What the sources of interference (SoIs) share: options, kernels, memory. */

#ifndef SCAVENGER_SOI_H
#define SCAVENGER_SOI_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB 1048576u
#define LEVELS 4096
#define WORKERS 256

/* A chunk of a kernel of the core: long against the two reads of the clock
 * around it, short against the shortest sleep. */
#define TOUCHES 16384u

/* Compiled with -DSOI_PORTABLE, every kernel takes its portable form. */
#if defined(__x86_64__) && !defined(SOI_PORTABLE)
#define SOI_X86_64 1
#elif defined(__aarch64__) && defined(__AARCH64EL__) && !defined(SOI_PORTABLE)
#define SOI_AARCH64 1
#endif

struct level {
    double share;        /* 0..1 */
    double seconds;
};

/* Sizes in bytes; 0 or NULL is what was not given. */
struct options {
    struct level *levels;
    size_t level_count;
    double chunk_s, calibrate_s, every_s;
    uint64_t size, line, ways, sets, l1d, l1i, l2, page, entries, seed;
    uint64_t threads;
    const char *path, *address;
    int cpus[WORKERS];
    unsigned cpu_count;
};

/* One thread of a kernel; a line of its own, so that counting costs none. */
struct worker {
    _Alignas(128) _Atomic uint64_t operations;
    _Atomic uint64_t bytes;
    _Atomic uint64_t chunks;
    _Atomic uint64_t work_ns;
    unsigned index;
    uint64_t state;      /* of its random numbers */
    double chunk_s;      /* as calibrated */
};

/*
 * prepare() checks the options and reserves; it calls fail() for what cannot
 * be here.  hold() begins a level and returns what a lower one does not hold.
 * chunk() does a piece of work, counts it, and returns how much it was of a
 * calibrated chunk: no wait follows 0, which is work to reach the level.
 */
struct kernel {
    const char *name;
    unsigned threads;    /* at most */
    bool counts_bytes;
    void (*prepare)(struct options *);
    void (*hold)(double share);
    double (*chunk)(struct worker *);
    uint64_t (*held)(void);                  /* bytes, or NULL */
    double calibrated_bytes;  /* held at most while it is calibrated, or 0 */
    void (*answer)(struct worker *);         /* threads after the first */
};

extern const struct kernel memory_capacity, memory_bandwidth,
    storage_capacity, storage_bandwidth, network_bandwidth, llc_capacity,
    llc_bandwidth, l2_capacity, l2_bandwidth, l1i, l1d, tlb, integer,
    floating_point, prefetcher, interconnect, vector;

/* main.c */
double now_s(void);
void sleep_until(double when_s);
_Noreturn void fail(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
extern _Atomic double resting_until_s;   /* the first thread's next chunk */
extern _Atomic bool phase_over;          /* the first thread is done */

/* options.c */
void read_options(struct options *, const char *name, int argc, char **argv);
double highest_share(const struct options *);

/* memory.c */
char *reserve(size_t bytes, uint64_t page, bool huge);
void check_memory(double bytes);
uint64_t page_size(const struct options *);

/* storage_file.c: what 3 and 4 read and write */
struct storage {
    int fd;
    bool device;         /* read only */
    bool direct;         /* past the page cache */
    uint64_t size;       /* of the device */
};
struct storage open_storage(const char *path);
void check_space(const struct storage *, const char *path, double bytes);
void *piece_buffer(size_t bytes, uint64_t seed);
void read_piece(const struct storage *, void *buffer, size_t bytes,
                uint64_t offset);
void write_piece(const struct storage *, const void *buffer, size_t bytes,
                 uint64_t offset);

/* network_serve.c: the remote end of 5 */
_Noreturn void serve(const struct options *);
int open_socket(const char *address, bool listening);
#define REQUEST_BYTES 262144u
struct request {
    uint32_t magic;
    uint32_t bytes;      /* that follow; both in network order */
};
#define REQUEST_MAGIC 0x736f6935u

/* blocks.c: functions of a cache line each; SoI8 needs more of them where it
 * makes no code of its own */
#if defined(SOI_X86_64) || defined(SOI_AARCH64)
#define BLOCKS 256u
#else
#define BLOCKS 1024u
#endif
typedef uint64_t block(uint64_t);
extern block *const blocks[BLOCKS];

static inline void count(struct worker *worker, uint64_t operations,
                         uint64_t bytes)
{
    atomic_fetch_add_explicit(&worker->operations, operations,
                              memory_order_relaxed);
    if (bytes)
        atomic_fetch_add_explicit(&worker->bytes, bytes,
                                  memory_order_relaxed);
}

/* xorshift64: a low-overhead random generator, as SoI1 asks for. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The I-th of a random order of 0..N-1: a bijection of the next power of
 * two, repeated until the result is below N.  No table, so no footprint. */
static inline uint64_t shuffle(uint64_t i, uint64_t n, uint64_t seed)
{
    if (n < 2)
        return 0;
    unsigned bits = 64u - (unsigned)__builtin_clzll(n - 1);
    unsigned half = (bits + 1) / 2;
    uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    do {
        i = (i * 6364136223846793005ull + seed) & mask;
        i ^= i >> half;
        i = (i * 0x9e3779b97f4a7c15ull + 1442695040888963407ull) & mask;
        i ^= i >> half;
    } while (i >= n);
    return i;
}

#endif
