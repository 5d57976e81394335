/* Kept states: what a prompt is known to begin with need not be read again.
 *
 * A state is kept after the tokens it has read, and found by them: a hash of every beginning of a
 * prompt, h_n = (h_{n-1} + id + 1) K from the number of its owner, leads to a bucket, and ids are
 * compared. Each has the ids after those of the one before it in the same text, so that a text is
 * held once. The one that was not used for the longest time goes first. Owners see their own.
 *
 * What a job gives must have the same bits with and without. Where any cut gives the same bits
 * (dra_model_cut() is 1) any state will do: at every DRA_ENGINE_KEPT tokens, before and after the
 * last token of a prompt, and where an answer ends. Where only cuts at multiples of some tokens do,
 * those of prompts at such places; written tokens are read one by one, so nothing is kept after
 * them. A state of items alone is cut where a prompt goes another way; of other models one is kept
 * where a prompt leaves a text that is known, for the next that does, and at marks of the job. */
#include <stdlib.h>
#include <string.h>

#include "generate/engine.h"

enum { FEW = 4 }; /* tokens that are sooner read than a state is copied */

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

static void use(dra_engine *e, dra_prefix *p)
{
    unlink_use(&e->prefixes, p);
    put_newest(&e->prefixes, p);
}

/* Its ids stay while others go on from them. */
static void release(dra_engine *e, dra_prefix *p)
{
    while (p && --p->refs == 0) {
        dra_prefix *parent = p->parent;
        e->prefixes.ids -= p->n - p->from;
        free(p);
        p = parent;
    }
}

static void drop_prefix(dra_engine *e, dra_prefix *p)
{
    dra_prefix **at = bucket_of(e, p->hash);
    while (*at != p) at = &(*at)->chain;
    *at = p->chain;
    unlink_use(&e->prefixes, p);
    e->prefixes.n--;
    dra_rows_give(e, &p->row);
    release(e, p);
}

bool dra_prefix_drop_oldest(dra_engine *e)
{
    if (!e->prefixes.oldest) return false;
    drop_prefix(e, e->prefixes.oldest);
    return true;
}

void dra_prefixes_free(dra_engine *e)
{
    while (dra_prefix_drop_oldest(e)) continue;
}

/* ---- finding --------------------------------------------------------------------------------- */

static bool has_own(const dra_prefix *p, const int32_t *ids)
{
    return memcmp(p->ids, ids + p->from, (p->n - p->from) * sizeof *ids) == 0;
}

/* The kept state after these n tokens; `below` is known to be a beginning of them, or NULL. */
static dra_prefix *find_prefix(dra_engine *e, uint64_t owner, uint64_t hash, size_t n,
                               const int32_t *ids, const dra_prefix *below)
{
    for (dra_prefix *p = *bucket_of(e, hash); p; p = p->chain) {
        if (p->hash != hash || p->n != n || p->owner != owner) continue;
        const dra_prefix *at = p;
        while (at && at != below && has_own(at, ids)) at = at->parent;
        if (!at || at == below) return p;
    }
    return NULL;
}

/* The longest kept state that is a beginning of the prompt and shorter than n. */
static dra_prefix *find_beginning(dra_engine *e, uint64_t owner, size_t n, const int32_t *ids)
{
    dra_prefix *best = NULL;
    uint64_t    hash = owner;
    for (size_t i = 1; i < n && e->prefixes.n > 0; i++) {
        hash = next_hash(hash, ids[i - 1]);
        dra_prefix *p = find_prefix(e, owner, hash, i, ids, best);
        if (p) best = p;
    }
    return best;
}

/* How many tokens of a prompt that are not above `most` are those of a kept state. Each part of a
 * text is compared once for each prompt. */
static size_t count_same(dra_engine *e, dra_prefix *p, size_t most, const int32_t *ids)
{
    if (p->asked == e->prefixes.asks) return p->same;
    size_t same = p->parent ? count_same(e, p->parent, most, ids) : 0;
    if (same == p->from)
        while (same < p->n && same < most && p->ids[same - p->from] == ids[same]) same++;
    p->asked = e->prefixes.asks;
    p->same = same;
    return same;
}

/* Any kept state, the one that has most in common with the prompt: it can be cut. */
static dra_prefix *find_common(dra_engine *e, uint64_t owner, size_t n, const int32_t *ids,
                               size_t *tokens)
{
    dra_prefix *best = NULL;
    e->prefixes.asks++;
    for (dra_prefix *p = e->prefixes.newest; p; p = p->older) {
        const size_t same = p->owner == owner ? count_same(e, p, n - 1, ids) : 0;
        if (same > *tokens) best = p, *tokens = same;
    }
    return best;
}

dra_prefix *dra_prefix_find(dra_engine *e, const dra_job *job, size_t *tokens)
{
    const size_t   n = job->seq.prompt;
    const int32_t *ids = job->seq.ids.data;
    dra_prefix    *p;
    *tokens = FEW;
    if (e->cuts) {
        p = find_common(e, job->config.owner, n, ids, tokens);
    } else {
        p = find_beginning(e, job->config.owner, n, ids);
        if (p) *tokens = p->n;
    }
    if (p) use(e, p);
    return p;
}

