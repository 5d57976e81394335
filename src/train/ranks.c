#include "train/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/array.h"
#include "sequence/states.h"
#include "train/batches.h"
#include "train/gradients.h"
#include "train/sums.h"

bool dra_trainer_writes(const dra_trainer *t) { return dra_comm_rank(t->c.comm) == 0; }

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
}

/* ---- where a run stands ---------------------------------------------------------------------- */

typedef struct place { /* what rank 0 has read from its folder */
    dra_checkpoint at;
    int64_t        saved, steps_before, schedule_before;
    bool           is_run;
} place;

dra_status dra_ranks_settle(dra_trainer *t, dra_status st, dra_error *err)
{
    place p = {t->at, t->saved, t->steps_before, t->schedule_before, t->is_run};
    if (!t->c.comm) return st;
    st = dra_comm_agree(t->c.comm, st, err);
    if (st == DRA_OK) st = dra_comm_spread(t->c.comm, 0, &p, sizeof p, err);
    if (st != DRA_OK) return st;
    t->at = p.at;
    t->saved = p.saved;
    t->steps_before = p.steps_before;
    t->schedule_before = p.schedule_before;
    t->is_run = p.is_run;
    return DRA_OK;
}

/* ---- what must be the same ------------------------------------------------------------------- */

enum { MODEL, SETTINGS, DATA, EVAL_DATA, FACTS };

typedef struct facts {
    char     level[DRA_DEVICE_LEVEL];
    uint64_t of[FACTS];
} facts;

static dra_status hash_settings(const dra_train_config *c, uint64_t *out, dra_error *err)
{
    const size_t n = dra_train_config_text(c, NULL, 0);
    char        *text = malloc(n + 1);
    if (!text || !dra_train_config_text(c, text, n + 1)) {
        free(text);
        return out_of_memory(err);
    }
    *out = dra_hash_of(0, text, n);
    free(text);
    return DRA_OK;
}

static dra_status find_facts(const dra_trainer *t, facts *out, dra_error *err)
{
    *out = (facts){.of = {[MODEL] = dra_model_fingerprint(t->c.model),
                          [DATA] = dra_batches_fingerprint(t->batches),
                          [EVAL_DATA] = t->eval ? dra_batches_fingerprint(t->eval) : 0}};
    snprintf(out->level, sizeof out->level, "%s", dra_device_level(t->c.device));
    return hash_settings(t->c.train, &out->of[SETTINGS], err);
}

static dra_status compare_facts(const facts *a, const facts *b, int rank, dra_error *err)
{
    static const char *const names[FACTS] = {"model", "settings", "data", "evaluation data"};
    if (strncmp(a->level, b->level, sizeof a->level) != 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "rank %d: its level of kernels is %.31s, expected that of rank 0, %.31s "
                        "(DRA_CPU names one)",
                        rank, b->level, a->level);
    for (int k = 0; k < FACTS; k++)
        if (a->of[k] != b->of[k])
            return dra_fail(err, DRA_ERR_VALUE, "rank %d: its %s %s not that of rank 0", rank,
                            names[k], k == SETTINGS ? "are" : "is");
    return DRA_OK;
}

dra_status dra_ranks_compare(dra_trainer *t, dra_status st, dra_error *err)
{
    const int n = dra_comm_size(t->c.comm);
    if (!t->c.comm) return st;
    facts *all = calloc((size_t)n, sizeof *all);
    if (st == DRA_OK && !all) st = out_of_memory(err);
    if (st == DRA_OK) st = find_facts(t, &all[dra_comm_rank(t->c.comm)], err);
    st = dra_comm_agree(t->c.comm, st, err);
    if (st == DRA_OK) st = dra_comm_share(t->c.comm, all, sizeof *all, err);
    for (int r = 1; r < n && st == DRA_OK; r++) st = compare_facts(&all[0], &all[r], r, err);
    free(all);
    return st;
}

static dra_status hash_weights(const dra_trainer *t, uint64_t *out, dra_error *err)
{
    const dra_specs *params = dra_model_params(t->c.model);
    *out = 0;
    for (int i = 0; i < dra_specs_count(params); i++) {
        const size_t n = (size_t)dra_shape_count(&dra_specs_at(params, i)->shape);
        const void  *x = dra_weights_at(t->weights, i);
        if (!x) return out_of_memory(err);
        *out = dra_hash_of(*out, x, n * sizeof(dra_real));
    }
    return DRA_OK;
}

