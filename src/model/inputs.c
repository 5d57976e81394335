/* What a model reads, by name, and what it is made of, for users of the public interface alone. */
#include <string.h>

#include "dra/model.h"
#include "model/model.h"

bool dra_model_config_is_language(const dra_model_config *c)
{
    const dra_source_config *s = &c->source;
    return s->kind == DRA_SOURCE_TOKENS && !s->numbers &&
           (!s->input[0] || strcmp(s->input, "ids") == 0) && c->head.kind == DRA_HEAD_TOKENS &&
           !c->head.numbers && !c->context_stack && !c->prepend_stack && !dra_condition_used(c);
}

const dra_model *dra_model_context_stack(const dra_model *m) { return m->context; }
const dra_model *dra_model_prepend_stack(const dra_model *m) { return m->prepend; }

bool dra_model_step_at(const dra_model *m, int64_t i, dra_model_step *out)
{
    if (i < 0 || i >= m->stack.n_steps) return false;
    const dra_stack_step  *step = &m->stack.step[i];
    const dra_stack_entry *entry = &m->stack.entry[step->entry];
    *out = (dra_model_step){entry->sublayer, step->layer, entry->layer};
    return true;
}

static dra_model_input source_of(const dra_model *m, bool context, bool prepended)
{
    const dra_model_config  *c = &m->config;
    const dra_source_config *s = &c->source;
    const bool               tokens = s->kind == DRA_SOURCE_TOKENS;
    return (dra_model_input){.name = dra_source_name(s),
                             .model = m,
                             .kind = s->kind,
                             .context = context,
                             .prepended = prepended,
                             .vocab = tokens ? c->vocab : 0,
                             .length = tokens || (s->kind == DRA_SOURCE_VECTORS && !prepended)
                                           ? 0
                                           : dra_source_length(c),
                             .width = s->kind == DRA_SOURCE_VECTORS ? dra_source_width(c) : 0};
}

/* Inputs of one text: what is prepended, its source, its numbers. Counts i down; true: found. */
static bool input_of(const dra_model *m, bool context, int *i, dra_model_input *out)
{
    if (m->prepend && (*i)-- == 0) {
        *out = source_of(m->prepend, context, true);
        return true;
    }
    *out = source_of(m, context, false);
    if ((*i)-- == 0) return true;
    if (!m->config.source.numbers) return false;
    out->name = "nums";
    out->numbers = true;
    return (*i)-- == 0;
}

static dra_model_input condition_of(const dra_model *m)
{
    return (dra_model_input){.name = "condition",
                             .model = m,
                             .kind = DRA_SOURCE_VECTORS,
                             .condition = true,
                             .width = m->config.condition.dim};
}

bool dra_model_input_at(const dra_model *m, int i, dra_model_input *out)
{
    if (i < 0) return false;
    if (input_of(m, false, &i, out)) return true;
    if (dra_condition_used(&m->config) && i-- == 0) {
        *out = condition_of(m);
        return true;
    }
    return m->context && input_of(m->context, true, &i, out);
}

int64_t dra_model_head_width(const dra_model *m)
{
    const dra_model_config *c = &m->config;
    switch (c->head.kind) {
    case DRA_HEAD_TOKENS: return c->vocab;
    case DRA_HEAD_NONE: return c->dim;
    default: return c->head.dim ? c->head.dim : c->dim;
    }
}
