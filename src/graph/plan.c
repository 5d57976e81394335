/* Memory planning: when each storage is alive, which outputs take over the memory of an input that
 * dies, which take over a donated state, and where in its block each storage is placed. */
#include "graph/place.h"
#include "graph/program.h"

#include <stdlib.h>

/* Arrays of whole pages would all begin at the same offset in a page. The cache lines that a kernel
 * reads from each of them at a time would share one set of the first cache and, if rows are whole
 * pages too, evict each other. So each large array begins some lines further on. */
enum { ALIGN = 64, PAGE = 4096, LARGE = 256 * PAGE, APART = 9 * ALIGN };

#define MOST (SIZE_MAX / 4) /* bytes of a block: sums of two never overflow */

/* Bytes that a storage takes: whole lines, some more after a large one, and fences on both sides if
 * the program has them. */
static size_t count_taken(const dra_program *p, size_t bytes)
{
    const size_t apart = bytes >= LARGE && bytes % PAGE == 0 ? APART : 0;
    return bytes < MOST ? (bytes + ALIGN - 1) / ALIGN * ALIGN + apart + 2 * p->fence : MOST + 1;
}

/* ---- what belongs together ------------------------------------------------------------------- */

/* Linked lists of the storages of each block and of the results in each storage, so that visiting
 * one block or storage does not visit all others. */
typedef struct plan {
    dra_program *p;
    int32_t     *of_block, *next; /* its first storage, and the next one; -1: none */
    size_t       listed, room;    /* storages in these lists */
    int32_t     *result, *last_result, *next_result; /* in a root, from the first to the last */
    int32_t     *taker; /* the result that takes over a storage, or -1 */
} plan;

static int32_t *make_none(size_t n)
{
    int32_t *list = malloc((n + 1) * sizeof *list);
    for (size_t i = 0; list && i <= n; i++) list[i] = -1;
    return list;
}

/* Adds storages that are not in the lists yet. */
static bool list_storages(plan *w)
{
    const dra_program *p = w->p;
    if (p->n_storage > w->room) {
        int32_t *next = realloc(w->next, p->n_storage * sizeof *next);
        if (!next) return false;
        w->next = next;
        w->room = p->n_storage;
    }
    for (; w->listed < p->n_storage; w->listed++) {
        int32_t *first = &w->of_block[p->storage[w->listed].block];
        w->next[w->listed] = *first;
        *first = (int32_t)w->listed;
    }
    return true;
}

static void list_results(plan *w)
{
    const dra_program *p = w->p;
    for (size_t i = 0; i < p->n_result; i++) {
        const int32_t root = dra_root(p, p->result[i].place.storage);
        if (w->last_result[root] < 0)
            w->result[root] = (int32_t)i;
        else
            w->next_result[w->last_result[root]] = (int32_t)i;
        w->last_result[root] = (int32_t)i;
        if (p->result[i].donor >= 0) w->taker[p->result[i].donor] = (int32_t)i;
    }
}

/* Moves all results of `from` to `to`. */
static void join_results(plan *w, int32_t to, int32_t from)
{
    if (w->result[from] < 0) return;
    if (w->result[to] < 0)
        w->result[to] = w->result[from];
    else
        w->next_result[w->last_result[to]] = w->result[from];
    w->last_result[to] = w->last_result[from];
}

static bool plan_open(plan *w, dra_program *p)
{
    *w = (plan){.p = p,
                .of_block = make_none(p->n_block),
                .result = make_none(p->n_storage),
                .last_result = make_none(p->n_storage),
                .taker = make_none(p->n_storage),
                .next_result = make_none(p->n_result)};
    if (!w->of_block || !w->result || !w->last_result || !w->taker || !w->next_result ||
        !list_storages(w))
        return false;
    list_results(w);
    return true;
}

static void plan_close(plan *w)
{
    free(w->of_block);
    free(w->next);
    free(w->result);
    free(w->last_result);
    free(w->next_result);
    free(w->taker);
}

/* ---- liveness -------------------------------------------------------------------------------- */

void dra_each_storage(dra_program *p, const dra_instr *in, dra_see_storage see, void *user)
{
    for (int i = 0; i < in->n_in; i++) see(p, in->in[i].storage, user);
    for (int i = 0; i < in->n_out; i++) see(p, in->out[i].storage, user);
    see(p, in->scratch, user);
    if (!in->region) return;
    see(p, in->region->memory, user);
    const int32_t inner[] = {in->region->block, in->region->otherwise};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; inner[k] >= 0 && i < p->block[inner[k]].n; i++)
            dra_each_storage(p, p->block[inner[k]].instr[i], see, user);
}

