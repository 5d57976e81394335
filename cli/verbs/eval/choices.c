/* Questions with several answers. The context is read once, into one state; that state is copied to
 * a row for each choice, and all choices are read together. The last token of the context is read
 * with the choices, as it is what predicts their first tokens. */
#include "choices.h"
#include "io/line_read.h"
#include "verbs/generate/prompt_record.h"
#include "io/texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    const cli_eval_choices_job *job;
    cli_input_lines             lines;
    cli_question                q;
    dra_view                    view;
    dra_reader                 *reader;
    dra_states                 *states; /* of one row: the context */
    dra_ids                     context, choice[CLI_CHOICES];
    double                      sum[CLI_CHOICES]; /* log-probability of each choice */
    int64_t                     questions, right, right_per_byte;
    double                      chance; /* sum */
    FILE                       *out;    /* lines of --per-question, in memory */
    char                       *text;
    size_t                      bytes;
} work;

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The tokens of a choice are what follows those of the context in the tokens of both together, as
 * lm-eval has it; blanks at the end of the context belong to the choice, since tokens of words
 * begin with them. */
static dra_status encode_choice(work *w, size_t kept, int i, dra_error *err)
{
    const dra_tokenizer *t = w->job->m->tokenizer;
    const char          *context = w->q.context, *choice = w->q.choice[i];
    const size_t         bytes = strlen(context) + strlen(choice);
    char                *both = malloc(bytes + 1);
    dra_ids              ids = {0};
    if (!both) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    snprintf(both, bytes + 1, "%s%s", context, choice);
    dra_status   st = dra_encode(t, both, bytes, &ids, err);
    const size_t before = kept ? w->context.n : 0;
    if (st == DRA_OK && ids.n <= before)
        st = cli_error(err, DRA_ERR_VALUE, "choices: choice %d has no token of its own", i);
    if (st == DRA_OK) {
        ids.n -= before;
        memmove(ids.data, ids.data + before, ids.n * sizeof *ids.data);
        w->choice[i] = ids;
        ids = (dra_ids){0};
    }
    dra_ids_free(&ids);
    free(both);
    return st;
}

static dra_status encode(work *w, dra_error *err)
{
    const char *context = w->q.context;
    size_t      kept = strlen(context);
    while (kept && strchr(" \t\r\n", context[kept - 1])) kept--;
    dra_error  why = {0};
    dra_status st = cli_prompt_encode(w->job->m->tokenizer, context, kept, &w->context, &why);
    if (st != DRA_OK && !kept)
        return cli_error(err, why.code,
                         "context: expected a text, as the tokenizer has no end of text to start "
                         "from");
    if (st != DRA_OK) *err = why;
    for (int i = 0; i < w->q.n && st == DRA_OK; i++) st = encode_choice(w, kept, i, err);
    for (int i = 0; i < w->q.n && st == DRA_OK; i++)
        st = cli_positions_check(w->job->m->model, (int64_t)w->context.n - 1,
                                 (int64_t)w->choice[i].n, err);
    return st;
}

static void free_question(work *w)
{
    dra_ids_free(&w->context);
    for (int i = 0; i < CLI_CHOICES; i++) dra_ids_free(&w->choice[i]);
    free(w->q.room);
    w->q.room = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct batch { /* (B, T) each */
    int64_t  B, T;
    int32_t *ids, *targets, *mark;
} batch;

static dra_status open_batch(batch *x, int64_t B, int64_t T, dra_error *err)
{
    const size_t n = (size_t)(B * T);
    *x = (batch){B, T, calloc(n, sizeof(int32_t)), calloc(n, sizeof(int32_t)),
                 calloc(n, sizeof(int32_t))};
    if (!x->ids || !x->targets || !x->mark) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        x->targets[i] = -1;
        x->mark[i] = DRA_MARK_PAD;
    }
    return DRA_OK;
}

static void close_batch(batch *x)
{
    free(x->ids);
    free(x->targets);
    free(x->mark);
}

