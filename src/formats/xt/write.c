/* Configs of x-transformers from those of dra: the reverse of wrappers.c and pair.c. */
#include <stdio.h>

#include "model/model.h"
#include "formats/xt/xt.h"

typedef struct writing {
    dra_xt_release release; /* that all options together have */
    dra_json      *json;
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
    dra_xt x = {.c = *c, .mixer = c->mixer[0], .cross = *c->cross, .wrapper = wrapper};
    dra_xt_join(&x);
    dra_xt_tell(&x);
    if (x.c.xt.release == DRA_XT_N) w->release = DRA_XT_N;
    return dra_xt_dump(w->json, &x);
}

/* Puts the options of a side next to each other, with a prefix. */
static void flatten_side(dra_json *j, json_t *to, const char *prefix, json_t *options)
{
    char        name[100];
    const char *key;
    json_t     *v, *stack = json_incref(json_object_get(options, "attn_layers"));
    dra_json_delete(options, "attn_layers");
    dra_json_delete(stack, "type");
    if (prefix[0]) dra_json_delete(stack, "dim");
    dra_json_update(j, options, stack);
    json_object_foreach(options, key, v)
    {
        snprintf(name, sizeof name, "%s%.80s", prefix, key);
        dra_json_set_shared(j, to, name, v);
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
    dra_json_set(w->json, to, "dim", dra_json_int(w->json, c->dim));
    if (c->source.shared) dra_json_set(w->json, to, "tie_token_emb", dra_json_bool(true));
    if (prepend)
        dra_json_set(w->json, to, "src_prepend",
                     prepend->depth ? write_part(w, prepend)
                                    : dra_json_int(w->json, prepend->source.length));
    flatten_side(w->json, to, "enc_", write_options(w, &encoder, DRA_XT_TOKENS));
    dra_json_delete(json_object_get(own, "attn_layers"), "cross_attend");
    flatten_side(w->json, to, "dec_", own);
}

static void write_single(writing *w, const dra_model_config *c, dra_xt_wrapper wrapper, json_t *to)
{
    json_t *options = write_options(w, c, wrapper);
    if (wrapper >= DRA_XT_DECODER) {
        if (wrapper == DRA_XT_CROSS) {
            dra_json_delete(json_object_get(options, "attn_layers"), "cross_attend");
            dra_json_delete(json_object_get(options, "attn_layers"), "only_cross");
        }
        flatten_side(w->json, to, "", options);
    } else {
        dra_json_update(w->json, to, options);
        json_decref(options);
    }
    if (c->context_stack && !dra_xt_bare_context(c))
        dra_json_set(w->json, to, "context", write_part(w, c->context_stack));
}

static json_t *write_model(writing *w, const dra_model_config *c, dra_xt_wrapper wrapper)
{
    json_t *object = dra_json_object(w->json);
    dra_json_set(w->json, object, "wrapper", dra_json_text(w->json, dra_xt_wrappers[wrapper]));
    if (wrapper == DRA_XT_PAIR)
        write_pair(w, c, object);
    else
        write_single(w, c, wrapper, object);
    return object;
}

json_t *dra_xt_write(dra_json *j, const dra_model_config *c)
{
    writing              w = {c->xt.release, j};
    const dra_xt_wrapper wrapper = dra_xt_wrapper_of(c);
    json_t              *model = write_model(&w, c, wrapper), *object = dra_json_object(j);
    const int            outer = c->xt.loss ? DRA_XT_LOSSES + (int)c->xt.loss - 1 : (int)wrapper;
    dra_json_set(j, object, "wrapper", dra_json_text(j, dra_xt_wrappers[outer]));
    if (w.release == DRA_XT_N) dra_json_set(j, object, "release", dra_json_text(j, "N"));
    if (c->xt.loss)
        dra_json_set_shared(j, object, "net", model);
    else
        dra_json_update(j, object, model);
    if (c->xt.loss == DRA_XT_LOSS_MASKED)
        dra_json_set(j, object, "mask_id", dra_json_int(j, c->xt.mask_id));
    json_decref(model);
    return object;
}
