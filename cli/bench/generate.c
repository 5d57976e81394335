/* Whole models as they generate: one token of one sequence, bound by reading the weights, and a
 * prompt, bound by products. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

enum { READ = 500, ROWS = 1024 }; /* tokens read before, and the room for items */

static void declare_tokens(bench_work *w, int64_t T, int64_t V, double before)
{
    bench_value(w, bench_declared, "ids", DRA_I32, DRA_SHAPE(1, T), 0, (double)V);
    bench_integers(w, "tokens.pos", 1, T, before);
    bench_integers(w, "tokens.prev", 1, T, 0);
    bench_integers(w, "tokens.last", 1, 1, 0);
    bench_integers(w, "tokens.at.0", 1, T, before);
    bench_integers(w, "tokens.lo.0", 1, T, 0);
    bench_integers(w, "tokens.hi.0", 1, T, before + 1);
}

/* How parameter p is stored: matrices in a dtype; if laid out as in GPT-2's files, also transposed,
 * (in, out), with queries, keys and values side by side. Tables are never transposed. */
static dra_param_layout form_of(const dra_spec *p, dra_dtype dtype, bool as_in_files)
{
    static const char *const thirds[] = {".W_q", ".W_k", ".W_v"};
    const char              *end = strrchr(p->name, '.');
    dra_param_layout         f = {p->product ? dtype : DRA_REAL};
    if (!as_in_files || !p->product || !end) return f;
    f.transposed = true;
    for (int i = 0; i < 3; i++)
        if (strcmp(end, thirds[i]) == 0) {
            f.part = i;
            f.parts = 3;
        }
    return f;
}

/* Returns how many numbers products read; tables do not count, since a token reads one row. */
static double declare_params(bench_work *w, const dra_specs *params, const dra_param_layout *forms,
                             bool tied)
{
    double count = 0;
    size_t first = 0; /* 1 + number of the tensor with the first of three parts */
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        const double    most = p->fill == DRA_FILL_CONST ? 0 : p->number;
        const bool      table = strcmp(p->name, "positions") == 0 ||
                           (!tied && strcmp(p->name, "embedding") == 0);
        bench_value(w, bench_declared, p->name, forms[i].dtype,
                    dra_shape_of(w->graph, dra_find_input(w->graph, p->name)), p->number - 2 * most,
                    p->number);
        if (forms[i].parts && !forms[i].part) first = w->tensors;
        if (forms[i].part) w->tensor[w->tensors - 1].with = first;
        if (p->product && !table) count += (double)dra_shape_count(&p->shape);
    }
    return count;
}

static void declare_states(bench_work *w, const dra_specs *specs, const dra_value *in,
                           const dra_value *out)
{
    char name[200];
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        snprintf(name, sizeof name, "state.%s", p->name);
        bench_value(w, bench_declared, name, DRA_REAL, dra_shape_of(w->graph, in[i]), -1, 1);
        snprintf(name, sizeof name, "next.%s", p->name);
        dra_donate(w->graph, name, out[i], in[i]);
    }
}

enum { PARAMETERS = 512, STATES = 64 };

/* A preset reads T tokens: one after others, or many from the start, which see half of them on
 * average. Matrices are stored in a dtype, perhaps laid out as in GPT-2's files. */
static void read_tokens(bench_work *w, const char *preset, int64_t T, dra_dtype dtype,
                        bool as_in_files)
{
    dra_model_config *c = NULL;
    dra_model        *m = NULL;
    dra_param_layout  forms[PARAMETERS];
    dra_value         in[STATES], out[STATES];
    int64_t           rows[STATES];
    if (dra_preset_config(preset, &c, NULL) != DRA_OK) return;
    if (dra_model_create(c, &m, NULL) != DRA_OK) return;
    const dra_view         view = {.model = m, .logits = true, .keep = 1};
    const dra_module       module = dra_view_module(&view);
    const dra_module_shape shape = {.B = 1, .T = T, .fresh = T > 1, .rows = rows, .layouts = forms};
    const int              n = dra_specs_count(module.params), s = dra_specs_count(module.state);
    const double           before = T > 1 ? (double)T / 2 : READ;
    if (n <= PARAMETERS && s <= STATES) { /* else the graph has no outputs and is refused */
        for (int i = 0; i < n; i++)
            forms[i] = form_of(dra_specs_at(module.params, i), dtype, as_in_files);
        for (int i = 0; i < s; i++) rows[i] = ROWS;
        dra_module_graph(w->graph, &module, &shape, NULL, in, out);
        declare_tokens(w, T, c->vocab, before);
        const double count = declare_params(w, module.params, forms, c->tied != DRA_OFF);
        if (!shape.fresh) declare_states(w, module.state, in, out);
        const bool   keeps = dra_find_input(w->graph, "tokens.hi.0").id != 0; /* all tokens */
        const double head = (double)(c->vocab * c->dim),
                     items = keeps ? 2 * (double)(c->depth * c->dim) * before : 0;
        const double bytes = (double)bench_bytes(dtype, (size_t)count) + items * sizeof(dra_real);
        w->stream = (dra_bandwidth_config){.reads = 1, .bytes = (size_t)bytes};
        w->flops = (double)T * (2 * (count - head) + 2 * items) + 2 * head;
        w->units = (double)T;
        w->unit = "token";
    }
    dra_model_destroy(m);
}

static const dra_dtype stored[] = {DRA_REAL, DRA_BF16, DRA_F16, DRA_Q8_0, DRA_Q4_0};

void bench_read_gpt2(bench_work *w, const int64_t *size)
{
    if (size[3]) bench_precision(w, DRA_PRECISION_Q8);
    read_tokens(w, "gpt2", size[0], stored[size[1]], size[2] != 0);
}

void bench_read_rwkv(bench_work *w, const int64_t *size)
{
    if (size[3]) bench_precision(w, DRA_PRECISION_Q8);
    read_tokens(w, "rwkv4", size[0], stored[size[1]], false);
}
