/* bf16 propagation, one of the last passes over a block: values that all readers round to bf16,
 * such as factors of products in bf16, are stored in bf16, which halves their memory and rounds
 * them only once. If other readers need full precision, there are both, with one cast for all
 * readers that round. The numbers of all results stay the same. The pass goes from the last
 * instruction to the first, since a copy rounds if its readers do. Kernels say what they round and
 * what they can store in bf16 (device/kernel.h); on a device whose kernels say nothing, such as
 * the CPU, nothing changes. Two kinds of readers take rounded numbers without rounding them: the
 * sum over rows that is the gradient of a bias, where others round; pointwise functions, where a
 * product rounds. */
#include "graph/fuse.h"

#include <stdlib.h>
#include <string.h>

#include "graph/pointwise.h"

enum { LARGE = 1 << 16 };  /* bytes; less is not worth it */
enum { LINE = 64 };        /* alignment of places in bytes; kernels need half of it */
enum { WORTH = 2 };        /* how much readers must gain to pay for a cast */
enum { MOST_INPUTS = 32 }; /* that have a bit */

typedef struct narrowing {
    dra_program *p;
    int32_t      block;
    dra_uses     uses;
    size_t       n;      /* instructions of the block */
    uint32_t    *rounds; /* by instruction: bits of its inputs */
    uint32_t    *accepts, *widens;
    dra_instr  **cast;  /* those to be inserted, the last one first */
    int32_t     *after; /* which instruction each */
    size_t       casts;
} narrowing;

typedef struct readers { /* of a storage */
    int rounding, gain, others;
} readers;

/* ---- what kernels say ------------------------------------------------------------------------ */

static void ask_rounds(const dra_kernel *k, const dra_call *c, void *answer)
{
    *(uint32_t *)answer = k->rounds(c);
}

static void ask_accepts(const dra_kernel *k, const dra_call *c, void *answer)
{
    *(uint32_t *)answer = k->accepts(c);
}

static void ask_widens(const dra_kernel *k, const dra_call *c, void *answer)
{
    *(uint32_t *)answer = k->widens(c);
}

static void ask_narrows(const dra_kernel *k, const dra_call *c, void *answer)
{
    *(uint32_t *)answer = k->narrows(c);
}

static bool can_narrow(const narrowing *w, const dra_instr *in, int out)
{
    uint32_t bits = 0;
    if (!in->kernel->narrows || out >= MOST_INPUTS) return false;
    return dra_ask_kernel(w->p, in, ask_narrows, &bits) && bits >> out & 1;
}

static dra_instr *instr_at(const narrowing *w, int32_t at)
{
    return w->p->block[w->block].instr[at];
}

static void ask_what_it_rounds(narrowing *w, int32_t at)
{
    const dra_instr *in = instr_at(w, at);
    if (in->kernel && in->kernel->rounds) dra_ask_kernel(w->p, in, ask_rounds, &w->rounds[at]);
    if (in->kernel && in->kernel->accepts) dra_ask_kernel(w->p, in, ask_accepts, &w->accepts[at]);
    if (in->kernel && in->kernel->widens) dra_ask_kernel(w->p, in, ask_widens, &w->widens[at]);
}

static bool has_input_bit(const narrowing *w, int32_t at, int i, const uint32_t *bits)
{
    const dra_instr *in = instr_at(w, at);
    return i < MOST_INPUTS && bits[at] >> i & 1 && in->in[i].offset % LINE == 0;
}

static bool rounds_input(const narrowing *w, int32_t at, int i)
{
    return has_input_bit(w, at, i, w->rounds);
}

/* Without rounding it; `product`: it is the result of one. */
static bool takes_input(const narrowing *w, int32_t at, int i, bool product)
{
    return has_input_bit(w, at, i, w->accepts) || (product && has_input_bit(w, at, i, w->widens));
}

/* ---- what can be narrow ---------------------------------------------------------------------- */

/* Whether this output may be stored in bf16, and is large enough for that to pay. */
static bool may_be_narrow(const narrowing *w, const dra_place *out)
{
    const dra_program *p = w->p;
    return out->tensor.dtype == DRA_F32 && dra_is_own(p, &w->uses, w->block, out) &&
           p->storage[dra_root(p, out->storage)].bytes >= LARGE;
}

static bool writes_storage(const dra_program *p, const dra_instr *in, int32_t root)
{
    for (int i = 0; i < in->n_out; i++)
        if (dra_root(p, in->out[i].storage) == root) return true;
    return false;
}

static bool is_product(const narrowing *w, int32_t at)
{
    const dra_instr *in = instr_at(w, at);
    return in->kernel && in->kernel->product;
}

