/* Whole configs of x-transformers: what each wrapper means in dra's config, that it is written as
 * it was read, also by way of dra's own, and that files have the library's names: a checkpoint is
 * read and written again with the same tensors, number by number. */
#include "formats/format.h"
#include "xt_tensors.h"
#include "xt_text.h"

enum { OWN_TEXT = 20000 };

#define S1 "'dim': 16, 'depth': 1, 'heads': 4, 'attn_dim_head': 8"
#define SIDE(s) "'" s "num_tokens': 10, '" s "max_seq_len': 8, '" s "depth': 1, '" s "heads': 4"
#define PAIR "'wrapper': 'XTransformer', 'dim': 16, " SIDE("enc_") ", " SIDE("dec_")
#define VIT                                                                                        \
    "'wrapper': 'ViTransformerWrapper', 'image_size': 4, 'patch_size': 2, 'attn_layers': "         \
    "{'type': 'Encoder', " S1 "}"
#define CONTINUOUS(type)                                                                           \
    "'wrapper': 'ContinuousTransformerWrapper', 'max_seq_len': 8, 'attn_layers': {'type': '" type  \
    "', " S1 "}"
#define XVAL                                                                                       \
    "'wrapper': 'XValTransformerWrapper', 'num_tokens': 10, 'max_seq_len': 8, 'attn_layers': "     \
    "{'type': 'Decoder', " S1 "}, 'numerical_token_id': "
#define TOKENS(options)                                                                            \
    "'wrapper': 'TransformerWrapper', 'num_tokens': 10, 'max_seq_len': 8, 'attn_layers': "         \
    "{'type': 'Decoder', 'dim': 16, 'heads': 4, 'attn_dim_head': 8, " options "}"

#define MASKED                                                                                     \
    "'wrapper': 'NonAutoregressiveWrapper', 'net': {'wrapper': 'TransformerWrapper', "             \
    "'num_tokens': 10, 'max_seq_len': 8, 'attn_layers': {'type': 'Encoder', 'dim': 16, "           \
    "'heads': 4, 'attn_dim_head': 8, 'depth': 1}"

#define NARROW                                                                                     \
    ", 'context': {'wrapper': 'ContinuousTransformerWrapper', 'max_seq_len': 6, 'dim_in': 3, "     \
    "'attn_layers': {'type': 'Encoder', 'dim': 8, 'depth': 1, 'heads': 2, 'attn_dim_head': 8}}"

/* A config without its model_type, and what the config has then, among other things; of several
 * stacks by their names. */
