/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A client of one service, in open loop: requests are due at a fixed rate,
 * and latency counts from the moment at which one was due.
 *
 *   client IP PORT KEY=VALUE...
 *       rate=PER_S seconds=S warm_s=S connections=N target_s=S seed=N
 *       endless=1    print "p95_s SECONDS" each S seconds until it is ended
 *       hello=HEX    sent once on each connection; may be left out
 *       request=HEX  each request; at=BYTE and digits=N is where a number
 *                    below keys=N is written into it, with leading zeros
 *
 * The length of an answer is learned from the first one of each connection;
 * all others must have the same.  A request waits in this program until a
 * connection is free, so a slow answer does not delay when others are due.
 * Printed is one JSON object.  A request without an answer at the end counts
 * as one that took until then, and is not within the target.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MOST 1024
#define QUIET_MS 300         /* after which a first answer is whole */
#define REPLY_S 20.0         /* within which it has to begin */

static struct connection {
    int fd;
    size_t left;             /* of the answer; 0 is free */
    uint64_t number;         /* of the request */
} connections[MOST];
static int free_ones[MOST], free_count;
static unsigned count = 16;
static bool endless;
static double rate, seconds, warm_s, target_s, *taken_s;
static unsigned char hello[1024], request[4096];
static size_t hello_size, request_size, answer_size, at, digits;
static uint64_t keys = 1, seed = 1, all, next_number, arrived, late;
static char buffer[1 << 18];
static double begin_s, free_since_s;

static _Noreturn void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("client: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t read_hex(const char *text, unsigned char *to, size_t room)
{
    size_t size = 0;
    unsigned byte;
    for (; sscanf(text, "%2x", &byte) == 1; text += 2) {
        if (size == room)
            fail("a request of more than %zu bytes", room);
        to[size++] = (unsigned char)byte;
    }
    return size;
}

static void read_option(const char *word)
{
    const char *value = strchr(word, '=');
    size_t length = value ? (size_t)(value++ - word) : 0;
#define IS(name) (length == strlen(name) && !strncmp(word, name, length))
    if (IS("rate")) rate = atof(value);
    else if (IS("seconds")) seconds = atof(value);
    else if (IS("warm_s")) warm_s = atof(value);
    else if (IS("target_s")) target_s = atof(value);
    else if (IS("connections")) count = (unsigned)atoi(value);
    else if (IS("seed")) seed = strtoull(value, NULL, 10);
    else if (IS("endless")) endless = atoi(value);
    else if (IS("keys")) keys = strtoull(value, NULL, 10);
    else if (IS("at")) at = strtoull(value, NULL, 10);
    else if (IS("digits")) digits = strtoull(value, NULL, 10);
    else if (IS("hello")) hello_size = read_hex(value, hello, sizeof hello);
    else if (IS("request"))
        request_size = read_hex(value, request, sizeof request);
    else fail("unknown option %s", word);
}

static void put(int fd, const void *from, size_t size)
{
    /* Requests are small and one at a time: the socket has room. */
    if (send(fd, from, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("a request cannot be sent: %s", strerror(errno));
}

static void ask(struct connection *connection)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    uint64_t key = seed % keys;
    for (size_t i = digits; i-- > 0; key /= 10)
        request[at + i] = (unsigned char)('0' + key % 10);
    put(connection->fd, request, request_size);
}

static ssize_t get(struct connection *connection)
{
    ssize_t got = recv(connection->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0)
        fail("the service closed a connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        fail("the service: %s", strerror(errno));
    return got;
}

/* Send on each connection, and read until nothing more comes; the size of
 * what came on each. */
static size_t exchange(int poll, bool greet)
{
    struct epoll_event events[64];
    size_t sizes[MOST] = {0};
    double until_s = now_s() + REPLY_S;
    unsigned answered = 0;
    for (unsigned i = 0; i < count; i++) {
        if (greet)
            put(connections[i].fd, hello, hello_size);
        else
            ask(&connections[i]);
    }
    for (;;) {
        int ready = epoll_wait(poll, events, 64, QUIET_MS);
        if (ready == 0 && answered == count)
            break;
        if (ready == 0 && now_s() > until_s)
            fail("%u of %u connections had no answer in %.0f s",
                 count - answered, count, REPLY_S);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            ssize_t got = get(connection);
            size_t *size = &sizes[connection - connections];
            answered += *size == 0 && got > 0;
            *size += got > 0 ? (size_t)got : 0;
        }
    }
    for (unsigned i = 1; i < count && !greet; i++)
        if (sizes[i] != sizes[0])
            fail("answers of %zu and %zu bytes: one length is expected",
                 sizes[0], sizes[i]);
    return sizes[0];
}

static void open_connections(const char *ip, const char *port, int poll)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, ip, &to.sin_addr) != 1)
        fail("%s is no address", ip);
    for (unsigned i = 0; i < count; i++) {
        struct connection *connection = &connections[i];
        struct epoll_event event = {.events = EPOLLIN,
                                    .data.ptr = connection};
        int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
            fail("%s:%s: %s", ip, port, strerror(errno));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        connection->fd = fd;
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        free_ones[free_count++] = (int)i;
    }
}

