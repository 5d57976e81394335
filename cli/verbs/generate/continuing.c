/* dra generate of models that read other inputs than a text. */
#include "continuing.h"

#include "io/examples.h"
#include "translating.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int cli_continue_check(const cli_continuing *c)
{
    if (!!c->inputs + !!c->source.count + !!c->source_file > 1)
        return cli_misused("generate", "expected only one of --inputs, --source and --source-file");
    if (c->inputs && !c->out) return cli_misused("generate", "--inputs: expected --out, too");
    return CLI_OK;
}

typedef struct work {
    const cli_continue_task *t;
    cli_model                m;
    cli_inputs               in;
    cli_list                 sources;
    char                    *lines; /* of a file of them */
    int64_t                  start;
    int32_t                  end[DRA_GENERATION_ENDS + 1];
    int                      ends;
    dra_continued            out;
    cli_beams                beams; /* of a search */
} work;

/* ---- where texts start and end --------------------------------------------------------------- */

static int64_t vocab_of(const work *w) { return dra_model_config_of(w->m.model)->vocab; }

static bool writes_tokens(const work *w)
{
    return dra_model_config_of(w->m.model)->head.kind == DRA_HEAD_TOKENS;
}

static int64_t own_end(const work *w)
{
    return w->m.tokenizer ? cli_text_end(w->m.tokenizer, vocab_of(w)) : -1;
}

static dra_status check_token(const work *w, const char *option, int64_t id, dra_error *err)
{
    if (id < vocab_of(w)) return DRA_OK;
    return cli_error(err, DRA_ERR_INDEX, "%s: %lld, expected -1 to %lld", option, (long long)id,
                     (long long)vocab_of(w) - 1);
}

static dra_status choose_ends(work *w, dra_error *err)
{
    const cli_continuing *c = w->t->other;
    const cli_sampling   *s = w->t->how;
    w->start = c->start >= 0 ? c->start : own_end(w);
    const int64_t end = c->end >= 0 ? c->end : w->start;
    dra_status    st = writes_tokens(w) ? check_token(w, "--start", w->start, err) : DRA_OK;
    if (st == DRA_OK && writes_tokens(w)) st = check_token(w, "--end", end, err);
    if (st != DRA_OK || s->ignore_end || !writes_tokens(w)) return st;
    for (int i = 0; i < s->habits.ends; i++) w->end[w->ends++] = s->habits.end[i];
    if (end >= 0) w->end[w->ends++] = (int32_t)end;
    return DRA_OK;
}

/* ---- texts to translate ---------------------------------------------------------------------- */

/* The input that texts are read as: that of the context. */
static dra_status find_source(const work *w, dra_model_input *in, dra_error *err)
{
    char list[300];
    bool other = false, found = false;
    for (int i = 0; dra_model_input_at(w->m.model, i, in); i++)
        if (in->context && in->kind == DRA_SOURCE_TOKENS && !in->numbers)
            found = true;
        else
            other = other || in->context || in->prepended || in->numbers || in->condition;
    for (int i = 0; found && dra_model_input_at(w->m.model, i, in); i++)
        if (in->context) break;
    if (found && !other && writes_tokens(w)) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE,
                     "--source: the model does not translate texts, it reads %s; see --inputs",
                     cli_named_list(w->m.model, list, sizeof list));
}

/* Rows of different lengths end with pads. */
static dra_status pad_rows(work *w, const dra_ids *rows, const dra_model_input *in, dra_error *err)
{
    const int64_t B = w->in.B;
    for (int64_t b = 0; b < B; b++)
        if ((int64_t)rows[b].n > w->in.S) w->in.S = (int64_t)rows[b].n;
    const size_t row = (size_t)w->in.S * sizeof(int32_t);
    int32_t     *ids = calloc((size_t)(B * w->in.S) + 1, sizeof *ids);
    w->in.named[w->in.n_named++] = (cli_named){in->name, ids, row, sizeof *ids, true};
    w->in.context_mark = calloc((size_t)(B * w->in.S) + 1, sizeof *w->in.context_mark);
    if (!ids || !w->in.context_mark) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < w->in.S; t++) {
            const bool there = t < (int64_t)rows[b].n;
            ids[b * w->in.S + t] = there ? rows[b].data[t] : 0;
            w->in.context_mark[b * w->in.S + t] = there ? 0 : DRA_MARK_PAD;
        }
    dra_error why = {0};
    if (dra_model_check_positions(in->model, 0, w->in.S, &why) == DRA_OK) return DRA_OK;
    return cli_error(err, why.code, "--source: %.300s", why.text);
}