static const struct {
    const char *config, *dra;
} models[] = {
    /* F04, F05, F09 */
    {PAIR,
     "{'stacks': {'encoder': {'vocab': 10, 'context': 8, 'visible': 'bidirectional', 'depth': 1, "
     "'positions': 'learned', 'head': {'kind': 'none'}, 'source': null}, "
     "'decoder': {'vocab': 10, 'context': 'encoder', 'max_seq_len': 8, 'visible': null, "
     "'layout': null, 'source': null, 'head': null, 'tied': false}}}"},
    {PAIR ", 'tie_token_emb': true, 'enc_num_memory_tokens': 2, 'enc_emb_dropout': 0.25, "
          "'dec_use_abs_pos_emb': false",
     "{'stacks': {'encoder': {'memory_tokens': 2, 'embed_dropout': 0.25}, 'decoder': {'positions': "
     "null, 'source': {'shared': true}}}}"},
    {PAIR ", 'enc_rotary_pos_emb': true, 'dec_rotary_pos_emb': true, 'dec_attn_num_mem_kv': 2, "
          "'dec_attn_qk_norm': true, 'dec_cross_attn_qk_norm': false, 'dec_cross_residual_attn': "
          "true, 'enc_ff_glu': true, 'dec_macaron': true",
     "{'stacks': {'encoder': {'position': {'rotate': 'rotary'}, 'ff': {'gated': true}}, 'decoder': "
     "{'layout': 'facf', 'mixer': {'mem_kv': 2, 'qk_norm': true, 'residual_scores': null}, "
     "'cross': {'mem_kv': 2, 'qk_norm': null, 'residual_scores': true}}}}"},
    {"'release': 'N', " PAIR ", 'enc_attn_gate_values': true",
     "{'stacks': {'encoder': {'mixer': {'gate_values': 'plain'}}}}"},
    {PAIR ", 'src_prepend': 3",
     "{'stacks': {'prepend': {'dim': 16, 'source': {'kind': 'vectors', 'length': 3}, 'depth': "
     "null}, 'encoder': {'prepend': 'prepend'}}}"},
    {PAIR ", 'src_prepend': {" VIT "}",
     "{'stacks': {'prepend': {'source': {'kind': 'image', 'size': 4, 'patch': 2}, 'depth': 1}}}"},
    /* F06 */
    {VIT, "{'source': {'kind': 'image', 'size': 4, 'patch': 2, 'channels': null}, 'head': {'kind': "
          "'classes'}, 'positions': 'learned', 'position': null, 'context': 4, 'vocab': null}"},
    {VIT ", 'channels': 1, 'num_classes': 5, 'num_register_tokens': 2, 'post_emb_norm': true, "
         "'emb_dropout': 0.5",
     "{'source': {'channels': 1}, 'head': {'dim': 5}, 'memory_tokens': 2, 'embed_norm': true, "
     "'embed_norm_kind': 'layer', 'embed_dropout': 0.5}"},
    /* F08, F48 */
    {TOKENS("'depth': 2, 'cross_attend': true"),
     "{'stacks': {'context': {'dim': 16, 'source': {'kind': 'vectors'}, 'head': {'kind': 'none'}}, "
     "'decoder': {'context': 'context', 'layout': null, 'cross': null}}}"},
    {TOKENS("'depth': 2, 'cross_attend': true, 'cross_residual_attn': true, "
            "'cross_attn_dim_context': 12, 'cross_attn_dim_head': 16, 'cross_attn_kv_heads': 2"),
     "{'stacks': {'context': {'dim': 12}, 'decoder': {'cross': {'residual_scores': true, "
     "'key_dim': 16, 'value_dim': 16, 'kv_heads': 2, 'kv_order': 'mod'}}}}"},
    {TOKENS("'depth': 2, 'cross_attend': true, 'attn_num_mem_kv': 2, 'attn_one_kv_head': true, "
            "'attn_gate_values': true, 'attn_sparse_topk': 2, 'cross_attn_num_mem_kv': 0, "
            "'cross_attn_one_kv_head': false, 'cross_attn_sparse_topk': null"),
     "{'stacks': {'decoder': {'mixer': {'mem_kv': 2, 'kv_heads': 1, 'topk': 2, 'gate_values': "
     "'biased'}, 'cross': {'gate_values': 'biased', 'mem_kv': null, 'topk': null, 'kv_heads': "
     "null}}}}"},
    {TOKENS("'depth': 2, 'cross_attend': true, 'attn_softclamp_logits': true, "
            "'attn_logit_softclamp_value': 0.5, 'add_value_residual': true"),
     "{'stacks': {'decoder': {'mixer': {'softcap': 0.5, 'softcap_late': true, 'value_residual': "
     "'learned'}, 'cross': {'softcap': 0.5, 'softcap_late': true, 'value_residual': 'half'}}}}"},
    {TOKENS(
         "'depth': 2, 'cross_attend': true, 'attn_softclamp_logits': true, "
         "'attn_logit_softclamp_value': 0.5, 'cross_attn_softclamp_logits': false, 'attn_qk_norm': "
         "true, 'attn_qk_norm_scale': 4, 'attn_qk_norm_groups': 2, 'attn_sparse_topk': 2, "
         "'attn_sparse_topk_straight_through': true, 'cross_attn_qk_norm': false, "
         "'cross_attn_sparse_topk': null"),
     "{'stacks': {'decoder': {'mixer': {'softcap': 0.5, 'score_scale': 4.0, "
     "'topk_straight': true}, "
     "'cross': {'softcap': null, 'qk_norm': null, 'score_scale': null, 'topk': null}}}}"},
    {TOKENS("'depth': 2, 'cross_attend': true, 'cross_attn_softclamp_logits': true"),
     "{'stacks': {'decoder': {'mixer': {'softcap': null}, 'cross': {'softcap': 50.0}}}}"},
    {TOKENS("'depth': 2, 'cross_attend': true, 'only_cross': true"),
     "{'stacks': {'decoder': {'layout': 'cf'}}}"},
    {TOKENS("'depth': 2, 'cross_attend': true, 'sandwich_coef': 1, 'shift_tokens': 1"),
     "{'stacks': {'decoder': {'layout': null, 'sandwich': 1}}}"},
    {TOKENS("'cross_attend': true, 'custom_layers': ['a', 'f', 'c', 'f', 'c']"),
     "{'stacks': {'decoder': {'layout': 'afcfc', 'depth': 1}}}"},
    {TOKENS("'depth': 1, 'cross_attend': true") ", 'context': {" VIT "}",
     "{'stacks': {'encoder': {'source': {'kind': 'image'}, 'head': {'kind': 'none'}, 'visible': "
     "'bidirectional'}, 'decoder': {'context': 'encoder'}}}"},
    {TOKENS("'depth': 1, 'cross_attend': true, 'cross_attn_dim_context': 8") NARROW,
     "{'stacks': {'encoder': {'source': {'kind': 'vectors', 'dim': 3}, 'dim': 8, 'context': 6}}}"},
    /* F10, stacks by themselves */
    {"'wrapper': 'CrossAttender', " S1,
     "{'stacks': {'decoder': {'layout': 'cf', 'visible': 'bidirectional', 'source': "
     "{'kind': 'vectors'}, "
     "'head': {'kind': 'none'}, 'positions': null}}}"},
    {"'wrapper': 'CrossAttender', " S1 ", 'context': {'wrapper': 'Encoder', " S1 "}",
     "{'stacks': {'encoder': {'depth': 1, 'head': {'kind': 'none'}}, 'decoder': {'layout': "
     "'cf'}}}"},
    {"'wrapper': 'CrossAttender', " S1
     ", 'context': {" CONTINUOUS("Encoder") ", "
                                            "'use_abs_pos_emb': false}",
     "{'stacks': {'encoder': {'head': {'kind': 'vectors'}}}}"},
    {"'wrapper': 'CrossAttender', 'macaron': true, 'use_rmsnorm': true, " S1,
     "{'stacks': {'decoder': {'layout': 'fcf', 'norm': 'unit'}}}"},
    {"'wrapper': 'Encoder', 'rel_pos_bias': true, " S1,
     "{'visible': 'bidirectional', 'source': {'kind': 'vectors'}, 'head': {'kind': 'none'}}"},
    {"'wrapper': 'Decoder', 'cross_attend': true, 'rotary_pos_emb': true, " S1,
     "{'stacks': {'decoder': {'visible': null, 'source': {'kind': 'vectors'}}}}"},
    /* F11, F12 */
    {CONTINUOUS("Decoder") ", 'dim_in': 3, 'dim_out': 5",
     "{'source': {'kind': 'vectors', 'dim': 3}, 'head': {'kind': 'vectors', 'dim': 5}, "
     "'positions': 'learned', 'position': {'scale': 0.25}, 'context': 8}"},
    {CONTINUOUS("Encoder") ", 'use_abs_pos_emb': false, 'num_memory_tokens': 2, 'post_emb_norm': "
                           "true",
     "{'source': {'kind': 'vectors', 'dim': null}, 'head': {'kind': 'vectors', 'dim': null}, "
     "'positions': null, 'memory_tokens': 2, 'embed_norm': true}"},
    {"'wrapper': 'ContinuousAutoregressiveWrapper', 'net': {" CONTINUOUS("Decoder") "}",
     "{'source': {'kind': 'vectors'}}"},
    /* F14, F15 */
    {XVAL "3", "{'source': {'numbers': true, 'number_token': 3}, 'head': {'bias': true, 'numbers': "
               "true}, 'tied': false}"},
    {XVAL "0, 'tie_embedding': true",
     "{'source': {'numbers': true, 'number_token': null}, 'head': {'bias': null, 'numbers': true}, "
     "'tied': true}"},
    {"'wrapper': 'XValAutoregressiveWrapper', 'net': {" XVAL "3}", "{'source': {'numbers': true}}"},
    /* F13, F70 */
    {"'wrapper': 'AutoregressiveWrapper', 'net': {" TOKENS("'depth': 1, 'rotary_xpos': true") "}",
     "{'position': {'rotate': 'xpos'}}"},
    {"'release': 'N', 'wrapper': 'XLAutoregressiveWrapper', 'net': {" TOKENS(
         "'depth': 1, 'attn_gate_values': true") "}",
     "{'mixer': {'gate_values': 'plain'}}"},
    {"'wrapper': 'AutoregressiveWrapper', 'net': {" TOKENS("'depth': 1, 'cross_attend': true") "}",
     "{'stacks': {'context': {'dim': 16}}}"},
    /* NonAutoregressiveWrapper */
    {MASKED "}, 'mask_id': 0", "{'visible': 'bidirectional', 'vocab': 10}"},
    {"'release': 'N', " MASKED "}, 'mask_id': 9", "{'visible': 'bidirectional', 'vocab': 10}"},
};

