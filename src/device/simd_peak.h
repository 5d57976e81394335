/* The peak of a level: chains of multiply-adds in registers, passes over memory, nothing else. One
 * tiny file per level includes this with PEAK_BYTES, the bytes of its registers, and is compiled
 * for that level. */
#ifndef DRA_SRC_SIMD_PEAK_H
#define DRA_SRC_SIMD_PEAK_H

#include "dra/base.h"

enum { DRA_PEAK_BLOCK = 512 }; /* bytes of a block; passes move whole blocks */

/* Part `from`..`to` of arrays of bytes: first those only read, then updated, then written. */
typedef struct dra_peak_pass {
    unsigned char *const *array;
    int                   reads, updates, writes;
    size_t                from, to;
} dra_peak_pass;

typedef struct dra_peak {
    int64_t flops; /* of one round */
    dra_real (*run)(int64_t rounds);
    void (*plain)(const dra_peak_pass *p);
    void (*streaming)(const dra_peak_pass *p); /* stores pass by the cache, where they can */
} dra_peak;

/* NULL where the file was not compiled for its level. */
const dra_peak *dra_peak_ref(void);
const dra_peak *dra_peak_avx2(void);
const dra_peak *dra_peak_avx512(void);
const dra_peak *dra_peak_avx512bf16(void); /* of pairs of bf16: no passes over memory */
const dra_peak *dra_peak_avx512amx(void);  /* of tiles of them, likewise */

#ifdef PEAK_BYTES

#ifdef __SSE2__
#include <immintrin.h>
#endif

/* A multiply-add takes 4 to 6 cycles, two may start in one: 12 independent chains cover that, and
 * with their two constants they fit in 16 registers. */
enum { PEAK_CHAINS = 12, PEAK_LANES = PEAK_BYTES / sizeof(dra_real) };

typedef dra_real peak_vector __attribute__((vector_size(PEAK_BYTES)));

/* x = x a + b goes to b / (1 - a) = 2: never to infinity, nor to denormals, which are slow. Where
 * it starts is no constant to the compiler, which would compute a fixed point itself. */
static dra_real peak_run(int64_t rounds)
{
    volatile dra_real half = (dra_real)0.5, one = 1;
    const peak_vector a = (peak_vector){0} + half, b = (peak_vector){0} + one;
    peak_vector       x[PEAK_CHAINS];
    dra_real          sum = 0;
    for (int k = 0; k < PEAK_CHAINS; k++) x[k] = b + (dra_real)k;
    for (int64_t i = 0; i < rounds; i++)
        for (int k = 0; k < PEAK_CHAINS; k++) x[k] = x[k] * a + b;
    for (int k = 0; k < PEAK_CHAINS; k++)
        for (int l = 0; l < (int)PEAK_LANES; l++) sum += x[k][l];
    return sum;
}

/* Bits, not numbers: or takes one cycle, so it delays no load, not even from a near cache. */
typedef uint64_t peak_bits __attribute__((vector_size(PEAK_BYTES)));

static inline void peak_store(peak_bits *to, peak_bits x, bool streaming)
{
#if defined(__SSE2__) && PEAK_BYTES == 16
    if (streaming) _mm_stream_si128((__m128i *)to, (__m128i)x);
#elif defined(__AVX2__) && PEAK_BYTES == 32
    if (streaming) _mm256_stream_si256((__m256i *)to, (__m256i)x);
#elif defined(__AVX512F__) && PEAK_BYTES == 64
    if (streaming) _mm512_stream_si512((__m512i *)to, (__m512i)x);
#else
    streaming = false;
#endif
    if (!streaming) *to = x;
}

/* Inlined with `streaming` constant, so that the loop has no branch on it. Two lines of an array at
 * a time keep the loops over arrays cheaper than the loads; with eight of them a pass that only
 * reads reached 10 GB/s where two reach 32 (best of 15, Zen 4, AVX-512). */
static inline void peak_pass(const dra_peak_pass *p, bool streaming)
{
    enum { WIDTH = 128 / PEAK_BYTES };
    const int sources = p->reads + p->updates, arrays = sources + p->writes;
    peak_bits all[WIDTH] = {{0}}, any = {0};
    for (size_t at = p->from; at < p->to; at += WIDTH * PEAK_BYTES) {
        for (int k = 0; k < sources; k++) {
            const peak_bits *x = (const peak_bits *)(p->array[k] + at);
            for (int i = 0; i < WIDTH; i++) all[i] |= x[i];
        }
        for (int k = p->reads; k < arrays; k++) {
            peak_bits *y = (peak_bits *)(p->array[k] + at);
            for (int i = 0; i < WIDTH; i++) peak_store(y + i, all[i], streaming);
        }
    }
    for (int i = 0; i < WIDTH; i++) any |= all[i];
    volatile uint64_t sink = any[0]; /* without a use of the bits there is no loop */
    (void)sink;
#ifdef __SSE2__
    if (streaming) _mm_sfence();
#endif
}

static void peak_plain(const dra_peak_pass *p) { peak_pass(p, false); }
static void peak_streaming(const dra_peak_pass *p) { peak_pass(p, true); }

static const dra_peak peak_of_level = {2 * PEAK_CHAINS * (int64_t)PEAK_LANES, peak_run, peak_plain,
                                       peak_streaming};

#endif
#endif
