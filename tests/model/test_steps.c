/* How many instructions a token takes, and how often threads wait for each other: what a reader
 * compiles for B = 1, T = 1. No weights are
 * needed, so models have the shapes they are known for. */
#include "check.h"
#include "graph/program.h"
#include "sequence/module.h"

#include <stdio.h>
#include <stdlib.h>

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* The graph of dra_reader_read() for one token. */
static dra_graph *token(const dra_module *m)
{
    const int  n = dra_specs_count(m->state);
    dra_graph *g = check_graph();
    dra_value *state = calloc(2 * (size_t)n + 1, sizeof *state);
    int64_t   *rows = calloc((size_t)n + 1, sizeof *rows);
    char       name[200];
    for (int i = 0; i < n; i++) rows[i] = dra_capacity(1);
    dra_module_graph(g, m, &(dra_module_shape){.B = 1, .T = 1, .rows = rows, .clamp = true}, NULL,
                     state, state + n);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "next.%s", dra_specs_at(m->state, i)->name);
        dra_donate(g, name, state[n + i], state[i]);
    }
    dra_module_count_clamped(g, "clamped.sum");
    free(state);
    free(rows);
    return g;
}

/* Those of bodies of regions as well; *groups: what runs at the same time counts once. */
static size_t steps(const char *preset, int threads, size_t *groups)
{
    CHECK_CONFIG(c);
    dra_model   *model = NULL;
    dra_program *p = NULL;
    dra_error    err = {0};
    size_t       n = 0;
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    expect_ok(dra_model_create(c, &model, &err), &err);
    const dra_view   view = {.model = model, .logits = true, .keep = 1};
    const dra_module module = dra_view_module(&view);
    dra_graph       *g = token(&module);
    expect_ok(dra_compile(g, check_device(threads, "ref"), &p, &err), &err);
    assert_int_equal(dra_program_memory(p).steps, p->block[DRA_BLOCK_STEP].n);
    *groups = 0;
    for (size_t b = DRA_BLOCK_STEP; b < p->n_block; b++) {
        const dra_code_block *k = &p->block[b];
        n += k->n;
        *groups += k->n ? (size_t)k->instr[k->n - 1]->group + 1 : 0;
    }
    dra_program_destroy(p);
    dra_graph_destroy(g);
    dra_model_destroy(model);
    return n;
}

static void a_token_takes_few_instructions(void **state)
{
    static const struct {
        const char *preset;
        size_t      most; /* 639, 173 and 122 before anything was fused */
    } bars[] = {{"rwkv4", 260}, {"gpt2", 120}, {"dra-delta-tiny", 70}};
    for (size_t i = 0; i < COUNT(bars); i++) {
        size_t       groups;
        const size_t n = steps(bars[i].preset, 1, &groups);
        print_message("%s: %zu instructions\n", bars[i].preset, n);
        assert_in_range(n, 1, bars[i].most);
        assert_int_equal(groups, n); /* one thread waits for nobody */
    }
}

static void threads_wait_less_often(void **state)
{
    static const struct {
        const char *preset;
        size_t      most;
    } bars[] = {{"rwkv4", 130}, {"gpt2", 102}};
    for (size_t i = 0; i < COUNT(bars) && !check_cuda(); i++) {
        size_t       groups;
        const size_t n = steps(bars[i].preset, 16, &groups);
        print_message("%s: %zu instructions in %zu groups\n", bars[i].preset, n, groups);
        /* What doubles write is twice as large, and more of it is too large for a group. */
        assert_in_range(groups, 1, sizeof(dra_real) == sizeof(float) ? bars[i].most : n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_takes_few_instructions),
                                       cmocka_unit_test(threads_wait_less_often)};
    return check_main("steps", NULL, 0, tests, COUNT(tests));
}
