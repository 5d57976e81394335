/* Which tensor gets how many bits where a model is written in Q4_K, Q5_K or Q6_K: llama.cpp's mixes
 * Q4_K_M, Q5_K_M and Q6_K. More for the head, for values, and for W_down of the first and last
 * eighth of the layers and every third between. [ggml-org/llama.cpp, src/llama-quant.cpp] */
#include "formats/convert.h"

#include <stdlib.h>
#include <string.h>

static bool is_named(const char *name, const char *end)
{
    const char *dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, end) == 0;
}

static bool gets_more(int64_t i, int64_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

static const dra_spec *spec_of(const dra_conversion *c, const dra_file_tensor *t)
{
    return dra_specs_at(dra_model_params(c->target), t->param[0]);
}

/* Values in a tensor of their own. */
static bool is_values(const dra_conversion *c, const dra_file_tensor *t)
{
    return is_named(spec_of(c, t)->name, "W_v") && !(t->rule && t->rule->parts);
}

static bool is_joint(const dra_conversion *c, const dra_file_tensor *t)
{
    return is_named(spec_of(c, t)->name, "W_q") && t->rule && t->rule->parts == 3;
}

/* Which of all tensors of values t is. *n: how many there are. */
static int64_t number_of_values(const dra_conversion *c, const dra_file_tensor *t, int64_t *n)
{
    int64_t at = 0;
    *n = 0;
    for (int i = 0; i < c->n; i++) {
        if (!is_values(c, &c->list[i])) continue;
        if (&c->list[i] == t) at = *n;
        ++*n;
    }
    return at;
}

static int64_t layer_of(const char *name)
{
    static const char start[] = "layers.";
    const size_t      n = sizeof start - 1;
    return strncmp(name, start, n) == 0 ? strtoll(name + n, NULL, 10) : 0;
}

/* As if every row were whole blocks. */
static dra_dtype choose_dtype(const dra_conversion *c, const dra_file_tensor *t, bool head)
{
    const dra_dtype wanted = c->how->dtype;
    const char     *name = spec_of(c, t)->name;
    const int64_t   depth = c->config->depth;
    const bool eight = c->config->ff.experts.count == 8; /* few and large: attention is cheap */
    int64_t    n = 0;
    if (head) return DRA_Q6_K;
    if (eight && (is_values(c, t) || is_named(name, "W_k"))) return DRA_Q8_0;
    if (wanted == DRA_Q6_K) return wanted;
    if (eight && wanted == DRA_Q4_K && is_named(name, "W_o")) return DRA_Q5_K;
    if (is_joint(c, t)) return wanted == DRA_Q4_K ? DRA_Q5_K : DRA_Q6_K;
    if (is_values(c, t)) {
        const int64_t at = number_of_values(c, t, &n);
        return gets_more(at, n) ? DRA_Q6_K : wanted;
    }
    if (is_named(name, "W_down") || is_named(name, "W_shared_down"))
        return gets_more(layer_of(name), depth) ? DRA_Q6_K : wanted;
    return wanted;
}

dra_dtype dra_quant_mix(const dra_conversion *c, const dra_file_tensor *t, bool head)
{
    const dra_dtype dtype = choose_dtype(c, t, head);
    const int64_t   row = t->shape.dim[t->shape.rank - 1];
    if (row % (int64_t)dra_dtype_get(dtype)->block_elements == 0) return dtype;
    return dtype == DRA_Q4_K ? DRA_Q5_0 : dtype == DRA_Q5_K ? DRA_Q5_1 : DRA_Q8_0;
}
