/* Names and shapes of tensors in files of x-transformers, for options that change them; that a file
 * with these names is read, and buffers are checked. */
#include <math.h>

#include "model/fixtures.h"
#include "formats/format.h"
#include "xt_text.h"

static dra_model *model_of(const char *top, const char *shape, const char *stack)
{
    char text[XT_TEXT];
    CHECK_CONFIG(c);
    dra_model *m;
    dra_error  err = {0};
    expect_ok(xt_parse(xt_config_of(top, shape, stack, text), &c, &err), &err);
    expect_ok(dra_model_create(c, &m, &err), &err);
    return m;
}

static int by_line(const void *a, const void *b)
{
    const dra_file_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* "name (shape)" of all tensors of a file, a line each, sorted; with `like` only names that have
 * it. */
static void list_of(const dra_model *m, const char *like, char *text, size_t size)
{
    dra_name_rules   rules;
    dra_file_tensor *list;
    dra_error        err = {0};
    char             shape[80];
    size_t           at = 0;
    expect_ok(dra_name_rules_create(dra_model_config_of(m), DRA_DIALECT_FOLDER, &rules, &err),
              &err);
    const int n = dra_file_tensor_list(&rules, dra_model_params(m), NULL, &list);
    assert_true(n > 0);
    qsort(list, (size_t)n, sizeof *list, by_line);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (like && !strstr(list[i].name, like)) continue;
        at += (size_t)snprintf(text + at, size - at, "%s %s\n", list[i].name,
                               dra_shape_text(&list[i].shape, shape, sizeof shape));
        assert_true(at < size);
    }
    free(list);
    dra_name_rules_free(&rules);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const struct {
    const char *top, *shape, *stack, *like, *names;
} rows[] = {
    {"", XT_DECODER, "", NULL,
     "attn_layers.final_norm.gamma (16)\n"
     "attn_layers.layers.0.0.0.gamma (16)\n"
     "attn_layers.layers.0.1.to_k.weight (32, 16)\n"
     "attn_layers.layers.0.1.to_out.weight (16, 32)\n"
     "attn_layers.layers.0.1.to_q.weight (32, 16)\n"
     "attn_layers.layers.0.1.to_v.weight (32, 16)\n"
     "attn_layers.layers.1.0.0.gamma (16)\n"
     "attn_layers.layers.1.1.ff.0.0.bias (64)\n"
     "attn_layers.layers.1.1.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.1.1.ff.2.bias (16)\n"
     "attn_layers.layers.1.1.ff.2.weight (16, 64)\n"
     "attn_layers.layers.2.0.0.gamma (16)\n"
     "attn_layers.layers.2.1.to_k.weight (32, 16)\n"
     "attn_layers.layers.2.1.to_out.weight (16, 32)\n"
     "attn_layers.layers.2.1.to_q.weight (32, 16)\n"
     "attn_layers.layers.2.1.to_v.weight (32, 16)\n"
     "attn_layers.layers.3.0.0.gamma (16)\n"
     "attn_layers.layers.3.1.ff.0.0.bias (64)\n"
     "attn_layers.layers.3.1.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.3.1.ff.2.bias (16)\n"
     "attn_layers.layers.3.1.ff.2.weight (16, 64)\n"
     "pos_emb.emb.weight (8, 16)\n"
     "to_logits.weight (10, 16)\n"
     "token_emb.emb.weight (10, 16)\n"},
    {", 'emb_dim': 4, 'post_emb_norm': true, 'num_memory_tokens': 3, 'use_abs_pos_emb': false",
     XT_DECODER, "", "emb",
     "post_emb_norm.gamma (4)\n"
     "project_emb.bias (16)\n"
     "project_emb.weight (16, 4)\n"
     "token_emb.emb.weight (10, 4)\n"},
    {", 'num_memory_tokens': 3, 'tie_embedding': true", XT_DECODER, "", "to",
     "attn_layers.layers.0.1.to_k.weight (32, 16)\n"
     "attn_layers.layers.0.1.to_out.weight (16, 32)\n"
     "attn_layers.layers.0.1.to_q.weight (32, 16)\n"
     "attn_layers.layers.0.1.to_v.weight (32, 16)\n"
     "attn_layers.layers.2.1.to_k.weight (32, 16)\n"
     "attn_layers.layers.2.1.to_out.weight (16, 32)\n"
     "attn_layers.layers.2.1.to_q.weight (32, 16)\n"
     "attn_layers.layers.2.1.to_v.weight (32, 16)\n"
     "memory_tokens (3, 16)\n"
     "token_emb.emb.weight (10, 16)\n"},
    /* all that attention may have, and token shift around it */
    {"", XT_DECODER,
     ", 'shift_tokens': [1, 0, 0, 0], 'attn_on_attn': true, 'attn_num_mem_kv': 3, "
     "'attn_head_scale': true, 'attn_qk_norm': true, 'attn_qk_norm_dim_scale': true, "
     "'attn_gate_values': true, 'attn_pre_talking_heads': true, 'attn_post_talking_heads': true, "
     "'attn_kv_heads': 2",
     "layers.0.",
     "attn_layers.layers.0.0.0.gamma (16)\n"
     "attn_layers.layers.0.1.fn.attend.post_softmax_talking_heads.weight (4, 4, 1, 1)\n"
     "attn_layers.layers.0.1.fn.attend.pre_softmax_talking_heads.weight (4, 4, 1, 1)\n"
     "attn_layers.layers.0.1.fn.head_scale_params (1, 4, 1, 1)\n"
     "attn_layers.layers.0.1.fn.mem_k (2, 3, 8)\n"
     "attn_layers.layers.0.1.fn.mem_v (2, 3, 8)\n"
     "attn_layers.layers.0.1.fn.qk_norm_k_scale (2, 1, 8)\n"
     "attn_layers.layers.0.1.fn.qk_norm_q_scale (4, 1, 8)\n"
     "attn_layers.layers.0.1.fn.to_k.weight (16, 16)\n"
     "attn_layers.layers.0.1.fn.to_out.0.weight (32, 32)\n"
     "attn_layers.layers.0.1.fn.to_q.weight (32, 16)\n"
     "attn_layers.layers.0.1.fn.to_v.weight (16, 16)\n"
     "attn_layers.layers.0.1.fn.to_v_gate.bias (32)\n"
     "attn_layers.layers.0.1.fn.to_v_gate.weight (32, 16)\n"},
    {", 'release': 'N'", XT_DECODER, ", 'attn_gate_values': true", "layers.0.1.to_v",
     "attn_layers.layers.0.1.to_v.weight (32, 16)\n"
     "attn_layers.layers.0.1.to_v_gate.weight (32, 16)\n"},
    /* feed-forwards */
    {"", XT_DECODER, ", 'ff_glu': true, 'ff_no_bias': true", "layers.1.1.",
     "attn_layers.layers.1.1.ff.0.proj.bias (128)\n"
     "attn_layers.layers.1.1.ff.0.proj.weight (128, 16)\n"
     "attn_layers.layers.1.1.ff.2.weight (16, 64)\n"},
    {"", XT_DECODER, ", 'ff_no_bias': true", "layers.1.1.",
     "attn_layers.layers.1.1.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.1.1.ff.2.weight (16, 64)\n"},
    {"", XT_DECODER, ", 'ff_glu': true, 'ff_post_act_ln': true", "layers.3.1.",
     "attn_layers.layers.3.1.ff.0.proj.bias (128)\n"
     "attn_layers.layers.3.1.ff.0.proj.weight (128, 16)\n"
     "attn_layers.layers.3.1.ff.1.gamma (64)\n"
     "attn_layers.layers.3.1.ff.3.bias (16)\n"
     "attn_layers.layers.3.1.ff.3.weight (16, 64)\n"},
    /* macaron inside token shift; sublayers are counted */
    {"", XT_DECODER, ", 'macaron': true, 'shift_tokens': 1", "weight",
     "attn_layers.layers.0.1.fn.fn.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.0.1.fn.fn.ff.2.weight (16, 64)\n"
     "attn_layers.layers.1.1.fn.to_k.weight (32, 16)\n"
     "attn_layers.layers.1.1.fn.to_out.weight (16, 32)\n"
     "attn_layers.layers.1.1.fn.to_q.weight (32, 16)\n"
     "attn_layers.layers.1.1.fn.to_v.weight (32, 16)\n"
     "attn_layers.layers.2.1.fn.fn.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.2.1.fn.fn.ff.2.weight (16, 64)\n"
     "attn_layers.layers.3.1.fn.fn.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.3.1.fn.fn.ff.2.weight (16, 64)\n"
     "attn_layers.layers.4.1.fn.to_k.weight (32, 16)\n"
     "attn_layers.layers.4.1.fn.to_out.weight (16, 32)\n"
     "attn_layers.layers.4.1.fn.to_q.weight (32, 16)\n"
     "attn_layers.layers.4.1.fn.to_v.weight (32, 16)\n"
     "attn_layers.layers.5.1.fn.fn.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.5.1.fn.fn.ff.2.weight (16, 64)\n"
     "pos_emb.emb.weight (8, 16)\n"
     "to_logits.weight (10, 16)\n"
     "token_emb.emb.weight (10, 16)\n"},
    /* norms and residuals */
    {"", XT_DECODER, ", 'use_rmsnorm': true, 'sandwich_norm': true, 'scale_residual': true", ".0.",
     "attn_layers.layers.0.0.0.g (16)\n"
     "attn_layers.layers.0.0.1.g (16)\n"
     "attn_layers.layers.0.1.to_k.weight (32, 16)\n"
     "attn_layers.layers.0.1.to_out.weight (16, 32)\n"
     "attn_layers.layers.0.1.to_q.weight (32, 16)\n"
     "attn_layers.layers.0.1.to_v.weight (32, 16)\n"
     "attn_layers.layers.0.2.residual_scale (16)\n"
     "attn_layers.layers.1.0.0.g (16)\n"
     "attn_layers.layers.1.0.1.g (16)\n"
     "attn_layers.layers.1.1.ff.0.0.bias (64)\n"
     "attn_layers.layers.1.1.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.2.0.0.g (16)\n"
     "attn_layers.layers.2.0.1.g (16)\n"
     "attn_layers.layers.3.0.0.g (16)\n"
     "attn_layers.layers.3.0.1.g (16)\n"
     "attn_layers.layers.3.1.ff.0.0.bias (64)\n"
     "attn_layers.layers.3.1.ff.0.0.weight (64, 16)\n"},
    {"", XT_DECODER, ", 'use_scalenorm': true", "norm", "attn_layers.final_norm.g (1)\n"},
    {"", XT_DECODER, ", 'use_simple_rmsnorm': true", "norm", ""},
    {"", XT_ENCODER, ", 'pre_norm': false", "gamma",
     "attn_layers.layers.0.0.2.gamma (16)\n"
     "attn_layers.layers.1.0.2.gamma (16)\n"
     "attn_layers.layers.2.0.2.gamma (16)\n"
     "attn_layers.layers.3.0.2.gamma (16)\n"},
    {"", XT_DECODER, ", 'resi_dual': true, 'weight_tie_layers': true", "gamma",
     "attn_layers.final_norm.gamma (16)\n"
     "attn_layers.layers.0.0.2.gamma (16)\n"
     "attn_layers.layers.1.0.2.gamma (16)\n"},
    {"", XT_DECODER, ", 'gate_residual': true", "layers.1.2.",
     "attn_layers.layers.1.2.gru.bias_hh (48)\n"
     "attn_layers.layers.1.2.gru.bias_ih (48)\n"
     "attn_layers.layers.1.2.gru.weight_hh (48, 16)\n"
     "attn_layers.layers.1.2.gru.weight_ih (48, 16)\n"},
    /* layouts */
    {"", XT_DECODER, ", 'sandwich_coef': 1", "to_q",
     "attn_layers.layers.0.1.to_q.weight (32, 16)\n"
     "attn_layers.layers.1.1.to_q.weight (32, 16)\n"},
    {"", XT_DECODER, ", 'sandwich_coef': 2", "ff.2.w",
     "attn_layers.layers.2.1.ff.2.weight (16, 64)\n"
     "attn_layers.layers.3.1.ff.2.weight (16, 64)\n"},
    {"", XT_NO_DEPTH, ", 'custom_layers': ['f', 'f', 'a'], 'layers_execute_order': [2, 0, 1, 2]",
     ".weight",
     "attn_layers.layers.0.1.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.0.1.ff.2.weight (16, 64)\n"
     "attn_layers.layers.1.1.ff.0.0.weight (64, 16)\n"
     "attn_layers.layers.1.1.ff.2.weight (16, 64)\n"
     "attn_layers.layers.2.1.to_k.weight (32, 16)\n"
     "attn_layers.layers.2.1.to_out.weight (16, 32)\n"
     "attn_layers.layers.2.1.to_q.weight (32, 16)\n"
     "attn_layers.layers.2.1.to_v.weight (32, 16)\n"
     "pos_emb.emb.weight (8, 16)\n"
     "to_logits.weight (10, 16)\n"
     "token_emb.emb.weight (10, 16)\n"},
    /* positions */
    {"", XT_DECODER, ", 'rel_pos_bias': true", "pos",
     "attn_layers.rel_pos.relative_attention_bias.weight (32, 4)\n"},
    {", 'use_abs_pos_emb': false", XT_DECODER, ", 'dynamic_pos_bias': true", "pos",
     "attn_layers.rel_pos.mlp.0.0.bias (4)\n"
     "attn_layers.rel_pos.mlp.0.0.weight (4, 1)\n"
     "attn_layers.rel_pos.mlp.1.0.bias (4)\n"
     "attn_layers.rel_pos.mlp.1.0.weight (4, 4)\n"
     "attn_layers.rel_pos.mlp.2.bias (4)\n"
     "attn_layers.rel_pos.mlp.2.weight (4, 4)\n"},
};

static void names_follow_options(void **unused)
{
    static char text[8000];
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_model *m = model_of(rows[i].top, rows[i].shape, rows[i].stack);
        list_of(m, rows[i].like, text, sizeof text);
        if (strcmp(text, rows[i].names) != 0)
            fail_msg("%s%s:\n%s\nexpected\n%s", rows[i].top, rows[i].stack, text, rows[i].names);
        dra_model_destroy(m);
    }
}