/* ---- configs --------------------------------------------------------------------------------- */

static json_t *json_of(const char *text)
{
    json_error_t why;
    json_t      *v = json_loads(text, 0, &why);
    if (!v) fail_msg("%s: %s", text, why.text);
    return v;
}

static const char *text_of(const char *config, char text[OWN_TEXT])
{
    snprintf(text, OWN_TEXT, "{'model_type': 'x-transformers', %s}", config);
    xt_quotes(text);
    return text;
}

static void read_model(size_t i, dra_model_config **c)
{
    char      text[OWN_TEXT];
    dra_error err = {0};
    expect_ok(xt_parse(text_of(models[i].config, text), c, &err), &err);
}

static json_t *dump(const dra_model_config *from, dra_format_kind format)
{
    static char      text[OWN_TEXT];
    dra_model_config c = *from;
    c.format = format;
    const size_t n = dra_model_config_text(&c, text, sizeof text);
    assert_true(n > 0 && n < sizeof text);
    return json_of(text);
}

/* All that `part` says, `whole` says, too; null: it says nothing. */
static bool is_part(const json_t *part, const json_t *whole)
{
    const char *key;
    json_t     *v;
    if (!json_is_object(part)) return json_equal(part, whole);
    json_object_foreach((json_t *)(uintptr_t)part, key, v)
    {
        const json_t *other = json_object_get(whole, key);
        if (json_is_null(v) ? other != NULL : !is_part(v, other)) return false;
    }
    return true;
}

