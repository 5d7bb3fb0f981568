/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Collaborative filtering: ratings of users for items are approximated by
 * the product of two thin matrices P and Q, by stochastic gradient descent
 * (PQ-reconstruction).  Ratings are drawn: popular items have more.
 *
 *   filtering RATINGS PASSES
 *
 * FORM chooses how the same is computed:
 *   0  as it is written first: double, a matrix is a column after the other,
 *      ratings in the order in which they came
 *   1  float, the factors of a user or item beside each other, so that SIMD
 *      instructions work on them
 *   2  ratings ordered by user, whose row is kept as long as they are the
 *      same user's
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define USERS 180000u        /* as in the paper */
#define ITEMS 17000u
#define FACTORS 32
#define RATE 0.01f
#define KEEP 0.02f

#if FORM == 0
typedef double number;
#define P(user, k) p[(size_t)(k) * USERS + (user)]
#define Q(item, k) q[(size_t)(k) * ITEMS + (item)]
#else
typedef float number;
#define P(user, k) p[(size_t)(user) * FACTORS + (k)]
#define Q(item, k) q[(size_t)(item) * FACTORS + (k)]
#endif

struct rating {
    uint32_t user, item;
    float value;
};

static number *p, *q;
static struct rating *ratings;
static uint64_t state = 88172645463325252ull;

static uint32_t below(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * limit >> 32);
}

static void *room(size_t count, size_t size)
{
    void *at = aligned_alloc(64, (count * size + 63) / 64 * 64);
    if (!at)
        exit(1);
    return at;
}

static void draw(size_t count)
{
    p = room((size_t)USERS * FACTORS, sizeof *p);
    q = room((size_t)ITEMS * FACTORS, sizeof *q);
    ratings = room(count, sizeof *ratings);
    for (size_t i = 0; i < (size_t)USERS * FACTORS; i++)
        p[i] = (number)(below(1000) / 5000.0);
    for (size_t i = 0; i < (size_t)ITEMS * FACTORS; i++)
        q[i] = (number)(below(1000) / 5000.0);
    for (size_t i = 0; i < count; i++) {
        uint32_t item = below(ITEMS);
        ratings[i].user = below(USERS);
        ratings[i].item = below(item + 1);
        ratings[i].value = 1.0f + (float)((ratings[i].user * 7u
                                           + ratings[i].item * 13u) % 5u);
    }
}

#if FORM == 2
/* Order ratings by user: so many are before the first of each. */
static void order(size_t count)
{
    size_t *next = calloc(USERS + 1, sizeof *next);
    struct rating *ordered = room(count, sizeof *ordered);
    if (!next)
        exit(1);
    for (size_t i = 0; i < count; i++)
        next[ratings[i].user + 1]++;
    for (uint32_t user = 1; user <= USERS; user++)
        next[user] += next[user - 1];
    for (size_t i = 0; i < count; i++)
        ordered[next[ratings[i].user]++] = ratings[i];
    free(next);
    free(ratings);
    ratings = ordered;
}
#endif

#if FORM < 2
static double pass(size_t count)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t user = ratings[i].user, item = ratings[i].item;
        number dot = 0;
        for (int k = 0; k < FACTORS; k++)
            dot += P(user, k) * Q(item, k);
        number error = ratings[i].value - dot;
        squares += (double)error * (double)error;
        for (int k = 0; k < FACTORS; k++) {
            number before = P(user, k);
            P(user, k) += (number)RATE * (error * Q(item, k)
                                          - (number)KEEP * before);
            Q(item, k) += (number)RATE * (error * before
                                          - (number)KEEP * Q(item, k));
        }
    }
    return sqrt(squares / (double)count);
}
#else
/* The same, with the row of the user in registers. */
static double pass(size_t count)
{
    double squares = 0;
    number row[FACTORS];
    uint32_t user = USERS;
    for (size_t i = 0; i < count; i++) {
        number *item = &Q(ratings[i].item, 0), dot = 0;
        if (ratings[i].user != user) {
            if (user != USERS)
                memcpy(&P(user, 0), row, sizeof row);
            user = ratings[i].user;
            memcpy(row, &P(user, 0), sizeof row);
        }
        for (int k = 0; k < FACTORS; k++)
            dot += row[k] * item[k];
        number error = ratings[i].value - dot;
        squares += (double)error * (double)error;
        for (int k = 0; k < FACTORS; k++) {
            number before = row[k];
            row[k] += RATE * (error * item[k] - KEEP * before);
            item[k] += RATE * (error * before - KEEP * item[k]);
        }
    }
    if (user != USERS)
        memcpy(&P(user, 0), row, sizeof row);
    return sqrt(squares / (double)count);
}
#endif

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 500000;
    int passes = argc > 2 ? atoi(argv[2]) : 1;
    double error = 0;
    struct rusage usage;
    draw(count);
    double begin_s = now_s();
#if FORM == 2
    order(count);
#endif
    for (int i = 0; i < passes; i++)
        error = pass(count);
    double end_s = now_s();
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"seconds\": %.6f, \"error\": %.6f, \"resident_bytes\": %ld, "
           "\"cpu_s\": %.6f}\n", end_s - begin_s, error,
           usage.ru_maxrss * 1024l,
           (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec
           * 1e-6 + (double)usage.ru_stime.tv_sec
           + (double)usage.ru_stime.tv_usec * 1e-6);
    return 0;
}
