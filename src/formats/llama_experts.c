/* Mixtures of experts among the Llama family: keys and tensors. Qwen's have a tensor for each
 * matrix (or two for all, which expert_tensors.c takes apart), Granite's two for all, and a
 * feed-forward that all tokens have. [transformers, models/qwen3_moe, models/qwen3_next,
 * models/qwen3_5_moe, models/granitemoehybrid] */
#include "formats/llama_experts.h"

#include "base/error.h"

static const char LOCAL[] = "num_local_experts", COUNT[] = "num_experts",
                  TOP[] = "num_experts_per_tok", INNER[] = "moe_intermediate_size",
                  DENSE[] = "mlp_only_layers", STEP[] = "decoder_sparse_step",
                  NORMALISE[] = "norm_topk_prob", SHARED[] = "shared_expert_intermediate_size",
                  GRANITE_INNER[] = "intermediate_size",
                  GRANITE_SHARED[] = "shared_intermediate_size";

static bool is_granite(const dra_llama *f) { return f->experts == DRA_EXPERTS_GRANITE; }

/* ---- config ---------------------------------------------------------------------------------- */

/* How many layers have experts. */
static int64_t count_sparse(dra_keys *k, const dra_model_config *c)
{
    const json_t *dense = json_object_get(k->object, DENSE);
    const int64_t every = dra_keys_int(k, STEP, NULL, 1);
    int64_t       n = 0;
    for (int64_t l = 0; l < c->depth; l++) {
        bool          is_dense = every > 0 && (l + 1) % every != 0;
        size_t        i;
        const json_t *v;
        json_array_foreach(dense, i, v) is_dense = is_dense || json_number_value(v) == (double)l;
        n += !is_dense;
    }
    return n;
}

static int64_t read_size(dra_keys *k, const char *key, int64_t fallback)
{
    const int64_t n = dra_keys_int(k, key, NULL, fallback);
    if (n < 1) dra_keys_refuse(k, key, "1 or more");
    return n;
}

static void read_qwen(dra_keys *k, const dra_llama *f, dra_model_config *c, dra_experts_config *e)
{
    c->ff.dim = read_size(k, INNER, f->moe_inner);
    e->normalise = f->normalise_key ? dra_keys_bool(k, NORMALISE, f->normalise) : true;
    if (!f->shared) return;
    e->shared = read_size(k, SHARED, f->shared);
    e->shared_gate = true;
}

/* The weights of its experts are a softmax over the chosen alone: as one over all, divided. */
static void read_granite(dra_keys *k, dra_model_config *c, dra_experts_config *e)
{
    c->ff.dim = read_size(k, GRANITE_INNER, 1024);
    e->normalise = true;
    e->shared = read_size(k, GRANITE_SHARED, 1024);
}

void dra_llama_read_experts(dra_keys *k, const dra_llama *f, dra_model_config *c)
{
    dra_experts_config e = {0};
    const char        *key = is_granite(f) || json_object_get(k->object, LOCAL) ? LOCAL : COUNT;
    if (!f->experts || k->status != DRA_OK) return;
    e.count = dra_keys_int(k, key, NULL, f->n_experts);
    if (e.count < 1) return;
    const int64_t sparse = is_granite(f) ? c->depth : count_sparse(k, c);
    if (!sparse) return;
    if (sparse < c->depth) {
        dra_keys_refuse(k, json_object_get(k->object, DENSE) ? DENSE : STEP,
                        "that all layers have experts, or none");
        return;
    }
    e.top = dra_keys_int(k, TOP, NULL, f->top);
    if (e.top < 1 || e.top > e.count) dra_keys_refuse(k, TOP, "1 up to the number of experts");
    if (is_granite(f))
        read_granite(k, c, &e);
    else
        read_qwen(k, f, c, &e);
    c->ff.experts = e;
}

static void put_int(dra_keys *k, const char *key, int64_t n)
{
    dra_keys_put(k, key, dra_json_int(&k->json, n));
}