/* False: somebody else writes there, or nobody gains. */
static bool count_readers(const narrowing *w, int32_t root, int32_t maker, readers *r)
{
    const dra_uses *u = &w->uses;
    const bool      product = is_product(w, maker);
    *r = (readers){0};
    for (size_t k = u->first[root]; k < u->end[root]; k++) {
        const int32_t    at = u->at[k];
        const dra_instr *in = instr_at(w, at);
        if (at == maker || (k > u->first[root] && u->at[k - 1] == at)) continue;
        if (!in->kernel || writes_storage(w->p, in, root)) return false;
        for (int i = 0; i < in->n_in; i++) {
            if (dra_root(w->p, in->in[i].storage) != root) continue;
            const bool rounding = rounds_input(w, at, i);
            r->rounding += rounding;
            r->others += !rounding && !takes_input(w, at, i, product);
            r->gain += rounding ? (in->kernel->packs ? 1 : WORTH) : 0;
        }
    }
    return r->rounding > 0 || (product && !r->others);
}

/* ---- narrowing ------------------------------------------------------------------------------- */

static void make_narrow(dra_place *x, int32_t storage)
{
    x->storage = storage;
    x->tensor.dtype = DRA_BF16;
    x->offset /= 2;
}

/* Makes the readers that round, or take it without, read `storage`, in bf16. */
static void redirect_readers(const narrowing *w, int32_t root, int32_t storage, bool product)
{
    const dra_uses *u = &w->uses;
    for (size_t k = u->first[root]; k < u->end[root]; k++) {
        dra_instr *in = instr_at(w, u->at[k]);
        bool       changed = false;
        for (int i = 0; i < in->n_in; i++) {
            if (dra_root(w->p, in->in[i].storage) != root || in->in[i].tensor.dtype != DRA_F32 ||
                !(rounds_input(w, u->at[k], i) || takes_input(w, u->at[k], i, product)))
                continue;
            make_narrow(&in->in[i], storage);
            changed = true;
        }
        if (changed) dra_add_scratch(w->p, w->block, in);
    }
}

/* A copy then rounds its input. */
static void narrow_output(narrowing *w, int32_t at, dra_place *out, int32_t root)
{
    dra_instr *in = instr_at(w, at);
    w->p->storage[root].bytes /= 2;
    make_narrow(out, root);
    redirect_readers(w, root, root, is_product(w, at));
    dra_add_scratch(w->p, w->block, in);
    ask_what_it_rounds(w, at);
}

/* Inserts one cast right after the instruction that computes the value; its kernel takes the dtype
 * from its output. */
static void add_cast(narrowing *w, int32_t maker, const dra_place *out, int32_t root)
{
    dra_program   *p = w->p;
    const dra_type t = {DRA_BF16, out->tensor.shape};
    dra_instr     *in = dra_instr_apart(p, w->block, &dra_op_cast, 1, 1);
    if (!in) return;
    in->in[0] = *out;
    in->out[0] = dra_local_place(p, w->block, &t);
    if (dra_program_failed(p)) return;
    dra_set_kernel(p, in, dra_find_kernel(p, &dra_op_cast));
    redirect_readers(w, root, in->out[0].storage, false);
    w->cast[w->casts] = in;
    w->after[w->casts++] = maker;
}

/* ---- a second output of a program ------------------------------------------------------------ */

/* The program that ends the instruction's attribute, see DRA_OP_PROGRAM. */
static size_t program_at(const dra_op *op) { return op->attr_size - sizeof(dra_pointwise_attr); }

/* The step that makes output o. */
static int16_t step_of(const dra_pointwise_attr *a, int o)
{
    int k = 0;
    while (k < a->steps && a->step[k].output != o) k++;
    return (int16_t)k;
}

static const void *attr_with_step(dra_program *p, const dra_instr *in, int o)
{
    const size_t         at = program_at(in->op);
    unsigned char       *attr = dra_arena_alloc(&p->arena, in->op->attr_size);
    const unsigned char *old = in->attr;
    dra_pointwise_attr   a;
    if (!attr) return NULL;
    memcpy(&a, old + at, dra_pointwise_bytes((const dra_pointwise_attr *)(old + at)));
    a.step[a.steps] = (dra_pointwise_step){.function = DRA_FUNCTION_AFFINE,
                                           .dtype = DRA_F32,
                                           .x = {(int16_t)(a.inputs + step_of(&a, o))},
                                           .output = (int16_t)in->n_out,
                                           .a = 1};
    a.steps++;
    memcpy(attr, old, at);
    memcpy(attr + at, &a, dra_pointwise_bytes(&a));
    return attr;
}