dra_status dra_ranks_check_weights(dra_trainer *t, dra_status st, dra_error *err)
{
    const int n = dra_comm_size(t->c.comm);
    if (!t->c.comm) return st;
    uint64_t *all = calloc((size_t)n, sizeof *all);
    if (st == DRA_OK && !all) st = out_of_memory(err);
    if (st == DRA_OK) st = hash_weights(t, &all[dra_comm_rank(t->c.comm)], err);
    st = dra_comm_agree(t->c.comm, st, err);
    if (st == DRA_OK) st = dra_comm_share(t->c.comm, all, sizeof *all, err);
    for (int r = 1; r < n && st == DRA_OK; r++)
        if (all[r] != all[0])
            st = dra_fail(err, DRA_ERR_VALUE,
                          "rank %d: its weights are not those of rank 0 at step %lld", r,
                          (long long)t->at.step);
    free(all);
    return st;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Shares an array that has `each` bytes for every microbatch. */
static dra_status share_leaves(const dra_trainer *t, void *all, size_t each, dra_error *err)
{
    const int n = dra_comm_size(t->c.comm);
    size_t   *offset = calloc((size_t)n + 1, sizeof *offset);
    if (!offset) return out_of_memory(err);
    for (int r = 0; r < n; r++) {
        const dra_leaves own = dra_tree_share(t->at.train.accumulate, r, n);
        offset[r + 1] = (size_t)(own.first + own.n) * each;
    }
    const dra_status st = dra_comm_share_parts(t->c.comm, all, offset, err);
    free(offset);
    return st;
}

static dra_status sum_tokens(dra_trainer *t, dra_error *err)
{
    const int n = dra_comm_size(t->c.comm);
    int64_t  *all = calloc((size_t)n, sizeof *all);
    if (!all) return out_of_memory(err);
    all[dra_comm_rank(t->c.comm)] = t->batch.tokens;
    const dra_status st = dra_comm_share(t->c.comm, all, sizeof *all, err);
    t->batch.tokens = 0;
    for (int r = 0; r < n; r++) t->batch.tokens += all[r];
    free(all);
    return st;
}

dra_status dra_ranks_count(dra_trainer *t, dra_status st, dra_error *err)
{
    dra_batch *b = &t->batch;
    if (!t->c.comm) return st;
    st = dra_comm_agree(t->c.comm, st, err);
    if (st != DRA_OK || !dra_batches_reads_part(t->batches)) return st;
    st = share_leaves(t, b->counts, (size_t)t->rows * sizeof *b->counts, err);
    if (st == DRA_OK) st = sum_tokens(t, err);
    b->total = 0;
    for (int64_t r = 0; r < b->B; r++) b->total += b->counts[r];
    return dra_comm_break(t->c.comm, st);
}

/* The optimizer of each rank sees the losses of its own microbatches, and decides as all others. */
static dra_status spoil_gradients(dra_trainer *t, dra_error *err)
{
    for (int64_t k = 0; k < t->at.train.accumulate; k++)
        if (!isfinite(t->results[k].loss)) return dra_gradients_spoil(t->gradients, err);
    return DRA_OK;
}

dra_status dra_ranks_join(dra_trainer *t, dra_status st, dra_error *err)
{
    const dra_leaves own = dra_sums_own(t->sums);
    if (st == DRA_OK)
        st = dra_gradients_collect(t->gradients, (int)own.n, t->results + own.first, NULL, NULL,
                                   err);
    st = dra_comm_agree(t->c.comm, st, err);
    if (st != DRA_OK) return st;
    st = share_leaves(t, t->results, sizeof *t->results, err);
    if (st == DRA_OK) st = dra_sums_join(t->sums, err);
    if (st == DRA_OK) st = spoil_gradients(t, err);
    return dra_comm_break(t->c.comm, st);
}

/* ---- after a step ---------------------------------------------------------------------------- */

typedef struct news {
    double  best_loss, eval_loss;
    int64_t since_best;
    int32_t stop;
} news;

dra_status dra_ranks_finish(dra_trainer *t, bool *stop, dra_status st, dra_error *err)
{
    const int n = dra_comm_size(t->c.comm);
    if (!t->c.comm) return st;
    news *all = calloc((size_t)n, sizeof *all);
    if (st == DRA_OK && !all) st = out_of_memory(err);
    st = dra_comm_agree(t->c.comm, st, err);
    if (st == DRA_OK) {
        all[dra_comm_rank(t->c.comm)] = (news){t->at.best_loss, t->event.eval_loss,
                                               t->at.since_best, *stop};
        st = dra_comm_share(t->c.comm, all, sizeof *all, err);
    }
    if (st == DRA_OK) {
        t->at.best_loss = t->event.best_loss = all[0].best_loss;
        t->at.since_best = all[0].since_best;
        t->event.eval_loss = all[0].eval_loss;
        for (int r = 0; r < n; r++) *stop |= all[r].stop != 0;
    }
    free(all);
    return st;
}

/* ---- carried states -------------------------------------------------------------------------- */

/* The numbers of a row, then its reals. */
static size_t row_bytes(const dra_states *s, int64_t row)
{
    size_t n = sizeof(dra_row_numbers);
    for (int i = 0; i < dra_specs_count(s->specs); i++)
        n += dra_states_size(s, i, row) * sizeof(dra_real);
    return n;
}

static dra_status pack_row(const dra_states *s, int64_t row, unsigned char *to, dra_error *err)
{
    const dra_row_numbers at = {s->tokens[row], s->begin[row], s->end[row], s->context[row]};
    dra_status            st = DRA_OK;
    memcpy(to, &at, sizeof at);
    to += sizeof at;
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++) {
        const size_t n = dra_states_size(s, i, row);
        st = dra_states_read(s, i, row, (dra_real *)(void *)to, n, err);
        to += n * sizeof(dra_real);
    }
    return st;
}

