/* How reading prompts and writing take turns, so that a long prompt does not keep others waiting.
 *
 * A piece of a prompt takes many times as long as a token of those that write. So it pauses:
 * between two of its instructions, once the time has passed that a batch of single tokens takes,
 * such a batch is read and goes on with every sequence that writes. It has a workspace of its own
 * and other rows of the pool, so that no bit of either depends on when this happens. Tokens of a
 * stream then come every
 *     SHARE batches for the piece + the instruction that was going on + the batch itself
 * and pieces are made shorter, 512, 256, 128 or 64 tokens, where a single instruction takes longer
 * than STRETCH batches. Devices that run a program as a whole, GPUs, do not pause: a step reads
 * pieces for SHARE batches, each as long as lets it take SHARE + STRETCH. There a piece of 512
 * tokens may take hardly longer than one of 64, so each size has its own time, and the next larger
 * one is tried where it is not known.
 * Where the cut of a text could change bits (dra_model_cut() is 0), pieces stay as they are. */
#include "engine/engine.h"

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
    p->wrote = dra_engine_clock();
    p->batch[p->batches++ % DRA_PACE_BATCHES] = p->wrote - began;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int64_t count_writers(const dra_engine *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_active; i++) n += e->active[i]->started && !e->active[i]->over;
    return n;
}

/* The longest piece that takes no more than `most` seconds, or may. */
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
    const double  most = usual_batch(p) * (p->pauses ? STRETCH : SHARE + STRETCH);
    const int64_t writers = count_writers(e);
    p->status = DRA_OK;
    p->most = e->config.chunk;
    p->whole = !p->pauses && writers > 0;
    p->began = dra_engine_clock();
    if (e->cut == 0 || writers == 0) return p->most;
    if (p->whole) return p->most = longest_whole(p, p->most, most);
    if (p->stretch == 0) p->most = DRA_ENGINE_CUT;
    while (p->most > DRA_ENGINE_CUT && p->stretch * (double)p->most > most)
        p->most = p->most / 2 / DRA_ENGINE_CUT * DRA_ENGINE_CUT;
    if (p->most < DRA_ENGINE_CUT) p->most = DRA_ENGINE_CUT;
    return p->most;
}

void dra_pace_begin(dra_engine *e)
{
    dra_pace *p = &e->pace;
    p->longest = 0;
    p->paused = p->pauses ? 0 : dra_engine_clock();
    p->reading = count_writers(e) > 0;
}

bool dra_pace_is_over(const dra_engine *e)
{
    const dra_pace *p = &e->pace;
    return p->whole && dra_engine_clock() - p->began >= SHARE * usual_batch(p);
}

/* A piece that was compiled tells nothing. */
static void note_whole(dra_pace *p, int64_t T, double seconds)
{
    int i = 0;
    while (i < DRA_PACE_SIZES && DRA_ENGINE_CUT << i != T) i++;
    if (i < DRA_PACE_SIZES) p->took[i] = p->took[i] > 0 ? (p->took[i] + seconds) / 2 : seconds;
}

void dra_pace_end(dra_engine *e, int64_t T, bool compiled)
{
    dra_pace *p = &e->pace;
    if (!p->pauses && !compiled) note_whole(p, T, dra_engine_clock() - p->paused);
    const double stretch = p->longest / (double)T;
    if (T >= DRA_ENGINE_CUT && p->reading)
        p->stretch = p->stretch > 0 ? (p->stretch + stretch) / 2 : stretch;
    p->reading = false;
}

void dra_pace_pause(void *user)
{
    dra_engine *e = user;
    dra_pace   *p = &e->pace;
    if (!p->reading) return;
    const double now = dra_engine_clock();
    if (p->paused > 0 && now - p->paused > p->longest) p->longest = now - p->paused;
    if (now - p->wrote >= SHARE * usual_batch(p) && dra_rows_ready(e, count_writers(e))) {
        dra_error        why = {0};
        const dra_status st = dra_engine_write(e, &why);
        if (st != DRA_OK && p->status == DRA_OK) p->status = st, p->error = why;
    }
    p->paused = dra_engine_clock();
}
