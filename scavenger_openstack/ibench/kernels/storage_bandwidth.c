/* SPDX-License-Identifier: Apache-2.0 */

/* SoI4, storage bandwidth.  Source: iBench, section III-B.
 * Intensity: the rate of serial accesses past the page cache: reads of a
 * file of size= (64 MiB), written once before, or of a device. */
#include "soi.h"

#define PIECE 262144u

static struct storage storage;
static uint64_t pieces;      /* of each thread */
static void *buffers[WORKERS];
static uint64_t position[WORKERS];

static void prepare(struct options *options)
{
    storage = open_storage(options->path);
    uint64_t size = options->size ? options->size : 64 * MIB;
    if (storage.device && (!options->size || size > storage.size))
        size = storage.size;
    pieces = size / PIECE / options->threads;
    if (!pieces)
        fail(2, "--size is less than a piece, %u KiB, for each thread",
             PIECE / 1024);
    check_space(&storage, options->path, (double)size);
    for (unsigned i = 0; i < options->threads; i++)
        buffers[i] = piece_buffer(PIECE, options->seed + i);
    for (uint64_t i = 0; !storage.device && i < pieces * options->threads;
         i++)
        write_piece(&storage, buffers[0], PIECE, i * PIECE);
}

static double chunk(struct worker *worker)
{
    unsigned index = worker->index;
    read_piece(&storage, buffers[index], PIECE,
               (index * pieces + position[index]) * PIECE);
    position[index] = (position[index] + 1) % pieces;
    count(worker, 1, PIECE);
    return 1;
}

const struct kernel storage_bandwidth = {
    .name = "storage_bandwidth", .threads = WORKERS, .counts_bytes = true,
    .prepare = prepare, .chunk = chunk};
