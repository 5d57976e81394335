/* A long text through both models, chunk by chunk: the cost of a token and the size of the state,
 * as the text grows. Then a text read whole against the same text in chunks. */
#include "demo.h"
#include "verbs/train/progress.h"
#include "options/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 250, RECENT = 5, POINTS = 100 };

/* ---- the text -------------------------------------------------------------------------------- */

/* Stories, one after the other, until there are n tokens. */
static dra_status stream_text(const demo *d, size_t n, dra_ids *out, dra_error *err)
{
    static const char end[] = "<|endoftext|>";
    story             s = {0};
    dra_status        st = DRA_OK;
    for (uint64_t i = 0; out->n < n && st == DRA_OK; i++) {
        const story_config c = demo_story(d, DEMO_STREAMED, i);
        story_write(&s, &c);
        if (s.failed) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
        if (st == DRA_OK) st = dra_encode(d->tokenizer, s.text, s.bytes, out, err);
        if (st == DRA_OK) st = dra_encode(d->tokenizer, end, sizeof end - 1, out, err);
    }
    story_free(&s);
    return st;
}

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct streaming {
    demo       *d;
    demo_reader reader[DEMO_MODELS];
    dra_ids     ids;
    size_t      chunks, done;
    double     *micros[DEMO_MODELS]; /* a token, of each chunk */
    size_t      bytes[DEMO_MODELS];  /* of state, now */
    double      spent;               /* sum of all micros */
    int64_t     next;                /* tokens at which the next row is written */
} streaming;

/* Bytes of the process in memory (resident set); 0: not known here. */
static size_t resident_bytes(void)
{
    unsigned long all = 0, now = 0;
    FILE         *f = dra_stream_open("/proc/self/statm");
    if (!f) return 0;
    const bool read = fscanf(f, "%lu %lu", &all, &now) == 2;
    fclose(f);
    return read ? now * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

/* The first read also compiles, so it is not timed. */
static dra_status open_streaming(streaming *s, dra_error *err)
{
    const demo *d = s->d;
    s->chunks = (size_t)d->stream / CHUNK;
    dra_status st = stream_text(d, s->chunks * CHUNK, &s->ids, err);
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++) {
        demo_reader *r = &s->reader[i];
        s->micros[i] = calloc(s->chunks, sizeof *s->micros[i]);
        if (!s->micros[i]) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
        st = demo_reader_open(d, &d->model[i], 1, r, err);
        for (int k = 0; k < 2 && st == DRA_OK; k++) st = demo_read(r, CHUNK, s->ids.data, err);
        if (st == DRA_OK) st = dra_states_reset(r->states, -1, err);
    }
    return st;
}

static void close_streaming(streaming *s)
{
    for (int i = 0; i < DEMO_MODELS; i++) {
        demo_reader_close(&s->reader[i]);
        free(s->micros[i]);
    }
    dra_ids_free(&s->ids);
}

static dra_status read_chunk(streaming *s, dra_error *err)
{
    const int32_t *ids = s->ids.data + s->done * CHUNK;
    dra_status     st = DRA_OK;
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++) {
        const double began = cli_now();
        st = demo_read(&s->reader[i], CHUNK, ids, err);
        s->micros[i][s->done] = 1e6 * (cli_now() - began) / CHUNK;
        s->spent += s->micros[i][s->done];
        s->bytes[i] = dra_states_bytes(s->reader[i].states);
    }
    s->done++;
    return st;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the last few chunks up to number n. */
static double recent_median(const double *micros, size_t n)
{
    double       last[RECENT];
    const size_t k = n < RECENT ? n : RECENT;
    memcpy(last, micros + n - k, k * sizeof *last);
    qsort(last, k, sizeof *last, by_value);
    return last[k / 2];
}

/* ---- showing --------------------------------------------------------------------------------- */

static void write_points(streaming *s)
{
    const size_t every = s->chunks > POINTS ? s->chunks / POINTS : 1;
    char         room[CLI_NUMBER];
    if (s->done % every && s->done < s->chunks) return;
    for (int i = 0; i < DEMO_MODELS; i++)
        fprintf(s->d->model[i].lines,
                "{\"position\": %zu, \"microseconds per token\": %s, \"bytes of state\": %zu}\n",
                s->done * CHUNK, cli_json_number(recent_median(s->micros[i], s->done), 6, room),
                s->bytes[i]);
}

static void write_head(const streaming *s)
{
    fprintf(demo_out(s->d), "  %-9s  %-24s  %-24s  %s\n", "", s->d->model[0].name,
            s->d->model[1].name, "process");
    fprintf(demo_out(s->d), "  %9s  %11s %12s  %11s %12s  %s\n", "tokens", "us/token", "state",
            "us/token", "state", "in memory");
}

/* Writes a row at 1000, 2000, 5000, 10000, ... tokens and at the end. */
static void write_row(streaming *s)
{
    const int64_t at = (int64_t)(s->done * CHUNK);
    char          bytes[DEMO_MODELS][24], all[24];
    if (at < s->next && s->done < s->chunks) return;
    while (s->next <= at) {
        int64_t lead = s->next;
        while (lead >= 10) lead /= 10;
        s->next = lead == 2 ? s->next / 2 * 5 : s->next * 2;
    }
    for (int i = 0; i < DEMO_MODELS; i++) cli_bytes_text(s->bytes[i], bytes[i]);
    const size_t in_memory = resident_bytes();
    cli_status_clear(&s->d->status);
    fprintf(demo_out(s->d), "  %9lld  %11.1f %12s  %11.1f %12s  %9s\n", (long long)at,
            recent_median(s->micros[0], s->done), bytes[0], recent_median(s->micros[1], s->done),
            bytes[1], in_memory ? cli_bytes_text(in_memory, all) : "-");
    fflush(demo_out(s->d));
}