typedef struct moment {
    int32_t block, at;
} moment;

static void touch_storage(dra_program *p, int32_t storage, void *user)
{
    const moment *m = user;
    const int32_t root = dra_root(p, storage);
    if (root < 0 || p->storage[root].block != m->block) return;
    dra_storage *s = &p->storage[root];
    if (s->first < 0) s->first = m->at;
    s->last = m->at;
}

static void find_lives(const plan *w, int32_t block)
{
    dra_program *p = w->p;
    for (int32_t i = w->of_block[block]; i >= 0; i = w->next[i])
        p->storage[i].first = p->storage[i].last = -1;
    const dra_code_block *b = &p->block[block];
    for (size_t i = 0; i < b->n; i++)
        dra_each_storage(p, b->instr[i], touch_storage, &(moment){block, b->instr[i]->group});
    for (int32_t i = w->of_block[block]; i >= 0; i = w->next[i]) {
        dra_storage *s = &p->storage[i];
        if (s->alias < 0 && s->kept) s->last = (int32_t)b->n;
    }
}

/* Keeps alive every result, and everything in the prepare block that the step reads. */
static void keep_storage(dra_program *p, int32_t storage, void *user)
{
    const int32_t root = dra_root(p, storage);
    if (root >= 0 && p->storage[root].block == DRA_BLOCK_PREPARE) p->storage[root].kept = true;
}

static void mark_kept(dra_program *p)
{
    for (size_t b = DRA_BLOCK_STEP; b < p->n_block; b++)
        for (size_t i = 0; i < p->block[b].n; i++)
            dra_each_storage(p, p->block[b].instr[i], keep_storage, NULL);
    for (size_t i = 0; i < p->n_result; i++)
        p->storage[dra_root(p, p->result[i].place.storage)].kept = true;
}

/* ---- in place -------------------------------------------------------------------------------- */

static bool covers_storage(const dra_program *p, const dra_place *place)
{
    size_t bytes = 0;
    dra_type_bytes(place->tensor.dtype, &place->tensor.shape, &bytes);
    return place->offset == 0 && dra_tensor_is_dense(&place->tensor) &&
           bytes == p->storage[dra_root(p, place->storage)].bytes;
}

static bool same_place(const dra_place *a, const dra_place *b)
{
    if (a->offset != b->offset || !dra_shape_equal(&a->tensor.shape, &b->tensor.shape))
        return false;
    for (int32_t i = 0; i < a->tensor.shape.rank; i++)
        if (a->tensor.stride[i] != b->tensor.stride[i]) return false;
    return true;
}

/* Whether `out` is the value that finally takes over the donor, so that it may be kept there. */
static bool donated_to(const plan *w, int32_t out, int32_t donor)
{
    const int32_t taker = w->taker[donor];
    return taker >= 0 && dra_root(w->p, w->p->result[taker].place.storage) == out;
}

/* Whether `out`, written by group `at`, becomes a donated state whose old value is dead by then. It
 * is written there directly, see donate_states(); other memory would cost a copy. */
static bool has_donor(const plan *w, int32_t out, int32_t at)
{
    const dra_program *p = w->p;
    for (int32_t i = w->result[out]; i >= 0; i = w->next_result[i]) {
        const dra_result_slot *r = &p->result[i];
        if (r->donor >= 0 && covers_storage(p, &r->place) && p->storage[r->donor].last < at)
            return true;
    }
    return false;
}

/* Whether the kernel reads this input no later than it writes this output. */
static bool in_step(const dra_instr *in, int from, int to)
{
    const dra_kernel *k = in->kernel;
    if (k->paired) return from == to;
    if (from >= 32) return false;
    const uint32_t bits = k->takes ? k->takes(in->attr, to) : to == 0 ? k->in_place : 0;
    return bits >> from & 1;
}

static bool touches_storage(const dra_program *p, const dra_instr *in, int32_t root)
{
    for (int i = 0; i < in->n_in; i++)
        if (dra_root(p, in->in[i].storage) == root) return true;
    for (int i = 0; i < in->n_out; i++)
        if (dra_root(p, in->out[i].storage) == root) return true;
    return false;
}

/* Whether other instructions of the group of `i`, which run at the same time, touch this
 * storage. */