static dra_status unpack_row(dra_states *s, int64_t row, const unsigned char *from, size_t bytes,
                             dra_error *err)
{
    dra_row_numbers at;
    memcpy(&at, from, sizeof at);
    dra_status st = dra_states_number(s, row, at, err);
    if (st == DRA_OK && row_bytes(s, row) != bytes)
        st = dra_fail(err, DRA_ERR_VALUE, "train: a state of another rank has %zu bytes", bytes);
    from += sizeof at;
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++) {
        const size_t n = dra_states_size(s, i, row);
        st = dra_states_write(s, i, row, (const dra_real *)(const void *)from, n, err);
        from += n * sizeof(dra_real);
    }
    return st;
}

static int owner_of(const dra_trainer *t, int64_t leaf)
{
    const int n = dra_comm_size(t->c.comm);
    for (int r = 0; r < n; r++) {
        const dra_leaves own = dra_tree_share(t->at.train.accumulate, r, n);
        if (leaf < own.first + own.n) return r;
    }
    return n - 1;
}

/* Row b of the batch goes from its rank to rank 0. */
static dra_status move_row(const dra_trainer *t, dra_states *all, int64_t b, dra_error *err)
{
    const int64_t leaf = b / t->rows, row = b % t->rows;
    const int     owner = owner_of(t, leaf), me = dra_comm_rank(t->c.comm);
    size_t        bytes = me == owner ? row_bytes(t->states[leaf], row) : 0;
    if (owner == 0 || (me != owner && me != 0)) return DRA_OK;
    dra_status     st = dra_comm_pass(t->c.comm, owner, 0, &bytes, sizeof bytes, err);
    unsigned char *data = st == DRA_OK ? calloc(bytes, 1) : NULL;
    if (st == DRA_OK && !data) st = out_of_memory(err);
    if (st == DRA_OK && me == owner) st = pack_row(t->states[leaf], row, data, err);
    if (st == DRA_OK) st = dra_comm_pass(t->c.comm, owner, 0, data, bytes, err);
    if (st == DRA_OK && me == 0) st = unpack_row(all, b, data, bytes, err);
    free(data);
    return st;
}

dra_status dra_ranks_gather_states(const dra_trainer *t, dra_states *all, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t b = 0; t->c.comm && b < t->at.train.batch && st == DRA_OK; b++)
        st = move_row(t, all, b, err);
    return dra_comm_break(t->c.comm, st);
}
