/* SPDX-License-Identifier: Apache-2.0 */

/* SoI5, network bandwidth.  Source: iBench, section III-B.
 * Intensity: size and frequency of requests to a remote host: the size goes
 * from a half to the whole, the frequency so that bandwidth is linear in x. */
#define _GNU_SOURCE
#include "soi.h"
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connections[WORKERS];
static char *buffers[WORKERS];
static uint32_t request_bytes;
static double work;

static void prepare(struct options *options)
{
    for (unsigned i = 0; i < options->threads; i++) {
        connections[i] = open_socket(options->address, false);
        buffers[i] = piece_buffer(REQUEST_BYTES, options->seed + i);
    }
}

static void hold(double share)
{
    work = (1 + share) / 2;
    request_bytes = (uint32_t)(REQUEST_BYTES * work);
}

static _Noreturn void end_gone(const char *what)
{
    fail(3, "the remote end is gone: %s", what);
}

static double chunk(struct worker *worker)
{
    int fd = connections[worker->index];
    char *buffer = buffers[worker->index];
    struct request request = {htonl(REQUEST_MAGIC), htonl(request_bytes)};
    size_t all = request_bytes + sizeof request, sent = 0;
    uint32_t answer;
    memcpy(buffer, &request, sizeof request);
    if (all > REQUEST_BYTES) {       /* the header is a part of the size */
        all = REQUEST_BYTES;
        request.bytes = htonl(REQUEST_BYTES - (uint32_t)sizeof request);
        memcpy(buffer, &request, sizeof request);
    }
    while (sent < all) {
        ssize_t put = send(fd, buffer + sent, all - sent, MSG_NOSIGNAL);
        if (put < 0 && errno != EINTR)
            end_gone(strerror(errno));
        sent += put > 0 ? (size_t)put : 0;
    }
    ssize_t got = recv(fd, &answer, sizeof answer, MSG_WAITALL);
    if (got != sizeof answer)
        end_gone(got < 0 ? strerror(errno) : "it closed the connection");
    count(worker, 1, sent);
    return work;
}

const struct kernel network_bandwidth = {
    .name = "network_bandwidth", .threads = WORKERS, .counts_bytes = true,
    .prepare = prepare, .hold = hold, .chunk = chunk};