static void wrappers_mean_what_they_say(void **unused)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        CHECK_CONFIG(c);
        char part[OWN_TEXT];
        read_model(i, &c);
        assert_int_equal(c->format, DRA_FORMAT_XT);
        snprintf(part, sizeof part, "%s", models[i].dra);
        xt_quotes(part);
        json_t *expected = json_of(part), *is = dump(c, DRA_FORMAT_DRA);
        if (!is_part(expected, is))
            fail_msg("%s: expected %s in %s", models[i].config, part, json_dumps(is, 0));
        json_decref(expected);
        json_decref(is);
    }
}

static void expect_same(const char *config, const dra_model_config *c)
{
    char    text[OWN_TEXT];
    json_t *before = json_of(text_of(config, text)), *after = dump(c, DRA_FORMAT_XT);
    if (!json_equal(before, after)) fail_msg("%s became %s", text, json_dumps(after, 0));
    json_decref(before);
    json_decref(after);
}

static void written_as_they_were_read(void **unused)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        CHECK_CONFIG(c);
        read_model(i, &c);
        expect_same(models[i].config, c);
    }
}

/* dra's own config knows nothing of losses around a model. */
static void the_same_by_way_of_dra(void **unused)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        static char own[OWN_TEXT];
        CHECK_CONFIG(c);
        CHECK_CONFIG(back);
        dra_error err = {0};
        read_model(i, &c);
        if (c->xt.loss) continue;
        c->format = DRA_FORMAT_DRA;
        dra_model_config_text(c, own, sizeof own);
        expect_ok(xt_parse(own, &back, &err), &err);
        expect_same(models[i].config, back);
    }
}

/* Folders keep their spelling, also that of parts. */
static void a_folder_keeps_its_spelling(void **unused)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        static char text[OWN_TEXT];
        CHECK_CONFIG(c);
        dra_error err = {0};
        fixture_folder("spelling", text_of(models[i].config, text));
        json_t *before = json_of(text);
        expect_ok(dra_folder_config(in_folder("spelling"), &c, &err), &err);
        expect_ok(dra_folder_save_config(in_folder("spelling"), c, &err), &err);
        json_t *after = json_load_file(in_folder("spelling/config.json"), 0, NULL);
        if (!json_equal(before, after)) fail_msg("%s became %s", text, json_dumps(after, 0));
        json_decref(before);
        json_decref(after);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* A checkpoint by the library's names. */
