/* SPDX-License-Identifier: Apache-2.0 */

/* Functions of about a cache line each, each with a branch on a random bit:
 * code that takes space in the L1i and that no predictor foresees. */
#include "soi.h"

#define BLOCK(N)                                                           \
    __attribute__((noinline, aligned(64)))                                 \
    static uint64_t block_##N(uint64_t state)                              \
    {                                                                      \
        state = state * 6364136223846793005ull + 0x##N##1ull;              \
        if (state >> 63)                                                   \
            __asm__ volatile("" : "+r"(state) : : "memory");               \
        else                                                               \
            state ^= state >> 29;                                          \
        return state;                                                      \
    }

#define FOUR(DO, P) DO(P##0) DO(P##1) DO(P##2) DO(P##3)
#define SIXTEEN(DO, P) FOUR(DO, P##0) FOUR(DO, P##1) FOUR(DO, P##2) \
    FOUR(DO, P##3)
#define SIXTY_FOUR(DO, P) SIXTEEN(DO, P##0) SIXTEEN(DO, P##1) \
    SIXTEEN(DO, P##2) SIXTEEN(DO, P##3)
#define SOME(DO) \
    SIXTY_FOUR(DO, 1) SIXTY_FOUR(DO, 2) SIXTY_FOUR(DO, 3) SIXTY_FOUR(DO, 4)
#if defined(SOI_X86_64) || defined(SOI_AARCH64)
#define ALL(DO) SOME(DO)
#else
#define ALL(DO) SOME(DO) \
    SIXTY_FOUR(DO, 5) SIXTY_FOUR(DO, 6) SIXTY_FOUR(DO, 7) SIXTY_FOUR(DO, 8) \
    SIXTY_FOUR(DO, 9) SIXTY_FOUR(DO, a) SIXTY_FOUR(DO, b) SIXTY_FOUR(DO, c) \
    SIXTY_FOUR(DO, d) SIXTY_FOUR(DO, e) SIXTY_FOUR(DO, f) SIXTY_FOUR(DO, 10)
#endif

ALL(BLOCK)

#define ADDRESS(N) block_##N,
block *const blocks[BLOCKS] = {ALL(ADDRESS)};
