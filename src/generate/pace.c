/* How reading prompts and writing take turns, so that a long prompt does not keep others waiting.
 *
 * A chunk of a prompt takes many times as long as a token of those that write. So it is read in
 * slices: between two of its instructions, once the time has passed that a batch of single tokens
 * takes, the run returns, such a batch is read, and every sequence that writes gets a token.
 * Batches have a workspace of their own and other rows of the pool, so that no bit of either
 * depends on when this happens. Tokens of a stream then come every
 *     SHARE batches for the chunk + the instruction that was going on + the batch itself
 * and chunks are made shorter, 512, 256, 128 or 64 tokens, where a single instruction takes longer
 * than STRETCH batches. GPUs run a program as a whole: a step reads chunks for SHARE batches, each
 * as long as lets it take SHARE + STRETCH. There a chunk of 512 tokens may take hardly longer than
 * one of 64, so each size has its own time, and the next larger one is tried where it is not
 * known. Where the cut of a text could change bits (dra_model_cut() is 0), chunks stay as they
 * are. */
#include "generate/engine.h"

#include <math.h>
#include <stdlib.h>

#define SHARE 1.0
#define STRETCH 0.4
#define FADE 0.998 /* what was measured once is tried again after some hundred steps */

/* ---- what was measured ----------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a batch: the median of the last ones, as one that was compiled tells nothing. */
static double usual_batch(const dra_pace *p)
{
    double        x[DRA_PACE_BATCHES] = {0};
    const int64_t n = p->batches < DRA_PACE_BATCHES ? p->batches : DRA_PACE_BATCHES;
    for (int64_t i = 0; i < n; i++) x[i] = p->batch[i];
    qsort(x, (size_t)n, sizeof *x, by_size);
    return n ? x[n / 2] : 0;
}

void dra_pace_wrote(dra_engine *e, double began)
{
    dra_pace *p = &e->pace;
    p->wrote = dra_clock();
    p->batch[p->batches++ % DRA_PACE_BATCHES] = p->wrote - began;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static int64_t count_writers(const dra_engine *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_active; i++) n += e->active[i]->started && !e->active[i]->over;
    return n;
}

/* The longest chunk that takes no more than `most` seconds, or may. */
static int64_t longest_whole(dra_pace *p, int64_t chunk, double most)
{
    int64_t T = DRA_ENGINE_CUT;
    for (int i = 1; i < DRA_PACE_SIZES && 2 * T <= chunk && p->took[i - 1] > 0; i++, T *= 2) {
        if (p->took[i - 1] > most) break;
        if (p->took[i] <= most) continue;
        p->took[i] = p->took[i] * FADE > most ? p->took[i] * FADE : 0;
        break;
    }
    return T;
}

int64_t dra_pace_step(dra_engine *e)
{
    dra_pace     *p = &e->pace;
    const double  most = usual_batch(p) * (p->slices ? STRETCH : SHARE + STRETCH);
    const int64_t writers = count_writers(e);
    p->most = e->config.chunk;
    p->whole = !p->slices && writers > 0;
    p->began = dra_clock();
    if (e->cut == 0 || writers == 0) return p->most;
    if (p->whole) return p->most = longest_whole(p, p->most, most);
    if (p->stretch == 0) p->most = DRA_ENGINE_CUT;
    while (p->most > DRA_ENGINE_CUT && p->stretch * (double)p->most > most)
        p->most = p->most / 2 / DRA_ENGINE_CUT * DRA_ENGINE_CUT;
    if (p->most < DRA_ENGINE_CUT) p->most = DRA_ENGINE_CUT;
    return p->most;
}

bool dra_pace_is_alone(const dra_engine *e) { return count_writers(e) == 0; }

void dra_pace_slice(dra_engine *e)
{
    dra_pace *p = &e->pace;
    p->slice.until = dra_pace_is_alone(e) ? INFINITY : p->wrote + SHARE * usual_batch(p);
}

bool dra_pace_is_over(const dra_engine *e)
{
    const dra_pace *p = &e->pace;
    return p->whole && dra_clock() - p->began >= SHARE * usual_batch(p);
}

static void note_whole(dra_pace *p, int64_t T, double seconds)
{
    int i = 0;
    while (i < DRA_PACE_SIZES && DRA_ENGINE_CUT << i != T) i++;
    if (i < DRA_PACE_SIZES) p->took[i] = p->took[i] > 0 ? (p->took[i] + seconds) / 2 : seconds;
}

void dra_pace_end(dra_engine *e, int64_t T, double seconds)
{
    dra_pace    *p = &e->pace;
    const double stretch = p->slice.longest / (double)T;
    if (!p->slices) note_whole(p, T, seconds);
    if (T >= DRA_ENGINE_CUT && stretch > 0)
        p->stretch = p->stretch > 0 ? (p->stretch + stretch) / 2 : stretch;
}