static void make_file(size_t i, const char *path, fixture *f)
{
    char      text[OWN_TEXT];
    dra_error err = {0};
    json_t   *config = json_of(text_of(models[i].config, text));
    xt_model_tensors(f, config);
    for (int k = 0; k < f->n && json_object_get(config, "net"); k++) {
        char name[FIXTURE_NAME];
        snprintf(name, sizeof name, "net.%.70s", f->name[k]);
        memcpy(f->name[k], name, sizeof name);
    }
    json_decref(config);
    expect_ok(dra_tensors_write(path, f->item, (size_t)f->n, NULL, 0, &err), &err);
}

/* As many tensors, each with the same name, shape and numbers; buffers may be rounded. */
static void expect_file(const char *config, const char *path, const fixture *f)
{
    dra_tensor_source *s;
    dra_error          err = {0};
    expect_ok(dra_tensor_source_open(path, &s, &err), &err);
    if (s->count != (size_t)f->n) fail_msg("%s: %zu tensors, not %d", config, s->count, f->n);
    for (int k = 0; k < f->n; k++) {
        const dra_tensor_source_entry *e = dra_tensor_source_find(s, f->name[k]);
        const dra_shape               *shape = &f->item[k].shape;
        if (!e) fail_msg("%s: no tensor %s", config, f->name[k]);
        assert_true(dra_shape_equal(shape, &e->info->shape));
        for (int64_t t = 0; t < dra_shape_count(shape); t++) {
            const double a = (double)((const dra_real *)f->item[k].data)[t];
            const double b = (double)((const dra_real *)(const void *)e->info->data)[t];
            if (strstr(f->name[k], "rotary") ? fabs(a - b) > 1e-6 : a != b)
                fail_msg("%s: %s differs", config, f->name[k]);
        }
    }
    dra_tensor_source_close(s);
}

static void files_have_the_names_of_the_library(void **unused)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        CHECK_CONFIG(c);
        dra_model   *m;
        dra_weights *w;
        dra_error    err = {0};
        fixture      f;
        read_model(i, &c);
        make_file(i, in_folder("there.safetensors"), &f);
        expect_ok(dra_model_create(c, &m, &err), &err);
        if (dra_weights_load(m, in_folder("there.safetensors"), &w, &err) != DRA_OK)
            fail_msg("%s: %s", models[i].config, err.text);
        expect_ok(dra_weights_save(w, in_folder("back.safetensors"), &err), &err);
        expect_file(models[i].config, in_folder("back.safetensors"), &f);
        dra_weights_destroy(w);
        dra_model_destroy(m);
        fixture_free(&f);
    }
}

/* By way of a folder of dra's own. */
static void folders_there_and_back(void **unused)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        static char text[OWN_TEXT];
        char        from[40], own[40], to[60];
        CHECK_CONFIG(c);
        dra_error err = {0};
        fixture   f;
        snprintf(from, sizeof from, "from%zu", i);
        snprintf(own, sizeof own, "own%zu", i);
        snprintf(to, sizeof to, "to%zu", i);
        fixture_folder(from, text_of(models[i].config, text));
        read_model(i, &c);
        if (c->xt.loss) continue; /* names without "net." come back */
        snprintf(text, sizeof text, "%s/model.safetensors", from);
        make_file(i, in_folder(text), &f);
        char *path[3] = {strdup(in_folder(from)), strdup(in_folder(own)), strdup(in_folder(to))};
        c->format = DRA_FORMAT_DRA;
        expect_ok(
            dra_convert(&(dra_convert_config){.from = path[0], .to = path[1], .config = c}, &err),
            &err);
        check_drop_config(&c);
        expect_ok(dra_folder_config(path[1], &c, &err), &err);
        assert_int_equal(c->format, DRA_FORMAT_DRA);
        c->format = DRA_FORMAT_XT;
        expect_ok(
            dra_convert(&(dra_convert_config){.from = path[1], .to = path[2], .config = c}, &err),
            &err);
        snprintf(text, sizeof text, "%s/model.safetensors", to);
        expect_file(models[i].config, in_folder(text), &f);
        for (int k = 0; k < 3; k++) free(path[k]);
        fixture_free(&f);
    }
}

