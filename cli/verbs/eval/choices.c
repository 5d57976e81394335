/* Questions with several answers, several at a time. The context of each is read once and its state
 * kept by name; each choice is a job that begins from there and tells the log-probabilities of its
 * tokens. */
#include "choices.h"
#include "io/engine.h"
#include "io/line_read.h"
#include "verbs/generate/prompt_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 16 };

typedef struct question question;

typedef struct choice {
    question *of;
    dra_ids   ids;
    double    sum; /* log-probability */
} choice;

struct question {
    cli_question q;
    int64_t      line;
    char         name[16]; /* of the state after the context */
    dra_ids      context;
    choice       choice[CLI_CHOICES];
    dra_error    error; /* the first of its jobs */
};

typedef struct work {
    const cli_eval_choices_job *job;
    cli_input_lines             lines;
    dra_engine                 *engine;
    question                   *asked; /* (AT_ONCE) */
    int                         n;
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
static dra_status encode_choice(work *w, question *x, size_t kept, int i, dra_error *err)
{
    const dra_tokenizer *t = w->job->m->tokenizer;
    const char          *context = x->q.context, *text = x->q.choice[i];
    const size_t         bytes = strlen(context) + strlen(text);
    char                *both = malloc(bytes + 1);
    dra_ids              ids = {0};
    if (!both) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    snprintf(both, bytes + 1, "%s%s", context, text);
    dra_status   st = dra_encode_as(t, both, bytes, DRA_ENCODE_BEGIN, &ids, err);
    const bool   given = kept || dra_tokenizer_begin(t) >= 0;
    const size_t before = given ? x->context.n : 0;
    if (st == DRA_OK && ids.n <= before)
        st = cli_error(err, DRA_ERR_VALUE, "choices: choice %d has no token of its own", i);
    if (st == DRA_OK) {
        ids.n -= before;
        memmove(ids.data, ids.data + before, ids.n * sizeof *ids.data);
        x->choice[i] = (choice){.of = x, .ids = ids};
        ids = (dra_ids){0};
    }
    dra_ids_free(&ids);
    free(both);
    return st;
}

static dra_status encode_context(work *w, question *x, dra_error *err)
{
    const char *context = x->q.context;
    size_t      kept = strlen(context);
    while (kept && strchr(" \t\r\n", context[kept - 1])) kept--;
    dra_error  why = {0};
    dra_status st = cli_prompt_encode(w->job->m->tokenizer, context, kept, &x->context, &why);
    if (st != DRA_OK && !kept)
        return cli_error(err, why.code,
                         "context: expected a text, as the tokenizer has no end of text to start "
                         "from");
    if (st != DRA_OK) *err = why;
    for (int i = 0; i < x->q.n && st == DRA_OK; i++) st = encode_choice(w, x, kept, i, err);
    return st;
}

static void free_question(question *x)
{
    dra_ids_free(&x->context);
    for (int i = 0; i < CLI_CHOICES; i++) dra_ids_free(&x->choice[i].ids);
    free(x->q.room);
    *x = (question){0};
}

/* ---- reading --------------------------------------------------------------------------------- */

static void end_context(void *user, const dra_job_result *result)
{
    question *x = user;
    if (result->end == DRA_JOB_FAILED && x->error.code == DRA_OK) x->error = result->error;
}

static void end_choice(void *user, const dra_job_result *result)
{
    end_context(((const choice *)user)->of, result);
}

static bool add_token(void *user, const dra_job_token *token)
{
    ((choice *)user)->sum += token->logprob;
    return true;
}

static dra_status submit(work *w, const dra_job_config *config, dra_error *err)
{
    uint64_t   id;
    dra_status st = cli_engine_run(w->engine, AT_ONCE, err);
    return st == DRA_OK ? dra_engine_submit(w->engine, config, &id, err) : st;
}

static dra_status read_context(work *w, question *x, dra_error *err)
{
    snprintf(x->name, sizeof x->name, "%d", (int)(x - w->asked));
    return submit(w,
                  &(dra_job_config){.n = x->context.n,
                                    .ids = x->context.data,
                                    .logprobs = -1,
                                    .save = x->name,
                                    .end = end_context,
                                    .user = x},
                  err);
}

static dra_status read_choices(work *w, question *x, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < x->q.n && st == DRA_OK; i++)
        st = submit(w,
                    &(dra_job_config){.n = x->choice[i].ids.n,
                                      .ids = x->choice[i].ids.data,
                                      .state = x->name,
                                      .echo = true,
                                      .token = add_token,
                                      .end = end_choice,
                                      .user = &x->choice[i]},
                    err);
    return st;
}

