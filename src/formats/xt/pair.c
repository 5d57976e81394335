/* XTransformer: options of its two sides, each with a prefix, as those of two wrappers. */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "formats/xt/xt.h"
#include "model/owned.h"

typedef struct pair_options {
    int64_t dim;
    bool    tie_token_emb;
} pair_options;

static const dra_field pair_fields[] = {{.name = "dim",
                                         .kind = DRA_FIELD_INT,
                                         .offset = offsetof(pair_options, dim),
                                         .min = 1,
                                         .max = 1 << 20},
                                        {.name = "tie_token_emb",
                                         .kind = DRA_FIELD_BOOL,
                                         .offset = offsetof(pair_options, tie_token_emb)},
                                        {0}};

/* Which options of a side are the wrapper's; the rest is the stack's. */
static bool is_wrappers(const char *key, bool encoder)
{
    static const char *const names[] = {"num_tokens", "max_seq_len", "emb_dropout",
                                        "scaled_sinu_pos_emb", "use_abs_pos_emb"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return encoder && strcmp(key, "num_memory_tokens") == 0;
}

/* Options that follow from the model, or that only other wrappers have. */
static bool is_foreign(const char *key)
{
    static const char *const implied[] = {"dim", "type", "cross_attend", "only_cross"};
    for (size_t i = 0; i < sizeof implied / sizeof *implied; i++)
        if (strcmp(key, implied[i]) == 0) return true;
    return dra_xt_is_known(dra_xt_fields(DRA_XT_TOKENS), key);
}

/* Takes the options of one side out, without their prefix. */
static dra_status split_side(dra_json *j, const char *place, json_t *body, bool encoder, json_t *to,
                             json_t *stack, dra_error *err)
{
    const char *prefix = encoder ? "enc_" : "dec_", *key;
    json_t     *v;
    void       *next;
    json_object_foreach_safe(body, next, key, v)
    {
        if (strncmp(key, prefix, 4) != 0) continue;
        const bool outer = is_wrappers(key + 4, encoder);
        if (!outer && is_foreign(key + 4) && !json_is_null(v))
            return dra_fail(err, DRA_ERR_VALUE, "%.120s: %.60s is no option of XTransformer", place,
                            key);
        dra_json_set_shared(j, outer ? to : stack, key + 4, v);
        dra_json_delete(body, key);
    }
    return DRA_OK;
}

static dra_status read_side(const char *place, json_t *body, bool encoder, int64_t dim,
                            const dra_xt *top, dra_xt *x, dra_error *err)
{
    dra_json   j = {0};
    json_t    *to = dra_json_object(&j), *stack = dra_json_object(&j);
    dra_status st = split_side(&j, place, body, encoder, to, stack, err);
    *x = (dra_xt){.wrapper = DRA_XT_TOKENS, .c = {.xt = top->c.xt, .own = top->c.own}};
    dra_json_set(&j, stack, "type", dra_json_text(&j, encoder ? "Encoder" : "Decoder"));
    dra_json_set(&j, stack, "dim", dra_json_int(&j, dim));
    if (!encoder) dra_json_set(&j, stack, "cross_attend", dra_json_bool(true));
    dra_json_set(&j, to, "attn_layers", stack);
    if (st == DRA_OK) st = dra_json_check(&j, place, err);
    if (st == DRA_OK)
        st = dra_xt_inside(dra_xt_parse(place, to, x, err), place, encoder ? "enc_" : "dec_", true,
                           err);
    if (st == DRA_OK) dra_xt_settle(x);
    json_decref(to);
    return st;
}

/* Options of the loss that is part of it: only as they are by default. */
static dra_status drop_loss(const char *place, json_t *body, dra_error *err)
{
    static const char *const names[] = {"ignore_index", "pad_value", "cross_attn_tokens_dropout"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t     *v = dra_xt_take(body, names[i]);
        bool        neutral = true;
        const char *why = v ? dra_xt_refusal(names[i], v, &neutral) : NULL;
        json_decref(v);
        if (!neutral)
            return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s is not supported: %s", place, names[i],
                            why);
    }
    return DRA_OK;
}

static dra_status read_prepend(const char *place, const json_t *v, dra_model_config *encoder,
                               dra_error *err)
{
    const json_int_t n = json_integer_value(v);
    if (!v) return DRA_OK;
    if (json_is_object(v))
        return dra_xt_read_part(place, "src_prepend", v, encoder, encoder->dim, "prepend",
                                &encoder->prepend_stack, err);
    if (!json_is_integer(v) || n < 1 || n > 1 << 20)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: src_prepend: expected how many vectors, or their wrapper", place);
    return dra_xt_keep_vectors(place, encoder, encoder->dim, n, "prepend", &encoder->prepend_stack,
                               err);
}

static dra_status join_sides(const char *place, const pair_options *o, const json_t *prepend,
                             dra_xt *encoder, dra_xt *decoder, dra_model_config *out,
                             dra_error *err)
{
    if (o->tie_token_emb && encoder->c.vocab != decoder->c.vocab)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: tie_token_emb with enc_num_tokens %lld, expected dec_num_tokens, "
                        "%lld",
                        place, (long long)encoder->c.vocab, (long long)decoder->c.vocab);
    if (decoder->dim_context && decoder->dim_context != o->dim)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: dec_cross_attn_dim_context is %lld, expected dim, %lld", place,
                        (long long)decoder->dim_context, (long long)o->dim);
    dra_status st = dra_config_fill(out, &decoder->c, decoder->c.own, err);
    out->source.shared = o->tie_token_emb;
    if (st == DRA_OK) st = read_prepend(place, prepend, &encoder->c, err);
    return st == DRA_OK ? dra_xt_keep(place, &encoder->c, "encoder", &out->context_stack, err) : st;
}

dra_status dra_xt_read_pair(const char *place, json_t *body, const dra_xt *top,
                            dra_model_config *out, dra_error *err)
{
    dra_xt       encoder, decoder;
    pair_options o = {0};
    dra_json     j = {0};
    json_t      *prepend = dra_xt_take(body, "src_prepend"), *rest = dra_json_object(&j);
    json_t      *dim = json_object_get(body, "dim");
    if (dim) dra_json_set_shared(&j, rest, "dim", dim);
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK) st = dra_fields_read(pair_fields, place, rest, &o, err);
    if (st == DRA_OK && !o.dim) st = dra_fail(err, DRA_ERR_VALUE, "%.120s: dim is missing", place);
    if (st == DRA_OK) st = drop_loss(place, body, err);
    if (st == DRA_OK) st = read_side(place, body, true, o.dim, top, &encoder, err);
    if (st == DRA_OK) st = read_side(place, body, false, o.dim, top, &decoder, err);
    if (st == DRA_OK) st = dra_fields_read(pair_fields, place, body, &o, err);
    if (st == DRA_OK) st = join_sides(place, &o, prepend, &encoder, &decoder, out, err);
    json_decref(rest);
    json_decref(prepend);
    return st;
}
