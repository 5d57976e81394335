/* Files of states beside the steps: a thread reads or writes the file and makes room for what is
 * copied, so that nobody who writes waits for a disk or for memory. What goes out of the pool or
 * into it is copied between two steps, a slice each time: neither what a name stands for nor a row
 * that is not whole yet changes meanwhile. One file at a time, in the order in which they were
 * asked for.
 *     export: room, slices, disk        import: disk, slices */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/engine.h"
#include "sequence/states.h"

enum { SLICE = 4 << 20 };

typedef enum filing_stage { AT_ROOM, AT_SLICES, AT_DISK } filing_stage;

struct dra_filing {
    dra_engine     *e;
    dra_job        *job;
    filing_stage    stage;
    dra_context     context; /* what the file has */
    dra_row_numbers numbers; /* of the row that is exported */
    dra_saved      *made;    /* what the file becomes */
    size_t          later;   /* bytes that the pool has to have for it yet */
    dra_row_copy    copy;
    pthread_t       thread;
    bool            threaded; /* it has to be joined */
    dra_status      status;
    dra_error       error;
    bool            done; /* the thread; guarded by the lock of the engine */
};

static bool is_export(const dra_filing *f) { return f->job->config.kind == DRA_JOB_EXPORT; }

static size_t slice_of(const dra_engine *e) { return e->config.slice ? e->config.slice : SLICE; }

/* ---- beside the steps ------------------------------------------------------------------------ */

static dra_status make_room(dra_filing *f)
{
    dra_engine      *e = f->e;
    const dra_specs *specs = dra_model_state(e->config.model);
    dra_status st = dra_states_create(e->config.device, specs, 1, &f->context.states, &f->error);
    f->copy.to = f->context.states;
    return st == DRA_OK ? dra_row_copy_begin(&f->copy, f->numbers, &f->error) : st;
}

static dra_status use_disk(dra_filing *f)
{
    const dra_engine_config *c = &f->e->config;
    const char              *path = f->job->config.path;
    return is_export(f)
               ? dra_context_save(c->model, c->weights, &f->context, path, &f->error)
               : dra_context_load(c->device, c->model, c->weights, path, &f->context, &f->error);
}

static void *run_filing(void *user)
{
    dra_filing *f = user;
    dra_engine *e = f->e;
    f->status = f->stage == AT_ROOM ? make_room(f) : use_disk(f);
    pthread_mutex_lock(&e->lock);
    f->done = true;
    void (*wake)(void *) = e->wake;
    void *wake_user = e->wake_user;
    pthread_mutex_unlock(&e->lock);
    if (wake) wake(wake_user);
    return NULL;
}

static void begin_stage(dra_filing *f, filing_stage stage)
{
    f->stage = stage;
    f->done = stage == AT_SLICES;
    if (f->done) return;
    f->threaded = pthread_create(&f->thread, NULL, run_filing, f) == 0;
    if (!f->threaded) run_filing(f);
}

/* Whether no thread has it; `wait`: it is waited for. */
static bool is_ours(dra_filing *f, bool wait)
{
    pthread_mutex_lock(&f->e->lock);
    const bool done = f->done;
    pthread_mutex_unlock(&f->e->lock);
    if (!done && !wait) return false;
    if (f->threaded) pthread_join(f->thread, NULL);
    f->threaded = false;
    return true;
}

/* ---- between two steps ----------------------------------------------------------------------- */

/* All of a state but its row. */
static dra_status note_state(dra_filing *f)
{
    dra_engine      *e = f->e;
    const dra_saved *s = f->job->begin;
    const size_t     V = (size_t)e->V;
    f->numbers = dra_states_numbers(e->lane[0].pool, s->row);
    f->copy = (dra_row_copy){.from = e->lane[0].pool, .of = s->row};
    f->context = (dra_context){.logits = malloc(V * sizeof *f->context.logits),
                               .seen = malloc(V * sizeof *f->context.seen)};
    if (!f->context.logits || !f->context.seen) return dra_engine_no_memory(&f->error);
    memcpy(f->context.logits, s->logits, V * sizeof *s->logits);
    memcpy(f->context.seen, s->seen, V * sizeof *s->seen);
    return DRA_OK;
}

/* Without anybody to wake up it is done at once, and so is the room for what one slice copies. */
bool dra_filing_begin(dra_engine *e, dra_job *job)
{
    dra_filing *f = e->wake ? calloc(1, sizeof *f) : NULL;
    if (!f) return false;
    *f = (dra_filing){.e = e, .job = job};
    const bool out = is_export(f), small = out && job->begin->bytes <= slice_of(e);
    if (out) f->status = note_state(f);
    if (small && f->status == DRA_OK) f->status = make_room(f);
    e->filing = f;
    begin_stage(f, !out ? AT_DISK : small || f->status != DRA_OK ? AT_SLICES : AT_ROOM);
    return true;
}

static void end_filing(dra_filing *f)
{
    dra_engine *e = f->e;
    e->filing = NULL;
    if (f->made && f->status == DRA_OK)
        f->status = dra_saved_adopt(e, f->job, f->made, &f->error);
    else
        dra_saved_drop(e, f->made);
    dra_context_free(&f->context);
    dra_job_end_with(e, f->job, f->status == DRA_OK ? DRA_JOB_DONE : DRA_JOB_FAILED, &f->error);
    dra_job_free(e, f->job);
    free(f);
}

/* The file was read: a row of the pool becomes what it has. */
static dra_status begin_import(dra_filing *f)
{
    dra_engine *e = f->e;
    dra_status  st = dra_saved_check(e, f->job, &f->context, &f->error);
    if (st == DRA_OK) st = dra_saved_begin(e, &f->context, 0, &f->made, &f->error);
    if (st != DRA_OK) return st;
    f->copy = (dra_row_copy){.to = e->lane[0].pool, .row = f->made->row, .from = f->context.states};
    f->later = dra_rows_need(e, dra_states_tokens(f->context.states, 0));
    return dra_row_copy_begin(&f->copy, dra_states_numbers(f->context.states, 0), &f->error);
}

static void copy_slice(dra_filing *f, bool *done)
{
    dra_engine  *e = f->e;
    const size_t before = f->copy.bytes, slice = slice_of(e);
    f->status = dra_row_copy_until(&f->copy, before + slice, done, &f->error);
    f->later -= slice < f->later ? slice : f->later;
    pthread_mutex_lock(&e->lock);
    e->stats.copied += f->copy.bytes - before;
    pthread_mutex_unlock(&e->lock);
}

/* The next part of what is done with a file. */
static void continue_filing(dra_filing *f)
{
    bool copied = false;
    if (f->status == DRA_OK && f->stage == AT_DISK && !is_export(f)) {
        f->status = begin_import(f);
        f->stage = AT_SLICES;
    } else if (f->status == DRA_OK && f->stage == AT_DISK) {
        end_filing(f);
        return;
    }
    if (f->status == DRA_OK) copy_slice(f, &copied);
    f->stage = AT_SLICES;
    if (f->status != DRA_OK || (copied && !is_export(f)))
        end_filing(f);
    else if (copied)
        begin_stage(f, AT_DISK);
}

void dra_filing_step(dra_engine *e)
{
    if (e->filing && is_ours(e->filing, false)) continue_filing(e->filing);
}

void dra_filing_finish(dra_engine *e)
{
    while (e->filing && is_ours(e->filing, true)) continue_filing(e->filing);
}

bool dra_filing_copies(const dra_engine *e) { return e->filing && e->filing->stage == AT_SLICES; }

size_t dra_filing_later(const dra_engine *e) { return dra_filing_copies(e) ? e->filing->later : 0; }