static dra_status encode_source(const work *w, const char *text, int64_t vocab, dra_ids *to,
                                dra_error *err)
{
    dra_status st = dra_encode_as(w->m.tokenizer, text, strlen(text),
                                  DRA_ENCODE_BEGIN | DRA_ENCODE_END, to, err);
    if (st == DRA_OK && !to->n)
        return cli_error(err, DRA_ERR_VALUE, "--source: expected a text, found none");
    for (size_t i = 0; i < to->n && st == DRA_OK; i++)
        if (to->data[i] >= vocab)
            st = cli_error(err, DRA_ERR_INDEX, "--source: token %zu is %d, the model has 0 to %lld",
                           i, to->data[i], (long long)vocab - 1);
    return st;
}

/* Every line of a file is a text; the last one may lack its end. */
static dra_status read_lines(work *w, dra_error *err)
{
    const char *path = w->t->other->source_file;
    size_t      bytes = 0, n = 1;
    dra_status  st = dra_file_read(path, (size_t)1 << 30, &w->lines, &bytes, err);
    if (st != DRA_OK) return st;
    if (memchr(w->lines, '\0', bytes))
        return cli_error(err, DRA_ERR_FORMAT, "%.200s: expected lines of text, found a NUL", path);
    for (size_t i = 0; i < bytes; i++) n += w->lines[i] == '\n';
    w->sources.text = calloc(n, sizeof *w->sources.text);
    if (!w->sources.text) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (char *at = w->lines; at && *at;) {
        char *end = strchr(at, '\n');
        if (end) *end++ = '\0';
        w->sources.text[w->sources.count++] = at;
        at = end;
    }
    if (w->sources.count) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE, "%.200s: expected a text in every line, found none", path);
}

static dra_status read_sources(work *w, dra_error *err)
{
    const cli_list *texts = &w->sources;
    dra_model_input in;
    dra_status      st = find_source(w, &in, err);
    dra_ids        *rows = calloc(texts->count + 1, sizeof *rows);
    int32_t        *first = calloc(texts->count + 1, sizeof *first);
    if (!rows || !first) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK && w->start < 0)
        st = cli_error(err, DRA_ERR_VALUE,
                       "the tokenizer has no end of text to start from; see --start");
    for (size_t i = 0; i < texts->count && st == DRA_OK; i++) {
        st = encode_source(w, texts->text[i], in.vocab, &rows[i], err);
        first[i] = (int32_t)w->start;
    }
    w->in.B = (int64_t)texts->count;
    w->in.T = 1;
    if (st == DRA_OK) {
        dra_model_input own;
        dra_model_input_at(w->m.model, 0, &own);
        w->in.named[w->in.n_named++] = (cli_named){own.name, first, sizeof *first, sizeof *first,
                                                   false};
        first = NULL;
        st = pad_rows(w, rows, &in, err);
    }
    for (size_t i = 0; rows && i < texts->count; i++) dra_ids_free(&rows[i]);
    free(rows);
    free(first);
    return st;
}

/* ---- reading and writing --------------------------------------------------------------------- */