/* ---- one table for two sides ----------------------------------------------------------------- */

static const char tied[] = PAIR ", 'tie_token_emb': true";

/* Loads the file without tensor `left_out`, or with another number in `changed`. */
static dra_status load_tied(const char *left_out, const char *changed, dra_error *err)
{
    char text[OWN_TEXT];
    CHECK_CONFIG(c);
    dra_model      *m;
    dra_weights    *w = NULL;
    fixture         f;
    dra_tensor_item item[FIXTURE_MOST];
    size_t          n = 0;
    json_t         *config = json_of(text_of(tied, text));
    expect_ok(xt_parse(text, &c, err), err);
    expect_ok(dra_model_create(c, &m, err), err);
    xt_model_tensors(&f, config);
    json_decref(config);
    for (int k = 0; k < f.n; k++) {
        if (left_out && strcmp(f.name[k], left_out) == 0) continue;
        if (changed && strcmp(f.name[k], changed) == 0)
            ((dra_real *)(uintptr_t)f.item[k].data)[7] += 1;
        item[n++] = f.item[k];
    }
    expect_ok(dra_tensors_write(in_folder("tied.safetensors"), item, n, NULL, 0, err), err);
    const dra_status st = dra_weights_load(m, in_folder("tied.safetensors"), &w, err);
    dra_weights_destroy(w);
    dra_model_destroy(m);
    fixture_free(&f);
    return st;
}

static void a_shared_table_has_two_names(void **unused)
{
    static const char encoder[] = "encoder.token_emb.emb.weight";
    static const char decoder[] = "decoder.net.token_emb.emb.weight";
    dra_error         err = {0};
    expect_ok(load_tied(NULL, NULL, &err), &err);
    expect_ok(load_tied(encoder, NULL, &err), &err);
    expect_ok(load_tied(decoder, NULL, &err), &err);
    assert_int_equal(load_tied(NULL, decoder, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "'decoder.net.token_emb.emb.weight' differs from "
                                     "'encoder.token_emb.emb.weight'"));
}

/* ---- refusals -------------------------------------------------------------------------------- */