static double due_s(uint64_t number)
{
    return begin_s + (double)number / rate;
}

/* Send what is due, as far as connections are free. */
static void send_due(void)
{
    double now = now_s();
    while (free_count && next_number < all && due_s(next_number) <= now) {
        struct connection *connection = &connections[free_ones[--free_count]];
        double ready_s = due_s(next_number);
        if (ready_s < free_since_s)
            ready_s = free_since_s;
        late += now - ready_s > 1e-3;    /* this program was not run */
        connection->left = answer_size;
        connection->number = next_number++;
        ask(connection);
    }
}

static void take(struct connection *connection)
{
    ssize_t got = get(connection);
    if (got <= 0)
        return;
    if ((size_t)got > connection->left)
        fail("an answer is %zu bytes longer than others",
             (size_t)got - connection->left);
    connection->left -= (size_t)got;
    if (connection->left)
        return;
    double now = now_s();
    taken_s[connection->number] = now - due_s(connection->number);
    if (!free_count)
        free_since_s = now;
    free_ones[free_count++] = (int)(connection - connections);
    arrived++;
}

static void run(int poll, int timer)
{
    struct epoll_event events[64];
    double end_s = due_s(all);
    while (now_s() < end_s) {
        double wake_s = next_number < all && free_count
            ? due_s(next_number) : end_s;
        struct itimerspec when = {.it_value = {(time_t)wake_s, 0}};
        when.it_value.tv_nsec = (long)(
            (wake_s - (double)when.it_value.tv_sec) * 1e9) + 1;
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
        int ready = epoll_wait(poll, events, 64, 1000);
        for (int i = 0; i < ready; i++)
            if (events[i].data.ptr)
                take(events[i].data.ptr);
        send_due();
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Read what is still to come, so that the next requests find all free. */
static void drain(int poll, int timer)
{
    struct epoll_event events[64];
    struct itimerspec never = {0};
    double until_s = now_s() + REPLY_S;
    timerfd_settime(timer, 0, &never, NULL);
    while (free_count < (int)count) {
        int ready = epoll_wait(poll, events, 64, 1000);
        for (int i = 0; i < ready; i++)
            if (events[i].data.ptr)
                take(events[i].data.ptr);
        if (now_s() > until_s)
            fail("no answer in %.0f s", REPLY_S);
    }
}

static double share_of(const double *sorted, size_t size, double share)
{
    return sorted[(size_t)(share * (double)size)];
}

static void report(void)
{
    uint64_t first = (uint64_t)(warm_s * rate), within = 0, answered = 0;
    double *counted = taken_s + first;
    size_t size = all - first;
    for (size_t i = 0; i < size; i++) {
        answered += counted[i] > 0;
        within += counted[i] > 0 && counted[i] <= target_s;
        if (counted[i] <= 0)
            counted[i] = due_s(all) - due_s(first + i);
    }
    qsort(counted, size, sizeof *counted, compare);
    if (endless) {
        printf("p95_s %.9f\n", share_of(counted, size, 0.95));
        return;
    }
    printf("{\"requests\": %zu, \"answered\": %llu, \"within\": %llu, "
           "\"seconds\": %.6f, \"p50_s\": %.9f, \"p99_s\": %.9f, "
           "\"answer_bytes\": %zu, \"late\": %llu, \"all_answered\": %llu}\n",
           size, (unsigned long long)answered, (unsigned long long)within,
           seconds, share_of(counted, size, 0.5), share_of(counted, size, 0.99),
           answer_size, (unsigned long long)late,
           (unsigned long long)arrived);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        fail("IP PORT KEY=VALUE...");
    for (int i = 3; i < argc; i++)
        read_option(argv[i]);
    if (rate <= 0 || seconds <= 0 || !request_size || !count || count > MOST
        || at + digits > request_size || !keys || !seed)
        fail("rate, seconds and request are needed, at most %d connections",
             MOST);
    int poll = epoll_create1(EPOLL_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, 15);
    open_connections(argv[1], argv[2], poll);
    if (hello_size)
        exchange(poll, true);
    answer_size = exchange(poll, false);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
    all = (uint64_t)((warm_s + seconds) * rate);
    taken_s = calloc(all + 1, sizeof *taken_s);
    if (!taken_s || (uint64_t)(warm_s * rate) >= all)
        fail("no memory, or no request in this time");
    do {
        drain(poll, timer);
        memset(taken_s, 0, all * sizeof *taken_s);
        next_number = 0;
        begin_s = now_s() + 0.001;
        if (!endless)
            puts("{\"event\": \"begin\"}");
        fflush(stdout);
        run(poll, timer);
        report();
        fflush(stdout);
    } while (endless);
    pause();    /* what serves these connections is read before they end */
    return 0;
}
