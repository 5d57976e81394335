/* Whole configs of x-transformers: a wrapper around one stack, or one that joins several.
 *   {"wrapper": "TransformerWrapper", ..., "attn_layers": {...}}          one stack
 *   {"wrapper": "CrossAttender", "dim": 512, ...}                         a stack by itself
 *   {"wrapper": "XTransformer", "dim": 512, "enc_...": ..., "dec_...": ...}
 *   {"wrapper": "AutoregressiveWrapper", "net": {...}}                    a loss around a model
 *   {"wrapper": "NonAutoregressiveWrapper", "net": {...}, "mask_id": 7}   likewise, of an encoder
 * Two keys are dra's own: "context" of a stack with cross_attend is the wrapper that makes it, and
 * "src_prepend" of XTransformer what its encoder sees first: how many vectors, or their wrapper. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"
#include "model/owned.h"
#include "formats/xt/xt.h"

dra_xt_wrapper dra_xt_wrapper_of(const dra_model_config *c)
{
    const dra_model_config *context = c->context_stack;
    if (context && context->source.kind == DRA_SOURCE_TOKENS) return DRA_XT_PAIR;
    if (c->source.kind == DRA_SOURCE_IMAGE) return DRA_XT_IMAGE;
    if (c->source.kind == DRA_SOURCE_TOKENS) return c->source.numbers ? DRA_XT_XVAL : DRA_XT_TOKENS;
    if (c->head.kind != DRA_HEAD_NONE) return DRA_XT_CONTINUOUS;
    if (c->visible != DRA_VISIBLE_BIDIRECTIONAL) return DRA_XT_DECODER;
    const char *only = c->block.macaron ? "fcf" : "cf";
    return context && strcmp(c->layout, only) == 0 ? DRA_XT_CROSS : DRA_XT_ENCODER;
}

bool dra_xt_bare_context(const dra_model_config *c)
{
    return c->context_stack && !c->context_stack->depth;
}

const char *dra_xt_stack_name(const dra_model_config *c, const char *otherwise)
{
    return c->name[0] ? c->name : otherwise;
}

/* ---- reading --------------------------------------------------------------------------------- */

static dra_status no_memory(const char *place, dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "%.120s: out of memory", place);
}

dra_status dra_xt_inside(dra_status st, const char *place, const char *prefix, bool flat,
                         dra_error *err)
{
    static const char stack[] = "attn_layers.";
    char              start[130], rest[sizeof err->text];
    const size_t      n = (size_t)snprintf(start, sizeof start, "%.120s: ", place);
    if (st == DRA_OK || !err || strncmp(err->text, start, n) != 0) return st;
    const bool skip = flat && strncmp(err->text + n, stack, strlen(stack)) == 0;
    snprintf(rest, sizeof rest, "%s", err->text + n + (skip ? strlen(stack) : 0));
    return dra_fail(err, st, "%s%s%.360s", start, prefix, rest);
}

static dra_status read_model(const char *place, const json_t *object, dra_xt_release release,
                             dra_model_config *out, dra_error *err);

json_t *dra_xt_take(json_t *object, const char *key)
{
    json_t *v = json_incref(json_object_get(object, key));
    dra_json_delete(object, key);
    if (!json_is_null(v)) return v;
    json_decref(v);
    return NULL;
}

/* ---- stacks that others read */

dra_status dra_xt_keep(const char *place, const dra_model_config *c, const char *name,
                       const dra_model_config **out, dra_error *err)
{
    dra_model_config other = *c;
    other.format = DRA_FORMAT_DRA;
    if (other.head.kind != DRA_HEAD_VECTORS) other.head = (dra_head_config){DRA_HEAD_NONE};
    other.tied = DRA_OFF;
    snprintf(other.name, sizeof other.name, "%s", name);
    *out = dra_config_add(&other);
    return *out ? DRA_OK : no_memory(place, err);
}

