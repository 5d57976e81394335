/* What a model reads, as files and people call it. */
#include "named.h"

#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

dra_model_input named_main(const dra_model *m, bool context)
{
    dra_model_input in = {0};
    for (int i = 0; dra_model_input_at(m, i, &in); i++)
        if (in.context == context && !in.prepended && !in.numbers && !in.condition) return in;
    return (dra_model_input){.name = ""};
}

bool named_is_target(const dra_model *m, const dra_model_input *in)
{
    return !in->context && !in->prepended && !in->numbers && in->kind == DRA_SOURCE_TOKENS &&
           dra_model_context_stack(m);
}

const char *cli_named_own(const dra_model *m)
{
    const dra_model_input in = named_main(m, false);
    return named_is_target(m, &in) ? "tgt" : in.name;
}

/* As x-transformers has it: `mask` is about the source where there is one, else about the model's
 * own text. */
const char *cli_named_mask(const dra_model *m, bool context)
{
    const bool src = strcmp(named_main(m, true).name, "src") == 0;
    if (!context) return src ? "tgt_mask" : "mask";
    return src ? "src_mask" : "context_mask";
}

/* ---- shapes ---------------------------------------------------------------------------------- */

dra_shape named_shape(const dra_model_input *in)
{
    const dra_source_config *s = &dra_model_config_of(in->model)->source;
    if (in->condition) return DRA_SHAPE(in->width);
    if (in->numbers || in->kind == DRA_SOURCE_TOKENS) return DRA_SHAPE(-1);
    if (in->kind == DRA_SOURCE_IMAGE) return DRA_SHAPE(s->channels, s->size, s->size);
    return DRA_SHAPE(in->length ? in->length : -1, in->width);
}

const char *named_shape_text(const dra_shape *s, const char *any, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "(B");
    for (int32_t i = 0; i < s->rank && n < size; i++)
        n += (size_t)(s->dim[i] < 0 ? snprintf(text + n, size - n, ", %s", any)
                                    : snprintf(text + n, size - n, ", %lld", (long long)s->dim[i]));
    if (n < size) snprintf(text + n, size - n, ")");
    return text;
}

const char *cli_named_list(const dra_model *m, char *text, size_t size)
{
    size_t          n = 0;
    dra_model_input in;
    text[0] = '\0';
    for (int i = 0; dra_model_input_at(m, i, &in) && n < size; i++) {
        char            room[80];
        const dra_shape s = named_shape(&in);
        n += (size_t)snprintf(text + n, size - n, "%s%s%s %s", i ? ", " : "", in.name,
                              named_is_target(m, &in) ? " or tgt" : "",
                              named_shape_text(&s, in.context ? "S" : "T", room, sizeof room));
    }
    return text;
}

const char *cli_named_source(const dra_model *stack, bool context, char *text, size_t size)
{
    dra_model_input in;
    char            room[80];
    size_t          n = 0;
    text[0] = '\0';
    for (int i = 0; dra_model_input_at(stack, i, &in) && n < size; i++) {
        if (in.context || in.prepended) continue;
        const dra_shape s = named_shape(&in);
        n += (size_t)snprintf(text + n, size - n, "%s%s %s", n ? ", " : "", in.name,
                              named_shape_text(&s, context ? "S" : "T", room, sizeof room));
    }
    return text;
}