/* No layer has experts, in whichever words. */
static void put_dense(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    dra_keys   before = {.place = k->place, .object = k->object};
    const bool none = dra_keys_int(&before, COUNT, NULL, f->n_experts) < 1 ||
                      !count_sparse(&before, c);
    if (none && before.status == DRA_OK) return;
    json_t *all = dra_json_array(&k->json);
    for (int64_t l = 0; l < c->depth; l++)
        dra_json_append(&k->json, all, dra_json_int(&k->json, l));
    dra_keys_put(k, DENSE, all);
}

static void put_sparse(dra_keys *k, const dra_model_config *c)
{
    dra_keys before = {.place = k->place, .object = k->object};
    if (count_sparse(&before, c) == c->depth) return;
    dra_keys_put(k, DENSE, dra_json_array(&k->json));
    put_int(k, STEP, 1);
}

void dra_llama_write_experts(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    const dra_experts_config *e = &c->ff.experts;
    if (!f->experts) return;
    if (is_granite(f)) {
        put_int(k, LOCAL, e->count);
        put_int(k, GRANITE_SHARED, e->count ? e->shared : c->ff.dim);
        if (e->count) put_int(k, GRANITE_INNER, c->ff.dim);
        if (e->count) put_int(k, TOP, e->top);
        return;
    }
    if (!e->count) {
        put_int(k, GRANITE_INNER, c->ff.dim);
        put_dense(k, f, c);
        return;
    }
    put_int(k, json_object_get(k->object, LOCAL) ? LOCAL : COUNT, e->count);
    put_int(k, TOP, e->top);
    put_int(k, INNER, c->ff.dim);
    if (f->normalise_key) dra_keys_put(k, NORMALISE, dra_json_bool(e->normalise));
    if (f->shared) put_int(k, SHARED, e->shared);
    put_sparse(k, c);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void add_qwen(dra_rule_list *a)
{
    static const char *const rules[][2] = {
        {"layers.*.ff.W_router", "layers.*.mlp.gate.weight"},
        {"layers.*.ff.W_up", "layers.*.mlp.experts.#.up_proj.weight"},
        {"layers.*.ff.W_gate", "layers.*.mlp.experts.#.gate_proj.weight"},
        {"layers.*.ff.W_down", "layers.*.mlp.experts.#.down_proj.weight"},
        {"layers.*.ff.W_shared_up", "layers.*.mlp.shared_expert.up_proj.weight"},
        {"layers.*.ff.W_shared_gate", "layers.*.mlp.shared_expert.gate_proj.weight"},
        {"layers.*.ff.W_shared_down", "layers.*.mlp.shared_expert.down_proj.weight"},
        {"layers.*.ff.W_share", "layers.*.mlp.shared_expert_gate.weight"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        dra_rules_add(a, rules[i][0], rules[i][1]);
}

static void add_granite(const dra_model_config *c, dra_rule_list *a)
{
    static const char *const        halves[] = {"layers.*.ff.W_gate", "layers.*.ff.W_up"},
                             *const shared[] = {"layers.*.ff.W_shared_gate",
                                                "layers.*.ff.W_shared_up"};
    const dra_experts_config       *e = &c->ff.experts;
    const int64_t inner[] = {c->ff.dim, c->ff.dim}, all[] = {e->shared, e->shared};
    const int     first = a->n;
    dra_rules_add_parts(a, "layers.*.block_sparse_moe.input_linear.weight", 2, halves, inner,
                        e->count, 0);
    for (int i = first; i < a->n; i++) a->row[i].shape = DRA_SHAPE(e->count, 2 * c->ff.dim, c->dim);
    dra_rules_add(a, "layers.*.ff.W_down", "layers.*.block_sparse_moe.output_linear.weight")
        ->shape = DRA_SHAPE(e->count, c->dim, c->ff.dim);
    dra_rules_add(a, "layers.*.ff.W_router", "layers.*.block_sparse_moe.router.layer.weight");
    dra_rules_add_parts(a, "layers.*.shared_mlp.input_linear.weight", 2, shared, all, 1, 0);
    dra_rules_add(a, "layers.*.ff.W_shared_down", "layers.*.shared_mlp.output_linear.weight");
}

void dra_llama_expert_rules(const dra_model_config *c, const dra_llama *f, dra_rule_list *a)
{
    if (!c->ff.experts.count) return;
    if (is_granite(f))
        add_granite(c, a);
    else
        add_qwen(a);
}
