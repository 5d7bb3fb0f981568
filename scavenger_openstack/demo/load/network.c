/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Both ends of the traffic over the shared uplink.
 *
 *   network sink PORT OUT
 *       receives what comes for PORT (the service's files) and PORT + 1
 *       (the batch work's); OUT: 64-bit integers: bytes of either so far
 *   network flood ADDRESS PORT FLOWS
 *       batch work that sends as much as it may, over FLOWS connections
 *   network files STARTS OUT START_S ADDRESS PORT BYTES BYTES_PER_S
 *       sends a file of BYTES at each moment of STARTS (doubles, s after
 *       START_S; at once if the one before took longer), BYTES_PER_S at
 *       most, as a player fetches a film; OUT: doubles, three per file:
 *       moment due, moment begun, how long until the other end had it all
 */
#define _GNU_SOURCE
#include "demo.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static char block[1 << 18];

static struct sockaddr_in address(const char *text, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, text, &to.sin_addr) != 1)
        fail(text);
    return to;
}

static void set(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value);
}

static int listen_on(int port)
{
    struct sockaddr_in at = address("0.0.0.0", port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd, (void *)&at, sizeof at) != 0 || listen(fd, 256) != 0)
        fail("bind");
    return fd;
}

static _Noreturn void sink(int port, volatile uint64_t *bytes)
{
    int poll = epoll_create1(EPOLL_CLOEXEC);
    int listeners[2] = {listen_on(port), listen_on(port + 1)};
    for (int i = 0; i < 2; i++) {
        struct epoll_event want = {EPOLLIN, {.u64 = (uint64_t)i << 32}};
        epoll_ctl(poll, EPOLL_CTL_ADD, listeners[i], &want);
    }
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(poll, events, 64, -1);
        for (int e = 0; e < n; e++) {
            int who = (int)(events[e].data.u64 >> 32);
            int fd = (int)(uint32_t)events[e].data.u64;
            if (fd == 0) {
                fd = accept4(listeners[who], NULL, NULL, SOCK_CLOEXEC);
                if (fd < 0)
                    continue;
                /* fewer, larger reads */
                set(fd, SOL_SOCKET, SO_RCVLOWAT, 65536);
                struct epoll_event want = {
                    EPOLLIN, {.u64 = (uint64_t)who << 32 | (uint32_t)fd}};
                epoll_ctl(poll, EPOLL_CTL_ADD, fd, &want);
                continue;
            }
            /* MSG_TRUNC: count it, do not copy it */
            ssize_t got = recv(fd, block, sizeof block,
                               MSG_TRUNC | MSG_DONTWAIT);
            if (got > 0) {
                bytes[who] += (uint64_t)got;
            } else if (got == 0 || errno != EAGAIN) {
                if (got == 0)
                    (void)!write(fd, "k", 1);
                close(fd);
            }
        }
    }
}

static int dial(struct sockaddr_in to, int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (connect(fd, (void *)&to, sizeof to) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

static _Noreturn void flood(struct sockaddr_in to, int flows)
{
    int poll = epoll_create1(EPOLL_CLOEXEC);
    for (;;) {
        struct epoll_event events[64];
        while (flows > 0) {
            int fd = dial(to, SOCK_NONBLOCK);
            if (fd < 0)
                break;
            struct epoll_event want = {EPOLLOUT, {.fd = fd}};
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &want);
            flows--;
        }
        int n = epoll_wait(poll, events, 64, 1000);
        for (int e = 0; e < n; e++) {
            int fd = events[e].data.fd;
            if (write(fd, block, sizeof block) < 0 && errno != EAGAIN) {
                close(fd);
                flows++;
                sleep_until(now_s() + 0.05);
            }
        }
    }
}

static double send_file(struct sockaddr_in to, size_t size, unsigned pace)
{
    char answer;
    double begun_s = now_s();
    for (;;) {
        int fd = dial(to, 0);
        size_t left = size;
        if (fd < 0) {
            sleep_until(now_s() + 0.05);
            continue;
        }
        set(fd, SOL_SOCKET, SO_MAX_PACING_RATE, (int)pace);
        while (left > 0) {
            ssize_t sent = write(fd, block,
                                 left < sizeof block ? left : sizeof block);
            if (sent < 0)
                break;
            left -= (size_t)sent;
        }
        shutdown(fd, SHUT_WR);
        ssize_t got = read(fd, &answer, 1);
        close(fd);
        if (left == 0 && got == 1)
            return now_s() - begun_s;
    }
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(argv[1], "sink") == 0)
        sink(atoi(argv[2]), share(argv[3], 4096));
    if (argc == 5 && strcmp(argv[1], "flood") == 0)
        flood(address(argv[2], atoi(argv[3])), atoi(argv[4]));
    if (argc != 9 || strcmp(argv[1], "files") != 0)
        return 2;
    size_t count;
    const double *starts = read_doubles(argv[2], &count);
    double *out = share(argv[3], count * 3 * sizeof(double));
    double start_s = strtod(argv[4], NULL);
    struct sockaddr_in to = address(argv[5], atoi(argv[6]));
    for (size_t i = 0; i < count; i++, out += 3) {
        sleep_until(start_s + starts[i]);
        out[0] = starts[i];
        out[1] = now_s() - start_s;
        out[2] = send_file(to, strtoul(argv[7], NULL, 10),
                           (unsigned)strtoul(argv[8], NULL, 10));
    }
    for (;;)
        pause();
}
