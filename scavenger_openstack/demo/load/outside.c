/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A process outside of all the demo's groups, 100 times a second.
 *
 *   outside OUT START END
 *       START, END: seconds of CLOCK_MONOTONIC
 *       OUT: two doubles: the worst lateness in s, and how often it woke up
 *
 * It sleeps and wakes: when it is late, so is all else on the machine that
 * the demo did not start, an SSH session or the agent itself.
 */
#include "demo.h"

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    volatile double *out = share(argv[1], 2 * sizeof(double));
    double due_s = atof(argv[2]), end_s = atof(argv[3]);
    while (due_s < end_s) {
        sleep_until(due_s);
        double now = now_s();
        if (now - due_s > out[0])
            out[0] = now - due_s;
        out[1] += 1;
        due_s += 0.01;
        if (due_s < now)
            due_s = now;
    }
    return 0;
}
