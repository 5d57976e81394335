/* Texts to words: added tokens are cut out, the text between them is normalised and split, as in
 * encoding. Every thread has a table of its own; the tables are added up in the end. */
#include "text/count.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/split.h"

enum { STRETCH = 1 << 20, BATCH = 1 << 24, MOST_THREADS = 256 };

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "tokenizer_train: out of memory, cannot count words");
}

dra_status dra_counter_begin(dra_counter *c, const dra_tokenizer *t, int threads, dra_error *err)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    *c = (dra_counter){.t = t, .threads = threads > 0 ? threads : (int)processors};
    if (c->threads < 1) c->threads = 1;
    if (c->threads > MOST_THREADS) c->threads = MOST_THREADS;
    c->worker = calloc((size_t)c->threads, sizeof *c->worker);
    c->batch = malloc(BATCH);
    if (!c->worker || !c->batch) return no_memory(err);
    for (int i = 0; i < c->threads; i++) c->worker[i].counter = c;
    return DRA_OK;
}

void dra_counter_free(dra_counter *c)
{
    for (int i = 0; c->worker && i < c->threads; i++) {
        dra_words_free(&c->worker[i].words);
        dra_normal_free(&c->worker[i].normal);
    }
    free(c->worker);
    free(c->stretch);
    free(c->batch);
    *c = (dra_counter){0};
}

/* ---- one thread ------------------------------------------------------------------------------ */

static bool count_words(dra_count_worker *w, const char *text, size_t bytes)
{
    bool fits = !w->counter->t->how.nfc || dra_normal_make(&w->normal, text, bytes, &text, &bytes);
    for (size_t n; bytes && fits; text += n, bytes -= n) {
        n = dra_split_piece(w->counter->t->how.split, text, bytes);
        fits = dra_words_add(&w->words, text, n, 1);
    }
    return fits;
}

static bool count_stretch(dra_count_worker *w, dra_stretch s)
{
    const dra_tokenizer *t = w->counter->t;
    dra_match            found;
    size_t               done = 0;
    bool                 fits = true;
    while (fits && dra_matcher_find(&t->raw, t->added, s.text, s.bytes, done, &found)) {
        fits = count_words(w, s.text + done, found.start - done);
        done = found.stop;
    }
    return fits && count_words(w, s.text + done, s.bytes - done);
}

static void *run_counter(void *worker)
{
    dra_count_worker *w = worker;
    dra_counter      *c = w->counter;
    for (size_t i; (i = c->next++) < c->n && !c->failed;)
        if (!count_stretch(w, c->stretch[i])) c->failed = true;
    return NULL;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Counts the stretches there are. A thread that cannot be started leaves its work to the others. */
static dra_status count_all(dra_counter *c, dra_error *err)
{
    pthread_t thread[MOST_THREADS];
    int       started = 1; /* this one */
    c->next = 0;
    while (started < c->threads && (size_t)started < c->n &&
           pthread_create(&thread[started], NULL, run_counter, &c->worker[started]) == 0)
        started++;
    run_counter(&c->worker[0]);
    while (--started > 0) pthread_join(thread[started], NULL);
    c->n = c->used = 0;
    return c->failed ? no_memory(err) : DRA_OK;
}

static bool add_stretch(dra_counter *c, const char *text, size_t bytes)
{
    if (c->n == c->room) {
        const size_t room = 2 * c->room + 64;
        dra_stretch *grown = realloc(c->stretch, room * sizeof *grown);
        if (!grown) return false;
        c->stretch = grown;
        c->room = room;
    }
    c->stretch[c->n++] = (dra_stretch){text, bytes};
    return true;
}

dra_status dra_counter_read(dra_counter *c, const char *text, size_t bytes, dra_error *err)
{
    const bool is_short = bytes <= STRETCH;
    dra_status status = DRA_OK;
    if (!is_short || bytes > BATCH - c->used) status = count_all(c, err);
    if (status != DRA_OK || !bytes) return status;
    if (is_short) { /* it may be gone after this call */
        text = memcpy(c->batch + c->used, text, bytes);
        c->used += bytes;
        return add_stretch(c, text, bytes) ? DRA_OK : no_memory(err);
    }
    for (size_t n; bytes; text += n, bytes -= n) {
        n = dra_cut_next(c->t, text, bytes, STRETCH);
        if (!add_stretch(c, text, n)) return no_memory(err);
    }
    return count_all(c, err);
}

dra_status dra_counter_end(dra_counter *c, const dra_words **out, dra_error *err)
{
    dra_status status = count_all(c, err);
    *out = &c->worker[0].words;
    for (int i = 1; i < c->threads && status == DRA_OK; i++) {
        if (!dra_words_join(&c->worker[0].words, &c->worker[i].words)) status = no_memory(err);
        dra_words_free(&c->worker[i].words);
    }
    return status;
}