/* Every parameter has a name there, whatever the options. */
static void no_parameter_is_left_out(void **unused)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_model       *m = model_of(rows[i].top, rows[i].shape, rows[i].stack);
        const dra_specs *params = dra_model_params(m);
        dra_name_rules   rules;
        dra_error        err = {0};
        expect_ok(dra_name_rules_create(dra_model_config_of(m), DRA_DIALECT_FOLDER, &rules, &err),
                  &err);
        for (int k = 0; k < dra_specs_count(params); k++) {
            int64_t l;
            if (!dra_name_rules_find(&rules, dra_specs_at(params, k)->name, &l))
                fail_msg("%s has no name", dra_specs_at(params, k)->name);
        }
        dra_name_rules_free(&rules);
        dra_model_destroy(m);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static char *file_of(const char *name, char path[400])
{
    snprintf(path, 400, "%s/model.safetensors", in_folder(name));
    return path;
}

/* Draws a model, saves it under `name`. */
static dra_model *make_folder(const char *name, const char *top, const char *shape,
                              const char *stack)
{
    char         text[XT_TEXT], path[400];
    dra_model   *m = model_of(top, shape, stack);
    dra_weights *w;
    dra_error    err = {0};
    fixture_folder(name, xt_config_of(top, shape, stack, text));
    expect_ok(dra_weights_draw(m, 7, &w, &err), &err);
    expect_ok(dra_weights_save(w, file_of(name, path), &err), &err);
    dra_weights_destroy(w);
    return m;
}

