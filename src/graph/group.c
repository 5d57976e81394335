/* Groups: consecutive instructions that do not depend on each other become one job of the device's
 * threads, which then wait for each other once instead of after each. This runs between fusing and
 * planning, so that planning, which counts in groups, knows what is computed at the same time.
 *
 * An instruction joins the group before it if no member writes what it touches or reads what it
 * writes. Only instructions with small results that take about as long as a wait: threads finish
 * large ones together anyway, and both would need memory. Regions stay alone. */
#include "graph/program.h"

#include <stdlib.h>

enum { MEMORY = 64 << 10 };        /* bytes that a member writes at most */
static const double longest = 4e6; /* a member, nanoseconds of one thread */

typedef struct grouping {
    dra_program *p;
    size_t      *read, *written; /* by root: the last group that read, or wrote, it, from 1 on */
    int32_t     *donor;          /* by root: the state that it becomes in the end, or -1 */
    size_t       made;           /* groups */
} grouping;

/* ---- what an instruction is worth ------------------------------------------------------------ */

/* A rough time on one thread: 50 GFLOP/s and 10 GB/s. Inputs have no data yet; outputs that are
 * read will have some. */
static double work_of(const dra_instr *in, dra_tensor *t)
{
    static char there;
    for (int i = 0; i < in->n_in; i++) t[i] = in->in[i].tensor;
    for (int i = 0; i < in->n_out; i++) {
        t[in->n_in + i] = in->out[i].tensor;
        t[in->n_in + i].data = in->out[i].storage >= 0 ? &there : NULL;
    }
    const dra_call c = {.attr = in->attr,
                        .in = t,
                        .out = t + in->n_in,
                        .n_in = in->n_in,
                        .n_out = in->n_out,
                        .scratch = &there};
    const dra_cost cost = in->op->cost ? in->op->cost(&c) : (dra_cost){.bytes = dra_call_bytes(&c)};
    return 0.02 * cost.flops + 0.1 * cost.bytes;
}

static void set_work(dra_program *p)
{
    dra_tensor *t = calloc(p->n_tensors + 1, sizeof *t);
    for (size_t b = 0; t && b < p->n_block; b++)
        for (size_t i = 0; i < p->block[b].n; i++)
            if (p->block[b].instr[i]->kernel)
                p->block[b].instr[i]->work = work_of(p->block[b].instr[i], t);
    if (!t) dra_no_memory(p);
    free(t);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static bool may_join(const dra_program *p, const dra_instr *in)
{
    size_t bytes = in->scratch >= 0 ? p->storage[in->scratch].bytes : 0;
    for (int i = 0; i < in->n_out && bytes <= MEMORY; i++)
        if (in->out[i].storage >= 0) bytes += p->storage[dra_root(p, in->out[i].storage)].bytes;
    return in->kernel && bytes <= MEMORY && in->work <= longest;
}

static bool was_seen(const grouping *g, const size_t *when, int32_t root)
{
    return root >= 0 && when[root] == g->made;
}

/* Writing the new value of a state counts as writing the state: next to a reader of the old value
 * it would need memory of its own, and a copy. */
static bool depends_on_group(const grouping *g, const dra_instr *in)
{
    for (int i = 0; i < in->n_in; i++)
        if (was_seen(g, g->written, dra_root(g->p, in->in[i].storage))) return true;
    for (int i = 0; i < in->n_out; i++) {
        const int32_t root = dra_root(g->p, in->out[i].storage);
        const int32_t state = root >= 0 ? g->donor[root] : -1;
        if (was_seen(g, g->written, root) || was_seen(g, g->read, root)) return true;
        if (was_seen(g, g->written, state) || was_seen(g, g->read, state)) return true;
    }
    return false;
}

static void note_instruction(grouping *g, const dra_instr *in)
{
    for (int i = 0; i < in->n_in; i++)
        if (in->in[i].storage >= 0) g->read[dra_root(g->p, in->in[i].storage)] = g->made;
    for (int i = 0; i < in->n_out; i++) {
        const int32_t root = dra_root(g->p, in->out[i].storage);
        if (root < 0) continue;
        g->written[root] = g->made;
        if (g->donor[root] >= 0) g->written[g->donor[root]] = g->made;
    }
}

static void group_block(grouping *g, const dra_code_block *b, bool join)
{
    int32_t group = -1;
    int     members = DRA_GROUP;
    for (size_t i = 0; i < b->n; i++, members++) {
        dra_instr *in = b->instr[i];
        const bool joins = join && i > 0 && members < DRA_GROUP && may_join(g->p, in) &&
                           may_join(g->p, b->instr[i - 1]) && !depends_on_group(g, in);
        if (!joins) group++, g->made++, members = 0;
        in->group = group;
        note_instruction(g, in);
    }
}

static bool grouping_open(grouping *g, dra_program *p)
{
    *g = (grouping){.p = p,
                    .read = calloc(p->n_storage + 1, sizeof *g->read),
                    .written = calloc(p->n_storage + 1, sizeof *g->written),
                    .donor = malloc((p->n_storage + 1) * sizeof *g->donor)};
    if (!g->read || !g->written || !g->donor) return false;
    for (size_t i = 0; i < p->n_storage; i++) g->donor[i] = -1;
    for (size_t i = 0; i < p->n_result; i++)
        if (p->result[i].donor >= 0)
            g->donor[dra_root(p, p->result[i].place.storage)] = p->result[i].donor;
    return true;
}

static void grouping_close(grouping *g)
{
    free(g->read);
    free(g->written);
    free(g->donor);
}

dra_status dra_make_groups(dra_program *p, bool join)
{
    grouping g;
    set_work(p);
    if (!grouping_open(&g, p)) dra_no_memory(p);
    for (size_t i = 0; i < p->n_block && !dra_program_failed(p); i++)
        group_block(&g, &p->block[i], join);
    grouping_close(&g);
    return p->error.code;
}