/* All questions there are, each with what `read` reads; an error is that of its line. */
static dra_status read_each(work      *w, dra_status (*read)(work *, question *, dra_error *),
                            dra_error *err)
{
    dra_status st = DRA_OK;
    for (int k = 0; k < w->n && st == DRA_OK; k++)
        if (read(w, &w->asked[k], &w->asked[k].error) != DRA_OK) break;
    st = cli_engine_run(w->engine, 0, err);
    for (int k = 0; k < w->n && st == DRA_OK; k++) {
        w->lines.number = w->asked[k].line;
        if (w->asked[k].error.code != DRA_OK)
            st = cli_input_lines_bad(&w->lines, err, "%s", w->asked[k].error.text);
    }
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

static double score_of(const question *x, int i, bool per_byte)
{
    return x->choice[i].sum / (per_byte ? (double)strlen(x->q.choice[i]) : 1);
}

/* Of equal ones the first. */
static int best_of(const question *x, bool per_byte)
{
    int best = 0;
    for (int i = 1; i < x->q.n; i++)
        if (score_of(x, i, per_byte) > score_of(x, best, per_byte)) best = i;
    return best;
}

static void print_scores(const work *w, const question *x, const char *name, bool per_byte)
{
    char room[CLI_NUMBER];
    fprintf(w->out, ", \"%s\": [", name);
    for (int i = 0; i < x->q.n; i++)
        fprintf(w->out, "%s%s", i ? ", " : "", cli_json_number(score_of(x, i, per_byte), 9, room));
    fputc(']', w->out);
}

static void keep_answer(work *w, const question *x)
{
    const int best = best_of(x, false), best_per_byte = best_of(x, true);
    w->questions++;
    w->right += best == x->q.answer;
    w->right_per_byte += best_per_byte == x->q.answer;
    w->chance += 1.0 / (double)x->q.n;
    if (!w->out) return;
    fputs("{\"file\": ", w->out);
    cli_json_text(w->lines.name, w->out);
    fprintf(w->out, ", \"line\": %lld, \"answer\": %d, \"chosen\": %d, \"chosen_per_byte\": %d",
            (long long)x->line, x->q.answer, best, best_per_byte);
    print_scores(w, x, "logprobs", false);
    print_scores(w, x, "logprobs_per_byte", true);
    fputs("}\n", w->out);
}

static dra_status check_scores(work *w, question *x, dra_error *err)
{
    (void)w;
    for (int i = 0; i < x->q.n; i++)
        if (!isfinite(x->choice[i].sum))
            return cli_error(err, DRA_ERR_VALUE, "choice %d: its log-probability is not finite", i);
    return DRA_OK;
}

static dra_status answer_all(work *w, dra_error *err)
{
    const int64_t now = w->lines.number;
    dra_status    st = read_each(w, read_context, err);
    if (st == DRA_OK) st = read_each(w, read_choices, err);
    if (st == DRA_OK) st = read_each(w, check_scores, err);
    for (int k = 0; k < w->n; k++) {
        if (st == DRA_OK) keep_answer(w, &w->asked[k]);
        free_question(&w->asked[k]);
    }
    if (st == DRA_OK) w->lines.number = now;
    w->n = 0;
    return st;
}

static dra_status ask_line(work *w, dra_error *err)
{
    dra_error   why = {0};
    question   *x = &w->asked[w->n++];
    const char *wrong = cli_question_read(w->lines.line, &x->q);
    x->line = w->lines.number;
    if (!wrong && encode_context(w, x, &why) != DRA_OK) wrong = why.text;
    if (wrong) return cli_input_lines_bad(&w->lines, err, "%s", wrong);
    return w->n == AT_ONCE ? answer_all(w, err) : DRA_OK;
}

static dra_status answer_file(work *w, const char *path, dra_error *err)
{
    bool       more = true;
    dra_status st = cli_input_lines_open(path, &w->lines, err);
    while (st == DRA_OK && more) {
        st = cli_input_lines_next(&w->lines, &more, err);
        if (st == DRA_OK && more) st = ask_line(w, err);
    }
    if (st == DRA_OK) st = answer_all(w, err);
    for (int k = 0; k < w->n; k++) free_question(&w->asked[k]);
    w->n = 0;
    cli_input_lines_close(&w->lines);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void print_result(const work *w)
{
    const double n = (double)w->questions, chance = w->chance / n;
    const double right = (double)w->right / n, per_byte = (double)w->right_per_byte / n;
    char         room[3][CLI_NUMBER];
    if (w->job->json)
        printf("{\"questions\": %lld, \"accuracy\": %s, \"accuracy_per_byte\": %s, \"headline\": "
               "\"accuracy\", \"chance\": %s, \"clamped\": %lld}\n",
               (long long)w->questions, cli_json_number(right, 9, room[0]),
               cli_json_number(per_byte, 9, room[1]), cli_json_number(chance, 9, room[2]),
               (long long)dra_engine_clamped(w->engine));
    else
        printf("questions          %lld\n"
               "accuracy           %.6g (headline: largest sum of log-probabilities, lm-eval's "
               "acc)\n"
               "accuracy per byte  %.6g (largest mean per byte, acc_norm)\n"
               "chance             %.6g\n",
               (long long)w->questions, right, per_byte, chance);
}

static dra_status open_engine(work *w, dra_error *err)
{
    const cli_eval_choices_job *job = w->job;
    dra_status                  st = cli_model_tokenizer(job->from, job->m, err);
    w->asked = calloc(AT_ONCE, sizeof *w->asked);
    if (st == DRA_OK && !w->asked) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = cli_engine_open(job->from, job->m, AT_ONCE, &w->engine, err);
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
    dra_status st = open_engine(w, err);
    for (size_t i = 0; i < job->data->count && st == DRA_OK; i++)
        st = answer_file(w, job->data->text[i], err);
    if (st == DRA_OK) st = write_questions(w, err);
    if (st == DRA_OK) print_result(w);
    if (st == DRA_OK) cli_clamp_report("eval", job->from, dra_engine_clamped(w->engine));
    if (w->out) fclose(w->out);
    free(w->text);
    dra_engine_destroy(w->engine);
    free(w->asked);
    free(w);
    return st;
}
