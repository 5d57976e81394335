/* Configs of x-transformers for tests: a base with further options. Apostrophes stand for quotes.
 */
#ifndef DRA_TESTS_FORMATS_XT_XT_TEXT_H
#define DRA_TESTS_FORMATS_XT_XT_TEXT_H

#include <stdio.h>
#include <string.h>

#include "dra/model.h"

enum { XT_TEXT = 1500 };

static inline void xt_quotes(char *text)
{
    for (; *text; text++)
        if (*text == '\'') *text = '"';
}

/* top and stack: options to add, each list begins with ", " or is empty. shape: what the stack has
 * without them. */
static inline const char *xt_config_of(const char *top, const char *shape, const char *stack,
                                       char text[XT_TEXT])
{
    snprintf(text, XT_TEXT,
             "{'model_type': 'x-transformers', 'wrapper': 'TransformerWrapper', 'num_tokens': 10, "
             "'max_seq_len': 8%s, 'attn_layers': {%s%s}}",
             top, shape, stack);
    xt_quotes(text);
    return text;
}

#define XT_HEADS "'dim': 16, 'heads': 4, 'attn_dim_head': 8"
#define XT_DECODER "'type': 'Decoder', 'depth': 2, " XT_HEADS
#define XT_ENCODER "'type': 'Encoder', 'depth': 2, " XT_HEADS
#define XT_NO_DEPTH "'type': 'Decoder', " XT_HEADS

static inline dra_status xt_parse(const char *text, dra_model_config **c, dra_error *err)
{
    return dra_model_config_parse("config", text, strlen(text), c, err);
}

#endif
