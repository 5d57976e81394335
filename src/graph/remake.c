/* Remaking, between lowering and fusing: a large value that is cheap to compute and read both early
 * and late, such as the output of a norm or an activation in a training step, is not kept from one
 * to the other but computed a second time, from values that are there anyway. The numbers are the
 * same, the memory is less.
 *
 * Instructions are looked at from the last to the first: whatever reads a value has then decided
 * when it does. */
#include "graph/fuse.h"

#include <string.h>

enum { LARGE = 1 << 18 }; /* bytes; less than that is not worth an instruction */
enum { FAR = 12 };        /* instructions between two readers; nearer ones gain nothing */

static bool is_cheap(const dra_instr *in)
{
    return in && in->kernel && in->op->flags & (DRA_OP_POINTWISE | DRA_OP_CHEAP);
}

/* ---- what can be remade ---------------------------------------------------------------------- */

static bool is_plain(const dra_program *p, const dra_uses *u, int32_t root, int32_t block)
{
    const dra_storage *s = &p->storage[root];
    return !u->shared[root] && s->kind == DRA_STORAGE_LOCAL && s->block == block;
}

/* The first instruction after the longest pause between two readers; -1: there is none so long. */
static int32_t late_reader(const dra_uses *u, int32_t root)
{
    int32_t late = -1, longest = FAR;
    for (size_t i = u->first[root] + 1; i + 1 < u->first[root + 1]; i++) {
        const int32_t pause = u->at[i + 1] - u->at[i];
        if (pause > longest) longest = pause, late = u->at[i + 1];
    }
    return late;
}

/* Is what an instruction reads still there, and as it was, when `late` runs? */
static bool inputs_last(const dra_program *p, const dra_uses *u, const dra_instr *in, int32_t block,
                        int32_t late)
{
    for (int i = 0; i < in->n_in; i++) {
        const int32_t      root = dra_root(p, in->in[i].storage);
        const dra_storage *s = &p->storage[root];
        if (s->donor || s->kind == DRA_STORAGE_MOVING) return false;
        if (s->kind == DRA_STORAGE_BOUND || s->block != block || s->bytes < LARGE / 16) continue;
        if (u->shared[root] || u->at[u->first[root + 1] - 1] < late) return false;
    }
    return true;
}

/* Where output 0, the only large one, is to be computed again; -1: nowhere. */
static int32_t remade_at(const dra_program *p, const dra_uses *u, int32_t block, int32_t at)
{
    const dra_instr *in = p->block[block].instr[at];
    if (!is_cheap(in) || in->out[0].storage < 0) return -1;
    const int32_t root = dra_root(p, in->out[0].storage);
    if (p->storage[root].bytes < LARGE || !is_plain(p, u, root, block)) return -1;
    if (u->at[u->first[root]] != at) return -1; /* written by others, too */
    const int32_t late = late_reader(u, root);
    return late >= 0 && inputs_last(p, u, in, block, late) ? late : -1;
}

/* ---- remaking -------------------------------------------------------------------------------- */

/* The same instruction, of which only output 0 is wanted. */
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

static void redirect(dra_program *p, dra_instr *in, int32_t root, int32_t to)
{
    for (int i = 0; i < in->n_in; i++)
        if (dra_root(p, in->in[i].storage) == root) in->in[i].storage = to;
}

/* Instruction `at` once more before instruction `late`, for that and all that come after it. */
static bool remake(dra_program *p, int32_t block, int32_t at, int32_t late)
{
    const dra_instr *from = p->block[block].instr[at];
    dra_instr       *in = copy_of(p, block, from);
    if (!in || dra_program_failed(p) || !dra_instr_insert(p, block, late, in)) return false;
    const dra_code_block *b = &p->block[block];
    for (size_t i = (size_t)late + 1; i < b->n; i++)
        redirect(p, b->instr[i], dra_root(p, from->out[0].storage), in->out[0].storage);
    return true;
}

void dra_remake(dra_program *p, int32_t block)
{
    dra_uses u = {0};
    if (!dra_uses_open(&u, p, block)) dra_no_memory(p);
    for (size_t i = p->block[block].n; i-- > 0 && !dra_program_failed(p);) {
        const int32_t late = remade_at(p, &u, block, (int32_t)i);
        if (late < 0 || !remake(p, block, (int32_t)i, late)) continue;
        dra_uses_close(&u);
        u = (dra_uses){0};
        if (!dra_uses_open(&u, p, block)) dra_no_memory(p);
    }
    dra_uses_close(&u);
}
