/* SPDX-License-Identifier: Apache-2.0 */

/* SoI15, vector units.  Source: iBench, section III-B.
 * Intensity: the rate at which SIMD instructions are issued, 256 bits wide
 * where the CPU has them (else 128), on registers alone: no cache is used. */
#include "soi.h"

#define GROUPS (TOUCHES / 2u)
#define IN_GROUP 12u

typedef float narrow __attribute__((vector_size(16)));

static void (*issue)(void);

#define TWELVE(TYPE, CLASS)                                                \
    TYPE one = {1, 1, 1, 1}, zero = {0}, a = one, b = one, c = one;        \
    TYPE d = one, e = one, f = one, g = one, h = one, j = one, k = one;    \
    TYPE l = one, m = one;                                                 \
    for (unsigned i = 0; i < GROUPS; i++)                                  \
        __asm__ volatile(                                                  \
            ADD(0) MULTIPLY(1) ADD(2) MULTIPLY(3) ADD(4) MULTIPLY(5)       \
            ADD(6) MULTIPLY(7) ADD(8) MULTIPLY(9) ADD(10) MULTIPLY(11)     \
            : CLASS(a), CLASS(b), CLASS(c), CLASS(d), CLASS(e), CLASS(f),  \
              CLASS(g), CLASS(h), CLASS(j), CLASS(k), CLASS(l), CLASS(m)   \
            : INPUT(zero), INPUT(one))

#if defined(SOI_X86_64)

typedef float wide __attribute__((vector_size(32)));
#define BOTH(V) "+x"(V)
#define INPUT(V) "x"(V)

#define ADD(N) "vaddps %12, %" #N ", %" #N "\n\t"
#define MULTIPLY(N) "vmulps %13, %" #N ", %" #N "\n\t"
__attribute__((target("avx"))) static void issue_wide(void)
{
    TWELVE(wide, BOTH);
}
#undef ADD
#undef MULTIPLY

#define ADD(N) "addps %12, %" #N "\n\t"
#define MULTIPLY(N) "mulps %13, %" #N "\n\t"
static void issue_narrow(void)
{
    TWELVE(narrow, BOTH);
}

static void choose(void)
{
    issue = __builtin_cpu_supports("avx") ? issue_wide : issue_narrow;
}

#elif defined(SOI_AARCH64)

#define BOTH(V) "+w"(V)
#define INPUT(V) "w"(V)
#define ADD(N) "fadd %" #N ".4s, %" #N ".4s, %12.4s\n\t"
#define MULTIPLY(N) "fmul %" #N ".4s, %" #N ".4s, %13.4s\n\t"
static void issue_narrow(void)
{
    TWELVE(narrow, BOTH);
}

static void choose(void)
{
    issue = issue_narrow;    /* part of the architecture */
}

#elif defined(__SSE2__) || defined(__ARM_NEON) || defined(__ALTIVEC__) \
    || defined(__VEC__) || defined(__loongarch_sx)

static void issue_narrow(void)
{
    narrow value[4], one = {1, 1, 1, 1}, zero = {0};
    for (unsigned k = 0; k < 4; k++)
        value[k] = one;
    for (unsigned i = 0; i < GROUPS * IN_GROUP / 8; i++) {
        __asm__ volatile("" : "+m"(zero), "+m"(one));
        for (unsigned k = 0; k < 4; k++)
            value[k] = value[k] * one + zero;
    }
    __asm__ volatile("" : : "m"(value));
}

static void choose(void)
{
    issue = issue_narrow;
}

#else

static void choose(void)
{
}

#endif

static void prepare(struct options *options)
{
    (void)options;
    choose();
    if (!issue)
        fail(2, "this CPU has no vector unit that the program was compiled "
             "for: leave SoI15 out");
}

static double chunk(struct worker *worker)
{
    issue();
    count(worker, GROUPS * IN_GROUP, 0);
    return 1;
}

const struct kernel vector = {
    .name = "vector", .threads = WORKERS, .prepare = prepare,
    .chunk = chunk};