static bool others_touch(const dra_program *p, const dra_code_block *b, size_t i, int32_t root)
{
    const int32_t group = b->instr[i]->group;
    for (size_t k = i; k-- > 0 && b->instr[k]->group == group;)
        if (touches_storage(p, b->instr[k], root)) return true;
    for (size_t k = i + 1; k < b->n && b->instr[k]->group == group; k++)
        if (touches_storage(p, b->instr[k], root)) return true;
    return false;
}

static bool may_take(const plan *w, int32_t block, size_t number, int from, int to)
{
    const dra_program *p = w->p;
    const dra_instr   *in = p->block[block].instr[number];
    const dra_place   *x = &in->in[from], *y = &in->out[to];
    const int32_t      at = in->group;
    if (y->storage < 0 || x->storage < 0) return false;
    const int32_t      rx = dra_root(p, x->storage), ry = dra_root(p, y->storage);
    const dra_storage *sx = &p->storage[rx], *sy = &p->storage[ry];
    const bool         donor = sx->kind == DRA_STORAGE_BOUND && sx->donor;
    if (rx == ry || sx->block != block || sy->block != block || sy->kind != DRA_STORAGE_LOCAL)
        return false;
    if (sx->kind != DRA_STORAGE_LOCAL && !donor) return false;
    if ((!donor && sx->kept) || sx->last != at || sx->bytes != sy->bytes) return false;
    if (donor && sy->kept && !donated_to(w, ry, rx)) return false;
    if (!donor && sy->kept && block == DRA_BLOCK_STEP && has_donor(w, ry, at)) return false;
    if (!covers_storage(p, x) || !covers_storage(p, y)) return false;
    if (others_touch(p, &p->block[block], number, rx)) return false;
    for (int i = 0; i < in->n_in; i++) { /* the same memory again: is it read in step with
                                          * writing? */
        const bool reads = in->kernel->paired || in_step(in, i, to);
        if (i != from && dra_root(p, in->in[i].storage) == rx &&
            !(reads && same_place(&in->in[i], x)))
            return false;
    }
    for (int i = 0; i < in->n_out; i++) /* taken over already? */
        if (dra_root(p, in->out[i].storage) == rx) return false;
    return true;
}

static void take_over(plan *w, int32_t from, int32_t to)
{
    dra_program  *p = w->p;
    const int32_t rx = dra_root(p, from), ry = dra_root(p, to);
    p->storage[rx].last = p->storage[ry].last;
    p->storage[rx].kept = p->storage[rx].kept || p->storage[ry].kept;
    p->storage[ry].alias = rx;
    join_results(w, rx, ry);
}

static void share_in_place(plan *w, int32_t block)
{
    const dra_code_block *b = &w->p->block[block];
    for (size_t i = 0; i < b->n; i++) {
        const dra_instr *in = b->instr[i];
        if (!in->kernel) continue; /* a region */
        for (int to = 0; to < in->n_out; to++) {
            for (int from = 0; from < in->n_in; from++) {
                if (!in_step(in, from, to) || !may_take(w, block, i, from, to)) continue;
                take_over(w, in->in[from].storage, in->out[to].storage);
                break;
            }
        }
    }
}

/* ---- donations ------------------------------------------------------------------------------- */

/* Results that take over a state but are not in its memory yet: write there directly if the old
 * value is dead by then, else copy at the end. */
static void donate_states(dra_program *p)
{
    for (size_t i = 0; i < p->n_result; i++) {
        dra_result_slot *r = &p->result[i];
        if (r->donor < 0) continue;
        const int32_t root = dra_root(p, r->place.storage);
        dra_storage  *s = &p->storage[root], *donor = &p->storage[r->donor];
        if (root == r->donor) continue;
        if (s->kind == DRA_STORAGE_LOCAL && s->block == DRA_BLOCK_STEP &&
            covers_storage(p, &r->place) && donor->last < s->first) {
            s->alias = r->donor;
            donor->last = s->last;
            continue;
        }
        dra_place to = r->place;
        to.storage = r->donor;
        to.offset = 0;
        dra_tensor_make_dense(&to.tensor);
        dra_emit_copy(p, DRA_BLOCK_STEP, &r->place, &to);
        r->place = to;
    }
}

/* ---- offsets --------------------------------------------------------------------------------- */

typedef struct sized {
    size_t  bytes;
    int32_t storage;
} sized;

static int larger_first(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->storage < y->storage ? -1 : 1;
}