static dra_status read_batch(work *w, const batch *x, dra_states *states, dra_error *err)
{
    const size_t    bytes = (size_t)(x->B * x->T) * sizeof(int32_t);
    const dra_named in[] = {{"ids", x->ids, bytes}, {"targets", x->targets, bytes}};
    return dra_reader_read(w->reader, states, x->T, x->mark, 2, in, err);
}

/* All of the context but its last token. */
static dra_status read_context(work *w, dra_error *err)
{
    const int64_t n = (int64_t)w->context.n - 1;
    dra_status    st = dra_states_reset(w->states, -1, err);
    for (int64_t from = 0; from < n && st == DRA_OK; from += CLI_PIECE) {
        const int64_t part = n - from < CLI_PIECE ? n - from : CLI_PIECE;
        batch         x;
        st = open_batch(&x, 1, cli_padded(part), err);
        for (int64_t t = 0; t < part && st == DRA_OK; t++) {
            x.ids[t] = w->context.data[from + t];
            x.mark[t] = 0;
        }
        if (st == DRA_OK) st = read_batch(w, &x, w->states, err);
        close_batch(&x);
    }
    return st;
}

static void fill_choices(const work *w, batch *x)
{
    for (int64_t b = 0; b < x->B; b++) {
        const dra_ids *choice = &w->choice[b];
        for (int64_t t = 0; t < (int64_t)choice->n; t++) {
            const int64_t i = b * x->T + t;
            x->ids[i] = t ? choice->data[t - 1] : w->context.data[w->context.n - 1];
            x->targets[i] = choice->data[t];
            x->mark[i] = 0;
        }
    }
}

static dra_status add_losses(work *w, const batch *x, dra_error *err)
{
    const dra_real *losses = dra_reader_result(w->reader, "losses");
    if (!losses) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t b = 0; b < x->B; b++) {
        w->sum[b] = 0;
        for (int64_t t = 0; t < x->T; t++)
            if (x->targets[b * x->T + t] >= 0) w->sum[b] -= (double)losses[b * x->T + t];
        if (!isfinite(w->sum[b]))
            return cli_error(err, DRA_ERR_VALUE, "choice %lld: its log-probability is not finite",
                             (long long)b);
    }
    return DRA_OK;
}

