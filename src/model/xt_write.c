/* Configs of x-transformers from those of dra: the reverse of xt_wrappers.c and xt_pair.c. */
#include <stdio.h>

#include "model/model.h"
#include "model/xt.h"

typedef struct writing {
    dra_xt_release release; /* that all options together have */
} writing;

static json_t *write_model(writing *w, const dra_model_config *c, dra_xt_wrapper wrapper);

/* A stack that another reads, with its wrapper. */
static json_t *write_part(writing *w, const dra_model_config *c)
{
    dra_model_config full = *c;
    dra_model_config_complete(&full);
    return write_model(w, &full, dra_xt_wrapper_of(&full));
}

/* Options of one stack and its wrapper. */
static json_t *write_options(writing *w, const dra_model_config *c, dra_xt_wrapper wrapper)
{
    dra_xt x = {.c = *c, .wrapper = wrapper};
    dra_xt_tell(&x);
    if (x.c.xt.release == DRA_XT_N) w->release = DRA_XT_N;
    return dra_xt_dump(&x);
}

/* Puts the options of a side next to each other, with a prefix. */
static void flatten(json_t *to, const char *prefix, json_t *options)
{
    char        name[100];
    const char *key;
    json_t     *v, *stack = json_incref(json_object_get(options, "attn_layers"));
    json_object_del(options, "attn_layers");
    json_object_del(stack, "type");
    if (prefix[0]) json_object_del(stack, "dim");
    json_object_update(options, stack);
    json_object_foreach(options, key, v)
    {
        snprintf(name, sizeof name, "%s%.80s", prefix, key);
        json_object_set(to, name, v);
    }
    json_decref(stack);
    json_decref(options);
}

static void write_pair(writing *w, const dra_model_config *c, json_t *to)
{
    const dra_model_config *prepend = c->context_stack->prepend_stack;
    dra_model_config        encoder = *c->context_stack;
    json_t                 *own = write_options(w, c, DRA_XT_TOKENS);
    dra_model_config_complete(&encoder);
    encoder.tied = DRA_OFF;
    json_object_set_new(to, "dim", json_integer(c->dim));
    if (c->source.shared) json_object_set_new(to, "tie_token_emb", json_true());
    if (prepend)
        json_object_set_new(to, "src_prepend",
                            prepend->depth ? write_part(w, prepend)
                                           : json_integer(prepend->source.length));
    flatten(to, "enc_", write_options(w, &encoder, DRA_XT_TOKENS));
    json_object_del(json_object_get(own, "attn_layers"), "cross_attend");
    flatten(to, "dec_", own);
}

static void write_single(writing *w, const dra_model_config *c, dra_xt_wrapper wrapper, json_t *to)
{
    json_t *options = write_options(w, c, wrapper);
    if (wrapper >= DRA_XT_DECODER) {
        if (wrapper == DRA_XT_CROSS) {
            json_object_del(json_object_get(options, "attn_layers"), "cross_attend");
            json_object_del(json_object_get(options, "attn_layers"), "only_cross");
        }
        flatten(to, "", options);
    } else {
        json_object_update(to, options);
        json_decref(options);
    }
    if (c->context_stack && !dra_xt_bare_context(c))
        json_object_set_new(to, "context", write_part(w, c->context_stack));
}

static json_t *write_model(writing *w, const dra_model_config *c, dra_xt_wrapper wrapper)
{
    json_t *object = json_pack("{s:s}", "wrapper", dra_xt_wrappers[wrapper]);
    if (wrapper == DRA_XT_PAIR)
        write_pair(w, c, object);
    else
        write_single(w, c, wrapper, object);
    return object;
}

json_t *dra_xt_write(const dra_model_config *c)
{
    writing              w = {c->xt.release};
    const dra_xt_wrapper wrapper = dra_xt_wrapper_of(c);
    json_t              *model = write_model(&w, c, wrapper), *object = json_object();
    const int            outer = c->xt.loss ? DRA_XT_LOSSES + (int)c->xt.loss - 1 : (int)wrapper;
    json_object_set_new(object, "wrapper", json_string(dra_xt_wrappers[outer]));
    if (w.release == DRA_XT_N) json_object_set_new(object, "release", json_string("N"));
    if (c->xt.loss)
        json_object_set(object, "net", model);
    else
        json_object_update(object, model);
    if (c->xt.loss == DRA_XT_LOSS_MASKED)
        json_object_set_new(object, "mask_id", json_integer(c->xt.mask_id));
    json_decref(model);
    return object;
}
