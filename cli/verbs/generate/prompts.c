/* Prompts in batches. A row that finishes takes the next prompt; what it has written waits until
 * all before it is printed. */
#include "prompts.h"
#include "report/jsonl.h"
#include "io/line_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ----------------------------------------------------------------------------------- */

typedef struct line { /* a prompt */
    char    *text;    /* as it was given; NULL: as ids */
    dra_ids  ids;
    uint64_t seed;
    int64_t  tokens, index;
    int64_t  samples; /* that were begun */
} line;

typedef struct job {    /* a sample of a prompt, in a row or done */
    char       *prompt; /* as JSON */
    uint64_t    seed;
    int64_t     index;
    char       *text; /* written so far */
    size_t      n, room;
    bool        lost;   /* a part of it, for want of memory */
    char       *record; /* of one that is done */
    struct job *next;   /* in the order of the prompts */
} job;

typedef struct writer {
    const cli_prompts *p;
    FILE              *in;
    char              *buffer;
    size_t             room;
    int64_t            number, count; /* lines, and prompts among them */
    line               now;
    bool               done; /* there are no more lines, or one is broken */
    dra_error          broken;
    job              **row;           /* (rows): NULL: none */
    job               *first, **last; /* all that are not printed */
} writer;

static dra_status bad_line(const writer *w, dra_error *err, const char *what)
{
    const char *name = strcmp(w->p->path, "-") == 0 ? "stdin" : w->p->path;
    return cli_error(err, DRA_ERR_FORMAT, "%.200s:%lld: %s", name, (long long)w->number, what);
}

/* "[1, 2, 3]", whose brackets are in order. Returns what is wrong; NULL: nothing. */
static const char *read_ids(const char *text, dra_ids *out)
{
    static const char none[] = "out of memory", bad[] = "ids: expected a list of whole numbers";
    dra_error         err = {0};
    const size_t      n = text && *text == '[' ? strcspn(text + 1, "]") : 0;
    char             *list = n ? malloc(n + 1) : NULL;
    size_t            kept = 0;
    if (!list) return n ? none : bad;
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t", text[1 + i])) list[kept++] = text[1 + i];
    list[kept] = '\0';
    const dra_status st = *list == '@' ? DRA_ERR_FORMAT : cli_ids_read("ids", list, out, &err);
    free(list);
    return st == DRA_OK ? NULL : st == DRA_ERR_MEMORY ? none : bad;
}

static bool is_whole(const cli_member *m, double most)
{
    return m->kind == CLI_MEMBER_NUMBER && m->number >= 0 && m->number <= most &&
           floor(m->number) == m->number;
}

/* One member of a line; others than these are passed over. Returns what is wrong; NULL: nothing. */
static const char *take_member(writer *w, const cli_member *m)
{
    line *l = &w->now;
    if (strcmp(m->key, "prompt") == 0) {
        if (m->kind != CLI_MEMBER_TEXT) return "prompt: expected a text";
        if (l->text) return "prompt: given twice, expected once";
        l->text = strdup(m->text);
        return l->text ? NULL : "out of memory";
    }
    if (strcmp(m->key, "ids") == 0) {
        if (l->ids.n) return "ids: given twice, expected once";
        return read_ids(m->at, &l->ids);
    }
    if (strcmp(m->key, "seed") == 0) {
        if (!is_whole(m, 9e15)) return "seed: expected a whole number from 0 to 9e15";
        l->seed = (uint64_t)m->number;
    }
    if (strcmp(m->key, "tokens") == 0) {
        if (!is_whole(m, INT32_MAX)) return "tokens: expected a whole number from 0 to 2147483647";
        l->tokens = (int64_t)m->number;
    }
    return NULL;
}

static void drop_line(line *l)
{
    free(l->text);
    dra_ids_free(&l->ids);
    *l = (line){0};
}

static dra_status parse_line(writer *w, size_t bytes, dra_error *err)
{
    cli_member  members[CLI_MEMBERS];
    line       *l = &w->now;
    const char *wrong = NULL;
    *l = (line){.seed = (uint64_t)w->p->how->seed, .tokens = w->p->how->tokens};
    if (strlen(w->buffer) != bytes) return bad_line(w, err, "has a zero byte");
    if (!cli_is_utf8(w->buffer)) return bad_line(w, err, "is not UTF-8");
    const int n = cli_line_read(w->buffer, members);
    if (n < 0) return bad_line(w, err, "expected a JSON object");
    for (int i = 0; i < n && !wrong; i++) wrong = take_member(w, &members[i]);
    if (!wrong && !l->text == !l->ids.n) wrong = "expected one of prompt and ids";
    if (!wrong && l->text && !w->p->tokenizer)
        wrong = "expected ids, as the model has no tokenizer";
    return wrong ? bad_line(w, err, wrong) : DRA_OK;
}

