/* Texts of encoders: what is hidden is filled in. */
#include "unmasking.h"
#include "options/units.h"

#include <stdlib.h>
#include <string.h>

const char *const cli_mask_schedules[] = {"constant", "linear", "cosine", NULL};
const char *const cli_unmask_schedules[] = {"linear", "cosine", NULL};

enum { TOKENS = 128 }; /* that follow where nothing is said */

typedef struct text {
    int64_t  T;
    int32_t *ids; /* (count, T) */
} text;

typedef struct work {
    const cli_unmask_task *t;
    int32_t                mask;
    int64_t                mask_token; /* as dra_unmask_config has it */
    text                  *texts;      /* one of each prompt */
    int64_t                found;      /* tokens of all texts */
    double                 seconds;
} work;

int cli_unmask_check(const cli_unmasking *u, const cli_source *from)
{
    const char *only = u->schedule     ? "schedule"
                       : u->remask     ? "remask"
                       : u->mask_token ? "mask-token"
                                       : NULL;
    if (!u->steps && only) return cli_misused("generate", "--%s: expected --unmask", only);
    if (u->steps && cli_is_causal(from))
        return cli_misused("generate", "--unmask: the model is causal, not an encoder, and writes "
                                       "text from left to right");
    return CLI_OK;
}

/* ---- what is hidden -------------------------------------------------------------------------- */

/* The token that was asked for, else the one the model was trained with, else its own. */
static dra_status find_mask(work *w, dra_error *err)
{
    const cli_unmask_task *t = w->t;
    dra_objective_config   c = {0};
    dra_status             st = DRA_OK;
    if (t->from->model) st = dra_run_objective(t->from->model, &c, err);
    c = (dra_objective_config){DRA_OBJECTIVE_MASKED, .mask_token = c.mask_token};
    if (t->unmask->mask_token) c.mask_token = t->unmask->mask_token;
    if (st == DRA_OK) st = dra_objective_complete(&c, t->m->model, err);
    w->mask_token = c.mask_token;
    w->mask = c.mask_token < 0 ? 0 : (int32_t)c.mask_token;
    return st;
}

/* Tokens after a prompt. Where none are asked for: none if some of the prompt are hidden, else as
 * usual, as far as there are positions. */
static int64_t tokens_after(const work *w, const dra_ids *prompt)
{
    const dra_model_config *c = dra_model_config_of(w->t->m->model);
    const int64_t           left = c->context - (int64_t)prompt->n;
    if (w->t->how->tokens >= 0) return w->t->how->tokens;
    for (size_t i = 0; i < prompt->n; i++)
        if (prompt->data[i] == w->mask) return 0;
    if (c->positions != DRA_POSITIONS_LEARNED || left > TOKENS) return TOKENS;
    return left > 0 ? left : 0;
}

static dra_status make_text(work *w, size_t i, dra_error *err)
{
    const dra_ids *prompt = &w->t->prompt[i];
    const int64_t  n = (int64_t)prompt->n, T = n + tokens_after(w, prompt);
    text          *x = &w->texts[i];
    x->T = T;
    x->ids = calloc((size_t)(w->t->count * T) + 1, sizeof *x->ids);
    if (!x->ids) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (T == 0)
        return cli_error(err, DRA_ERR_VALUE,
                         "--unmask: nothing to fill in: no prompt and no --tokens");
    for (int64_t k = 0; k < w->t->count * T; k++) {
        x->ids[k] = k % T < n ? prompt->data[k % T] : w->mask;
        w->found += x->ids[k] == w->mask;
    }
    return DRA_OK;
}

/* Texts of one prompt have the same length and are filled in together. */
static dra_status fill_in(const work *w, size_t i, dra_error *err)
{
    const cli_unmask_task  *t = w->t;
    const dra_unmask_config c = {.model = t->m->model,
                                 .weights = t->m->weights,
                                 .device = t->m->device,
                                 .B = t->count,
                                 .T = w->texts[i].T,
                                 .steps = t->unmask->steps,
                                 .mask_token = w->mask_token,
                                 .schedule = (dra_mask_schedule)(t->unmask->schedule + 1),
                                 .remask = t->unmask->remask,
                                 .sampler = cli_sampler_config(t->how, NULL),
                                 .step = t->step};
    return dra_unmask(&c, w->texts[i].ids, err);
}

/* ---- the answer ------------------------------------------------------------------------------ */

static dra_status print_sample(const work *w, int64_t row, dra_error *err)
{
    const text          *x = &w->texts[row / w->t->count];
    const int32_t       *ids = x->ids + row % w->t->count * x->T;
    const dra_tokenizer *tokenizer = w->t->m->tokenizer;
    const bool           json = w->t->json;
    cli_text_out         to;
    dra_status           st = DRA_OK;
    cli_text_out_begin(&to, stdout, w->t->how->raw);
    if (json && tokenizer) fputs("\"text\": \"", stdout);
    if (tokenizer) st = cli_text_write(tokenizer, (size_t)x->T, ids, json ? NULL : &to, err);
    if (json) fputs(tokenizer ? "\", \"tokens\": [" : "\"tokens\": [", stdout);
    for (int64_t k = 0; k < x->T && (json || !tokenizer); k++)
        printf("%s%d", !k ? "" : json ? ", " : " ", ids[k]);
    if (json)
        printf("], \"finish\": \"%s\"",
               dra_finish_name(w->t->step(NULL) ? DRA_FINISH_LENGTH : DRA_FINISH_ASKED));
    return st;
}

static dra_status print_json(const work *w, int64_t rows, dra_error *err)
{
    char       room[CLI_NUMBER];
    int64_t    read = 0;
    dra_status st;
    for (size_t i = 0; i < w->t->prompts; i++) read += (int64_t)w->t->prompt[i].n;
    putchar('{');
    st = print_sample(w, 0, err);
    for (int64_t b = 0; b < rows && rows > 1 && st == DRA_OK; b++) {
        fputs(b ? ",\n  {" : ", \"samples\": [\n  {", stdout);
        st = print_sample(w, b, err);
        putchar('}');
    }
    printf("%s, \"prompt_tokens\": %lld, \"tokens_per_second\": %s}\n", rows > 1 ? "]" : "",
           (long long)read, cli_json_number((double)w->found / w->seconds, 6, room));
    return st;
}

static dra_status print_rows(const work *w, dra_error *err)
{
    const int64_t rows = (int64_t)w->t->prompts * w->t->count;
    dra_status    st = DRA_OK;
    if (w->t->json) return print_json(w, rows, err);
    for (int64_t b = 0; b < rows && st == DRA_OK; b++) {
        if (b) puts("---");
        st = print_sample(w, b, err);
        putchar('\n');
    }
    return st;
}

dra_status cli_unmask(const cli_unmask_task *t, dra_error *err)
{
    work         w = {.t = t, .texts = calloc(t->prompts, sizeof *w.texts)};
    const double start = cli_now();
    dra_status st = w.texts ? find_mask(&w, err) : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < t->prompts && st == DRA_OK; i++) {
        st = make_text(&w, i, err);
        if (st == DRA_OK) st = fill_in(&w, i, err);
    }
    w.seconds = cli_now() - start;
    if (st == DRA_OK) st = print_rows(&w, err);
    for (size_t i = 0; w.texts && i < t->prompts; i++) free(w.texts[i].ids);
    free(w.texts);
    return st;
}
