/* SPDX-License-Identifier: Apache-2.0 */

/* SoI12, floating point units.  Source: iBench, section III-B.
 * Intensity: the rate at which scalar instructions between doubles are
 * issued: in twelve independent chains, six of add and six of multiply. */
#include "soi.h"

#define GROUPS (TOUCHES / 2u)
#define IN_GROUP 12u

static void prepare(struct options *options)
{
    (void)options;
}

static double chunk(struct worker *worker)
{
    /* values that neither grow nor become denormal */
    double a = 1, b = 1, c = 1, d = 1, e = 1, f = 1;
    double g = 1, h = 1, j = 1, k = 1, l = 1, m = 1;
    double one = 1, zero = 0;
    for (unsigned i = 0; i < GROUPS; i++) {
#if defined(SOI_X86_64)
        __asm__ volatile(
            "addsd %12, %0\n\t mulsd %13, %1\n\t addsd %12, %2\n\t"
            "mulsd %13, %3\n\t addsd %12, %4\n\t mulsd %13, %5\n\t"
            "addsd %12, %6\n\t mulsd %13, %7\n\t addsd %12, %8\n\t"
            "mulsd %13, %9\n\t addsd %12, %10\n\t mulsd %13, %11\n\t"
            : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g),
              "+x"(h), "+x"(j), "+x"(k), "+x"(l), "+x"(m)
            : "x"(zero), "x"(one));
#elif defined(SOI_AARCH64)
#define ADD(N) "fadd %d" #N ", %d" #N ", %d12\n\t"
#define MULTIPLY(N) "fmul %d" #N ", %d" #N ", %d13\n\t"
        __asm__ volatile(
            ADD(0) MULTIPLY(1) ADD(2) MULTIPLY(3) ADD(4) MULTIPLY(5)
            ADD(6) MULTIPLY(7) ADD(8) MULTIPLY(9) ADD(10) MULTIPLY(11)
            : "+w"(a), "+w"(b), "+w"(c), "+w"(d), "+w"(e), "+w"(f), "+w"(g),
              "+w"(h), "+w"(j), "+w"(k), "+w"(l), "+w"(m)
            : "w"(zero), "w"(one));
#else
        /* what the compiler cannot know to be 0 and 1 */
        __asm__ volatile("" : "+m"(zero), "+m"(one));
        a += zero, b *= one, c += zero, d *= one, e += zero, f *= one;
        g += zero, h *= one, j += zero, k *= one, l += zero, m *= one;
#endif
    }
    double sum = a + b + c + d + e + f + g + h + j + k + l + m;
    __asm__ volatile("" : : "m"(sum));
    count(worker, GROUPS * IN_GROUP, 0);
    return 1;
}

const struct kernel floating_point = {
    .name = "floating_point", .threads = WORKERS, .prepare = prepare,
    .chunk = chunk};
