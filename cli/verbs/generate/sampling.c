/* How verbs that write text draw tokens and end a text. */
#include "sampling.h"
#include "options/units.h"

#include <stdlib.h>
#include <unistd.h>

const char *const cli_samplers[] = {"hf", "x", NULL};

int cli_sampling_habits(const char *folder, cli_sampling *to)
{
    dra_generation_config *h = &to->habits;
    dra_error              err = {0};
    if (!folder) return CLI_OK;
    if (dra_generation_config_read(folder, h, &err) != DRA_OK) return cli_fail(&err);
    if (!h->given) return CLI_OK;
    if (h->other[0])
        cli_line(stderr, "dra: %.200s/generation_config.json: keys that dra does not follow: %s",
                 folder, h->other);
    to->sampler = h->sampler;
    if (h->tokens) to->tokens = h->tokens;
    return CLI_OK;
}

void cli_sampling_forget(cli_sampling *to, dra_sampler_kind kind)
{
    const dra_sampler_option *o;
    while ((o = dra_sampler_find(&to->sampler, kind))) dra_sampler_set(&to->sampler, o, o->usual);
}

/* Nine digits, so that people can type it. */
void cli_sampling_draw(cli_sampling *to)
{
    uint64_t random = 0;
    if (getentropy(&random, sizeof random) != 0) random = (uint64_t)(1e9 * cli_now());
    to->seed = to->drawn = (int64_t)(random % 999999999) + 1;
}

void cli_sampling_tell(const cli_sampling *s)
{
    if (s->drawn && s->seed == s->drawn && s->sampler.temperature > 0)
        cli_line(stderr, "seed     %lld", (long long)s->seed);
}

int cli_sampling_check(const char *verb, const cli_sampling *s)
{
    for (size_t i = 0; i < s->stop.count; i++)
        if (!s->stop.text[i][0]) return cli_misused(verb, "--stop: expected a text");
    cli_stops        stops = {0};
    dra_error        err = {0};
    const dra_status st = cli_stops_open(s, &stops, &err);
    cli_stops_close(&stops);
    if (st == DRA_ERR_MEMORY) return cli_fail(&err);
    return st == DRA_OK ? cli_bias_check(verb, &s->bias) : cli_misused(verb, "%s", err.text);
}

dra_status cli_stops_open(const cli_sampling *s, cli_stops *out, dra_error *err)
{
    const size_t n = s->stop_tokens.count;
    dra_status   st = DRA_OK;
    out->list = calloc(n + 1, sizeof *out->list);
    if (!out->list) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        dra_ids *ids = &out->list[out->n++];
        st = cli_ids_read("--stop-tokens", s->stop_tokens.text[i], ids, err);
        if (st == DRA_OK && ids->n == 0)
            st = cli_error(err, DRA_ERR_VALUE, "--stop-tokens: expected ids, found none");
    }
    return st;
}

void cli_stops_close(cli_stops *s)
{
    for (int i = 0; i < s->n; i++) dra_ids_free(&s->list[i]);
    free(s->list);
    *s = (cli_stops){0};
}

dra_sampler_config cli_sampler_config(const cli_sampling *s, const cli_biases *biases)
{
    dra_sampler_config c = s->sampler;
    c.n_bias = biases ? biases->n : 0;
    c.bias = biases ? biases->list : NULL;
    c.filter_first = s->order == 1;
    c.seed = (uint64_t)s->seed;
    return c;
}

dra_generate_config cli_generate_config(const cli_sampling *s, const cli_stops *stops)
{
    return (dra_generate_config){.tokens = s->tokens,
                                 .n_ends = s->habits.ends,
                                 .ends = s->habits.end,
                                 .n_stop = (int)s->stop.count,
                                 .stop = s->stop.text,
                                 .n_stop_tokens = stops->n,
                                 .stop_tokens = stops->list,
                                 .ignore_end = s->ignore_end};
}

void cli_positions_ended(const char *verb, const dra_model *model, const char *advice)
{
    fflush(stdout); /* the text comes first */
    cli_line(stderr, "dra %s: ended where the model has no further position, at %lld%s", verb,
             (long long)dra_model_config_of(model)->context, advice);
}

static void write_part(cli_text_out *to, const char *text, size_t bytes)
{
    if (to)
        cli_text_out_put(to, text, bytes);
    else
        cli_json_part(text, bytes, stdout);
}

dra_status cli_text_write(const dra_tokenizer *t, size_t n, const int32_t *ids, cli_text_out *to,
                          dra_error *err)
{
    dra_decoder *d = NULL;
    const char  *text = "";
    size_t       bytes = 0;
    dra_status   st = dra_decoder_create(t, true, &d, err);
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        if (ids[i] >= dra_tokenizer_size(t)) continue; /* a token without text */
        st = dra_decoder_push(d, ids[i], &text, &bytes, err);
        if (st == DRA_OK) write_part(to, text, bytes);
    }
    if (st == DRA_OK) {
        dra_decoder_flush(d, &text, &bytes);
        write_part(to, text, bytes);
    }
    if (to) cli_text_out_end(to);
    dra_decoder_destroy(d);
    return st;
}