static void expect_same(const dra_model *m, const dra_weights *a, const dra_weights *b)
{
    const dra_specs *params = dra_model_params(m);
    for (int i = 0; i < dra_specs_count(params); i++) {
        const size_t n = (size_t)dra_shape_count(&dra_specs_at(params, i)->shape);
        assert_memory_equal(dra_weights_at(a, i), dra_weights_at(b, i), n * sizeof(dra_real));
    }
}

/* Written and read back; by way of dra's own format, too. */
static void folders_come_back(void **unused)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        char         name[3][40];
        dra_error    err = {0};
        dra_weights *w[3];
        dra_model   *m[3];
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "back-%zu-%d", i, k);
        dra_model_destroy(make_folder(name[0], rows[i].top, rows[i].shape, rows[i].stack));
        for (int k = 1; k < 3; k++) {
            CHECK_CONFIG(c);
            expect_ok(dra_folder_config(in_folder(name[k - 1]), &c, &err), &err);
            c->format = k == 1 ? DRA_FORMAT_DRA : DRA_FORMAT_XT;
            const char              *from = in_folder(name[k - 1]), *to = in_folder(name[k]);
            const dra_convert_config how = {.from = from, .to = to, .config = c};
            expect_ok(dra_convert(&how, &err), &err);
        }
        for (int k = 0; k < 3; k++)
            expect_ok(dra_folder_load(in_folder(name[k]), &m[k], &w[k], &err), &err);
        expect_same(m[0], w[0], w[1]);
        expect_same(m[0], w[0], w[2]);
        for (int k = 0; k < 3; k++) {
            dra_weights_destroy(w[k]);
            dra_model_destroy(m[k]);
        }
    }
}

