/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How many CPUs are idle at each instant, by the kernel's trace of switches.
 *
 *     idle_observer SECONDS BUFFER [TID...]
 *
 * Prints one JSON object: the share of the time with at least BUFFER idle
 * CPUs, and how long each time lasted with fewer.  Threads TID count as idle.
 * It shares no code with what it observes.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"
#define MOST_CPUS 64
#define MOST_TIMES 200000

static double times_ms[MOST_TIMES];
static int ignored[64], ignored_count;

static void put(const char *file, const char *text)
{
    char path[200];
    int fd;

    snprintf(path, sizeof path, TRACING "%s", file);
    fd = open(path, O_WRONLY | O_TRUNC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    close(fd);
}

static int is_idle(int pid)
{
    for (int i = 0; i < ignored_count; i++)
        if (ignored[i] == pid)
            return 1;
    return pid == 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static int idle[MOST_CPUS], is_known[MOST_CPUS];
    static double idle_s[MOST_CPUS + 1];
    char line[1000];
    int cpus = sysconf(_SC_NPROCESSORS_ONLN), buffer, pass, count = 0;
    double seconds, begin = 0, end = 0;
    long events = 0, lost = 0;

    if (argc < 3)
        return 2;
    seconds = atof(argv[1]);
    buffer = atoi(argv[2]);
    for (int i = 3; i < argc && ignored_count < 64; i++)
        ignored[ignored_count++] = atoi(argv[i]);
    if (mount("tracefs", TRACING, "tracefs", 0, NULL) && errno != EBUSY) {
        perror(TRACING);
        return 1;
    }
    put("tracing_on", "0");
    put("buffer_size_kb", "12288");
    put("trace_clock", "mono");
    put("events/sched/sched_switch/enable", "1");
    put("trace", "");
    put("tracing_on", "1");
    nanosleep(&(struct timespec){(time_t)seconds,
              (long)((seconds - (time_t)seconds) * 1e9)}, NULL);
    put("tracing_on", "0");
    put("events/sched/sched_switch/enable", "0");

    /* What runs on a CPU at first is what its first switch ends. */
    for (pass = 0; pass < 2; pass++) {
        FILE *trace = fopen(TRACING "trace", "r");
        double before = 0, low_since = -1;

        if (!trace) {
            perror(TRACING "trace");
            return 1;
        }
        while (fgets(line, sizeof line, trace)) {
            char *where = strchr(line, '['), *what, *from, *to;
            int cpu, number = 0;
            double now;

            if (sscanf(line, "# entries-in-buffer/entries-written: %ld/%ld",
                       &events, &lost) == 2)
                lost -= events;
            what = strstr(line, ": sched_switch: ");
            if (line[0] == '#' || !where || !what)
                continue;
            from = strstr(what, " prev_pid=");
            to = strstr(what, " next_pid=");
            cpu = atoi(where + 1);
            if (!from || !to || cpu >= MOST_CPUS)
                continue;
            *what = 0;
            now = atof(strrchr(line, ' ') + 1);
            if (!pass) {
                if (!begin)
                    begin = now;
                end = now;
                if (!is_known[cpu]) {
                    is_known[cpu] = 1;
                    idle[cpu] = is_idle(atoi(from + 10));
                }
                continue;
            }
            for (int i = 0; i < cpus; i++)
                number += idle[i];
            if (before) {
                idle_s[number] += now - before;
                if (number < buffer && low_since < 0)
                    low_since = before;
                if (number >= buffer && low_since >= 0) {
                    if (before > low_since && count < MOST_TIMES)
                        times_ms[count++] = (before - low_since) * 1e3;
                    low_since = -1;
                }
            }
            before = now;
            idle[cpu] = is_idle(atoi(to + 10));
        }
        if (low_since >= 0 && count < MOST_TIMES)
            times_ms[count++] = (before - low_since) * 1e3;
        fclose(trace);
    }
    put("trace", "");
    qsort(times_ms, count, sizeof *times_ms, ascending);
    double all = end - begin, enough = 0;

    for (int i = buffer; i <= cpus; i++)
        enough += idle_s[i];
    printf("{\"seconds\": %.3f, \"events\": %ld, \"lost\": %ld, "
           "\"enough_share\": %.4f, \"low_times\": %d, \"low_ms\": "
           "{\"median\": %.3f, \"p99\": %.3f, \"longest\": %.3f}, "
           "\"by_idle\": [", all, events, lost, all ? enough / all : 0, count,
           count ? times_ms[count / 2] : 0,
           count ? times_ms[count * 99 / 100] : 0,
           count ? times_ms[count - 1] : 0);
    for (int i = 0; i <= cpus; i++)
        printf("%s%.4f", i ? ", " : "", all ? idle_s[i] / all : 0);
    printf("]}\n");
    return 0;
}
