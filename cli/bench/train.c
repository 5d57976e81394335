/* Training steps of tiny presets, without the optimizer, which is the same for all of them. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

/* Rows that start fresh; a query sees half of the tokens, the average. */
static void declare_tokens(bench_work *w, int64_t B, int64_t T)
{
    bench_integers(w, "tokens.pos", B, T, 0);
    bench_integers(w, "tokens.prev", B, T, 1);
    bench_integers(w, "tokens.last", B, 1, 1);
    bench_integers(w, "tokens.at.0", B, T, 0);
    bench_integers(w, "tokens.lo.0", B, T, 0);
    bench_integers(w, "tokens.hi.0", B, T, (double)(T / 2));
}

static void build_view(dra_graph *g, const void *self, const dra_module_call *call,
                       dra_value *state_out)
{
    const dra_shape        each = DRA_SHAPE(call->tokens.B, call->tokens.T);
    const dra_value        ids = dra_input(g, "ids", DRA_I32, each);
    const dra_value        targets = dra_input(g, "targets", DRA_I32, each);
    const dra_model_result r = dra_model_build(g, self, call, ids, false, state_out);
    dra_output(g, "loss", dra_linear_cross_entropy(g, r.hidden, r.head, targets, NULL));
}

/* Builds the loss of a preset on B rows of T tokens and the gradients of all parameters. */
static void build_microbatch(bench_work *w, const char *preset, int64_t B, int64_t T)
{
    dra_model_config *c = NULL;
    dra_model        *m = NULL;
    char              name[80];
    if (dra_preset_config(preset, &c, NULL) != DRA_OK) return;
    c->context = T;
    if (dra_model_create(c, &m, NULL) != DRA_OK) return;
    const dra_specs       *params = dra_model_params(m);
    const dra_module       module = {params, dra_model_state(m), build_view, m};
    const dra_module_shape shape = {.B = B, .T = T, .fresh = true};
    const int              n = dra_specs_count(params);
    dra_value             *p = calloc(2 * (size_t)n + 1, sizeof *p);
    if (p) { /* else a graph without outputs, which is refused */
        dra_module_graph(w->graph, &module, &shape, p, NULL, NULL);
        const dra_value loss = dra_find_output(w->graph, "loss");
        dra_gradient(w->graph, 1, &loss, NULL, n, p, p + n);
        declare_tokens(w, B, T);
        bench_value(w, bench_declared, "ids", DRA_I32, DRA_SHAPE(B, T), 0, (double)c->vocab);
        bench_value(w, bench_declared, "targets", DRA_I32, DRA_SHAPE(B, T), 0, (double)c->vocab);
        for (int i = 0; i < n; i++) {
            const dra_spec *s = dra_specs_at(params, i);
            const double    most = s->fill == DRA_FILL_CONST ? 0 : 0.05;
            bench_value(w, bench_declared, s->name, DRA_REAL, s->shape,
                        s->number * (most == 0) - most, s->number * (most == 0) + most);
            snprintf(name, sizeof name, "d%.70s", s->name);
            dra_output(w->graph, name, p[n + i]);
        }
        w->units = (double)(B * T);
        w->unit = "token";
    }
    free(p);
    dra_model_destroy(m);
}

void bench_train(bench_work *w, const int64_t *size)
{
    static const char *const presets[] = {"dra-gru-tiny",   "dra-ema-tiny", "dra-moment-tiny",
                                          "dra-slots-tiny", "rwkv4-tiny",   "rwkv7-tiny"};
    build_microbatch(w, presets[size[0]], size[1], size[2]);
}

void bench_train_rwkv4(bench_work *w, const int64_t *size)
{
    build_microbatch(w, "rwkv4-tiny", size[1], size[2]);
}

void bench_train_softmax(bench_work *w, const int64_t *size)
{
    build_microbatch(w, "gpt2-tiny", size[1], size[2]);
}
