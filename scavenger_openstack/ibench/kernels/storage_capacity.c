/* SPDX-License-Identifier: Apache-2.0 */

/* SoI3, storage capacity.  Source: iBench, section III-B.
 * Intensity: random segments all over the disk, x % of size= (a device:
 * of it), are accessed again and again; a file holds those alone. */
#define _GNU_SOURCE
#include "soi.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define SEGMENT 65536u

static struct storage storage;
static uint64_t segments, reached, target, seed;
static void *buffer;

static uint64_t offset_of(uint64_t i)
{
    return shuffle(i, segments, seed) * SEGMENT;
}

static void prepare(struct options *options)
{
    storage = open_storage(options->path);
    uint64_t size = options->size;
    if (storage.device && (!size || size > storage.size))
        size = storage.size;
    if (!size)
        fail(2, "storage_capacity needs size=BYTES, the space that is 100 %%");
    segments = size / SEGMENT;
    if (!segments)
        fail(2, "--size is less than a segment, %u KiB", SEGMENT / 1024);
    options->size = segments * SEGMENT;
    seed = options->seed;
    check_space(&storage, options->path,
                (double)options->size * highest_share(options));
    buffer = piece_buffer(SEGMENT, seed);
}

static void hold(double share)
{
    target = (uint64_t)(share * (double)segments + 0.5);
    for (; reached > target; reached--)
        if (!storage.device && fallocate(
                storage.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                (off_t)offset_of(reached - 1), SEGMENT) != 0)
            fail(2, "this file system does not free a part of a file (%s): "
                 "name levels in rising order", strerror(errno));
}

static double chunk(struct worker *worker)
{
    if (reached < target) {
        if (storage.device)
            read_piece(&storage, buffer, SEGMENT, offset_of(reached));
        else
            write_piece(&storage, buffer, SEGMENT, offset_of(reached));
        reached++;
        count(worker, 1, SEGMENT);
        return 0;
    }
    if (!reached)
        return 1;
    read_piece(&storage, buffer, SEGMENT,
               offset_of(next_random(&worker->state) % reached));
    count(worker, 1, SEGMENT);
    return 1;
}

static uint64_t held(void)
{
    return reached * SEGMENT;
}

const struct kernel storage_capacity = {
    .name = "storage_capacity", .threads = 1, .counts_bytes = true,
    .prepare = prepare, .hold = hold, .chunk = chunk, .held = held,
    .calibrated_bytes = 16.0 * MIB};