/* ---- keeping --------------------------------------------------------------------------------- */

void dra_prefix_leave(dra_engine *e, dra_job *job)
{
    release(e, job->kept);
    job->kept = NULL;
}

void dra_prefix_stay(dra_engine *e, dra_job *job, dra_prefix *p)
{
    p->refs++;
    dra_prefix_leave(e, job);
    job->kept = p;
}

/* The hash of what a job has read, which goes on where it was. */
static uint64_t hash_read(dra_job *job)
{
    const size_t n = job->seq.read;
    if (job->hashed == 0 || job->hashed > n) {
        job->hashed = 0;
        job->hash = job->config.owner;
    }
    for (; job->hashed < n; job->hashed++)
        job->hash = next_hash(job->hash, job->seq.ids.data[job->hashed]);
    return job->hash;
}

/* NULL: no memory. */
static dra_prefix *make_prefix(dra_engine *e, const dra_job *job, uint64_t hash)
{
    dra_prefix  *parent = job->kept;
    const size_t n = job->seq.read, from = parent ? parent->n : 0;
    dra_prefix  *p = malloc(sizeof *p + (n - from) * sizeof(int32_t));
    if (!p || dra_rows_take(e, job->seq.row, &p->row, NULL) != DRA_OK) {
        free(p);
        return NULL;
    }
    const int64_t row = p->row;
    *p = (dra_prefix){.parent = parent,
                      .owner = job->config.owner,
                      .hash = hash,
                      .refs = 1,
                      .row = row,
                      .n = n,
                      .from = from,
                      .chain = *bucket_of(e, hash)};
    memcpy(p->ids, job->seq.ids.data + from, (n - from) * sizeof(int32_t));
    if (parent) parent->refs++;
    *bucket_of(e, hash) = p;
    put_newest(&e->prefixes, p);
    e->prefixes.n++;
    e->prefixes.ids += n - from;
    return p;
}

/* A state that is not kept costs time, nothing else: failures are passed over. */
void dra_prefix_keep(dra_engine *e, dra_job *job)
{
    const size_t   n = job->seq.read;
    const int32_t *ids = job->seq.ids.data;
    if (e->config.forget || job->begin || job->config.echo || job->config.n_source ||
        job->config.prefix || job->config.kind != DRA_JOB_GENERATE || n == 0)
        return;
    const uint64_t hash = hash_read(job);
    if (job->kept && job->kept->n >= n) dra_prefix_leave(e, job);
    dra_prefix *p = find_prefix(e, job->config.owner, hash, n, ids, job->kept);
    if (p) {
        use(e, p);
        dra_prefix_stay(e, job, p);
        return;
    }
    if (!job->kept) p = find_beginning(e, job->config.owner, n, ids);
    if (p) dra_prefix_stay(e, job, p);
    const size_t own = n - (job->kept ? job->kept->n : 0);
    if (!dra_rows_fit(e, dra_rows_copy(e) + own * sizeof *ids, NULL)) return;
    p = make_prefix(e, job, hash);
    if (p) dra_prefix_stay(e, job, p);
}

/* ---- places ---------------------------------------------------------------------------------- */

size_t dra_prefix_next(const dra_engine *e, const dra_job *job)
{
    size_t next = dra_job_goal(job);
    if (e->cut == 0 || job->begin) return next;
    for (int i = 0; i < DRA_JOB_MARKS; i++) {
        const size_t at = (size_t)(job->marks[i] - job->marks[i] % e->cut);
        if (at > job->seq.read && at < next) next = at;
    }
    return next;
}

static bool is_marked(const dra_engine *e, const dra_job *job, size_t n)
{
    bool marked = false;
    for (int i = 0; i < DRA_JOB_MARKS; i++)
        marked |= n > 0 && n == (size_t)(job->marks[i] - job->marks[i] % e->cut);
    return marked;
}

void dra_prefix_mark(dra_engine *e, dra_job *job)
{
    size_t same = 0;
    for (int i = 0; i < DRA_JOB_MARKS; i++) {
        const int64_t at = i < DRA_JOB_MARKS - 1 ? job->config.marks[i] : 0;
        job->marks[i] = at > 0 && at < (int64_t)job->seq.prompt ? at : 0;
    }
    if (e->cuts || e->cut == 0 ||
        find_common(e, job->config.owner, job->seq.prompt, job->seq.ids.data, &same) == NULL)
        return;
    if (same >= DRA_ENGINE_CUT) job->marks[DRA_JOB_MARKS - 1] = (int64_t)same;
}

void dra_prefix_passed(dra_engine *e, dra_job *job)
{
    const size_t n = job->seq.read, last = job->seq.prompt - 1;
    if (job->closing || n > job->seq.prompt || e->cut == 0) return;
    if (n % DRA_ENGINE_KEPT == 0 || is_marked(e, job, n) || (e->cut == 1 && n >= last) ||
        (e->cut > 1 && n % DRA_ENGINE_CUT == 0 && n + DRA_ENGINE_CUT > last))
        dra_prefix_keep(e, job);
}
