/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Start a program inside its cgroups and network namespace.
 *
 *   launch [-g PROCS_FILE]... [-n NETNS_FILE] [-o OOM_SCORE_ADJ]
 *          [-p PARENT -d SIGNAL] PROGRAM [ARGUMENT]...
 *
 * The program is a member from its first instruction on.  SIGNAL is what
 * it gets when its parent dies; it is not started when PARENT is dead
 * already.  An OOM_SCORE_ADJ that we may not set (lowering it takes
 * CAP_SYS_RESOURCE) is left as it is.
 */
#define _GNU_SOURCE
#include "demo.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    sigset_t none;
    pid_t parent = 0;
    int option, fd;

    while ((option = getopt(argc, argv, "+g:n:o:p:d:")) != -1) {
        switch (option) {
        case 'g':
            if (put(optarg, "0") != 0)
                fail(optarg);
            break;
        case 'n':
            fd = open(optarg, O_RDONLY | O_CLOEXEC);
            if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
                fail(optarg);
            break;
        case 'o':
            if (put("/proc/self/oom_score_adj", optarg) != 0
                && errno != EACCES)
                fail("oom_score_adj");
            break;
        case 'p':
            parent = atoi(optarg);
            break;
        case 'd':
            if (prctl(PR_SET_PDEATHSIG, atoi(optarg)) != 0)
                fail("prctl");
            if (getppid() != parent)
                return 1;
            break;
        default:
            return 2;
        }
    }
    if (optind >= argc)
        return 2;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[optind], argv + optind);
    fail(argv[optind]);
}
