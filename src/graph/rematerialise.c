/* Rematerialisation, between lowering and fusing: a large value that is cheap to compute and is
 * read both early and late, such as the output of a norm or an activation in a training step, is
 * not kept in between but computed again from values that are alive anyway. The numbers are the
 * same and memory is saved. The pass goes from the last instruction to the first, so that all
 * readers of a value have their final place. Instructions to compute again are noted, and inserted
 * at the end, all at once; until then each instruction has a number, and its place is counted with
 * a Fenwick tree. */
#include "graph/fuse.h"

#include <stdlib.h>
#include <string.h>

enum { LARGE = 1 << 18 }; /* bytes; less than that is not worth an instruction */
enum { FAR = 12 };        /* instructions between two readers; closer ones gain nothing */

static bool is_cheap(const dra_instr *in)
{
    return in && in->kernel && in->op->flags & (DRA_OP_POINTWISE | DRA_OP_CHEAP);
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct touches { /* instructions that touch a storage, in order */
    int32_t *at;
    size_t   n, room; /* room 0: those of dra_uses */
} touches;

typedef struct added { /* an instruction to be inserted */
    dra_instr *in;
    int32_t    before; /* the instruction of the block it is inserted before */
    int32_t    next;   /* the next one inserted there; -1: that instruction */
} added;

typedef struct rematerialising {
    dra_program *p;
    int32_t      block, n; /* n: instructions of the block */
    dra_uses     uses;
    touches     *of;    /* by root */
    size_t       roots; /* storages when it was opened */
    added       *more;  /* instruction n + i */
    int32_t      n_more, room;
    int32_t     *first; /* by instruction of the block: the first one inserted before it; -1:
                         * none */
    int32_t     *sums;  /* how many are inserted, see count_before() */
} rematerialising;

static bool open_rematerialising(rematerialising *r)
{
    const dra_program *p = r->p;
    r->n = (int32_t)p->block[r->block].n;
    r->roots = p->n_storage;
    r->of = calloc(r->roots + 1, sizeof *r->of);
    r->first = malloc(((size_t)r->n + 1) * sizeof *r->first);
    r->sums = calloc((size_t)r->n + 2, sizeof *r->sums);
    if (!r->of || !r->first || !r->sums || !dra_uses_open(&r->uses, r->p, r->block)) return false;
    for (int32_t i = 0; i <= r->n; i++) r->first[i] = -1;
    for (size_t s = 0; s < r->roots; s++)
        r->of[s] = (touches){r->uses.at + r->uses.first[s], r->uses.end[s] - r->uses.first[s], 0};
    return true;
}

static void close_rematerialising(rematerialising *r)
{
    for (size_t s = 0; r->of && s < r->roots; s++)
        if (r->of[s].room) free(r->of[s].at);
    dra_uses_close(&r->uses);
    free(r->of);
    free(r->more);
    free(r->first);
    free(r->sums);
}

/* How many are inserted before instruction i of the block and those in front of it. [Fenwick
 * 1994] */
static int32_t count_before(const rematerialising *r, int32_t i)
{
    int32_t sum = 0;
    for (i++; i > 0; i -= i & -i) sum += r->sums[i];
    return sum;
}

static void count_at(rematerialising *r, int32_t i)
{
    for (i++; i <= r->n; i += i & -i) r->sums[i]++;
}

/* The place of an instruction among all. */
static int32_t place_of(const rematerialising *r, int32_t at)
{
    if (at < r->n) return at + count_before(r, at);
    const int32_t own = r->more[at - r->n].before;
    int32_t       place = own + count_before(r, own);
    for (int32_t i = at; i >= 0; i = r->more[i - r->n].next) place--;
    return place;
}

/* ---- what can be remade ---------------------------------------------------------------------- */

static bool is_plain(const rematerialising *r, int32_t root)
{
    const dra_storage *s = &r->p->storage[root];
    return !r->uses.shared[root] && s->kind == DRA_STORAGE_LOCAL && s->block == r->block;
}

/* The touch after the longest pause between two readers; 0: no pause is long enough. */
static size_t late_reader(const rematerialising *r, int32_t root)
{
    const touches *t = &r->of[root];
    size_t         late = 0;
    int32_t        longest = FAR;
    for (size_t i = 2; i < t->n; i++) {
        const int32_t pause = place_of(r, t->at[i]) - place_of(r, t->at[i - 1]);
        if (pause > longest) longest = pause, late = i;
    }
    return late;
}

/* Whether the inputs of an instruction are still alive and unchanged when the one at place `late`
 * runs. */
static bool inputs_last(const rematerialising *r, const dra_instr *in, int32_t late)
{
    const dra_program *p = r->p;
    for (int i = 0; i < in->n_in; i++) {
        const int32_t      root = dra_root(p, in->in[i].storage);
        const dra_storage *s = &p->storage[root];
        if (s->donor || s->kind == DRA_STORAGE_MOVING) return false;
        if (s->kind == DRA_STORAGE_BOUND || s->block != r->block || s->bytes < LARGE / 16) continue;
        const touches *t = &r->of[root];
        if (r->uses.shared[root] || place_of(r, t->at[t->n - 1]) < late) return false;
    }
    return true;
}

/* The touch before which output 0, the only large one, should be computed again; 0: none. */
static size_t remade_at(const rematerialising *r, int32_t at)
{
    const dra_program *p = r->p;
    const dra_instr   *in = p->block[r->block].instr[at];
    if (!is_cheap(in) || in->out[0].storage < 0) return 0;
    const int32_t root = dra_root(p, in->out[0].storage);
    if (p->storage[root].bytes < LARGE || !is_plain(r, root)) return 0;
    if (r->of[root].at[0] != at) return 0; /* written by others, too */
    const size_t late = late_reader(r, root);
    return late && inputs_last(r, in, place_of(r, r->of[root].at[late])) ? late : 0;
}

/* ---- rematerialising ------------------------------------------------------------------------- */

/* A copy of the instruction for output 0 only. */
static dra_instr *copy_of(dra_program *p, int32_t block, const dra_instr *from)
{
    dra_instr *in = dra_instr_apart(p, block, from->op, from->n_in, from->n_out);
    if (!in) return NULL;
    const dra_storage s = {.kind = DRA_STORAGE_LOCAL,
                           .block = block,
                           .bytes = p->storage[dra_root(p, from->out[0].storage)].bytes};
    const int32_t     own = dra_storage_new(p, s);
    memcpy(in->in, from->in, (size_t)from->n_in * sizeof *in->in);
    memcpy(in->out, from->out, (size_t)from->n_out * sizeof *in->out);
    for (int i = 0; i < in->n_out; i++) in->out[i].storage = i == 0 ? own : -1;
    in->attr = from->attr;
    in->kernel = from->kernel;
    dra_add_scratch(p, block, in);
    return in;
}

static bool reserve_inserted(rematerialising *r)
{
    if (r->n_more < r->room) return true;
    const int32_t room = r->room ? 2 * r->room : 16;
    added        *more = realloc(r->more, (size_t)room * sizeof *more);
    if (!more) return false;
    r->more = more;
    r->room = room;
    return true;
}

/* Inserts directly before instruction `late`. Returns its number; -1: no memory. */
static int32_t insert_instruction(rematerialising *r, int32_t late, dra_instr *in)
{
    if (!reserve_inserted(r)) return -1;
    const bool    own = late < r->n;
    const int32_t id = r->n + r->n_more++, before = own ? late : r->more[late - r->n].before;
    int32_t      *link = &r->first[before];
    while (*link >= 0 && *link != late) link = &r->more[*link - r->n].next;
    r->more[id - r->n] = (added){in, before, *link};
    *link = id;
    count_at(r, before);
    return id;
}

/* Adds a touch of a storage in order. */
static bool add_touch(rematerialising *r, int32_t root, int32_t id)
{
    touches *t = &r->of[root];
    if (t->n >= t->room) {
        const size_t room = 2 * t->n + 4;
        int32_t     *at = malloc(room * sizeof *at);
        if (!at) return false;
        if (t->n) memcpy(at, t->at, t->n * sizeof *at);
        if (t->room) free(t->at);
        t->at = at;
        t->room = room;
    }
    size_t i = t->n++;
    for (; i > 0 && place_of(r, t->at[i - 1]) > place_of(r, id); i--) t->at[i] = t->at[i - 1];
    t->at[i] = id;
    return true;
}

static void redirect_input(dra_program *p, dra_instr *in, int32_t root, int32_t to)
{
    for (int i = 0; i < in->n_in; i++)
        if (dra_root(p, in->in[i].storage) == root) in->in[i].storage = to;
}

/* Computes instruction `at` again before touch `late` of its output, for this touch and later
 * ones. */
static void rematerialise_late(rematerialising *r, int32_t at, size_t late)
{
    dra_program     *p = r->p;
    const dra_instr *from = p->block[r->block].instr[at];
    const int32_t    root = dra_root(p, from->out[0].storage);
    dra_instr       *in = copy_of(p, r->block, from);
    const int32_t    id = in && !dra_program_failed(p)
                              ? insert_instruction(r, r->of[root].at[late], in)
                              : -1;
    bool             ok = id >= 0;
    for (int i = 0; ok && i < in->n_in; i++) ok = add_touch(r, dra_root(p, in->in[i].storage), id);
    if (!ok) {
        dra_no_memory(p);
        return;
    }
    for (size_t i = late; i < r->of[root].n; i++) {
        const int32_t reader = r->of[root].at[i];
        redirect_input(p,
                       reader < r->n ? p->block[r->block].instr[reader] : r->more[reader - r->n].in,
                       root, in->out[0].storage);
    }
    r->of[root].n = late;
}

/* All instructions in their order. */
static void insert_all(rematerialising *r)
{
    const size_t    n = (size_t)(r->n + r->n_more);
    dra_code_block *b = &r->p->block[r->block];
    dra_instr     **all = malloc((n + 1) * sizeof *all);
    if (!all) {
        dra_no_memory(r->p);
        return;
    }
    size_t k = 0;
    for (int32_t i = 0; i < r->n; i++) {
        for (int32_t id = r->first[i]; id >= 0; id = r->more[id - r->n].next)
            all[k++] = r->more[id - r->n].in;
        all[k++] = b->instr[i];
    }
    free(b->instr);
    b->instr = all;
    b->n = n;
    b->room = n + 1;
}

void dra_rematerialise(dra_program *p, int32_t block)
{
    rematerialising r = {.p = p, .block = block};
    if (!open_rematerialising(&r)) dra_no_memory(p);
    for (int32_t i = r.n; i-- > 0 && !dra_program_failed(p);) {
        const size_t late = remade_at(&r, i);
        if (late) rematerialise_late(&r, i, late);
    }
    if (r.n_more && !dra_program_failed(p)) insert_all(&r);
    close_rematerialising(&r);
}
