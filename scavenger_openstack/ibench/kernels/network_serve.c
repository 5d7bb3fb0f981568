/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The remote end of SoI5: receives requests and answers each.
 *
 * A request is a magic number, how many bytes follow, and those, in network
 * order; the answer is four bytes, how many came.  What is not a request is
 * cut off.
 */
#define _GNU_SOURCE
#include "soi.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_S 10        /* for an end that neither answers nor closes */

/* IP:PORT, or [IP]:PORT, as a socket: connected, or listening. */
int open_socket(const char *address, bool listening)
{
    char host[256];
    struct addrinfo *to;
    struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    const char *colon = address ? strrchr(address, ':') : NULL;
    if (!colon || (size_t)(colon - address) >= sizeof host)
        fail(2, "--address IP:PORT is needed%s%s",
             address ? ", not " : "", address ? address : "");
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = 0;
    size_t length = strlen(host);
    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        memmove(host, host + 1, length - 2);
        host[length - 2] = 0;
    }
    if (getaddrinfo(host, colon + 1, &want, &to) != 0)
        fail(2, "--address %s is not IP:PORT", address);
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int yes = 1;
    struct timeval patience = {.tv_sec = PATIENCE_S};
    if (fd < 0)
        fail(2, "no socket: %s", strerror(errno));
    if (listening) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(fd, to->ai_addr, to->ai_addrlen) != 0
            || listen(fd, WORKERS) != 0)
            fail(2, "cannot listen on %s: %s: name an address of this host "
                 "and a free port", address, strerror(errno));
    } else {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (connect(fd, to->ai_addr, to->ai_addrlen) != 0)
            fail(2, "no remote end at %s: %s: start 'scavenger-ibench serve "
                 "--address %s' there", address, strerror(errno), address);
    }
    freeaddrinfo(to);
    return fd;
}

static void *answer_requests(void *at)
{
    int fd = *(int *)at;
    struct request request;
    char *buffer = malloc(REQUEST_BYTES);
    free(at);
    while (buffer && recv(fd, &request, sizeof request, MSG_WAITALL)
           == sizeof request) {
        size_t left = ntohl(request.bytes);
        if (ntohl(request.magic) != REQUEST_MAGIC || left > REQUEST_BYTES)
            break;
        while (left) {
            ssize_t got = recv(fd, buffer, left, 0);
            if (got <= 0 && (got == 0 || errno != EINTR))
                break;
            left -= got > 0 ? (size_t)got : 0;
        }
        if (left || send(fd, &request.bytes, sizeof request.bytes,
                         MSG_NOSIGNAL) != sizeof request.bytes)
            break;
    }
    free(buffer);
    close(fd);
    return NULL;
}

static unsigned port_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return 0;
    return ntohs(at.ss_family == AF_INET6
                 ? ((struct sockaddr_in6 *)&at)->sin6_port
                 : ((struct sockaddr_in *)&at)->sin_port);
}

_Noreturn void serve(const struct options *options)
{
    int listener = open_socket(options->address, true);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 262144);
    printf("{\"event\": \"serving\", \"port\": %u}\n", port_of(listener));
    for (;;) {
        pthread_t thread;
        int yes = 1, *fd = malloc(sizeof *fd);
        if (!fd)
            fail(2, "no memory for a connection");
        *fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (*fd >= 0) {
            setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            if (pthread_create(&thread, &detached, answer_requests, fd) == 0)
                continue;
            close(*fd);
        } else {
            sleep_until(now_s() + 0.05);     /* no descriptors for now */
        }
        free(fd);
    }
}
