/* A memory of your own in a model, trained and compared with another one by a probe.
 *   hebb: S' = g S + k v^T, y = q^T S' (k, q of length 1), g = sigmoid(beta) for each head.
 * It adds every pair of key and value to what is there. delta first takes away what the key already
 * recalls, so it should need fewer steps for the task: recall, the values of keys that were read.
 * DRA_EXAMPLE_FAST=1 trains a few steps only, to see that it works. */
#include <dra/dra.h>
#include <stdio.h>
#include <stdlib.h>

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    dra_gamma_declare(s, prefix, "beta", 0, s->E, params);
    dra_specs_add(state, prefix, &(dra_spec){.name = "S", .shape = DRA_SHAPE(s->H, s->D, s->E)});
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const int64_t   H = c->sizes->H, D = c->sizes->D, E = c->sizes->E;
    const dra_value gamma = dra_sigmoid(g, dra_reshape(g, c->param[0], DRA_SHAPE(H, 1, 1)));
    const dra_value k = dra_reshape(g, dra_unit(g, c->x[0], 1e-12), DRA_SHAPE(-1, H, D, 1));
    const dra_value v = dra_reshape(g, c->x[1], DRA_SHAPE(-1, H, 1, E));
    r->state[0] = dra_add(g, dra_mul(g, gamma, c->state[0]), dra_mul(g, k, v));
    /* A token that is skipped reads the old state. */
    const dra_value S = dra_memory_keep(g, c, c->state[0], r->state[0]);
    const dra_value q = dra_reshape(g, dra_unit(g, c->q, 1e-12), DRA_SHAPE(-1, H, 1, D));
    r->item[1] = dra_reshape(g, dra_matmul(g, q, S), DRA_SHAPE(-1, H, E));
}

static const char *const retrievals[] = {"formula", NULL};
static const dra_memory  hebb = {
     .name = "hebb", .retrievals = retrievals, .declare = declare, .step = step};

static dra_error err;

static void must(dra_status status) /* a program may stop at the first error */
{
    if (status == DRA_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

static bool show_test(void *name, const dra_probe_result *r)
{
    if (r->tested)
        printf("%-6s step %4lld  loss %.3f  %3.0f %% right\n", (const char *)name,
               (long long)r->step, r->test_loss, 100 * r->accuracy);
    return true;
}

/* The step at which 95 % of the answers are right; 0: never. */
static int64_t learn(const dra_memory_config *memory, char *name, dra_device *cpu)
{
    const bool             fast = getenv("DRA_EXAMPLE_FAST") != NULL;
    const dra_train_config train = {
        .steps = fast ? 4 : 300, .batch = 32, .lr = 0.003, .seed = 1, .eval_every = fast ? 4 : 30};
    dra_probe        probe = {.task = "recall", .pairs = 8, .length = 32};
    dra_probe_result end;
    dra_model       *model;
    dra_weights     *weights;
    must(dra_probe_complete(&probe, &err));
    const dra_model_config config = {
        .vocab = probe.vocab,
        .dim = 64,
        .depth = 2,
        .heads = 2,
        .mixer = &(dra_mixer_config){.a = *memory, .shift = DRA_SHIFT_HALF}};
    must(dra_model_create(&config, &model, &err));
    must(dra_weights_draw(model, 1, &weights, &err));
    const dra_probe_config c = {&probe, &train, cpu, model, weights, .until = 0.95};
    must(dra_probe_run(&c, show_test, name, &end, &err));
    dra_weights_destroy(weights), dra_model_destroy(model);
    return end.reached ? end.step : 0;
}

int main(void)
{
    dra_device *cpu;
    must(dra_device_create_cpu(NULL, &cpu, &err));
    const int64_t own = learn(&(dra_memory_config){.own = &hebb}, "hebb", cpu);
    const int64_t delta = learn(&(dra_memory_config){.memory = "delta"}, "delta", cpu);
    printf("steps to 95 %%: hebb %lld, delta %lld (0: never)\n", (long long)own, (long long)delta);
    dra_device_destroy(cpu);
    return 0;
}