static dra_status open_all(work *w, dra_error *err)
{
    const cli_continuing *c = w->t->other;
    dra_status            st = cli_model_open(w->t->from, &w->m, err);
    if (st != DRA_OK) return st;
    if (cli_translates(c) || w->t->from->tokenizer) {
        st = cli_model_tokenizer(w->t->from, &w->m, err);
    } else if (w->t->from->model && dra_tokenizer_is_in(w->t->from->model)) {
        st = cli_model_tokenizer_if(w->t->from, &w->m, err); /* only for its end of text */
    }
    if (st == DRA_OK) st = choose_ends(w, err);
    if (st != DRA_OK) return st;
    if (c->source_file) st = read_lines(w, err);
    if (c->source.count) w->sources = c->source;
    if (st != DRA_OK || cli_translates(c)) return st == DRA_OK ? read_sources(w, err) : st;
    const cli_named_config named = {
        .path = c->inputs, .context = true, .starts = true, .start = w->start};
    return cli_named_read(w->m.model, &named, &w->in, err);
}

static dra_status run_search(work *w, dra_error *err)
{
    const cli_continue_task *t = w->t;
    const cli_translating c = {&w->m, t->from, t->how, t->search, &w->in, w->ends, w->end, t->step};
    return cli_translate(&c, &w->beams, &w->out, err);
}

static dra_status go_on(work *w, dra_error *err)
{
    if (w->t->search->beam) return run_search(w, err);
    dra_named              in[CLI_NAMED];
    const dra_context_text context = {w->in.S, w->in.context_mark};
    for (int i = 0; i < w->in.n_named; i++)
        in[i] = (dra_named){w->in.named[i].name, w->in.named[i].data,
                            (size_t)w->in.B * w->in.named[i].row};
    const dra_continue_config c = {.model = w->m.model,
                                   .weights = w->m.weights,
                                   .device = w->m.device,
                                   .sampler = cli_sampler_config(w->t->how, NULL),
                                   .state_limit = cli_clamp_limit(w->t->from),
                                   .B = w->in.B,
                                   .T = w->in.T,
                                   .mark = w->in.mark,
                                   .context = w->in.S ? &context : NULL,
                                   .n_inputs = w->in.n_named,
                                   .inputs = in,
                                   .n = w->t->how->tokens,
                                   .n_ends = w->ends,
                                   .ends = w->end,
                                   .step = w->t->step};
    return dra_continue(&c, &w->out, err);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* Under the names that they have as inputs, so that they can be read again. */
static dra_status write_file(const work *w, dra_error *err)
{
    const dra_continued *o = &w->out;
    const dra_shape      each = DRA_SHAPE(o->B, o->n);
    bool                *mask = calloc((size_t)(o->B * o->n) + 1, sizeof *mask);
    dra_tensor_item      items[3];
    size_t               n = 0;
    if (!mask) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < o->B * o->n; i++) mask[i] = i % o->n < o->count[i / o->n];
    if (o->ids) items[n++] = (dra_tensor_item){cli_named_own(w->m.model), DRA_I32, each, o->ids};
    if (o->numbers) items[n++] = (dra_tensor_item){"nums", DRA_REAL, each, o->numbers};
    if (o->vectors)
        items[n++] = (dra_tensor_item){"out", DRA_REAL, DRA_SHAPE(o->B, o->n, o->width),
                                       o->vectors};
    if (o->ids)
        items[n++] = (dra_tensor_item){cli_named_mask(w->m.model, false), DRA_BOOL, each, mask};
    const dra_status st = dra_tensors_write(w->t->other->out, items, n, NULL, 0, err);
    free(mask);
    return st;
}

/* "text": "...", "tokens": [...],  of what has them. */
static dra_status print_tokens(const work *w, size_t n, const int32_t *ids, dra_error *err)
{
    const bool text = cli_translates(w->t->other);
    dra_status st = DRA_OK;
    if (text) fputs("\"text\": \"", stdout);
    if (text) st = cli_text_write(w->m.tokenizer, n, ids, NULL, err);
    if (text) fputs("\", ", stdout);
    if (ids) fputs("\"tokens\": [", stdout);
    for (size_t i = 0; ids && i < n; i++) printf("%s%d", i ? ", " : "", ids[i]);
    if (ids) fputs("], ", stdout);
    return st;
}

