/* Probes: options, rows of the two splits, scores. */
#include "train/probe.h"

#include <string.h>

#include "base/error.h"
#include "base/philox.h"

/* ---- tasks ----------------------------------------------------------------------------------- */

static const dra_probe_maker *find_maker(const char *name)
{
    for (size_t i = 0; name && i < dra_probe_makers_count; i++)
        if (strcmp(dra_probe_makers[i].info.name, name) == 0) return &dra_probe_makers[i];
    return NULL;
}

static dra_status fail_unknown(const char *name, dra_error *err)
{
    dra_guess guess = {.typed = name ? name : ""};
    for (size_t i = 0; i < dra_probe_makers_count; i++)
        dra_guess_try(&guess, dra_probe_makers[i].info.name);
    return dra_fail(err, DRA_ERR_VALUE, "probe: no such task: '%.60s'; %s%s%s", guess.typed,
                    guess.best ? "did you mean " : "expected copy, recall or another task",
                    guess.best ? guess.best : "", guess.best ? "?" : "");
}

const char *dra_probe_task_at(size_t i)
{
    return i < dra_probe_makers_count ? dra_probe_makers[i].info.name : NULL;
}

/* ---- options --------------------------------------------------------------------------------- */

static dra_status check_range(const dra_probe *p, const char *name, int64_t x, int64_t least,
                              int64_t most, dra_error *err)
{
    if (x >= least && x <= most) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "probe %s: %s is %lld, expected %lld to %lld", p->task,
                    name, (long long)x, (long long)least, (long long)most);
}

/* Counts that only some tasks have: at least 1 there, and not given for other tasks. */
static dra_status check_own(const dra_probe *p, unsigned has, bool complete, dra_error *err)
{
    const struct {
        const char *name;
        unsigned    bit;
        int64_t     x;
    } own[] = {{"symbols", DRA_PROBE_SYMBOLS, p->symbols},
               {"pairs", DRA_PROBE_PAIRS, p->pairs},
               {"queries", DRA_PROBE_QUERIES, p->queries},
               {"digits", DRA_PROBE_DIGITS, p->digits},
               {"kinds", DRA_PROBE_KINDS, p->kinds}};
    dra_status st = DRA_OK;
    for (size_t i = 0; i < sizeof own / sizeof *own && st == DRA_OK; i++) {
        if (has & own[i].bit)
            st = check_range(p, own[i].name, own[i].x, complete, DRA_PROBE_LENGTH, err);
        else if (own[i].x != 0)
            st = dra_fail(err, DRA_ERR_VALUE, "probe %s: has no option %s", p->task, own[i].name);
    }
    return st;
}

dra_status dra_probe_complete(dra_probe *p, dra_error *err)
{
    const dra_probe_maker *m = find_maker(p->task);
    if (!m) return fail_unknown(p->task, err);
    dra_status st = check_own(p, m->info.has, false, err);
    if (st != DRA_OK) return st;
    m->defaults(p);
    if (!p->length) p->length = m->least_length(p);
    st = check_own(p, m->info.has, true, err);
    if (st == DRA_OK)
        st = check_range(p, "length", p->length, m->least_length(p), DRA_PROBE_LENGTH, err);
    if (st == DRA_OK && m->least_vocab(p) > DRA_PROBE_VOCAB)
        return dra_fail(err, DRA_ERR_VALUE, "probe %s: needs %lld tokens, expected at most %d",
                        p->task, (long long)m->least_vocab(p), DRA_PROBE_VOCAB);
    if (st == DRA_OK)
        st = check_range(p, "vocab", p->vocab, m->least_vocab(p), DRA_PROBE_VOCAB, err);
    if (st == DRA_OK && m->info.has & DRA_PROBE_QUERIES)
        st = check_range(p, "queries", p->queries, 1, p->pairs, err);
    if (st == DRA_OK && p->text && (!(m->info.has & DRA_PROBE_TEXT) || p->bytes < 1))
        return dra_fail(err, DRA_ERR_VALUE, "probe %s: %s", p->task,
                        p->bytes < 1 ? "the text is empty" : "has no option text");
    if (st == DRA_OK && m->info.has & DRA_PROBE_DEPTH && !(p->depth <= 1))
        return dra_fail(err, DRA_ERR_VALUE, "probe %s: depth is %g, expected at most 1", p->task,
                        p->depth);
    return st;
}

