/* SPDX-License-Identifier: Apache-2.0 */

/* SoI14, interconnection network.  Source: iBench, section III-B.
 * Intensity: number and fan-out of messages that a thread passes to threads
 * on other CPUs: to x % of them at once, each of which answers. */
#include "soi.h"
#include <sched.h>

#define MESSAGES 256u
#define PATIENCE 4096u       /* polls before the CPU is left to others */

/* Two lines, since some CPUs fetch lines in pairs. */
struct mailbox {
    _Alignas(128) _Atomic uint64_t message;
    _Alignas(128) _Atomic uint64_t answer;
};

static struct mailbox mailboxes[WORKERS];
static unsigned receivers, fan_out;
static uint64_t sent;        /* the number of the last message */

static void prepare(struct options *options)
{
    if (options->cpu_count < 2 || options->threads != options->cpu_count)
        fail(2, "interconnect passes messages between CPUs: name two or more "
             "with --cpus, and as many --threads");
    for (unsigned i = 0; i < options->cpu_count; i++)
        for (unsigned k = 0; k < i; k++)
            if (options->cpus[i] == options->cpus[k])
                fail(2, "interconnect: CPU %d is named twice in --cpus",
                     options->cpus[i]);
    receivers = (unsigned)options->threads - 1;
}

static void hold(double share)
{
    fan_out = (unsigned)(share * receivers + 1 - 1e-9);
}

static void wait_a_little(unsigned polls)
{
    if (polls % PATIENCE == 0)
        sched_yield();
#if defined(SOI_X86_64)
    __asm__ volatile("pause");
#elif defined(SOI_AARCH64)
    __asm__ volatile("yield");
#endif
}

static double chunk(struct worker *worker)
{
    unsigned passed = 0;
    for (; passed < MESSAGES; passed += fan_out) {
        sent++;
        for (unsigned i = 0; i < fan_out; i++)
            atomic_store_explicit(&mailboxes[i].message, sent,
                                  memory_order_release);
        for (unsigned i = 0; i < fan_out; i++)
            for (unsigned polls = 1; atomic_load_explicit(
                     &mailboxes[i].answer, memory_order_acquire) != sent;)
                wait_a_little(polls++);
    }
    count(worker, passed, 0);
    return (double)passed / MESSAGES;
}

/* A receiver: idle while the sender is. */
static void answer(struct worker *worker)
{
    struct mailbox *mailbox = &mailboxes[worker->index - 1];
    uint64_t answered = atomic_load(&mailbox->answer);
    while (!atomic_load(&phase_over)) {
        double until_s = atomic_load(&resting_until_s);
        if (now_s() < until_s)
            sleep_until(until_s);
        for (unsigned polls = 1; polls < PATIENCE; polls++) {
            uint64_t message = atomic_load_explicit(&mailbox->message,
                                                    memory_order_acquire);
            if (message != answered)
                atomic_store_explicit(&mailbox->answer, message,
                                      memory_order_release);
            else
                wait_a_little(polls);
            answered = message;
        }
        sched_yield();
    }
}

const struct kernel interconnect = {
    .name = "interconnect", .threads = WORKERS, .prepare = prepare,
    .hold = hold, .chunk = chunk, .answer = answer};
