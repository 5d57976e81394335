/* Compositions: a model that reads what other stacks make, and their configs in JSON.
 *   {"stacks": {"encoder": {...}, "decoder": {..., "context": "encoder"}}}
 * Other stacks are encoders. Their parameters come after those of the model, under their names. */
#include <stdio.h>

#include "base/error.h"
#include "model/compose.h"
#include "model/model.h"

/* ---- models ---------------------------------------------------------------------------------- */

static dra_status open_other(const dra_model_config *from, const char *what, const char *input,
                             dra_model **out, dra_error *err)
{
    dra_model_config c = *from;
    dra_error        why = {0};
    if (!c.name[0]) snprintf(c.name, sizeof c.name, "%s", what);
    if (!c.source.input[0]) snprintf(c.source.input, sizeof c.source.input, "%s", input);
    if (c.depth && c.visible != DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE, "model: stack %s: expected visible bidirectional",
                        c.name);
    if (c.context_stack)
        return dra_fail(err, DRA_ERR_VALUE, "model: stack %s: has a context of its own", c.name);
    if (dra_condition_used(&c))
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: stack %s: only the model itself has a condition", c.name);
    c.head = (dra_head_config){DRA_HEAD_NONE};
    const dra_status st = dra_model_create(&c, out, &why);
    return st == DRA_OK ? st : dra_fail(err, st, "stack %s: %.400s", c.name, why.text);
}

static const char *context_input(const dra_source_config *s)
{
    static const char *const names[] = {"src", "context", "img"};
    return names[(unsigned)s->kind > DRA_SOURCE_IMAGE ? 0 : s->kind];
}

static const char *prepend_input(const dra_source_config *s)
{
    return s->kind == DRA_SOURCE_IMAGE ? "img" : "prepend";
}

dra_status dra_compose_open(dra_model *m, dra_error *err)
{
    const dra_model_config *context = m->config.context_stack, *prepend = m->config.prepend_stack;
    dra_status              st = DRA_OK;
    if (context) {
        const char *input = context_input(&context->source);
        st = open_other(context, "encoder", input, &m->context, err);
    }
    if (prepend && st == DRA_OK)
        st = open_other(prepend, "prepend", prepend_input(&prepend->source), &m->prepend, err);
    if (st != DRA_OK || !prepend) return st;
    if (m->config.visible != DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE, "model: prepend needs visible bidirectional");
    if (!dra_source_length(&m->prepend->config))
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: stack %s: source: expected an image, or vectors with a length",
                        m->prepend->config.name);
    if (m->prepend->config.dim == dra_embed_width(&m->config)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "model: stack %s: dim is %lld, the embedding has %lld",
                    m->prepend->config.name, (long long)m->prepend->config.dim,
                    (long long)dra_embed_width(&m->config));
}

static int append_params(dra_model *m, const dra_model *other)
{
    char      prefix[DRA_STACK_NAME + 2];
    const int at = dra_specs_count(m->params);
    snprintf(prefix, sizeof prefix, "%s.", other->config.name);
    for (int i = 0; i < dra_specs_count(other->params); i++)
        dra_specs_add(m->params, prefix, dra_specs_at(other->params, i));
    return at;
}

void dra_compose_declare(dra_model *m)
{
    if (m->context) m->context_params = append_params(m, m->context);
    if (m->prepend) m->prepend_params = append_params(m, m->prepend);
    if (!m->config.source.shared) return;
    m->embedding = m->context_params + m->context->embedding;
    if (m->config.head.kind == DRA_HEAD_TOKENS && m->config.tied == DRA_ON) m->head = m->embedding;
}

void dra_compose_close(dra_model *m)
{
    dra_model_destroy(m->context);
    dra_model_destroy(m->prepend);
}

/* ---- memories of the user's own -------------------------------------------------------------- */

static int add_own(const dra_memory *memory, const dra_memory **own, int n)
{
    for (int i = 0; i < n; i++)
        if (own[i] == memory) return n;
    if (memory && n < DRA_OWN_MOST) own[n++] = memory;
    return n;
}

static int add_all_own(const dra_model_config *c, const dra_memory **own, int n)
{
    for (int i = 0; i < c->mixers && i < DRA_MIXERS_MOST; i++) {
        n = add_own(c->mixer[i].a.own, own, n);
        n = add_own(c->mixer[i].b.own, own, n);
    }
    n = add_own(c->cross->a.own, own, n);
    n = add_own(c->cross->b.own, own, n);
    if (c->context_stack) n = add_all_own(c->context_stack, own, n);
    return c->prepend_stack ? add_all_own(c->prepend_stack, own, n) : n;
}

int dra_config_own(const dra_model_config *c, const dra_memory *own[DRA_OWN_MOST + 1])
{
    const int n = add_all_own(c, own, 0);
    own[n] = NULL;
    return n;
}