dra_status dra_xt_read_part(const char *place, const char *key, const json_t *object,
                            const dra_model_config *reader, int64_t dim, const char *name,
                            const dra_model_config **out, dra_error *err)
{
    dra_model_config c = {.own = reader->own};
    const bool       image = strcmp(key, "src_prepend") == 0;
    char             prefix[40];
    snprintf(prefix, sizeof prefix, "%s.", key);
    dra_status st = read_model(place, object, reader->xt.release, &c, err);
    if (st != DRA_OK) return dra_xt_inside(st, place, prefix, false, err);
    const dra_xt_wrapper wrapper = dra_xt_wrapper_of(&c);
    const bool           vectors = wrapper == DRA_XT_CONTINUOUS || wrapper == DRA_XT_ENCODER;
    if (c.xt.loss || c.context_stack || c.visible != DRA_VISIBLE_BIDIRECTIONAL || c.head.dim ||
        !(wrapper == DRA_XT_IMAGE || (vectors && !image)))
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s: expected %s, an Encoder without %s", place,
                        key,
                        image ? dra_xt_wrappers[DRA_XT_IMAGE]
                              : "ViTransformerWrapper, ContinuousTransformerWrapper or Encoder",
                        wrapper == DRA_XT_IMAGE ? "num_classes" : "dim_out");
    if (c.dim != dim)
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s: dim is %lld, expected %lld%s", place, key,
                        (long long)c.dim, (long long)dim,
                        image ? "" : ", or cross_attn_dim_context of that");
    return dra_xt_keep(place, &c, name, out, err);
}

dra_status dra_xt_keep_vectors(const char *place, const dra_model_config *reader, int64_t dim,
                               int64_t length, const char *name, const dra_model_config **out,
                               dra_error *err)
{
    const dra_model_config c = {
        .dim = dim, .source = {DRA_SOURCE_VECTORS, .length = length}, .own = reader->own};
    return dra_xt_keep(place, &c, name, out, err);
}

static dra_status read_context(const char *place, const json_t *context, const dra_xt *x,
                               dra_model_config *c, dra_error *err)
{
    const int64_t dim = x->dim_context ? x->dim_context : c->dim;
    if (context && !x->cross_attend)
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: context needs cross_attend", place);
    if (!x->cross_attend) return DRA_OK;
    if (!context) return dra_xt_keep_vectors(place, c, dim, 0, "context", &c->context_stack, err);
    return dra_xt_read_part(place, "context", context, c, dim, "encoder", &c->context_stack, err);
}

/* ---- one stack */

/* Options of a stack by itself as those of a wrapper that has nothing else. */
static json_t *wrap_stack(dra_json *j, const json_t *options, dra_xt_wrapper wrapper)
{
    json_t     *stack = dra_json_share(j, options), *object = dra_json_object(j);
    const char *type = wrapper == DRA_XT_DECODER ? "Decoder" : "Encoder";
    dra_json_set(j, stack, "type", dra_json_text(j, type));
    if (wrapper == DRA_XT_CROSS) {
        dra_json_set(j, stack, "cross_attend", dra_json_bool(true));
        dra_json_set(j, stack, "only_cross", dra_json_bool(true));
    }
    dra_json_set(j, object, "attn_layers", stack);
    return object;
}

static dra_status read_single(const char *place, json_t *body, const dra_xt *top,
                              dra_model_config *out, dra_error *err)
{
    const bool bare = top->wrapper >= DRA_XT_DECODER;
    dra_xt     x = {.wrapper = top->wrapper, .c = {.xt = top->c.xt, .own = top->c.own}};
    dra_json   j = {0};
    json_t    *context = dra_xt_take(body, "context");
    json_t *options = bare ? wrap_stack(&j, body, (dra_xt_wrapper)top->wrapper) : json_incref(body);
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK) st = dra_xt_parse(place, options, &x, err);
    if (bare) st = dra_xt_inside(st, place, "", true, err);
    if (st == DRA_OK) dra_xt_settle(&x);
    if (st == DRA_OK) st = dra_config_fill(out, &x.c, top->c.own, err);
    if (st == DRA_OK) st = read_context(place, context, &x, out, err);
    json_decref(context);
    json_decref(options);
    return st;
}

/* ---- losses */

/* Which wrapper stands inside of one for the loss. */
static dra_xt_wrapper net_of(dra_xt_loss loss)
{
    return loss == DRA_XT_LOSS_CONTINUOUS ? DRA_XT_CONTINUOUS
           : loss == DRA_XT_LOSS_XVAL     ? DRA_XT_XVAL
                                          : DRA_XT_TOKENS;
}

static dra_status check_loss_key(const char *place, const char *key, const json_t *v,
                                 dra_error *err)
{
    bool        neutral = json_is_null(v);
    const char *why = neutral ? NULL : dra_xt_refusal(key, v, &neutral);
    if (neutral) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%.120s: %.60s is not %s%s", place, key,
                    why ? "supported: " : "a key", why ? why : "");
}