static dra_status read_choices(work *w, dra_error *err)
{
    int64_t     rows[CLI_CHOICES] = {0}, most = 0;
    dra_states *states = NULL;
    batch       x;
    for (int i = 0; i < w->q.n; i++)
        if ((int64_t)w->choice[i].n > most) most = (int64_t)w->choice[i].n;
    dra_status st = open_batch(&x, w->q.n, cli_padded(most), err);
    if (st == DRA_OK) fill_choices(w, &x);
    if (st == DRA_OK) st = dra_states_gather(w->states, w->q.n, rows, &states, err);
    if (st == DRA_OK) st = read_batch(w, &x, states, err);
    if (st == DRA_OK) st = add_losses(w, &x, err);
    dra_states_destroy(states);
    close_batch(&x);
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

static double score_of(const work *w, int i, bool per_byte)
{
    return per_byte ? w->sum[i] / (double)strlen(w->q.choice[i]) : w->sum[i];
}

/* Of equal ones the first. */
static int best_of(const work *w, bool per_byte)
{
    int best = 0;
    for (int i = 1; i < w->q.n; i++)
        if (score_of(w, i, per_byte) > score_of(w, best, per_byte)) best = i;
    return best;
}

static void print_scores(const work *w, const char *name, bool per_byte)
{
    char room[CLI_NUMBER];
    fprintf(w->out, ", \"%s\": [", name);
    for (int i = 0; i < w->q.n; i++)
        fprintf(w->out, "%s%s", i ? ", " : "", cli_json_number(score_of(w, i, per_byte), 9, room));
    fputc(']', w->out);
}

static void keep_answer(work *w)
{
    const int best = best_of(w, false), best_per_byte = best_of(w, true);
    w->questions++;
    w->right += best == w->q.answer;
    w->right_per_byte += best_per_byte == w->q.answer;
    w->chance += 1.0 / (double)w->q.n;
    if (!w->out) return;
    fputs("{\"file\": ", w->out);
    cli_json_text(w->lines.name, w->out);
    fprintf(w->out, ", \"line\": %lld, \"answer\": %d, \"chosen\": %d, \"chosen_per_byte\": %d",
            (long long)w->lines.number, w->q.answer, best, best_per_byte);
    print_scores(w, "logprobs", false);
    print_scores(w, "logprobs_per_byte", true);
    fputs("}\n", w->out);
}

static dra_status answer_line(work *w, dra_error *err)
{
    dra_error   why = {0};
    const char *wrong = cli_question_read(w->lines.line, &w->q);
    dra_status  st = DRA_OK;
    if (wrong)
        st = cli_input_lines_bad(&w->lines, err, "%s", wrong);
    else if (encode(w, &why) != DRA_OK || read_context(w, &why) != DRA_OK ||
             read_choices(w, &why) != DRA_OK)
        st = cli_input_lines_bad(&w->lines, err, "%s", why.text);
    else
        keep_answer(w);
    free_question(w);
    return st;
}

static dra_status answer_file(work *w, const char *path, dra_error *err)
{
    bool       more = true;
    dra_status st = cli_input_lines_open(path, &w->lines, err);
    while (st == DRA_OK && more) {
        st = cli_input_lines_next(&w->lines, &more, err);
        if (st == DRA_OK && more) st = answer_line(w, err);
    }
    cli_input_lines_close(&w->lines);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void print(const work *w)
{
    const double n = (double)w->questions, chance = w->chance / n;
    const double right = (double)w->right / n, per_byte = (double)w->right_per_byte / n;
    char         room[3][CLI_NUMBER];
    if (w->job->json)
        printf("{\"questions\": %lld, \"accuracy\": %s, \"accuracy_per_byte\": %s, \"headline\": "
               "\"accuracy\", \"chance\": %s, \"clamped\": %lld}\n",
               (long long)w->questions, cli_json_number(right, 9, room[0]),
               cli_json_number(per_byte, 9, room[1]), cli_json_number(chance, 9, room[2]),
               (long long)dra_reader_clamped(w->reader));
    else
        printf("questions          %lld\n"
               "accuracy           %.6g (headline: largest sum of log-probabilities, lm-eval's "
               "acc)\n"
               "accuracy per byte  %.6g (largest mean per byte, acc_norm)\n"
               "chance             %.6g\n",
               (long long)w->questions, right, per_byte, chance);
}

static dra_status open_reader(work *w, dra_error *err)
{
    const cli_eval_choices_job *job = w->job;
    w->view = (dra_view){.model = job->m->model, .losses = true};
    dra_status st = cli_model_tokenizer(job->from, job->m, err);
    if (st == DRA_OK)
        st = cli_reader_open(job->from, job->m, &w->view, 1, &w->reader, &w->states, err);
    if (st == DRA_OK && job->per_question && !(w->out = dra_stream_memory(&w->text, &w->bytes)))
        st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    return st;
}

static dra_status write_questions(work *w, dra_error *err)
{
    if (!w->out) return DRA_OK;
    if (fflush(w->out) != 0 || ferror(w->out))
        return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    return dra_file_write(w->job->per_question, w->text, w->bytes, err);
}

dra_status cli_eval_choices(const cli_eval_choices_job *job, dra_error *err)
{
    work *w = calloc(1, sizeof *w);
    if (!w) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    w->job = job;
    dra_status st = open_reader(w, err);
    for (size_t i = 0; i < job->data->count && st == DRA_OK; i++)
        st = answer_file(w, job->data->text[i], err);
    if (st == DRA_OK) st = write_questions(w, err);
    if (st == DRA_OK) print(w);
    if (st == DRA_OK) cli_clamp_report("eval", job->from, dra_reader_clamped(w->reader));
    if (w->out) fclose(w->out);
    free(w->text);
    dra_reader_destroy(w->reader);
    dra_states_destroy(w->states);
    free(w);
    return st;
}