/* The halves of a gated projection: the value first, then the gate. */
static void values_come_before_gates(void **unused)
{
    char         path[400];
    dra_tensors *t;
    dra_weights *w;
    dra_error    err = {0};
    dra_model   *m = make_folder("glu", "", XT_DECODER, ", 'ff_glu': true");
    expect_ok(dra_tensors_open(file_of("glu", path), &t, &err), &err);
    expect_ok(dra_weights_load(m, in_folder("glu"), &w, &err), &err);
    const dra_real *both = dra_tensors_find(t, "attn_layers.layers.1.1.ff.0.proj.weight")->data;
    const int       up = dra_specs_find(dra_model_params(m), "layers.0.ff.W_up");
    const int       gate = dra_specs_find(dra_model_params(m), "layers.0.ff.W_gate");
    assert_memory_equal(both, dra_weights_at(w, up), 64 * 16 * sizeof(dra_real));
    assert_memory_equal(both + 64 * 16, dra_weights_at(w, gate), 64 * 16 * sizeof(dra_real));
    dra_weights_destroy(w);
    dra_tensors_close(t);
    dra_model_destroy(m);
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* The tensors of a file, of which one may be changed before it is written again. */
static dra_status load_changed(const dra_model *m, const char *name, const char *tensor,
                               const char *renamed, dra_real factor, dra_error *err)
{
    char            path[400];
    dra_tensors    *t;
    dra_weights    *w = NULL;
    dra_tensor_item item[64];
    char            names[64][200];
    dra_real        data[64];
    expect_ok(dra_tensors_open(file_of(name, path), &t, err), err);
    size_t n = 0;
    for (size_t i = 0; i < dra_tensors_count(t); i++) {
        const dra_tensor_info *is = dra_tensors_at(t, i);
        const bool             this_one = tensor && strcmp(is->name, tensor) == 0;
        if (this_one && !renamed && factor == 0) continue; /* left out */
        snprintf(names[n], sizeof names[n], "%s%s", renamed ? renamed : "", is->name);
        item[n] = (dra_tensor_item){names[n], is->dtype, is->shape, is->data};
        if (this_one) {
            memcpy(data, is->data, is->bytes);
            data[is->shape.dim[0] - 1] *= factor;
            item[n].data = data;
        }
        n++;
    }
    fixture_folder("changed", "{}");
    expect_ok(dra_tensors_write(file_of("changed", path), item, n, NULL, 0, err), err);
    dra_tensors_close(t);
    const dra_status st = dra_weights_load(m, path, &w, err);
    dra_weights_destroy(w);
    return st;
}

static void buffers_are_written_and_checked(void **unused)
{
    static const char freq[] = "attn_layers.rotary_pos_emb.inv_freq";
    static const char scale[] = "attn_layers.rotary_pos_emb.scale";
    char              path[400];
    dra_tensors      *t;
    dra_error         err = {0};
    dra_model        *m = make_folder("xpos", "", XT_DECODER, ", 'rotary_xpos': true");
    expect_ok(dra_tensors_open(file_of("xpos", path), &t, &err), &err);
    const dra_tensor_info *f = dra_tensors_find(t, freq), *s = dra_tensors_find(t, scale);
    assert_true(f && s && f->shape.rank == 1 && f->shape.dim[0] == 2 && s->shape.dim[0] == 2);
    const dra_real *w = f->data, *z = s->data;
    assert_true(w[0] == 1 && fabs((double)w[1] - 0.01) < 1e-8);
    assert_true(fabs((double)z[0] - 1.6 / 5.6) < 1e-7 && fabs((double)z[1] - 3.6 / 5.6) < 1e-7);
    dra_tensors_close(t);
    expect_ok(load_changed(m, "xpos", NULL, NULL, 1, &err), &err);
    expect_ok(load_changed(m, "xpos", freq, NULL, (dra_real)(1 + 5e-7), &err), &err);
    expect_ok(load_changed(m, "xpos", freq, NULL, 0, &err), &err); /* may be missing */
    assert_int_equal(load_changed(m, "xpos", freq, NULL, 2, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "inv_freq': number 1 is 0.0"));
    assert_int_equal(load_changed(m, "xpos", scale, NULL, (dra_real)1.001, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "rotary_pos_emb.scale': number 1"));
    dra_model_destroy(m);
    /* an odd width has one frequency more */
    m = make_folder("odd", "", XT_DECODER, ", 'rotary_pos_emb': true, 'rotary_emb_dim': 5");
    expect_ok(dra_tensors_open(file_of("odd", path), &t, &err), &err);
    f = dra_tensors_find(t, freq);
    assert_true(f && f->shape.dim[0] == 3 && !dra_tensors_find(t, scale));
    assert_true(fabs((double)((const dra_real *)f->data)[2] - pow(10000, -0.8)) < 1e-9);
    dra_tensors_close(t);
    dra_model_destroy(m);
}

static void files_of_a_wrapped_model(void **unused)
{
    dra_error  err = {0};
    dra_model *m = make_folder("net", "", XT_DECODER, ", 'rotary_pos_emb': true");
    expect_ok(load_changed(m, "net", NULL, "net.", 1, &err), &err);
    assert_int_equal(load_changed(m, "net", NULL, "model.", 1, &err), DRA_ERR_NAME);
    assert_int_equal(load_changed(m, "net", "to_logits.weight", NULL, 0, &err), DRA_ERR_NAME);
    assert_non_null(strstr(err.text, "tensor to_logits.weight is missing"));
    dra_model_destroy(m);
}

/* Cut off anywhere, or with a tensor of another shape. */
static void damaged_files_are_refused(void **unused)
{
    char         path[400];
    struct stat  s;
    dra_error    err = {0};
    dra_weights *w = NULL;
    dra_model   *m = make_folder("cut", "", XT_DECODER, ", 'attn_head_scale': true");
    dra_model   *other = model_of("", XT_DECODER, ", 'attn_head_scale': true, 'attn_kv_heads': 2");
    assert_int_equal(dra_weights_load(other, in_folder("cut"), &w, &err), DRA_ERR_SHAPE);
    assert_non_null(strstr(err.text, "to_k.weight': shape (32, 16), expected (16, 16) by its "
                                     "x-transformers config"));
    assert_int_equal(stat(file_of("cut", path), &s), 0);
    for (int i = 15; i >= 0; i--) {
        assert_int_equal(truncate(path, s.st_size * i / 16), 0);
        assert_int_not_equal(dra_weights_load(m, in_folder("cut"), &w, &err), DRA_OK);
        assert_null(w);
        assert_non_null(strstr(err.text, "cut/model.safetensors"));
    }
    dra_model_destroy(other);
    dra_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_follow_options),
        cmocka_unit_test(no_parameter_is_left_out),
        cmocka_unit_test(folders_come_back),
        cmocka_unit_test(values_come_before_gates),
        cmocka_unit_test(buffers_are_written_and_checked),
        cmocka_unit_test(files_of_a_wrapped_model),
        cmocka_unit_test(damaged_files_are_refused),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("xt_names", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
