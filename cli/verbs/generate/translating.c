/* Beam search of translations. */
#include "translating.h"

#include <stdlib.h>
#include <string.h>

/* The text itself is printed later, of all rows alike. */
static bool ask_step(void *user, int64_t row, const char *text, size_t bytes)
{
    const cli_translating *t = user;
    return !t->step || t->step(NULL);
}

/* Sources end with pads. */
static dra_status read_row(const cli_translating *t, int64_t b, dra_generator *g, dra_error *err)
{
    const cli_inputs *in = t->in;
    const int32_t    *first = NULL, *source = NULL;
    size_t            n = 0;
    for (int i = 0; i < in->n_named; i++)
        *(in->named[i].context ? &source : &first) = in->named[i].data;
    while ((int64_t)n < in->S && !(in->context_mark[b * in->S + (int64_t)n] & DRA_MARK_PAD)) n++;
    return dra_generator_read_source(g, b, n, source + b * in->S, 1, first + b, err);
}

static dra_status open_generator(const cli_translating *t, cli_beams *beams, dra_error *err)
{
    const dra_generator_config c = {.model = t->m->model,
                                    .weights = t->m->weights,
                                    .device = t->m->device,
                                    .sampler = cli_sampler_config(t->how, NULL),
                                    .rows = t->in->B,
                                    .state_limit = cli_clamp_limit(t->from)};
    beams->N = t->search->beam;
    beams->beam = calloc((size_t)(t->in->B * beams->N), sizeof *beams->beam);
    if (!beams->beam) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    dra_status st = dra_generator_create(&c, &beams->generator, err);
    for (int64_t b = 0; b < t->in->B && st == DRA_OK; b++)
        st = read_row(t, b, beams->generator, err);
    return st;
}

static dra_status take_best(const cli_beams *beams, int64_t B, dra_continued *out, dra_error *err)
{
    for (int64_t b = 0; b < B; b++)
        if ((int64_t)beams->beam[b * beams->N].text.n > out->n)
            out->n = (int64_t)beams->beam[b * beams->N].text.n;
    out->B = B;
    out->count = calloc((size_t)B, sizeof *out->count);
    out->finish = calloc((size_t)B, sizeof *out->finish);
    out->ids = calloc((size_t)(B * out->n) + 1, sizeof *out->ids);
    if (!out->count || !out->finish || !out->ids)
        return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t b = 0; b < B; b++) {
        const dra_generated *best = &beams->beam[b * beams->N].text;
        out->count[b] = (int64_t)best->n;
        out->finish[b] = best->finish;
        if (best->n) memcpy(out->ids + b * out->n, best->ids, best->n * sizeof *out->ids);
    }
    out->clamped = dra_generator_clamped(beams->generator);
    return DRA_OK;
}

dra_status cli_translate(const cli_translating *t, cli_beams *beams, dra_continued *out,
                         dra_error *err)
{
    const dra_generate_config c = {.tokens = t->how->tokens,
                                   .n_ends = t->ends,
                                   .ends = t->end,
                                   .ignore_end = t->how->ignore_end,
                                   .write = ask_step,
                                   .user = (void *)(uintptr_t)t};
    const dra_beam_config     how = {t->search->beam, t->search->length_penalty, t->search->noise};
    dra_status                st = open_generator(t, beams, err);
    if (st == DRA_OK) st = dra_generate_beam(beams->generator, &c, &how, beams->beam, err);
    return st == DRA_OK ? take_best(beams, t->in->B, out, err) : st;
}

void cli_beams_free(cli_beams *b)
{
    free(b->beam);
    dra_generator_destroy(b->generator);
    *b = (cli_beams){0};
}
