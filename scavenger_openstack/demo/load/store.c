/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The service's memory: it grows and shrinks in steps.
 *
 *   store STEPS OUT START_S FILE KEY
 *       STEPS: doubles, pairs of (moment after START_S in s, level in MiB)
 *       OUT: doubles, six per step: moment due, moment begun (both after
 *            START_S), how long it took in s, change in MiB, and how often
 *            the host had refused a page before and after it; 0 s is a step
 *            that is under way
 *       FILE, KEY: the file of the memory cgroup whose limit is the host's
 *            memory that counts its refusals, and the word before the
 *            number in it
 *
 * A step up touches each new page, as code that fills a cache would; all
 * steps but the first by 200 MiB/s at most: on a virtual machine a page that
 * the hypervisor has to find first costs up to 7 us, and all at once that
 * would be noise for the service.
 */
#define _GNU_SOURCE
#include "demo.h"

#define MIB_PER_S 200.0

int main(int argc, char **argv)
{
    size_t count;
    if (argc != 6)
        return 2;
    const double *steps = read_doubles(argv[1], &count);
    double *out = share(argv[2], count * 3 * sizeof(double));
    double start_s = strtod(argv[3], NULL);
    int refusals = open_file(argv[4]);
    const char *key = argv[5];
    double top = 0;
    for (size_t i = 1; i < count; i += 2)
        if (steps[i] > top)
            top = steps[i];
    char *memory = reserve((size_t)(top * MIB));
    size_t level = 0;

    for (size_t i = 0; i + 1 < count; i += 2, out += 6) {
        size_t target = (size_t)steps[i + 1];
        sleep_until(start_s + steps[i]);
        double begun_s = now_s(), due_s = begun_s;
        out[0] = steps[i];
        out[3] = (double)target - (double)level;
        out[4] = out[5] = read_number(refusals, key);
        out[1] = begun_s - start_s;
        if (target < level)
            madvise(memory + (target << 20), (level - target) << 20,
                    MADV_DONTNEED);
        for (size_t mib = level; mib < target; mib++) {
            for (size_t at = mib << 20; at < (mib + 1) << 20; at += 4096)
                memory[at] = 1;
            double next_s = due_s + 1 / MIB_PER_S, late_s = now_s();
            due_s = next_s > late_s ? next_s : late_s;   /* no catching up */
            if (i > 0)
                sleep_until(due_s);
        }
        out[5] = read_number(refusals, key);
        out[2] = now_s() - begun_s;
        level = target;
    }
    for (;;)
        pause();
}