static bool has_room(const dra_instr *in, int o)
{
    if (in->kernel->repeats) return o == 0;
    if (!(in->op->flags & DRA_OP_PROGRAM) || in->n_out == DRA_POINTWISE_OUTPUTS) return false;
    const unsigned char *attr = in->attr;
    return ((const dra_pointwise_attr *)(attr + program_at(in->op)))->steps < DRA_POINTWISE_STEPS;
}

/* Stores a second output in bf16: the kernel has the value in registers, a cast would read it
 * again. */
static void add_output(narrowing *w, dra_instr *in, int o, int32_t root)
{
    dra_program   *p = w->p;
    const dra_type t = {DRA_BF16, in->out[o].tensor.shape};
    dra_place     *out = dra_arena_alloc(&p->arena, (size_t)(in->n_out + 1) * sizeof *out);
    const void    *attr = in->kernel->repeats ? in->attr : attr_with_step(p, in, o);
    if (!out || !attr) {
        dra_no_memory(p);
        return;
    }
    memcpy(out, in->out, (size_t)in->n_out * sizeof *out);
    out[in->n_out] = dra_local_place(p, w->block, &t);
    in->attr = attr;
    in->out = out;
    in->n_out++;
    in->tensors = p->n_tensors;
    p->n_tensors += (size_t)(in->n_in + in->n_out);
    if (!dra_program_failed(p)) redirect_readers(w, root, out[in->n_out - 1].storage, false);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static void narrow_instr(narrowing *w, int32_t at)
{
    dra_instr *in = instr_at(w, at);
    const int  outputs = in->n_out; /* without those that are added */
    for (int o = 0; o < outputs && in->kernel; o++) {
        dra_place *out = &in->out[o];
        readers    r;
        if (dra_program_failed(w->p) || !may_be_narrow(w, out)) continue;
        const int32_t root = dra_root(w->p, out->storage);
        if (!count_readers(w, root, at, &r)) continue;
        if (!r.others && can_narrow(w, in, o))
            narrow_output(w, at, out, root);
        else if (r.gain >= WORTH && has_room(in, o))
            add_output(w, in, o, root);
        else if (r.gain >= WORTH)
            add_cast(w, at, out, root);
    }
}

/* ---- a block --------------------------------------------------------------------------------- */

/* False: no memory, or nothing is rounded. */
static bool narrowing_open(narrowing *w)
{
    size_t outputs = 0;
    bool   any = false;
    w->rounds = calloc(w->n + 1, sizeof *w->rounds);
    w->accepts = calloc(w->n + 1, sizeof *w->accepts);
    w->widens = calloc(w->n + 1, sizeof *w->widens);
    const bool made = w->rounds && w->accepts && w->widens;
    for (size_t i = 0; i < w->n && made; i++) {
        ask_what_it_rounds(w, (int32_t)i);
        any = any || w->rounds[i];
        outputs += (size_t)instr_at(w, (int32_t)i)->n_out;
    }
    if (made && !any) return false;
    w->cast = calloc(outputs + 1, sizeof(dra_instr *));
    w->after = calloc(outputs + 1, sizeof *w->after);
    if (made && w->cast && w->after && dra_uses_open(&w->uses, w->p, w->block)) return true;
    dra_no_memory(w->p);
    return false;
}

static void narrowing_close(narrowing *w)
{
    dra_uses_close(&w->uses);
    free(w->rounds);
    free(w->accepts);
    free(w->widens);
    free(w->cast);
    free(w->after);
}

static void insert_casts(narrowing *w)
{
    dra_code_block *b = &w->p->block[w->block];
    dra_instr     **all = malloc((w->n + w->casts + 1) * sizeof(dra_instr *));
    size_t          n = 0;
    if (!all) {
        dra_no_memory(w->p);
        return;
    }
    for (size_t i = 0, k = w->casts; i < w->n; i++) {
        all[n++] = b->instr[i];
        for (; k > 0 && w->after[k - 1] == (int32_t)i; k--) all[n++] = w->cast[k - 1];
    }
    free(b->instr);
    b->instr = all;
    b->n = n;
    b->room = w->n + w->casts + 1;
}

void dra_narrow(dra_program *p, int32_t block)
{
    narrowing w = {.p = p, .block = block, .n = p->block[block].n};
    if (narrowing_open(&w))
        for (size_t i = w.n; i-- > 0 && !dra_program_failed(p);) narrow_instr(&w, (int32_t)i);
    if (w.casts && !dra_program_failed(p)) insert_casts(&w);
    narrowing_close(&w);
}