double dra_probe_chance(const dra_probe *p) { return find_maker(p->task)->chance(p); }

/* ---- rows ------------------------------------------------------------------------------------ */

int32_t dra_probe_below(dra_probe_line *r, int64_t n)
{
    if (r->left == 0) {
        dra_philox(r->counter, r->key, r->bits);
        r->counter[2]++;
        r->left = 4;
    }
    return (int32_t)((uint64_t)r->bits[--r->left] * (uint64_t)n >> 32);
}

/* Rows and splits are drawn from this: sum_i x_i P^(n-1-i)  mod 2^64, P odd. */
static uint64_t add_number(uint64_t h, uint64_t x) { return h * 0x9E3779B97F4A7C15u + x; }

static uint64_t key_of_task(const char *task)
{
    uint64_t h = 0;
    for (; *task; task++) h = add_number(h, (unsigned char)*task + 1u);
    return add_number(h, 0);
}

/* The split of a row, a hash of its tokens without filler. */
static dra_split split_of(const dra_probe_line *r)
{
    static const int32_t none[4];
    uint64_t             h = key_of_task(r->p->task);
    for (int64_t t = 0; t < r->p->length; t++)
        if (r->ids[t] >= DRA_PROBE_FILLERS) h = add_number(h, (uint32_t)r->ids[t] + UINT64_C(1));
    return dra_philox_key(none, h) % 8 == 0 ? DRA_SPLIT_TEST : DRA_SPLIT_TRAIN;
}

dra_status dra_probe_row(const dra_probe *p, dra_split split, int64_t number, int32_t *ids,
                         int32_t *targets, dra_error *err)
{
    return dra_probe_row_from(p, split, number, ids, targets, NULL, err);
}

dra_status dra_probe_row_from(const dra_probe *p, dra_split split, int64_t number, int32_t *ids,
                              int32_t *targets, int64_t *from, dra_error *err)
{
    enum { ATTEMPTS = 256 }; /* all miss the test split with probability (7/8)^256 = 1e-15 */
    const dra_probe_maker *m = find_maker(p->task);
    const int32_t seed[4] = {(int32_t)(uint32_t)p->seed, (int32_t)(uint32_t)(p->seed >> 32), split};
    const uint64_t key = dra_philox_key(seed, key_of_task(p->task)), n = (uint64_t)number;
    for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        dra_probe_line r = {.p = p,
                            .key = key,
                            .counter = {(uint32_t)n, (uint32_t)(n >> 32), 0, attempt},
                            .ids = ids,
                            .targets = targets,
                            .from = from};
        for (int64_t t = 0; t < p->length; t++) targets[t] = -1;
        m->make(&r);
        if (split_of(&r) == split) return DRA_OK;
    }
    return dra_fail(err, DRA_ERR_VALUE,
                    "probe %s: no example for the %s split in %d draws: there are too few of them",
                    p->task, split == DRA_SPLIT_TEST ? "test" : "train", ATTEMPTS);
}

/* ---- scores ---------------------------------------------------------------------------------- */

void dra_probe_score_add(const dra_probe *p, int64_t B, const int32_t *targets,
                         const int32_t *found, dra_probe_score *score)
{
    const bool each = find_maker(p->task)->info.answer == DRA_ANSWER_TARGET;
    for (int64_t b = 0; b < B; b++) {
        int64_t asked = 0, right = 0;
        for (int64_t i = b * p->length; i < (b + 1) * p->length; i++) {
            asked += targets[i] >= 0;
            right += targets[i] >= 0 && found[i] == targets[i];
        }
        score->answers += each ? asked : 1;
        score->right += each ? right : right == asked;
    }
}
