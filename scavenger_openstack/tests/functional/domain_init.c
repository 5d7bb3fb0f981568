/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The first process of the guests of the hypervisor tests, and all that they
 * run.  It loads /modules in the order of their names, obeys the lines that
 * domain_console.py describes, on the serial console, and says there each
 * second, as one line of JSON, what its workload has done.  The first second
 * begins with the command.
 */

#define _GNU_SOURCE
#include "domain_workload.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fs.h>
#include <linux/input.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#define MOST_THREADS 16
#define STACK_BYTES (64 * 1024)

static int console;
static struct order *current;

/* Held from a command to its answer, and while a second is taken and told: no
 * report of the old work comes after the answer. */
static pthread_mutex_t speaks = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof(line) - 2)
        length = sizeof(line) - 2;
    line[length++] = '\n';
    for (int at = 0; at < length;) {
        ssize_t wrote = write(console, line + at, length - at);

        at += wrote > 0 ? wrote : 0;
    }
}

/* --- what is said each second */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(struct tally *t)
{
    char times[128] = "";
    double sum_s = 0, at_s = now_s();
    int n;

    n = t->latencies;
    if (n) {
        qsort(t->latency_s, n, sizeof(*t->latency_s), by_size);
        for (int i = 0; i < n; i++)
            sum_s += t->latency_s[i];
        snprintf(times, sizeof(times), ", \"mean_s\": %.6f, "
                 "\"p50_s\": %.6f, \"p99_s\": %.6f, \"max_s\": %.6f",
                 sum_s / n, t->latency_s[n / 2], t->latency_s[n * 99 / 100],
                 t->latency_s[n - 1]);
    }
    say("{\"work\": \"%s\", \"at_s\": %.3f, \"took_s\": %.3f, \"done\": %ld, "
        "\"bytes\": %llu, \"dropped\": %ld, \"failed\": %ld%s}",
        t->work, at_s, at_s - t->since_s, t->done,
        (unsigned long long)t->bytes, t->dropped, t->failed, times);
}

static void *reporter(void *unused)
{
    static struct tally t;

    for (;;) {
        double due_s;

        pthread_mutex_lock(&speaks);
        due_s = take(&t);
        if (!due_s)
            report(&t);
        pthread_mutex_unlock(&speaks);
        if (due_s)
            sleep_until(due_s);
    }
    return unused;
}

/* --- commands */

static const char *set_address(const char *text)
{
    struct ifreq device = {.ifr_name = "eth0"};
    struct sockaddr_in *in = (void *)&device.ifr_addr;
    char address[64];
    unsigned bits;
    int bad, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (sscanf(text, "%63[0-9.]/%u", address, &bits) != 2
            || bits < 1 || bits > 31)
        return "no ADDRESS/BITS";
    in->sin_family = AF_INET;
    bad = inet_pton(AF_INET, address, &in->sin_addr) != 1
        || ioctl(fd, SIOCSIFADDR, &device);
    in->sin_addr.s_addr = htonl(~0u << (32 - bits));
    bad = bad || ioctl(fd, SIOCSIFNETMASK, &device)
        || ioctl(fd, SIOCGIFFLAGS, &device);
    device.ifr_flags |= IFF_UP;
    bad = bad || ioctl(fd, SIOCSIFFLAGS, &device);
    close(fd);
    return bad ? strerror(errno) : 0;
}

static const char *set_option(struct order *o, const char *word)
{
    const struct {const char *name; long *value;} numbers[] = {
        {"threads=", &o->threads}, {"kib=", &o->kib}, {"mib=", &o->mib},
        {"per_s=", &o->per_s}, {"rounds=", &o->rounds},
        {"bytes_per_s=", &o->bytes_per_s}, {"port=", &o->port},
        {"disks=", &o->disks}};
    struct in_addr any;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        size_t length = strlen(numbers[i].name);

        if (!strncmp(word, numbers[i].name, length)) {
            *numbers[i].value = atol(word + length);
            return *numbers[i].value < 1 ? "a number below 1" : 0;
        }
    }
    if (!strcmp(word, "seq"))
        strcpy(o->sequence, word);
    else if (!strcmp(word, "write") || !strcmp(word, "mixed")
            || !strcmp(word, "tcp"))
        strcpy(o->mode, word);
    else if (inet_pton(AF_INET, word, &any) == 1)
        snprintf(o->address, sizeof(o->address), "%s", word);
    else if (word[strspn(word, "0123456789")] == 0)
        o->threads = atol(word);
    else
        return "an option that it does not know";
    return 0;
}

