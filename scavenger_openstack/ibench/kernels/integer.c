/* SPDX-License-Identifier: Apache-2.0 */

/* SoI11, integer units.  Source: iBench, section III-B.
 * Intensity: the rate at which instructions between integers are issued: in
 * eight independent chains, six of add and xor and two of multiply. */
#include "soi.h"

#define GROUPS (TOUCHES / 2u)
#define IN_GROUP 16u

static void prepare(struct options *options)
{
    (void)options;
}

static double chunk(struct worker *worker)
{
    uint64_t a = worker->state, b = a + 1, c = a + 2, d = a + 3;
    uint64_t e = a + 4, f = a + 5, g = a + 6, h = a + 7;
    for (unsigned i = 0; i < GROUPS; i++) {
#if defined(SOI_X86_64)
#define STEP "add %0, %0\n\t xor %8, %1\n\t add %8, %2\n\t xor %8, %3\n\t" \
             "add %8, %4\n\t xor %8, %5\n\t imul %8, %6\n\t imul %8, %7\n\t"
        __asm__ volatile(
            STEP STEP
            : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g),
              "+r"(h) : "r"((uint64_t)0x9e3779b97f4a7c15ull) : "cc");
#elif defined(SOI_AARCH64)
#define STEP "add %0, %0, %8\n\t eor %1, %1, %8\n\t add %2, %2, %8\n\t" \
             "eor %3, %3, %8\n\t add %4, %4, %8\n\t eor %5, %5, %8\n\t" \
             "mul %6, %6, %8\n\t mul %7, %7, %8\n\t"
        __asm__ volatile(
            STEP STEP
            : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g),
              "+r"(h) : "r"((uint64_t)0x9e3779b97f4a7c15ull));
#else
        for (unsigned k = 0; k < 2; k++) {
            uint64_t m = 0x9e3779b97f4a7c15ull;
            a += m, b ^= m, c += m, d ^= m, e += m, f ^= m, g *= m, h *= m;
            __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
            __asm__ volatile("" : "+r"(e), "+r"(f), "+r"(g), "+r"(h));
        }
#endif
    }
    worker->state = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
    count(worker, GROUPS * IN_GROUP, 0);
    return 1;
}

const struct kernel integer = {
    .name = "integer", .threads = WORKERS, .prepare = prepare,
    .chunk = chunk};