static const struct {
    const char *config, *error;
} refusals[] = {
    {"'wrapper': 'XTransformer'", "dim is missing"},
    {"'wrapper': 'XTransformer', 'dim': 16, " SIDE("dec_"), "enc_num_tokens is missing"},
    {PAIR ", 'dec_num_memory_tokens': 2", "dec_num_memory_tokens is no option of XTransformer"},
    {PAIR ", 'enc_post_emb_norm': true", "enc_post_emb_norm is no option of XTransformer"},
    {PAIR ", 'dec_dim': 16", "dec_dim is no option of XTransformer"},
    {PAIR ", 'dec_cross_attend': true", "dec_cross_attend is no option of XTransformer"},
    {PAIR ", 'enc_ff_glue': true", "enc_ff_glue is not a key; did you mean ff_glu?"},
    {PAIR ", 'dec_attn_flash': true, 'dec_residual_attn': true",
     "dec_attn_flash excludes residual_attn"},
    {PAIR ", 'dec_cross_attn_flsh': true", "dec_cross_attn_flsh is not a key"},
    {PAIR ", 'dec_cross_attn_dim_context': 8", "dec_cross_attn_dim_context is 8, expected dim, 16"},
    {PAIR ", 'enc_scaled_sinu_pos_emb': true", "enc_scaled_sinu_pos_emb is not supported"},
    {PAIR ", 'tie_token_em': true", "tie_token_em is not a key; did you mean tie_token_emb?"},
    {TOKENS("'depth': 2, 'cross_attend': true, 'attn_qk_norm': true, 'cross_attn_qk_norm': false, "
            "'cross_attn_qk_norm_scale': 4"),
     "attn_qk_norm_scale needs attn_qk_norm"},
    {PAIR ", 'ignore_index': 0", "ignore_index is not supported: it belongs to the loss"},
    {PAIR ", 'cross_attn_tokens_dropout': 0.1", "cross_attn_tokens_dropout is not supported"},
    {PAIR ", 'src_prepend': 0", "src_prepend: expected how many vectors, or their wrapper"},
    {PAIR ", 'src_prepend': {" CONTINUOUS("Encoder") "}",
     "src_prepend: expected ViTransformerWrapper, an Encoder"},
    {"'wrapper': 'XTransformer', 'dim': 16, 'tie_token_emb': true, " SIDE(
         "enc_") ", 'dec_num_tokens': 11, 'dec_max_seq_len': 8, 'dec_depth': 1",
     "tie_token_emb with enc_num_tokens 10, expected dec_num_tokens, 11"},
    {"'wrapper': 'ViTransformerWrapper', 'image_size': 5, 'patch_size': 2, 'attn_layers': {'type': "
     "'Encoder', " S1 "}",
     "image_size is 5, expected a multiple of patch_size, 2"},
    {"'wrapper': 'ViTransformerWrapper', 'image_size': 4, 'patch_size': 2, 'attn_layers': {'type': "
     "'Decoder', " S1 "}",
     "attn_layers.type is Decoder, expected Encoder"},
    {"'wrapper': 'ViTransformerWrapper', 'image_size': 4, 'patch_size': 2, 'num_register_tokens': "
     "2, 'attn_layers': {'type': 'Encoder', 'rotary_pos_emb': true, " S1 "}",
     "num_register_tokens with positions of attention or shift_tokens"},
    {VIT ", 'num_tokens': 10", "num_tokens is not a key"},
    {"'wrapper': 'ViTransformerWrapper', 'patch_size': 2, 'attn_layers': {'type': 'Encoder', " S1
     "}",
     "image_size is missing"},
    {CONTINUOUS("Decoder") ", 'emb_dim': 8", "emb_dim is not a key"},
    {XVAL "10", "numerical_token_id is 10, expected less than num_tokens, 10"},
    {"'wrapper': 'XValTransformerWrapper', 'num_tokens': 10, 'max_seq_len': 8, 'attn_layers': {"
     "'type': 'Decoder', " S1 "}",
     "numerical_token_id is missing"},
    {"'wrapper': 'CrossAttender', 'depth': 1", "dim is missing"},
    {"'wrapper': 'CrossAttender', 'ff_glue': true, " S1, "ff_glue is not a key"},
    {"'wrapper': 'Encoder', 'num_tokens': 3, " S1, "num_tokens is not a key"},
    {"'wrapper': 'AutoregressiveWrapper'", "net is missing"},
    {"'wrapper': 'AutoregressiveWrapper', 'net': 3", "net.a wrapper is expected here"},
    {"'wrapper': 'AutoregressiveWrapper', 'net': {" VIT "}",
     "net of AutoregressiveWrapper: expected TransformerWrapper with a Decoder"},
    {"'wrapper': 'ContinuousAutoregressiveWrapper', 'net': {" CONTINUOUS("Encoder") "}",
     "net of ContinuousAutoregressiveWrapper: expected ContinuousTransformerWrapper with a "
     "Decoder"},
    {"'wrapper': 'AutoregressiveWrapper', 'mask_prob': 0.15, 'net': {" TOKENS("'depth': 1") "}",
     "mask_prob is not supported: it is an option of training, dra train --forgetful-mask P"},
    {"'wrapper': 'XValAutoregressiveWrapper', 'numerical_loss_weight': 2, 'net': {" XVAL "3}",
     "numerical_loss_weight is not supported: it belongs to the loss"},
    {"'wrapper': 'AutoregressiveWrapper', 'net': {" TOKENS("'depth': 1, 'ff_glue': true") "}",
     "net.attn_layers.ff_glue is not a key"},
    {MASKED "}", "mask_id is missing"},
    {MASKED "}, 'mask_id': 10", "mask_id: expected a token, 0 to 9"},
    {MASKED "}, 'mask_id': -1", "mask_id: expected a token, 0 to 9"},
    {MASKED "}, 'mask_id': 'x'", "mask_id: expected a token, 0 to 9"},
    {MASKED "}, 'mask_id': 1, 'stepz': 18", "stepz is not a key"},
    {MASKED "}, 'mask_id': 1, 'steps': 12", "steps is not supported: it is an option of dra"},
    {MASKED "}, 'mask_id': 1, 'schedule': 'cosine'",
     "schedule is not supported: it belongs to the loss"},
    {MASKED "}, 'mask_id': 1, 'self_cond': true",
     "self_cond is not supported: dra has no self-conditioning"},
    {MASKED "}, 'mask_id': 1, 'self_token_critic': true",
     "self_token_critic is not supported: dra has no critic"},
    {MASKED "}, 'mask_id': 1, 'token_critic': {}",
     "token_critic is not supported: dra has no critic"},
    {"'wrapper': 'NonAutoregressiveWrapper', 'mask_id': 1, 'net': {" TOKENS("'depth': 1") "}",
     "net of NonAutoregressiveWrapper: expected TransformerWrapper with an Encoder"},
    {"'wrapper': 'NonAutoregressiveWrapper', 'mask_id': 1", "net is missing"},
};