static const char *find_disks(struct order *o)
{
    static const char *const names[DISKS] = {"/dev/vda", "/dev/vdb"};
    static int fds[DISKS] = {-1, -1};

    if (o->disks > DISKS)
        return "too many disks";
    for (long n = 0; n < DISKS; n++) {
        long of = n < o->disks ? n : 0;
        uint64_t bytes;

        if (fds[of] < 0)
            fds[of] = open(names[of], O_RDWR | O_DIRECT | O_CLOEXEC);
        o->fds[n] = fds[of];
        if (fds[of] < 0 || ioctl(fds[of], BLKGETSIZE64, &bytes)
                || bytes < (uint64_t)o->kib * 1024)
            return "no disk of that size";
        if (!n || bytes < o->disk_bytes)
            o->disk_bytes = bytes;
    }
    return 0;
}

static const char *start(struct order *o, worker *run)
{
    pthread_attr_t small;

    replace(&current, o);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    pthread_attr_setinheritsched(&small, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (long n = 0; n < o->threads; n++) {
        pthread_t thread;

        if (pthread_create(&thread, &small, run, o))
            return "no memory for a thread";
    }
    return 0;
}

static const char *obey(char *line)
{
    char *left, *word = strtok_r(line, " ", &left);
    const char *wrong = 0;
    struct order *o;
    worker *run;

    if (!word)
        return "nothing said";
    if (!strcmp(word, "off"))
        reboot(RB_POWER_OFF);
    if (!strcmp(word, "reboot"))
        reboot(RB_AUTOBOOT);
    if (!strcmp(word, "address"))
        return set_address(left);
    run = worker_named(word);
    o = calloc(1, sizeof(*o));
    if (!run || !o)
        return "no such work";
    *o = (struct order){.threads = strcmp(word, "lookup") ? 1 : 4, .kib = 4,
                        .mib = 16, .per_s = 50, .rounds = 1, .port = 5001,
                        .disks = 1};
    snprintf(o->work, sizeof(o->work), "%s", word);
    while (!wrong && (word = strtok_r(0, " ", &left)))
        wrong = set_option(o, word);
    if (!wrong && (o->threads < 1 || o->threads > MOST_THREADS))
        wrong = "too many threads, or none";
    if (!wrong && (!strcmp(o->work, "disk") || !strcmp(o->work, "lookup")))
        wrong = find_disks(o);
    if (!wrong)
        return start(o, run);
    free(o);
    return wrong;
}

static void answer(char *line)
{
    char said[256];
    const char *wrong;

    snprintf(said, sizeof(said), "%s", line);
    for (char *c = said; *c; c++)
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = '?';
    pthread_mutex_lock(&speaks);
    wrong = obey(line);
    if (wrong)
        say("{\"refused\": \"%s\", \"why\": \"%s\"}", said, wrong);
    else
        say("{\"obeyed\": \"%s\"}", said);
    pthread_mutex_unlock(&speaks);
}

/* --- the beginning */

static void open_console(void)
{
    struct termios plain;

    mkdir("/dev", 0755);
    mount("dev", "/dev", "devtmpfs", 0, 0);
    console = open("/dev/ttyS0", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (!tcgetattr(console, &plain)) {
        cfmakeraw(&plain);
        tcsetattr(console, TCSANOW, &plain);
    }
}

static void load_modules(void)
{
    glob_t found;

    if (glob("/modules/*", 0, 0, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC);

        if (syscall(SYS_finit_module, fd, "", 0))
            say("%s: %s", found.gl_pathv[i], strerror(errno));
        close(fd);
    }
}

/* Powers off at the ACPI button. */
static void *button(void *unused)
{
    struct pollfd inputs[8];
    struct input_event event;
    glob_t found;
    nfds_t count = 0;

    while (glob("/dev/input/event*", 0, 0, &found))
        usleep(100000);
    for (; count < found.gl_pathc && count < 8; count++)
        inputs[count] = (struct pollfd){
            open(found.gl_pathv[count], O_RDONLY | O_CLOEXEC), POLLIN};
    while (poll(inputs, count, -1) > 0)
        for (nfds_t i = 0; i < count; i++)
            if (inputs[i].revents
                    && read(inputs[i].fd, &event, sizeof(event)) > 0
                    && event.type == EV_KEY && event.code == KEY_POWER)
                reboot(RB_POWER_OFF);
    return unused;
}

int main(void)
{
    static struct order none, rest = {.work = "rest", .fds = {-1, -1}};
    const struct sched_param first = {.sched_priority = 1};
    char line[256];
    size_t length = 0;
    pthread_t thread;

    current = &none;
    open_console();
    load_modules();
    replace(&current, &rest);
    /* What measures comes before what works. */
    sched_setscheduler(0, SCHED_FIFO, &first);
    pthread_create(&thread, 0, reporter, 0);
    pthread_create(&thread, 0, button, 0);
    for (;;) {
        char c;

        if (read(console, &c, 1) != 1) {
            usleep(10000);
        } else if (c == '\n') {
            line[length] = 0;
            length = 0;
            answer(line);
        } else if (length < sizeof(line) - 1) {
            line[length++] = c;
        }
    }
}
