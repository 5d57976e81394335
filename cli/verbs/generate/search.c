/* Contrast with weaker models and beam search, as options. */
#include "search.h"

#include <stdlib.h>

static bool draws_tokens(const cli_search *s) { return !s->beam || s->noise; }

void cli_search_habits(const cli_search *s, cli_sampling *to)
{
    dra_sampler_config *c = &to->sampler;
    if (s->amateur.count || !draws_tokens(s)) cli_sampling_forget(to, DRA_SAMPLER_FILTER);
    if (!draws_tokens(s) || (s->noise && c->temperature == 0)) c->temperature = 1;
}

static int check_beam(const char *verb, const cli_search *s, const cli_sampling *how, int64_t count)
{
    static const char         needs[] = "with --beam it needs --beam-noise";
    const double              temperature = how->sampler.temperature;
    const dra_sampler_option *filter = dra_sampler_find(&how->sampler, DRA_SAMPLER_FILTER);
    if (how->stop.count) return cli_misused(verb, "--stop: not with --beam");
    if (s->noise && temperature == 0)
        return cli_misused(verb, "--beam-noise: expected a --temperature above 0");
    if (s->noise) return CLI_OK;
    if (filter) return cli_misused(verb, "--%s is for drawing: %s", filter->option, needs);
    if (temperature != 0 && temperature != 1)
        return cli_misused(verb, "--temperature is for drawing: %s", needs);
    if (count > 1) return cli_misused(verb, "--count would give the same text again: %s", needs);
    return CLI_OK;
}

int cli_search_check(const char *verb, const cli_search *s, const cli_sampling *how, int64_t count)
{
    const cli_search          plain = {CLI_SEARCH};
    const dra_sampler_option *filter = dra_sampler_find(&how->sampler, DRA_SAMPLER_FILTER);
    if (s->amateur.count && filter)
        return cli_misused(verb, "--%s: not with --amateur, whose contrast takes its place",
                           filter->option);
    if (!s->amateur.count && (s->alpha != plain.alpha || s->beta != plain.beta))
        return cli_misused(verb, "--contrast-%s: expected an --amateur",
                           s->alpha != plain.alpha ? "alpha" : "beta");
    if (!s->beam && (s->noise || s->length_penalty != 0))
        return cli_misused(verb, "--%s: expected --beam",
                           s->noise ? "beam-noise" : "length-penalty");
    return s->beam ? check_beam(verb, s, how, count) : CLI_OK;
}

/* ---- amateurs -------------------------------------------------------------------------------- */

dra_status cli_same_tokenizer(const char *who, const char *folder, const dra_tokenizer *tokenizer,
                              dra_error *err)
{
    dra_tokenizer *own = NULL;
    if (!tokenizer || !dra_tokenizer_is_in(folder)) return DRA_OK;
    dra_status st = dra_tokenizer_open(folder, &own, err);
    if (st == DRA_OK && dra_tokenizer_fingerprint(own) != dra_tokenizer_fingerprint(tokenizer))
        st = cli_error(err, DRA_ERR_VALUE, "%.200s: %s has another tokenizer", folder, who);
    dra_tokenizer_destroy(own);
    return st;
}

dra_status cli_amateurs_open(const cli_search *s, const cli_source *from,
                             const dra_tokenizer *tokenizer, cli_amateurs *out, dra_error *err)
{
    const size_t n = s->amateur.count;
    dra_status   st = DRA_OK;
    if (n == 0) return DRA_OK;
    out->model = calloc(n, sizeof *out->model);
    out->list = calloc(n, sizeof *out->list);
    if (!out->model || !out->list) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    out->count = n;
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        const cli_source source = {.model = s->amateur.text[i],
                                   .plugins = from->plugins,
                                   .dtype = from->dtype,
                                   .skip_hash = from->skip_hash};
        st = cli_model_weights(&source, &out->model[i], err);
        if (st == DRA_OK) st = cli_same_tokenizer("the amateur", source.model, tokenizer, err);
        out->list[i] = (dra_amateur){out->model[i].model, out->model[i].weights};
    }
    return st;
}

void cli_amateurs_close(cli_amateurs *a)
{
    for (size_t i = 0; i < a->count; i++) cli_model_close(&a->model[i]);
    free(a->model);
    free(a->list);
    *a = (cli_amateurs){0};
}
