/* Kept states: what a prompt is known to begin with need not be read again.
 *
 * A state is kept after the tokens it has read, and found by them: a hash of every beginning of a
 * prompt, h_n = (h_{n-1} + id + 1) K, leads to a bucket, and ids are compared. The one that was not
 * used for the longest time goes first.
 *
 * What a job gives must have the same bits with and without. Where any cut gives the same bits
 * (dra_model_cut() is 1) any state will do: at every DRA_ENGINE_KEPT tokens, before and after the
 * last token of a prompt, and where an answer ends. Where only cuts at multiples of some tokens do,
 * those of prompts at such places; written tokens are read one by one, so nothing is kept after
 * them. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

static uint64_t next_hash(uint64_t h, int32_t id)
{
    h = (h + (uint64_t)(uint32_t)id + 1) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static dra_prefix **bucket_of(dra_engine *e, uint64_t hash)
{
    return &e->prefixes.bucket[hash % DRA_PREFIX_BUCKETS];
}

/* ---- by use ---------------------------------------------------------------------------------- */

static void unlink_use(dra_prefixes *all, dra_prefix *p)
{
    *(p->newer ? &p->newer->older : &all->newest) = p->older;
    *(p->older ? &p->older->newer : &all->oldest) = p->newer;
}

static void put_newest(dra_prefixes *all, dra_prefix *p)
{
    p->newer = NULL;
    p->older = all->newest;
    *(all->newest ? &all->newest->newer : &all->oldest) = p;
    all->newest = p;
}

static void drop(dra_engine *e, dra_prefix *p)
{
    dra_prefix **at = bucket_of(e, p->hash);
    while (*at != p) at = &(*at)->chain;
    *at = p->chain;
    unlink_use(&e->prefixes, p);
    e->prefixes.n--;
    e->prefixes.ids -= p->n;
    dra_rows_give(e, &p->row);
    free(p);
}

bool dra_prefix_drop_oldest(dra_engine *e)
{
    if (!e->prefixes.oldest) return false;
    drop(e, e->prefixes.oldest);
    return true;
}

void dra_prefixes_free(dra_engine *e)
{
    while (dra_prefix_drop_oldest(e)) continue;
}

/* ---- finding --------------------------------------------------------------------------------- */

static dra_prefix *find(dra_engine *e, uint64_t hash, size_t n, const int32_t *ids)
{
    for (dra_prefix *p = *bucket_of(e, hash); p; p = p->chain)
        if (p->hash == hash && p->n == n && memcmp(p->ids, ids, n * sizeof *ids) == 0) return p;
    return NULL;
}

dra_prefix *dra_prefix_find(dra_engine *e, size_t n, const int32_t *ids)
{
    dra_prefix *best = NULL;
    uint64_t    hash = 0;
    for (size_t i = 1; i < n && e->prefixes.n > 0; i++) {
        hash = next_hash(hash, ids[i - 1]);
        dra_prefix *p = find(e, hash, i, ids);
        if (p) best = p;
    }
    if (!best) return NULL;
    unlink_use(&e->prefixes, best);
    put_newest(&e->prefixes, best);
    return best;
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* A state that is not kept costs time, nothing else: failures are passed over. */
void dra_prefix_keep(dra_engine *e, const dra_job *job)
{
    const size_t n = job->read, bytes = n * sizeof(int32_t);
    uint64_t     hash = 0;
    if (job->begin || job->config.echo || job->config.kind != DRA_JOB_GENERATE || n == 0) return;
    for (size_t i = 0; i < n; i++) hash = next_hash(hash, job->ids.data[i]);
    dra_prefix *p = find(e, hash, n, job->ids.data);
    if (p) {
        unlink_use(&e->prefixes, p);
        put_newest(&e->prefixes, p);
        return;
    }
    if (!dra_rows_fit(e, dra_rows_copy(e) + bytes)) return;
    p = malloc(sizeof *p + bytes);
    if (!p || dra_rows_take(e, job->row, &p->row, NULL) != DRA_OK) {
        free(p);
        return;
    }
    p->n = n;
    p->hash = hash;
    memcpy(p->ids, job->ids.data, bytes);
    p->chain = *bucket_of(e, hash);
    *bucket_of(e, hash) = p;
    put_newest(&e->prefixes, p);
    e->prefixes.n++;
    e->prefixes.ids += n;
}

void dra_prefix_passed(dra_engine *e, const dra_job *job)
{
    const size_t n = job->read, last = job->prompt - 1;
    if (job->closing || n > job->prompt || e->cut == 0) return;
    if (n % DRA_ENGINE_KEPT == 0 || (e->cut == 1 && n >= last) ||
        (e->cut > 1 && n % DRA_ENGINE_CUT == 0 && n + DRA_ENGINE_CUT > last))
        dra_prefix_keep(e, job);
}