static bool needs_memory(const dra_storage *s)
{
    return s->alias < 0 && s->kind == DRA_STORAGE_LOCAL && s->first >= 0;
}

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* Lists the storages of a block that need memory, the largest first; NULL: no memory for the
 * list. */
static sized *by_size(const plan *w, int32_t block, size_t *n)
{
    size_t all = 0;
    for (int32_t i = w->of_block[block]; i >= 0; i = w->next[i]) all++;
    sized *order = calloc(all + 1, sizeof *order);
    *n = 0;
    for (int32_t i = w->of_block[block]; order && i >= 0; i = w->next[i])
        if (needs_memory(&w->p->storage[i])) order[(*n)++] = (sized){w->p->storage[i].bytes, i};
    if (order) qsort(order, *n, sizeof *order, larger_first);
    return order;
}

static dra_status place_block(const plan *w, int32_t block)
{
    dra_program    *p = w->p;
    dra_code_block *b = &p->block[block];
    dra_placing     placing;
    size_t          n;
    sized          *order = by_size(w, block, &n);
    bool            ok = dra_placing_open(&placing, b->n + 1) && order;
    for (int32_t i = w->of_block[block]; i >= 0; i = w->next[i])
        if (p->storage[i].kind == DRA_STORAGE_LOCAL)
            b->without_plan += count_taken(p, p->storage[i].bytes);
    for (size_t i = 0; i < n && ok && b->bytes <= MOST; i++) {
        dra_storage *s = &p->storage[order[i].storage];
        const size_t bytes = count_taken(p, s->bytes);
        ok = dra_placing_put(&placing, (size_t)s->first, (size_t)s->last, bytes, &s->offset);
        b->bytes = max_size(b->bytes, s->offset + bytes);
    }
    free(order);
    dra_placing_close(&placing);
    if (!ok) return dra_fail(&p->error, DRA_ERR_MEMORY, "compile: out of memory");
    if (b->bytes > MOST) return dra_fail(&p->error, DRA_ERR_MEMORY, "compile: sizes overflow");
    return DRA_OK;
}

/* ---- all blocks ------------------------------------------------------------------------------ */

static void to_root(const dra_program *p, size_t n, dra_place *place)
{
    for (size_t i = 0; i < n; i++) place[i].storage = dra_root(p, place[i].storage);
}

static void ids_to_root(const dra_program *p, int32_t n, int32_t *id)
{
    for (int32_t i = 0; i < n; i++) id[i] = dra_root(p, id[i]);
}

static void region_to_roots(const dra_program *p, dra_region *r)
{
    to_root(p, 1, &r->flag);
    if (r->kind != DRA_REGION_SCAN) return;
    to_root(p, (size_t)(3 * r->carries + r->xs + r->ys), r->carry[0]); /* one array */
    ids_to_root(p, r->carries, r->carry_in);
    ids_to_root(p, r->carries, r->carry_out);
    ids_to_root(p, r->xs, r->x_in);
    ids_to_root(p, r->ys, r->y_out);
}

static void use_roots(dra_program *p)
{
    for (size_t b = 0; b < p->n_block; b++) {
        for (size_t i = 0; i < p->block[b].n; i++) {
            dra_instr *in = p->block[b].instr[i];
            to_root(p, (size_t)in->n_in, in->in);
            to_root(p, (size_t)in->n_out, in->out);
            if (in->region) region_to_roots(p, in->region);
        }
    }
    for (size_t i = 0; i < p->n_result; i++) to_root(p, 1, &p->result[i].place);
}

static void plan_block(plan *w, int32_t block)
{
    dra_program *p = w->p;
    find_lives(w, block);
    share_in_place(w, block);
    if (block == DRA_BLOCK_STEP) {
        donate_states(p);
        if (!list_storages(w)) dra_no_memory(p);
        find_lives(w, block); /* copies may have been added */
    }
    if (p->error.code == DRA_OK) place_block(w, block);
    if (p->block[block].memory >= 0)
        p->storage[p->block[block].memory].bytes = p->block[block].bytes;
}

dra_status dra_plan(dra_program *p)
{
    plan w;
    mark_kept(p);
    if (!plan_open(&w, p)) dra_no_memory(p);
    for (size_t i = p->n_block; i-- > 0 && p->error.code == DRA_OK;) /* bodies come first */
        plan_block(&w, (int32_t)i);
    plan_close(&w);
    if (p->error.code == DRA_OK) use_roots(p);
    return p->error.code;
}