/* Options of the loss itself; `masked` is known when the model is. */
static dra_status check_loss_keys(const char *place, const json_t *body, dra_xt_loss loss,
                                  dra_error *err)
{
    dra_status  st = DRA_OK;
    const char *key;
    json_t     *v;
    if (loss == DRA_XT_LOSS_MASKED) return DRA_OK;
    json_object_foreach((json_t *)(uintptr_t)body, key, v) if (st == DRA_OK)
        st = check_loss_key(place, key, v, err);
    return st;
}

static dra_status check_net(const char *place, const dra_xt *top, dra_xt_loss loss,
                            const dra_model_config *net, dra_error *err)
{
    const bool masked = loss == DRA_XT_LOSS_MASKED;
    const bool whole = net->visible == DRA_VISIBLE_BIDIRECTIONAL;
    if (!net->xt.loss && dra_xt_wrapper_of(net) == net_of(loss) &&
        net->head.kind != DRA_HEAD_CLASSES && whole == masked && !(masked && net->context_stack))
        return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%.120s: net of %s: expected %s with %s", place,
                    dra_xt_wrappers[top->wrapper], dra_xt_wrappers[net_of(loss)],
                    masked ? "an Encoder" : "a Decoder");
}

static dra_status read_loss(const char *place, json_t *body, const dra_xt *top,
                            dra_model_config *out, dra_error *err)
{
    const dra_xt_loss loss = (dra_xt_loss)(top->wrapper - DRA_XT_LOSSES + 1);
    json_t           *net = dra_xt_take(body, "net");
    dra_status        st = check_loss_keys(place, body, loss, err);
    if (st == DRA_OK && !net) st = dra_fail(err, DRA_ERR_VALUE, "%.120s: net is missing", place);
    if (st == DRA_OK)
        st = dra_xt_inside(read_model(place, net, top->c.xt.release, out, err), place, "net.",
                           false, err);
    json_decref(net);
    if (st == DRA_OK) st = check_net(place, top, loss, out, err);
    if (st == DRA_OK && loss == DRA_XT_LOSS_MASKED)
        st = dra_xt_read_masked(place, body, out->vocab, &out->xt, err);
    if (st == DRA_OK) out->xt.loss = loss;
    return st;
}

/* ---- all */

static dra_status check_class(const char *place, const json_t *object, dra_error *err)
{
    const char *is = json_string_value(json_object_get(object, "wrapper"));
    for (const char *const *known = dra_xt_wrappers; is && *known; known++)
        if (strcmp(is, *known) == 0) return DRA_OK;
    if (!is || !dra_xt_other_class(is)) return DRA_OK; /* the table says what it is */
    return dra_fail(err, DRA_ERR_VALUE,
                    "%.120s: wrapper %s is not supported yet, expected TransformerWrapper", place,
                    is);
}

/* The keys that every config begins with, which are taken out. */
static dra_status read_top(const char *place, json_t *body, dra_xt *top, dra_error *err)
{
    dra_json   j = {0};
    json_t    *own = dra_json_object(&j);
    dra_status st = check_class(place, body, err);
    for (const dra_field *f = dra_xt_top_fields; f->name; f++) {
        json_t *v = dra_xt_take(body, f->name);
        if (v) dra_json_set(&j, own, f->name, v);
    }
    if (st == DRA_OK) st = dra_json_check(&j, place, err);
    if (st == DRA_OK) st = dra_fields_read(dra_xt_top_fields, place, own, top, err);
    json_decref(own);
    return st;
}

static dra_status read_model(const char *place, const json_t *object, dra_xt_release release,
                             dra_model_config *out, dra_error *err)
{
    dra_xt   top = {.c = {.xt = {.release = release}, .own = out->own}};
    dra_json j = {0};
    dra_config_clear(out);
    if (!json_is_object(object))
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: a wrapper is expected here", place);
    json_t    *body = dra_json_share(&j, object);
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK) st = read_top(place, body, &top, err);
    if (st == DRA_OK) {
        const int w = top.wrapper;
        st = (w < DRA_XT_PAIR    ? read_single
              : w == DRA_XT_PAIR ? dra_xt_read_pair
                                 : read_loss)(place, body, &top, out, err);
    }
    json_decref(body);
    return st;
}

dra_status dra_xt_read(const char *place, const json_t *object, dra_model_config *c, dra_error *err)
{
    dra_json   j = {0};
    json_t    *own = dra_json_share(&j, object);
    dra_status st = dra_json_check(&j, place, err);
    dra_json_delete(own, "model_type");
    if (st == DRA_OK) st = read_model(place, own, DRA_XT_E, c, err);
    json_decref(own);
    return st;
}
