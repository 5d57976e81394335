/* GPT-2 of a checkpoint of nanoGPT: its model_args tell the sizes. It differs from Hugging Face's
 * by an exact GELU, projections that are stored (out, in), and bias=False, which takes the biases
 * of norms as well. */
#include "formats/gpt2.h"

#include <string.h>

#include "file/fail.h"
#include "file/pth.h"

static const char *const names[] = {"n_layer",    "n_head",  "n_embd", "block_size",
                                    "vocab_size", "dropout", "bias"};

enum { NAMES = sizeof names / sizeof *names };

bool dra_gpt2_is_linear(const dra_tensor_source *s)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s,
                                                              "transformer.h.0.attn.c_attn.weight");
    if (!e) e = dra_tensor_source_find(s, "h.0.attn.c_attn.weight");
    return e && e->info->shape.rank == 2 && e->info->shape.dim[0] == 3 * e->info->shape.dim[1];
}

static const char *args_of(const dra_tensor_source *s)
{
    return s->n_files == 1 ? dra_tensors_metadata(s->file[0], DRA_PTH_ARGS) : NULL;
}

bool dra_gpt2_is_nano(const dra_tensor_source *s) { return args_of(s) && dra_gpt2_is_linear(s); }

/* Another argument may mean another model. */
static dra_status check_names(const dra_tensor_source *s, const json_t *args, dra_error *err)
{
    const char   *key;
    const json_t *value;
    char          room[DRA_BRIEF];
    json_object_foreach((json_t *)(uintptr_t)args, key, value)
    {
        int i = 0;
        while (i < NAMES && strcmp(names[i], key) != 0) i++;
        if (i == NAMES)
            return dra_fail_at(err, DRA_ERR_NAME, s->path,
                               "model_args: '%s' is unknown, expected those of nanoGPT: n_layer, "
                               "n_head, n_embd, block_size, vocab_size, dropout, bias",
                               dra_brief(key, room));
    }
    return DRA_OK;
}

static int64_t rows_of(const dra_tensor_source *s, const char *name)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    return e && e->info->shape.rank == 2 ? e->info->shape.dim[0] : 0;
}

static dra_status read_args(const dra_tensor_source *s, json_t *args, dra_model_config *c,
                            dra_error *err)
{
    dra_keys k = {.place = s->path, .object = args, .err = err};
    dra_gpt2_layers(c);
    c->format = DRA_FORMAT_GPT2;
    c->depth = dra_keys_int(&k, "n_layer", NULL, 0);
    c->heads = dra_keys_int(&k, "n_head", NULL, 0);
    c->dim = dra_keys_int(&k, "n_embd", NULL, 0);
    c->context = dra_keys_int(&k, "block_size", NULL, 0);
    c->vocab = dra_keys_int(&k, "vocab_size", NULL, rows_of(s, "transformer.wte.weight"));
    c->dropout = dra_keys_real(&k, "dropout", 0);
    c->attention_dropout = c->embed_dropout = c->dropout;
    c->bias = dra_keys_bool(&k, "bias", true);
    c->norm_bias = c->bias ? DRA_DEFAULT : DRA_OFF;
    c->ff.kind = DRA_FF_ERF;
    c->norm_eps = 1e-5;
    c->tied = DRA_ON;
    return k.status;
}

dra_status dra_gpt2_infer(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    const char *text = args_of(s);
    json_t     *args = NULL;
    dra_status st = dra_json_parse(s->path, text, strlen(text), (dra_json_rules){.depth = 2}, &args,
                                   err);
    if (st == DRA_OK) st = check_names(s, args, err);
    if (st == DRA_OK) st = read_args(s, args, c, err);
    json_decref(args);
    if (st != DRA_OK) return st;
    if (c->depth < 1 || c->heads < 1 || c->dim < 1 || c->context < 1 || c->vocab < 1)
        return dra_fail_at(err, DRA_ERR_VALUE, s->path,
                           "model_args: n_layer %lld, n_head %lld, n_embd %lld, block_size %lld, "
                           "vocab_size %lld, expected 1 or more of each",
                           (long long)c->depth, (long long)c->heads, (long long)c->dim,
                           (long long)c->context, (long long)c->vocab);
    return dra_format_settle(s, c, err);
}
