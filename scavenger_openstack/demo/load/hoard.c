/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Batch work that lives from memory.
 *
 *   hoard OUT USAGE HOST LIMIT...
 *       OUT: 64-bit integers: MiB x ms held so far, pages touched so far,
 *            MiB held now; a successor goes on counting where we ended
 *       USAGE: file with the memory that the host has used
 *       HOST: file with the limit that is the host's memory
 *       LIMIT: files with what limits us; the smallest number counts
 *
 * Where a limit holds for us it stays at 90 % of it, as batch frameworks
 * size themselves by their container and leave a tenth for overhead; it
 * looks four times a second and frees at once what is too much.
 * Without a limit of its own it takes what the host has left, up to the
 * last 24 MiB, and keeps it.  It grows by 384 MiB/s
 * and touches what it holds once a second.
 */
#define _GNU_SOURCE
#include "demo.h"

#define SHARE 0.9
#define LEAVE_MIB 24
#define GROW_MIB_PER_S 384
#define TICK_S 0.02

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    volatile uint64_t *out = share(argv[1], 4096);
    int usage_fd = open_file(argv[2]), host_fd = open_file(argv[3]);
    int limits = argc - 4, limit_fds[limits];
    for (int i = 0; i < limits; i++)
        limit_fds[i] = open_file(argv[4 + i]);
    size_t space = (size_t)(read_number(host_fd, "")) & ~0x1fffffull;
    char *memory = reserve(space);

    double last_s = now_s(), looked_s = 0, limit = 0, cursor = 0;
    size_t held = 0;   /* MiB */
    for (;;) {
        sleep_until(last_s + TICK_S);
        double now = now_s(), dt = now - last_s;
        last_s = now;
        if (dt > 0.1)
            dt = 0.1;   /* woken late: that was no work */
        double host = read_number(host_fd, "") / MIB;
        if (now - looked_s >= 0.25) {
            limit = host;
            for (int i = 0; i < limits; i++) {
                double one = read_number(limit_fds[i], "") / MIB;
                if (one < limit)
                    limit = one;
            }
            looked_s = now;
        }
        double target = limit < host ? SHARE * limit
            : held + host - read_number(usage_fd, "") / MIB - LEAVE_MIB;
        if (limit >= host && target < held)
            target = held;   /* nothing asks it to free memory */
        if (target > held + GROW_MIB_PER_S * dt)
            target = held + GROW_MIB_PER_S * dt;
        if (target > space / MIB)
            target = space / MIB;
        size_t next = target < 0 ? 0 : (size_t)target;
        for (size_t at = held << 20; at < next << 20; at += 4096)
            memory[at] = 1;
        if (next < held)
            madvise(memory + (next << 20), (held - next) << 20,
                    MADV_DONTNEED);
        held = next;
        out[0] += (uint64_t)(held * dt * 1000);
        out[2] = held;
        double end = cursor + held * dt;
        for (; cursor < end && cursor < held; cursor += 1 / 256.0) {
            memory[(size_t)(cursor * MIB)] += 1;
            out[1] += 1;
        }
        if (cursor >= held)
            cursor = 0;
    }
}
