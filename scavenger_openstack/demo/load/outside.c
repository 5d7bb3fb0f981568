/*
 * Licensed under the Apache License, Version 2.0 (the "License"); you may
 * not use this file except in compliance with the License. You may obtain
 * a copy of the License at
 *
 *      http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
 * WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
 * License for the specific language governing permissions and limitations
 * under the License.
 *
 */

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