/* Keeps the cost after the first thousand tokens (fewer if there are fewer) and at the end. */
static void keep_cost(streaming *s)
{
    const size_t first = 1000 / CHUNK < s->chunks ? 1000 / CHUNK : 1;
    for (int i = 0; i < DEMO_MODELS; i++) {
        demo_cost *c = &s->d->model[i].cost;
        for (int k = s->done > first; k < 2; k++) {
            c->bytes[k] = s->bytes[i];
            c->micros[k] = recent_median(s->micros[i], s->done);
        }
    }
}

/* The share of the work that is done, if the cost of a chunk keeps growing as before. */
static double work_done(const streaming *s)
{
    const double n = (double)s->done, left = (double)(s->chunks - s->done);
    const double mean = s->spent / n;
    double       last = 0;
    for (int i = 0; i < DEMO_MODELS; i++) last += recent_median(s->micros[i], s->done);
    const double growth = fmax(0, 2 * (last - mean) / n); /* of each chunk */
    return s->spent / (s->spent + left * (last + growth * left / 2));
}

static void show_charts(streaming *s)
{
    cli_status    *status = &s->d->status;
    const cli_plot plots[] = {{"dra, us/token", s->micros[0], s->done, s->chunks},
                              {"softmax, us/token", s->micros[1], s->done, s->chunks}};
    const bool     last = status->terminal && s->done == s->chunks;
    if (!cli_status_at(status, work_done(s)) && !last) return;
    if (status->terminal) {
        cli_status_row(status, "%s", "");
        cli_plots(status, DEMO_MODELS, plots, true);
    }
    cli_status_field(status, 0, "  %zu of %zu tokens", s->done * CHUNK, s->chunks * CHUNK);
    if (status->terminal) cli_status_bar(status, 2);
    cli_status_left(status, 1);
    cli_status_show(status);
}

/* Compares the row at 1000 tokens with the last. */
static void write_meaning(const streaming *s)
{
    const size_t first = 1000 / CHUNK;
    FILE        *out = demo_out(s->d);
    if (s->chunks <= first) return;
    fputs("  From token 1000 to the last, the cost of a token changed by a factor of", out);
    for (int i = 0; i < DEMO_MODELS; i++)
        fprintf(out, "%s%.1f (%s)", i ? " and " : "\n  ",
                recent_median(s->micros[i], s->chunks) / recent_median(s->micros[i], first),
                s->d->model[i].name);
    fputs(".\n", out);
}

dra_status demo_stream(demo *d, dra_error *err)
{
    const double began = cli_now();
    streaming    s = {.d = d, .next = 1000};
    demo_heading(d, "A long text, read chunk by chunk");
    dra_status st = open_streaming(&s, err);
    if (st == DRA_OK) write_head(&s);
    cli_status_restart(&d->status);
    while (st == DRA_OK && s.done < s.chunks && !cli_progress_stopped()) {
        st = read_chunk(&s, err);
        if (st != DRA_OK) break;
        write_points(&s);
        keep_cost(&s);
        write_row(&s);
        show_charts(&s);
    }
    cli_status_leave(&d->status);
    if (st == DRA_OK && s.done == s.chunks) {
        write_meaning(&s);
        demo_took(d, began);
    }
    close_streaming(&s);
    return st;
}

/* ---- exactness ------------------------------------------------------------------------------- */

static const int64_t lengths[] = {1, 7, 64};
#define ROUNDING 1e-5

static dra_status read_chunks(demo_reader *r, int64_t n, const int32_t *ids, dra_error *err)
{
    dra_status st = DRA_OK;
    int64_t    at = 0;
    for (size_t i = 0; at < n && st == DRA_OK; i++) {
        const int64_t next = lengths[i % COUNT(lengths)], left = n - at;
        const int64_t take = next < left ? next : left;
        st = demo_read(r, take, ids + at, err);
        at += take;
    }
    return st;
}

static dra_status compare_chunks(const demo *d, const demo_model *m, int64_t n, const int32_t *ids,
                                 dra_error *err)
{
    demo_reader           whole = {0}, parts = {0};
    dra_states_difference x = {0};
    dra_status            st = demo_reader_open(d, m, 1, &whole, err);
    if (st == DRA_OK) st = demo_reader_open(d, m, 1, &parts, err);
    if (st == DRA_OK) st = demo_read(&whole, n, ids, err);
    if (st == DRA_OK) st = read_chunks(&parts, n, ids, err);
    if (st == DRA_OK) st = dra_states_compare(parts.states, whole.states, &x, err);
    if (st == DRA_OK && x.same)
        fprintf(demo_out(d), "  %-8s the same state, bit for bit\n", m->name);
    else if (st == DRA_OK && x.worst <= ROUNDING)
        fprintf(demo_out(d),
                "  %-8s the same state up to rounding: the largest difference is %.1e\n"
                "           of the largest number\n",
                m->name, x.worst);
    else if (st == DRA_OK)
        st = cli_error(err, DRA_ERR_VALUE, "%s: in chunks the state differs by %.1e of the largest",
                       m->name, x.worst);
    demo_reader_close(&whole);
    demo_reader_close(&parts);
    return st;
}

dra_status demo_exact(demo *d, dra_error *err)
{
    enum { TOKENS = 936 }; /* 13 times the sum of all chunks */
    dra_ids    ids = {0};
    dra_status st = stream_text(d, TOKENS, &ids, err);
    demo_heading(d, "A text read whole, and in chunks of 1, 7 and 64 tokens");
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++)
        st = compare_chunks(d, &d->model[i], TOKENS, ids.data, err);
    dra_ids_free(&ids);
    return st;
}