/* The next line that is not blank becomes w->now; none: w->done. */
static dra_status read_line(writer *w, dra_error *err)
{
    dra_error why = {0};
    for (;;) {
        errno = 0;
        const ssize_t n = getline(&w->buffer, &w->room, w->in);
        if (n < 0) {
            w->done = true;
            if (errno == ENOMEM) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
            return ferror(w->in) ? bad_line(w, err, "cannot be read") : DRA_OK;
        }
        w->number++;
        if (strspn(w->buffer, " \t\r\n") == (size_t)n) continue;
        dra_status st = parse_line(w, (size_t)n, err);
        if (st == DRA_OK && w->now.text) {
            st = cli_prompt_encode(w->p->tokenizer, w->now.text, strlen(w->now.text), &w->now.ids,
                                   &why);
            if (st != DRA_OK) bad_line(w, err, why.text);
        }
        w->now.index = w->count++;
        return st;
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static char *prompt_json(const writer *w)
{
    char  *text = NULL;
    size_t n = 0;
    FILE  *out = dra_stream_memory(&text, &n);
    if (!out) return NULL;
    if (w->now.text)
        cli_json_text(w->now.text, out);
    else
        cli_record_prompt(w->p->tokenizer, &w->now.ids, out);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static void free_job(job *j)
{
    free(j->prompt);
    free(j->text);
    free(j->record);
    free(j);
}

static void print_ready(writer *w)
{
    while (w->first && w->first->record) {
        job *j = w->first;
        fputs(j->record, stdout);
        w->first = j->next;
        if (!w->first) w->last = &w->first;
        free_job(j);
    }
    fflush(stdout);
}

static const char *finish_name(dra_finish f)
{
    return f == DRA_FINISH_END ? "eos" : dra_finish_name(f);
}

static dra_status finish_job(writer *w, job *j, const dra_generated *g, dra_error *err)
{
    size_t n = 0;
    FILE  *out = j->lost ? NULL : dra_stream_memory(&j->record, &n);
    if (!out) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    fprintf(out, "{\"index\": %lld, \"prompt\": %s, \"text\": ", (long long)j->index, j->prompt);
    if (w->p->tokenizer) {
        fputc('"', out);
        cli_json_part(j->text ? j->text : "", j->n, out);
        fputc('"', out);
    } else {
        fputs("null", out);
    }
    cli_record_numbers(g, j->seed, out);
    fprintf(out, ", \"finish\": \"%s\"}\n", finish_name(g->finish));
    const bool whole = !ferror(out);
    if (fclose(out) != 0 || !whole) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    print_ready(w);
    return DRA_OK;
}

/* The next sample, of this prompt or the next one; *out NULL: there is none. */
static dra_status next_job(writer *w, job **out, dra_error *err)
{
    dra_status st = DRA_OK;
    *out = NULL;
    if (w->now.samples == 0 || w->now.samples >= w->p->count) {
        drop_line(&w->now);
        st = read_line(w, err);
    }
    if (st != DRA_OK || w->done) return st;
    job *j = calloc(1, sizeof *j);
    if (j) j->prompt = prompt_json(w);
    if (!j || !j->prompt) {
        free(j);
        return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    }
    j->index = w->now.index;
    j->seed = w->now.seed + (uint64_t)w->now.samples++;
    *out = j;
    return DRA_OK;
}

/* New tokens where prompt and text have a limit together; at least one. */
static int64_t tokens_of(const line *l)
{
    const int64_t left = -l->tokens - (int64_t)l->ids.n;
    return l->tokens >= 0 ? l->tokens : left > 0 ? left : 1;
}

static dra_status fill_row(writer *w, int64_t row, int64_t *tokens, dra_error *err)
{
    dra_generator *g = w->p->generator;
    job           *j = NULL;
    dra_error      why = {0};
    dra_status     st = next_job(w, &j, err);
    if (st != DRA_OK || !j) return st;
    st = dra_generator_reset(g, row, &why);
    if (st == DRA_OK) st = dra_generator_read(g, row, w->now.ids.n, w->now.ids.data, &why);
    if (st == DRA_OK) st = dra_generator_set_seed(g, row, j->seed, &why);
    if (st != DRA_OK) {
        free_job(j);
        return bad_line(w, err, why.text);
    }
    *w->last = w->row[row] = j;
    w->last = &j->next;
    *tokens = tokens_of(&w->now);
    return DRA_OK;
}

/* A broken line lets the rows finish what they have begun. */
static dra_status start_next(void *user, int64_t row, const dra_generated *done, int64_t *tokens,
                             dra_error *err)
{
    writer *w = user;
    if (done) {
        const dra_status st = finish_job(w, w->row[row], done, err);
        w->row[row] = NULL;
        if (st != DRA_OK) return st;
    }
    if (w->done || !w->p->wanted(NULL) || ferror(stdout)) return DRA_OK;
    if (fill_row(w, row, tokens, &w->broken) != DRA_OK) w->done = true;
    return DRA_OK;
}

static bool put_text(void *user, int64_t row, const char *text, size_t bytes)
{
    writer *w = user;
    job    *j = w->row[row];
    if (j->n + bytes > j->room) {
        const size_t room = 2 * (j->n + bytes);
        char        *more = realloc(j->text, room);
        if (!more) {
            j->lost = true;
            return false;
        }
        j->text = more;
        j->room = room;
    }
    if (bytes) memcpy(j->text + j->n, text, bytes);
    j->n += bytes;
    return w->p->wanted(NULL) && !ferror(stdout);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static dra_status open_writer(writer *w, dra_error *err)
{
    w->last = &w->first;
    w->row = calloc((size_t)w->p->rows, sizeof *w->row);
    if (!w->row) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    w->in = cli_input_open(w->p->path);
    if (w->in) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE, "%.200s: cannot open it: %s", w->p->path,
                     cli_reason(errno));
}

static void close_writer(writer *w)
{
    while (w->first) {
        job *j = w->first;
        w->first = j->next;
        free_job(j);
    }
    if (w->in) fclose(w->in);
    drop_line(&w->now);
    free(w->buffer);
    free(w->row);
}

dra_status cli_prompts_write(const cli_prompts *p, dra_error *err)
{
    writer              w = {.p = p};
    dra_generate_config c = p->config;
    dra_status          st = open_writer(&w, err);
    c.write = put_text;
    c.user = &w;
    c.next = start_next;
    if (st == DRA_OK) st = dra_generate(p->generator, &c, NULL, err);
    if (st == DRA_OK && w.broken.code != DRA_OK) {
        *err = w.broken;
        st = w.broken.code;
    }
    close_writer(&w);
    return st;
}