static void contradictions_are_named(void **unused)
{
    for (size_t i = 0; i < COUNT(refusals); i++) {
        char text[OWN_TEXT];
        CHECK_CONFIG(c);
        dra_error err = {0};
        text_of(refusals[i].config, text);
        if (xt_parse(text, &c, &err) == DRA_OK) fail_msg("%s is accepted", text);
        if (strncmp(err.text, "config: ", 8) != 0 ||
            strncmp(err.text + 8, refusals[i].error, strlen(refusals[i].error)) != 0)
            fail_msg("%s: %s, expected %s", text, err.text, refusals[i].error);
    }
}

static void defaults_may_be_said(void **unused)
{
    static const char *const said[] = {
        "'wrapper': 'AutoregressiveWrapper', 'ignore_index': -100, 'pad_value': 0, 'mask_prob': "
        "0.0, 'net': {" TOKENS("'depth': 1") "}",
        PAIR ", 'ignore_index': -100, 'pad_value': 0, 'tie_token_emb': false, 'src_prepend': null, "
             "'enc_num_memory_tokens': null, 'cross_attn_tokens_dropout': 0",
        VIT ", 'channels': 3, 'num_classes': null, 'num_register_tokens': 0",
        "'wrapper': 'XValAutoregressiveWrapper', 'numerical_loss_weight': 1.0, 'net': {" XVAL "0}",
        MASKED "}, 'mask_id': 1, 'steps': 18, 'self_cond': false, 'self_cond_train_prob': 0.75, "
               "'no_replace_prob': 0.15, 'random_token_prob': 0.1, 'schedule': 'linear', "
               "'can_mask_prev_unmasked': false, 'token_critic': null, 'self_token_critic': false, "
               "'critic_loss_weight': 1.0, 'use_simple_mdlm_loss_weight': true"};
    for (size_t i = 0; i < COUNT(said); i++) {
        char text[OWN_TEXT];
        CHECK_CONFIG(c);
        dra_error err = {0};
        expect_ok(xt_parse(text_of(said[i], text), &c, &err), &err);
    }
}

/* Cut off anywhere, and with any byte changed: refused in one line, or read. */
static void damaged_configs(void **unused)
{
    for (size_t i = 0; i < COUNT(models); i += 4) {
        char text[OWN_TEXT], bad[OWN_TEXT];
        CHECK_CONFIG(c);
        const size_t n = strlen(text_of(models[i].config, text));
        for (size_t at = 0; at < n; at++) {
            static const char marks[] = "0\"{],x";
            for (size_t k = 0; k < sizeof marks - 1; k++) {
                dra_error err = {0};
                memcpy(bad, text, n + 1);
                bad[at] = marks[k];
                check_drop_config(&c);
                if (xt_parse(bad, &c, &err) == DRA_OK) continue;
                assert_true(strncmp(err.text, "config", 6) == 0 && !strchr(err.text, '\n'));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrappers_mean_what_they_say),
        cmocka_unit_test(written_as_they_were_read),
        cmocka_unit_test(the_same_by_way_of_dra),
        cmocka_unit_test(a_folder_keeps_its_spelling),
        cmocka_unit_test(files_have_the_names_of_the_library),
        cmocka_unit_test(folders_there_and_back),
        cmocka_unit_test(a_shared_table_has_two_names),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(defaults_may_be_said),
        cmocka_unit_test(damaged_configs),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("xt_models", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
