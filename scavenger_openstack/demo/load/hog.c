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
 * Batch work on the CPU.
 *
 *   hog OUT THREADS
 *       OUT: 64-bit integers, one every 64 bytes: units done per thread
 *
 * A unit is 100,000 iterations, the same in every phase.
 */
#define _GNU_SOURCE
#include "demo.h"
#include <pthread.h>

static void *work(void *at)
{
    volatile uint64_t *units = at;
    uint64_t state = 1;
    for (;;) {
        state = spin(100000, state);
        *units += 1;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 3)
        return 2;
    int threads = atoi(argv[2]);
    char *out = share(argv[1], 64 * (size_t)threads);
    for (int i = 0; i < threads; i++)
        if ((errno = pthread_create(&thread, NULL, work, out + 64 * i)))
            fail("pthread_create");
    for (;;)
        pause();
}