static dra_status print_beams(const work *w, int64_t b, dra_error *err)
{
    char       room[CLI_NUMBER];
    dra_status st = DRA_OK;
    for (int64_t k = 0; k < w->beams.N && st == DRA_OK; k++) {
        const dra_beam *beam = &w->beams.beam[b * w->beams.N + k];
        if (beam->score == -INFINITY) break; /* there are no more */
        fputs(k ? ",\n    {" : ", \"beams\": [\n    {", stdout);
        st = print_tokens(w, beam->text.n, beam->text.ids, err);
        printf("\"finish\": \"%s\", \"score\": %s}", dra_finish_name(beam->text.finish),
               cli_json_number(beam->score, 9, room));
    }
    if (w->beams.N) putchar(']');
    return st;
}

static const int32_t *ids_of(const work *w, int64_t b)
{
    return w->out.ids ? w->out.ids + b * w->out.n : NULL;
}

static void print_vectors(const work *w, int64_t b)
{
    const int64_t   width = w->out.width;
    const dra_real *x = w->out.vectors + b * w->out.n * width;
    char            room[CLI_NUMBER];
    fputs("\"vectors\": [", stdout);
    for (int64_t i = 0; i < w->out.count[b] * width; i++)
        printf("%s%s%s%s", i ? ", " : "", i % width ? "" : "[",
               cli_json_number((double)x[i], 6, room), (i + 1) % width ? "" : "]");
    fputs("], ", stdout);
}

static dra_status print_json(const work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    fputs("{\"rows\": [", stdout);
    for (int64_t b = 0; b < w->out.B && st == DRA_OK; b++) {
        printf("%s\n  {", b ? "," : "");
        st = print_tokens(w, (size_t)w->out.count[b], ids_of(w, b), err);
        if (w->out.vectors) print_vectors(w, b);
        printf("\"count\": %lld, \"finish\": \"%s\"", (long long)w->out.count[b],
               dra_finish_name(w->out.finish[b]));
        if (st == DRA_OK) st = print_beams(w, b, err);
        putchar('}');
    }
    printf("], \"clamped\": %lld}\n", (long long)w->out.clamped);
    return st;
}

static dra_status print_rows(const work *w, dra_error *err)
{
    const bool   text = cli_translates(w->t->other);
    cli_text_out to;
    dra_status   st = DRA_OK;
    if (w->t->json) return print_json(w, err);
    cli_text_out_begin(&to, stdout, w->t->how->raw);
    for (int64_t b = 0; b < w->out.B && text && st == DRA_OK; b++) {
        if (b && !w->lines) puts("---");
        st = cli_text_write(w->m.tokenizer, (size_t)w->out.count[b], ids_of(w, b), &to, err);
        putchar('\n');
    }
    if (!text)
        cli_line(stdout, "%s: %lld rows, %lld %s", w->t->other->out, (long long)w->out.B,
                 (long long)w->out.n, w->out.ids ? "tokens" : "vectors");
    for (int64_t b = 0; b < w->out.B; b++)
        if (w->out.finish[b] == DRA_FINISH_CONTEXT) {
            cli_positions_ended("generate", w->m.model, "");
            break;
        }
    return st;
}

int cli_continue(const cli_continue_task *t)
{
    work       w = {.t = t};
    dra_error  err = {0};
    dra_status st = open_all(&w, &err);
    if (st == DRA_OK && t->how->tokens < 1)
        st = cli_error(&err, DRA_ERR_VALUE, "--tokens: expected 1 or more, found %lld",
                       (long long)t->how->tokens);
    if (st == DRA_OK) st = go_on(&w, &err);
    if (st == DRA_OK && t->other->out) st = write_file(&w, &err);
    if (st == DRA_OK) st = print_rows(&w, &err);
    cli_clamp_report("generate", t->from, w.out.clamped);
    dra_continued_free(&w.out);
    cli_beams_free(&w.beams);
    if (w.lines) free(w.sources.text);
    free(w.lines);
    cli_inputs_free(&w.in);
    cli_model_close(&w.m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}
